//! Alerts: soft amounts and set percentages as they are crossed, told to a callable.

use std::sync::{Mutex, PoisonError};

use pyo3::prelude::*;
use pyo3::pyclass::{PyTraverseError, PyVisit};
use quota_core as core;
use quota_core::gate::Subscriber;

use crate::callback::Callback;
use crate::convert::amount;
use crate::gate::Gate;

/// A crossing of a soft amount or of a set percentage of a limit.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct Alert(core::journal::Alert);

#[pymethods]
impl Alert {
    /// The tenant whose request crossed it.
    #[getter]
    fn tenant(&self) -> &str {
        &self.0.tenant
    }

    /// The scope of the limit, for instance `tenant:acme/model:small`.
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

    /// The amount that was crossed.
    #[getter]
    fn crossed<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.crossed)
    }

    /// The limit's hard amount.
    #[getter]
    fn hard<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.hard)
    }

    /// The amount in use after the request.
    #[getter]
    fn used<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        amount(py, self.0.meter, self.0.used)
    }

    /// Whether it is the soft amount; a percentage of the hard one otherwise.
    #[getter]
    fn soft(&self) -> bool {
        self.0.soft
    }

    fn __repr__(&self) -> String {
        let show = |amount| self.0.meter.show(amount);
        let what = if self.0.soft { "soft" } else { "percentage" };
        format!(
            "Alert({} {}: {} of {} used, {what} {} crossed)",
            self.0.scope,
            self.0.limit,
            show(self.0.used),
            show(self.0.hard),
            show(self.0.crossed)
        )
    }
}

/// A callable that is told of alerts, until it is stopped. Dropping it changes nothing.
#[pyclass(frozen, module = "quota")]
pub struct Subscription {
    gate: Py<Gate>,
    callback: Callback,
    subscriber: Mutex<Option<Subscriber>>,
}

impl Subscription {
    pub fn new(gate: &Bound<'_, Gate>, callback: Py<PyAny>) -> PyResult<Subscription> {
        let callback = Callback::new(callback);
        let called = callback.clone();
        let told = move |alert: &core::journal::Alert| {
            let alert = Alert(alert.clone());
            // What it raised has been told.
            let _ = called.call(|callback| callback.call1((alert,)).map(|_| ()));
        };
        let subscriber = gate.get().core(gate.py())?.subscribe(told);
        gate.get().keep(callback.clone());
        Ok(Subscription { gate: gate.clone().unbind(), callback, subscriber: Mutex::new(Some(subscriber)) })
    }
}

#[pymethods]
impl Subscription {
    /// Tells it of no more alerts. `False` if it was stopped before.
    fn stop(&self) -> bool {
        let subscriber = self.subscriber.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(subscriber) = subscriber else { return false };
        self.gate.get().let_go(&self.callback);
        self.gate.get().of_this_process().unsubscribe(&subscriber)
    }

    fn __traverse__(&self, visit: PyVisit<'_>) -> Result<(), PyTraverseError> {
        visit.call(&self.gate)
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, _exc: &Bound<'_, pyo3::types::PyTuple>) -> bool {
        self.stop();
        false
    }
}
