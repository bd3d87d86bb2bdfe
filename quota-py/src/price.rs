//! Prices: what a usage costs, line by line, and the worst case of a request.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::types::{PyList, PyString};
use quota_core as core;
use quota_core::policy::price;

use crate::convert::{self, Count, decimal};
use crate::{errors, usage};

/// What a model costs: prices by class, context and service tier.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct Price(pub Arc<price::Price>);

#[pymethods]
impl Price {
    /// A price as a policy's `price` states it, a dictionary or text: USD per million tokens, and per one of the rest. Raises
    /// `PolicyError`.
    #[new]
    fn new(py: Python<'_>, document: &Bound<'_, PyAny>) -> PyResult<Price> {
        let text = match document.cast::<PyString>() {
            Ok(text) => text.to_cow()?.into_owned(),
            Err(_) => convert::ordered_text(document)?,
        };
        let read = price::Price::from_yaml(&text);
        read.map(|price| Price(Arc::new(price))).map_err(|wrong| errors::policy(py, &wrong))
    }

    /// What a usage costs: a `Usage`, or a provider's report of one. Raises `UsageError`.
    #[pyo3(signature = (usage, *, dialect="auto"))]
    fn cost(&self, usage: &Bound<'_, PyAny>, dialect: &str) -> PyResult<Cost> {
        Ok(Cost(self.0.cost(&usage::read(usage, dialect)?)))
    }

    /// The most that a request can cost, in the dearest of the service tiers that may serve it.
    #[pyo3(signature = (
        *, input, output, service_tier=None, text_only=false, web_searches=Count(0), audio_millis=Count(0)
    ))]
    #[allow(clippy::too_many_arguments)]
    fn worst_case<'py>(
        &self,
        py: Python<'py>,
        input: Count,
        output: Count,
        service_tier: Option<&str>,
        text_only: bool,
        web_searches: Count,
        audio_millis: Count,
    ) -> PyResult<Bound<'py, PyAny>> {
        let ask = price::Ask {
            input: input.0,
            output: output.0,
            service_tier,
            text_only,
            web_searches: web_searches.0,
            audio_millis: audio_millis.0,
        };
        decimal(py, &self.0.worst_case(&ask))
    }

    fn __repr__(&self) -> &'static str {
        "Price(…)"
    }
}

/// A cost with its explanation.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct Cost(price::Cost);

#[pymethods]
impl Cost {
    /// The sum of the lines, exactly.
    #[getter]
    fn usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decimal(py, &self.0.exact)
    }

    /// One for each class that was used and has a price.
    #[getter]
    fn lines<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyList>> {
        PyList::new(py, self.0.lines.iter().map(|line| CostLine(*line)))
    }

    /// Whether a line has the price of another class.
    #[getter]
    fn fallback(&self) -> bool {
        self.0.fallback
    }

    /// Whether something was used that has no price at all and is in no line.
    #[getter]
    fn unpriced(&self) -> bool {
        self.0.unpriced
    }

    fn __repr__(&self) -> String {
        format!("Cost({} USD in {} lines)", self.0.exact, self.0.lines.len())
    }
}

/// One line of a cost.
#[pyclass(frozen, module = "quota", eq)]
#[derive(PartialEq)]
pub struct CostLine(price::Line);

#[pymethods]
impl CostLine {
    /// What was used, by the key that a policy's `price` has for it.
    #[getter]
    fn item(&self) -> &'static str {
        self.0.class.key()
    }

    /// How much: tokens, requests, searches, or milliseconds.
    #[getter]
    fn units(&self) -> u64 {
        self.0.units
    }

    /// Picodollars for one token, request, search or second.
    #[getter]
    fn pico(&self) -> u64 {
        self.0.rate
    }

    /// What it costs.
    #[getter]
    fn usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decimal(py, &self.0.cost)
    }

    /// Whether the price is another class's.
    #[getter]
    fn fallback(&self) -> bool {
        self.0.fallback
    }

    fn __repr__(&self) -> String {
        format!("CostLine({}: {} for {} USD)", self.0.class.key(), self.0.units, self.0.cost)
    }
}

/// Prices of models by their exact names.
#[pyclass(frozen, module = "quota")]
pub struct PriceList(pub core::policy::price_list::PriceList);

#[pymethods]
impl PriceList {
    /// Reads a list in LiteLLM's form (JSON text). Raises `InputError`.
    #[staticmethod]
    pub fn litellm(py: Python<'_>, text: &str) -> PyResult<PriceList> {
        let read = py.detach(|| core::policy::price_list::PriceList::litellm(text));
        read.map(PriceList).map_err(|error| errors::price_list(py, &error))
    }

    /// The price of a model of exactly this name.
    fn get(&self, model: &str) -> Option<Price> {
        self.0.get(model).map(|listed| Price(listed.price.clone()))
    }

    /// The names, sorted.
    #[getter]
    fn models(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.0.models().map(|(name, _)| &**name).collect();
        names.sort_unstable();
        names
    }

    /// The first rows that were left out, each with the reason.
    #[getter]
    fn skipped(&self) -> Vec<(&str, &str)> {
        self.0.report().named.iter().map(|(name, why)| (name.as_str(), why.as_str())).collect()
    }

    fn __len__(&self) -> usize {
        self.0.models().count()
    }

    fn __contains__(&self, model: &str) -> bool {
        self.0.get(model).is_some()
    }

    fn __repr__(&self) -> String {
        format!("PriceList({} models)", self.__len__())
    }
}
