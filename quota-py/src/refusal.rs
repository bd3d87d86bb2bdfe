//! What a decision is explained with: refusals, balances, lesser forms, offers.

use std::collections::BTreeMap;
use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyDict, PyList};
use quota_core as core;
use quota_core::refusal::Wait;
use quota_core::respond;
use quota_core::time::{Clock, SystemClock};

use crate::convert::{amount, decimal, millis, python};
use crate::keys::instant;
use crate::lease::Receipt;
use crate::{convert, errors};

/// One limit that had no room.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct Shortage(core::refusal::Shortage);

#[pymethods]
impl Shortage {
    /// The scope that the limit belongs to.
    #[getter]
    fn scope(&self) -> &str {
        &self.0.scope
    }

    /// The limit's name.
    #[getter]
    fn limit(&self) -> &str {
        &self.0.limit
    }

    /// Whether other tenants share the scope: its figures are for operators only.
    #[getter]
    fn shared(&self) -> bool {
        self.0.shared
    }

    /// What it counts.
    #[getter]
    fn meter(&self) -> &'static str {
        self.0.meter.name()
    }

    /// Its amount.
    #[getter]
    fn hard<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.hard)
    }

    /// How much of it was in use.
    #[getter]
    fn used<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.used)
    }

    /// What the request asked of it.
    #[getter]
    fn asked<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.asked)
    }

    /// After how long it has room, where that is known.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        self.0.wait.millis()
    }

    fn __repr__(&self) -> String {
        format!("Shortage({} {})", self.0.scope, self.0.limit)
    }
}

/// What would fit at the moment of a refusal.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct Fits(core::refusal::Fits);

#[pymethods]
impl Fits {
    /// The largest output ceiling with which the same request would have been admitted.
    #[getter]
    fn max_output_tokens(&self) -> Option<u64> {
        self.0.max_output_tokens
    }

    /// Other models with which the same request would have been admitted.
    #[getter]
    fn models(&self) -> Vec<&str> {
        self.0.models.iter().map(|model| &**model).collect()
    }

    fn __repr__(&self) -> String {
        let output = self.0.max_output_tokens.map_or("None".into(), |tokens| tokens.to_string());
        format!("Fits(max_output_tokens={output}, models={:?})", self.models())
    }
}

/// A request that was not admitted, and why.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct Refusal(Arc<core::Refusal>);

impl Refusal {
    pub fn new(refusal: Arc<core::Refusal>) -> Refusal {
        Refusal(refusal)
    }

    pub fn get(&self) -> &Arc<core::Refusal> {
        &self.0
    }
}

#[pymethods]
impl Refusal {
    /// The stable code.
    #[getter]
    pub fn reason(&self) -> &'static str {
        self.0.reason.code()
    }

    /// The HTTP status that says the same.
    #[getter]
    fn status(&self) -> u16 {
        self.0.reason.status()
    }

    /// The tenant that asked; empty where it is unknown.
    #[getter]
    fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// The model that was asked for.
    #[getter]
    fn model(&self) -> &str {
        &self.0.model
    }

    /// The id of the request.
    #[getter]
    fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// `after` (a known time), `unknown`, or `never`.
    #[getter]
    fn wait(&self) -> &'static str {
        match self.0.wait {
            Wait::After(_) => "after",
            Wait::Unknown => "unknown",
            Wait::Never => "never",
        }
    }

    /// After how long the limits have room, where that is known.
    #[getter]
    pub fn retry_after_ms(&self) -> Option<u64> {
        self.0.wait.millis()
    }

    /// Every limit that had no room, the widest scope first.
    #[getter]
    fn shortages<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.shortages.iter().map(|shortage| Shortage(shortage.clone())))
    }

    /// What would fit at this moment.
    #[getter]
    fn fits(&self) -> Fits {
        Fits(self.0.fits.clone())
    }

    /// What was found, what was allowed, and where, if it is not about a limit's room.
    #[getter]
    fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    /// What the first request under this id was charged, where the id has ended.
    #[getter]
    fn receipt(&self) -> Option<Receipt> {
        self.0.receipt.as_ref().map(|receipt| Receipt((**receipt).clone()))
    }

    /// A refusal that another process decided, as its `to_dict` gave it. Raises `InputError`.
    #[staticmethod]
    fn from_dict(data: &Bound<'_, PyAny>) -> PyResult<Refusal> {
        from_data(data).map(Arc::new).map(Refusal::new)
    }

    /// All of it but the receipt as plain data, to be answered by another process: waits are nanoseconds, `unknown` or `never`,
    /// money is in units of 1e-8 USD.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_data(py, &*self.0)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Remade<'py>> {
        Ok((slf.get_type().getattr("from_dict")?, (slf.get().to_dict(slf.py())?,)))
    }

    /// One sentence for the asker.
    #[getter]
    fn message(&self) -> String {
        self.0.message()
    }

    /// Status, headers and body in the manner of `openai`, `anthropic` or `gemini`.
    #[pyo3(signature = (manner="openai"))]
    fn response<'py>(&self, py: Python<'py>, manner: &str) -> PyResult<(u16, Bound<'py, PyDict>, Bound<'py, PyAny>)> {
        let response = match manner {
            "openai" => respond::openai::response(&self.0),
            "anthropic" => respond::anthropic::response(&self.0),
            "gemini" => respond::gemini::response(&self.0),
            other => return Err(no_manner(other)),
        };
        let headers = PyDict::new(py);
        for (name, value) in &response.headers {
            headers.set_item(name, value)?;
        }
        Ok((response.status, headers, python(py, &response.body)?))
    }

    /// The same error as the last frame of an event stream that has begun.
    #[pyo3(signature = (manner="openai"))]
    fn stream_error(&self, manner: &str) -> PyResult<String> {
        match manner {
            "openai" => Ok(respond::openai::stream_error(&self.0)),
            "anthropic" => Ok(respond::anthropic::stream_error(&self.0)),
            "gemini" => Ok(respond::gemini::stream_error(&self.0)),
            other => Err(no_manner(other)),
        }
    }

    fn __repr__(&self) -> String {
        format!("Refusal({}, tenant={:?}, model={:?})", self.0.reason, &*self.0.tenant, &*self.0.model)
    }
}

/// How an object is made again by another process.
type Remade<'py> = (Bound<'py, PyAny>, (Bound<'py, PyAny>,));

fn from_data<T: serde::de::DeserializeOwned>(data: &Bound<'_, PyAny>) -> PyResult<T> {
    let value = convert::document(data)?;
    serde_json::from_value(value).map_err(|error| errors::input(data.py(), "data_invalid", error.to_string()))
}

fn to_data<'py>(py: Python<'py>, object: &impl serde::Serialize) -> PyResult<Bound<'py, PyAny>> {
    let value = serde_json::to_value(object).map_err(|error| errors::input(py, "data_invalid", error.to_string()))?;
    python(py, &value)
}

/// Balances as rate-limit headers, in the manner of `openai`, `anthropic` or `ietf`. Anthropic's resets are instants: `at` is the
/// present, as RFC 3339, the system's if left out.
#[pyfunction]
#[pyo3(signature = (balances, manner="openai", *, at=None))]
pub fn balance_headers(
    balances: Vec<Bound<'_, Balance>>,
    manner: &str,
    at: Option<&str>,
) -> PyResult<BTreeMap<&'static str, String>> {
    let at = match at {
        Some(at) => instant(at)?,
        None => SystemClock::new().now().wall,
    };
    let balances: Vec<core::Balance> = balances.iter().map(|balance| balance.get().0.clone()).collect();
    headers(&balances, manner, at)
}

pub fn headers(balances: &[core::Balance], manner: &str, at: u64) -> PyResult<BTreeMap<&'static str, String>> {
    let headers = match manner {
        "openai" => respond::headers::openai(balances),
        "anthropic" => respond::headers::anthropic(balances, at),
        "ietf" => respond::headers::ietf(balances),
        other => {
            let message = format!("the manner is 'openai', 'anthropic' or 'ietf', not {other:?}");
            return Err(PyValueError::new_err(message));
        }
    };
    Ok(headers.into_iter().collect())
}

fn no_manner(name: &str) -> PyErr {
    PyValueError::new_err(format!("the manner is 'openai', 'anthropic' or 'gemini', not {name:?}"))
}

/// In which lesser form a request was admitted.
#[pyclass(frozen, module = "quota")]
pub struct Degradation(pub core::gate::Degradation);

#[pymethods]
impl Degradation {
    /// The step's place in the policy's list.
    #[getter]
    fn step(&self) -> u16 {
        self.0.step
    }

    /// The stable code of why.
    #[getter]
    fn reason(&self) -> &'static str {
        self.0.reason.code()
    }

    /// The limit that called for it; under pressure the pool.
    #[getter]
    fn limit(&self) -> &str {
        &self.0.limit
    }

    /// The model to use.
    #[getter]
    fn model(&self) -> &str {
        &self.0.model
    }

    /// The largest output over all choices.
    #[getter]
    fn max_output_tokens(&self) -> u64 {
        self.0.max_output_tokens
    }

    /// Tools to take away.
    #[getter]
    fn disable_tools(&self) -> Vec<&str> {
        self.0.disable_tools.iter().map(|tool| &**tool).collect()
    }

    /// Its lane.
    #[getter]
    fn lane(&self) -> &str {
        &self.0.lane
    }

    fn __repr__(&self) -> String {
        format!("Degradation({}, model={:?})", self.0.reason, &*self.0.model)
    }
}

/// What `preview` found that `admit` would hold.
#[pyclass(frozen, module = "quota")]
pub struct Offer(pub core::gate::Offer);

#[pymethods]
impl Offer {
    /// The model, perhaps a lesser one.
    #[getter]
    fn model(&self) -> &str {
        &self.0.model
    }

    /// The lane that it would be in.
    #[getter]
    fn lane(&self) -> &str {
        &self.0.lane
    }

    /// The input that would be reserved.
    #[getter]
    fn input_tokens(&self) -> u64 {
        self.0.input_tokens
    }

    /// The output ceiling over all choices.
    #[getter]
    fn max_output_tokens(&self) -> u64 {
        self.0.max_output_tokens
    }

    /// The worst case in money.
    #[getter]
    fn worst_usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decimal(py, &self.0.worst_cost)
    }

    fn __repr__(&self) -> String {
        format!("Offer(model={:?}, worst_usd={})", &*self.0.model, self.0.worst_cost)
    }
}

/// The state of one limit for one principal.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct Balance(pub core::Balance);

#[pymethods]
impl Balance {
    /// The balance that another process read, as its `to_dict` gave it. Raises `InputError`.
    #[staticmethod]
    fn from_dict(data: &Bound<'_, PyAny>) -> PyResult<Balance> {
        from_data(data).map(Balance)
    }

    /// All of it as plain data: times are nanoseconds, money is in units of 1e-8 USD.
    fn to_dict<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        to_data(py, &self.0)
    }

    fn __reduce__<'py>(slf: &Bound<'py, Self>) -> PyResult<Remade<'py>> {
        Ok((slf.get_type().getattr("from_dict")?, (slf.get().to_dict(slf.py())?,)))
    }

    /// The scope that the limit belongs to.
    #[getter]
    fn scope(&self) -> &str {
        &self.0.scope
    }

    /// The limit's name.
    #[getter]
    fn limit(&self) -> &str {
        &self.0.limit
    }

    /// What it counts.
    #[getter]
    fn meter(&self) -> &'static str {
        self.0.meter.name()
    }

    /// Its hard amount.
    #[getter]
    fn hard<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.hard)
    }

    /// Its soft amount.
    #[getter]
    fn soft<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.soft.map(|soft| amount(py, self.0.meter, soft)).transpose()
    }

    /// How much is in use: spent and held.
    #[getter]
    fn used<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.used)
    }

    /// What is left; 0 where there is debt.
    #[getter]
    fn remaining<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.remaining)
    }

    /// Until everything is back; `None` for what is held.
    #[getter]
    fn resets_ms(&self) -> Option<u64> {
        self.0.resets_in.map(|time| millis(time.as_nanos()))
    }

    /// Whether the window rolls, so that what was used comes back bit by bit.
    #[getter]
    fn rolling(&self) -> bool {
        self.0.rolling
    }

    /// The window, where it has a fixed length.
    #[getter]
    fn window_ms(&self) -> Option<u64> {
        self.0.window.map(|nanos| millis(nanos.into()))
    }

    fn __repr__(&self) -> String {
        let Balance(balance) = self;
        let (used, hard) = (balance.meter.show(balance.used), balance.meter.show(balance.hard));
        format!("Balance({} {}: {used} of {hard})", balance.scope, balance.limit)
    }
}
