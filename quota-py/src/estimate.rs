//! Estimates: counts of texts and requests, by the core or by a callable of the host's.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use quota_core as core;
use quota_core::estimate::{Estimator, InputEstimate, Standard, Tokenizer, count_text};

use crate::callback::Callback;
use crate::convert::{Count, kind};
use crate::request::{Request, is_long};

/// Tokens as they were counted: the best guess, and what to reserve for it.
#[pyclass(frozen, module = "quota", eq, hash)]
#[derive(Clone, PartialEq, Eq)]
pub struct TokenCount(pub InputEstimate);

impl std::hash::Hash for TokenCount {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        (self.0.expected, self.0.reserve, self.0.exact).hash(state);
    }
}

#[pymethods]
impl TokenCount {
    /// `reserve` is `expected` if left out, and never less.
    #[new]
    #[pyo3(signature = (expected, *, reserve=None, exact=false))]
    fn new(expected: Count, reserve: Option<Count>, exact: bool) -> PyResult<TokenCount> {
        let reserve = reserve.map_or(expected.0, |reserve| reserve.0);
        if reserve < expected.0 || exact && reserve > expected.0 {
            return Err(PyValueError::new_err("reserve is at least expected, and the same where it is exact"));
        }
        Ok(TokenCount(InputEstimate { expected: expected.0, reserve, exact }))
    }

    /// The best guess.
    #[getter]
    fn expected(&self) -> u64 {
        self.0.expected
    }

    /// What to reserve: the guess plus the method's stated error.
    #[getter]
    fn reserve(&self) -> u64 {
        self.0.reserve
    }

    /// Whether it is the tokenizer's own count.
    #[getter]
    fn exact(&self) -> bool {
        self.0.exact
    }

    fn __repr__(&self) -> String {
        let exact = if self.0.exact { "True" } else { "False" };
        format!("TokenCount({}, reserve={}, exact={exact})", self.0.expected, self.0.reserve)
    }
}

fn tokenizer(name: &str) -> PyResult<Tokenizer> {
    Tokenizer::from_name(name).ok_or_else(|| {
        let names = Tokenizer::ALL.map(|tokenizer| tokenizer.name()).join(", ");
        PyValueError::new_err(format!("no tokenizer is called {name:?}; there are {names}"))
    })
}

/// Counts the tokens of a text by itself, without any framing. `tokenizer` is `heuristic`, `o200k_base` or `cl100k_base`; a build
/// without exact tokenizers guesses in their place (`exact` is then false). `model` chooses the heuristic's weights.
#[pyfunction]
#[pyo3(signature = (text, *, tokenizer="heuristic", model=""))]
pub fn count_tokens(py: Python<'_>, text: &str, tokenizer: &str, model: &str) -> PyResult<TokenCount> {
    let tokenizer = self::tokenizer(tokenizer)?;
    // An exact tokenizer is loaded by its first text, be it empty.
    let long = is_long(text.len()) || tokenizer != Tokenizer::Heuristic;
    let count = || count_text(text, tokenizer, model);
    Ok(TokenCount(if long { py.detach(count) } else { count() }))
}

/// Counts the input of a request as a gate without an estimator of its own does: text, framing, tools, pictures, sound and
/// documents.
#[pyfunction]
#[pyo3(signature = (request, *, tokenizer="heuristic"))]
pub fn estimate(py: Python<'_>, request: &Request, tokenizer: &str) -> PyResult<TokenCount> {
    let tokenizer = self::tokenizer(tokenizer)?;
    let count = || Standard.estimate(&request.inner, tokenizer);
    Ok(TokenCount(if request.is_long() { py.detach(count) } else { count() }))
}

/// The names of the tokenizers that this build counts with exactly.
pub fn exact_tokenizers() -> Vec<&'static str> {
    let exact = Tokenizer::ALL.into_iter().filter(|one| *one != Tokenizer::Heuristic && one.is_built_in());
    exact.map(Tokenizer::name).collect()
}

/// A callable of the host's. Where it raises, the core's own count stands in.
pub struct HostEstimator(pub Callback);

impl HostEstimator {
    pub fn new(callable: &Bound<'_, PyAny>) -> PyResult<HostEstimator> {
        match callable.is_callable() {
            true => Ok(HostEstimator(Callback::new(callable.clone().unbind()))),
            false => Err(PyTypeError::new_err(format!("an estimator is a callable, not {}", kind(callable)))),
        }
    }
}

impl Estimator for HostEstimator {
    fn estimate(&self, request: &core::Request, tokenizer: Tokenizer) -> InputEstimate {
        // A count that the host has made already is asked of nobody.
        if let core::request::Input::Counted(_) = request.input {
            return Standard.estimate(request, tokenizer);
        }
        let counted = self.0.call(|callable| {
            let answer = callable.call1((Request::of(request.clone()), tokenizer.name()))?;
            match answer.cast::<TokenCount>() {
                Ok(count) => Ok(count.get().0),
                Err(_) => {
                    let Count(tokens) = answer.extract()?;
                    Ok(InputEstimate { expected: tokens, reserve: tokens, exact: false })
                }
            }
        });
        counted.unwrap_or_else(|| Standard.estimate(request, tokenizer))
    }
}
