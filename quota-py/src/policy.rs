//! The policy: loaded whole, or everything that is wrong with it.

use std::path::PathBuf;

use pyo3::prelude::*;
use pyo3::types::PyList;
use quota_core as core;

use crate::{convert, errors};

/// One thing that is wrong with a policy, or doubtful.
#[pyclass(frozen, module = "quota")]
#[derive(Clone)]
pub struct PolicyFault(core::policy::PolicyError);

#[pymethods]
impl PolicyFault {
    #[getter]
    fn path(&self) -> &str {
        &self.0.path
    }

    #[getter]
    fn line(&self) -> u32 {
        self.0.line
    }

    #[getter]
    fn column(&self) -> u32 {
        self.0.column
    }

    #[getter]
    fn code(&self) -> &'static str {
        self.0.kind.code()
    }

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
        loaded(py, py.detach(|| core::Policy::from_yaml(text)))
    }

    /// Loads a document of dictionaries and lists. Amounts may be `int`, `str` or `Decimal`.
    #[staticmethod]
    fn from_dict(py: Python<'_>, document: &Bound<'_, PyAny>) -> PyResult<Policy> {
        let text = convert::ordered_text(document)?;
        loaded(py, py.detach(|| core::Policy::from_yaml(&text)))
    }

    /// The same policy with the prices of a list in LiteLLM's form (JSON text) for models that have none of their own.
    fn with_prices(&self, py: Python<'_>, litellm: &str) -> PyResult<Policy> {
        let policy = self.0.clone();
        let priced =
            py.detach(|| core::policy::price_list::PriceList::litellm(litellm).map(|list| policy.with_prices(list)));
        priced.map(Policy).map_err(|error| errors::price_list(py, &error))
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
