//! The policy: loaded whole, or everything that is wrong with it.

use std::path::PathBuf;

use pyo3::exceptions::PyLookupError;
use pyo3::prelude::*;
use pyo3::types::PyList;
use quota_core as core;
use quota_core::policy::plan;
use quota_core::time::show_instant;

use crate::convert::amount;
use crate::price::{Price, PriceList};
use crate::{convert, errors};

/// One thing that is wrong with a policy, or doubtful.
#[pyclass(frozen, module = "quota")]
#[derive(Clone)]
pub struct PolicyFault(core::policy::PolicyError);

#[pymethods]
impl PolicyFault {
    /// Where, as keys from the top; empty for the whole document.
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    /// The line, from 1; 0 where there is no text.
    #[getter]
    fn line(&self) -> u32 {
        self.0.line
    }

    /// The column in characters, from 1; 0 where there is no text.
    #[getter]
    fn column(&self) -> u32 {
        self.0.column
    }

    /// The sort of fault: a stable code.
    #[getter]
    fn code(&self) -> &'static str {
        self.0.kind.code()
    }

    /// What was found and what is allowed.
    #[getter]
    fn message(&self) -> &str {
        &self.0.message
    }

    fn __str__(&self) -> String {
        self.0.to_string()
    }

    fn __repr__(&self) -> String {
        format!("PolicyFault({})", self.0)
    }
}

pub fn faults<'py>(py: Python<'py>, errors: &[core::policy::PolicyError]) -> PyResult<Bound<'py, PyList>> {
    PyList::new(py, errors.iter().map(|error| PolicyFault(error.clone())))
}

/// The document of all quotas, prices and queues, checked and compiled.
#[pyclass(frozen, module = "quota")]
pub struct Policy(pub core::Policy);

fn loaded(py: Python<'_>, loaded: Result<core::Policy, core::policy::PolicyErrors>) -> PyResult<Policy> {
    loaded.map(Policy).map_err(|wrong| errors::policy(py, &wrong))
}

#[pymethods]
impl Policy {
    /// Loads a file of YAML or JSON, and the price list that it names.
    #[staticmethod]
    fn from_file(py: Python<'_>, path: PathBuf) -> PyResult<Policy> {
        loaded(py, py.detach(|| core::Policy::from_file(path)))
    }

    /// Loads YAML.
    #[staticmethod]
    fn from_yaml(py: Python<'_>, text: &str) -> PyResult<Policy> {
        loaded(py, py.detach(|| core::Policy::from_yaml(text)))
    }

    /// Loads JSON.
    #[staticmethod]
    fn from_json(py: Python<'_>, text: &str) -> PyResult<Policy> {
        loaded(py, py.detach(|| core::Policy::from_json(text)))
    }

    /// Loads a document of dictionaries and lists. Amounts may be `int`, `str` or `Decimal`.
    #[staticmethod]
    fn from_dict(py: Python<'_>, document: &Bound<'_, PyAny>) -> PyResult<Policy> {
        let text = convert::ordered_text(document)?;
        loaded(py, py.detach(|| core::Policy::from_yaml(&text)))
    }

    /// The same policy with the prices of a `PriceList`, or of a text in LiteLLM's form, for models that have none of their own.
    fn with_prices(&self, py: Python<'_>, prices: Prices<'_>) -> PyResult<Policy> {
        let policy = self.0.clone();
        let list = match prices {
            Prices::List(list) => list.get().0.clone(),
            Prices::Text(text) => PriceList::litellm(py, &text)?.0,
        };
        Ok(Policy(py.detach(|| policy.with_prices(list))))
    }

    /// The limits of one scope: without arguments what all tenants share, else a model's own, a cost centre's, a tenant's, or a
    /// tenant's for a model (`"*"`: any that it does not name), an app, a key, each of its users, or each run of its agents.
    /// Those of the scopes around it hold too. Raises `LookupError` for a scope that the policy does not have.
    #[pyo3(signature = (*, tenant=None, model=None, app=None, key=None, users=false, runs=false, cost_center=None))]
    #[allow(clippy::too_many_arguments)]
    fn limits(
        &self,
        tenant: Option<&str>,
        model: Option<&str>,
        app: Option<&str>,
        key: Option<&str>,
        users: bool,
        runs: bool,
        cost_center: Option<&str>,
    ) -> PyResult<Vec<PolicyLimit>> {
        let of = core::policy::ScopeOf { tenant, model, app, key, users, runs, cost_center };
        let limits = self.0.limits(of).map_err(|error| PyLookupError::new_err(error.to_string()))?;
        Ok(limits.iter().cloned().map(PolicyLimit).collect())
    }

    /// The names of the tenants, sorted.
    #[getter]
    fn tenants(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.plan().tenants.keys().map(|name| &**name).collect();
        names.sort_unstable();
        names
    }

    /// The price of a model, an alias having its upstream's; `None` for one that the policy does not price.
    fn price(&self, model: &str) -> Option<Price> {
        self.0.plan().models.get(model)?.price.clone().map(Price)
    }

    /// What is allowed and probably not meant.
    #[getter]
    fn warnings<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        faults(py, self.0.warnings())
    }

    /// The SHA-256 of the document's text.
    #[getter]
    fn digest(&self) -> &str {
        self.0.digest()
    }

    /// The JSON Schema of the document.
    #[staticmethod]
    fn schema(py: Python<'_>) -> PyResult<Bound<'_, PyAny>> {
        convert::python(py, &core::Policy::schema())
    }

    fn __repr__(&self) -> String {
        format!("Policy({})", self.0.digest().get(..12).unwrap_or_default())
    }
}

/// What prices come from.
#[derive(FromPyObject)]
enum Prices<'py> {
    List(Bound<'py, PriceList>),
    Text(String),
}

/// One limit of one scope of a policy.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct PolicyLimit(plan::Limit);

#[pymethods]
impl PolicyLimit {
    /// Its short name (`rpm`, `daily_budget_usd`), or the name given to a free window.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    /// What is counted.
    #[getter]
    fn meter(&self) -> &'static str {
        self.0.meter.name()
    }

    /// Over what: `rolling 60 s`, `fixed 60 s`, `day Europe/Berlin`, `week UTC`, `month UTC from 1`, `held` or `run`.
    #[getter]
    fn window(&self) -> String {
        self.0.window.to_string()
    }

    /// Never passed by an admission.
    #[getter]
    fn hard<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.hard)
    }

    /// Reported, and perhaps degraded, when passed.
    #[getter]
    fn soft<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
        self.0.soft.map(|soft| amount(py, self.0.meter, soft)).transpose()
    }

    /// The most that may be taken at one instant, where the window rolls.
    #[getter]
    fn burst<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.burst)
    }

    /// `enforce`, or `shadow`: counted and reported only.
    #[getter]
    fn mode(&self) -> &'static str {
        self.0.mode.name()
    }

    /// What happens to a request that does not fit: `reject`, `queue` or `degrade`.
    #[getter]
    fn on_exceed(&self) -> &'static str {
        self.0.on_exceed.name()
    }

    /// How much output is held: `worst_case`, `p95` or `adaptive`.
    #[getter]
    fn hold(&self) -> &'static str {
        self.0.hold.name()
    }

    /// The percentage of `hard` whose crossing is an alert.
    #[getter]
    fn alert_percent(&self) -> Option<u8> {
        self.0.alert_percent
    }

    /// Other amounts for a while, in the order of the document; the last one in force counts.
    #[getter]
    fn overrides<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.overrides.iter().map(|over| LimitOverride { over: over.clone(), meter: self.0.meter }))
    }

    fn __repr__(&self) -> String {
        format!("PolicyLimit({}: {}, {})", self.0.name, self.0.meter.show(self.0.hard), self.0.window)
    }
}

/// Another amount of a limit for a while.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct LimitOverride {
    over: plan::Override,
    meter: core::Meter,
}

#[pymethods]
impl LimitOverride {
    /// From when on, as an RFC 3339 instant.
    #[getter]
    fn starts(&self) -> String {
        show_instant(self.over.starts)
    }

    /// When it ends.
    #[getter]
    fn expires(&self) -> String {
        show_instant(self.over.expires)
    }

    /// The hard amount meanwhile.
    #[getter]
    fn hard<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.meter, self.over.hard)
    }

    /// The most that may be taken at one instant meanwhile, where the window rolls.
    #[getter]
    fn burst<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.meter, self.over.burst)
    }

    fn __repr__(&self) -> String {
        format!("LimitOverride({}, {:?} to {:?})", self.meter.show(self.over.hard), self.starts(), self.expires())
    }
}
