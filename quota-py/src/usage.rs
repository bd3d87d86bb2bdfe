//! Usage and outcomes: what a provider reports, read from its own objects.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quota_core as core;
use quota_core::usage::{Dialect, outcome_of};

use crate::convert::{self, Count, Small};
use crate::errors;

/// The dialect of a name.
pub fn dialect(name: &str) -> PyResult<Dialect> {
    Dialect::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Dialect::ALL.iter().map(|dialect| dialect.name()).collect();
        PyValueError::new_err(format!("no dialect is called {name:?}; there are {}", names.join(", ")))
    })
}

/// A `Usage`, or what one is read from.
pub fn read(object: &Bound<'_, PyAny>, dialect_name: &str) -> PyResult<core::Usage> {
    if let Ok(usage) = object.cast::<Usage>() {
        return Ok(usage.get().0.clone());
    }
    let dialect = dialect(dialect_name)?;
    let report = convert::document(object)?;
    core::Usage::read(dialect, &report).map_err(|error| errors::usage(object.py(), &error))
}

macro_rules! usage {
    ($($(#[$doc:meta])* $field:ident),*) => {
        /// What a call used, in disjoint counts.
        #[pyclass(frozen, module = "quota", eq)]
        #[derive(Clone, PartialEq)]
        pub struct Usage(pub core::Usage);

        #[pymethods]
        impl Usage {
            #[new]
            #[pyo3(signature = (*, $($field=Count(0),)* requests=Count(1), service_tier=None, input_missing=false))]
            #[allow(clippy::too_many_arguments)]
            fn new($($field: Count,)* requests: Count, service_tier: Option<String>, input_missing: bool) -> Usage {
                Usage(core::Usage {
                    $($field: $field.0,)*
                    requests: requests.0,
                    service_tier,
                    input_missing,
                    ..core::Usage::default()
                })
            }

            /// The usage of one request whose tokens the host has counted itself.
            #[staticmethod]
            fn tokens(input: Count, output: Count) -> Usage {
                Usage(core::Usage::tokens(input.0, output.0))
            }

            /// Reads a provider's usage object, or the answer that holds it: JSON text, a dictionary, or the SDK's own object.
            #[staticmethod]
            #[pyo3(signature = (report, *, dialect="auto"))]
            fn read(report: &Bound<'_, PyAny>, dialect: &str) -> PyResult<Usage> {
                read(report, dialect).map(Usage)
            }

            $(
                $(#[$doc])*
                #[getter]
                fn $field(&self) -> u64 {
                    self.0.$field
                }
            )*

            /// Requests; 0 for one that was not run.
            #[getter]
            fn requests(&self) -> u64 {
                self.0.requests
            }

            /// What the provider itself says that the call cost.
            #[getter]
            fn provider_cost_usd<'py>(&self, py: Python<'py>) -> PyResult<Option<Bound<'py, PyAny>>> {
                self.0.provider_cost.map(|cost| convert::decimal(py, &cost)).transpose()
            }

            /// The service tier that served it, in the provider's word.
            #[getter]
            fn service_tier(&self) -> Option<&str> {
                self.0.service_tier.as_deref()
            }

            /// Whether the report has no input side; the reserved input is then charged.
            #[getter]
            fn input_missing(&self) -> bool {
                self.0.input_missing
            }

            /// How many times the report contradicted itself.
            #[getter]
            fn anomalies(&self) -> u32 {
                self.0.anomalies
            }

            /// All tokens of the input.
            #[getter]
            fn input_total(&self) -> u64 {
                self.0.input_total()
            }

            /// All tokens of the output.
            #[getter]
            fn output_total(&self) -> u64 {
                self.0.output_total()
            }

            /// All tokens.
            #[getter]
            fn total(&self) -> u64 {
                self.0.total()
            }

            /// The same with so many tokens as its input if the report has none.
            fn or_input(&self, tokens: Count) -> Usage {
                Usage(self.0.clone().or_input(tokens.0))
            }

            fn __repr__(&self) -> String {
                let mut text = format!("Usage(requests={}", self.0.requests);
                for (name, count) in [$((stringify!($field), self.0.$field)),*] {
                    if count > 0 {
                        text.push_str(&format!(", {name}={count}"));
                    }
                }
                text + ")"
            }
        }
    };
}

usage! {
    /// Prompt tokens at the full price.
    input_uncached,
    /// Prompt tokens served from a cache.
    input_cache_read,
    /// Prompt tokens written to a cache for five minutes.
    input_cache_write_5m,
    /// Prompt tokens written to a cache for an hour.
    input_cache_write_1h,
    /// Prompt tokens written to a cache for another time.
    input_cache_write_other,
    /// Uncached audio tokens of the prompt.
    input_audio,
    /// Uncached image tokens of the prompt.
    input_image,
    /// Uncached video tokens of the prompt.
    input_video,
    /// Generated tokens that are seen.
    output_text,
    /// Generated tokens of thinking.
    output_reasoning,
    /// Generated audio tokens.
    output_audio,
    /// Generated image tokens.
    output_image,
    /// Milliseconds of audio, where the call is priced by time.
    audio_millis,
    /// Searches that the provider bills.
    web_searches,
    /// Rerank searches.
    search_units,
    /// Pages of documents.
    pages,
    /// Pictures, where the call is priced by the picture.
    images
}

/// How a call ended, as far as its charge is concerned.
#[pyclass(frozen, module = "quota")]
#[derive(Clone)]
pub struct Outcome(pub core::usage::Outcome);

/// An `Outcome`, or a usage that is final.
pub fn outcome(object: &Bound<'_, PyAny>, dialect: &str) -> PyResult<core::usage::Outcome> {
    match object.cast::<Outcome>() {
        Ok(outcome) => Ok(outcome.get().0.clone()),
        Err(_) => read(object, dialect).map(core::usage::Outcome::Final),
    }
}

#[pymethods]
impl Outcome {
    /// What an upstream's answer means: its HTTP status (`None` if no connection was made) and its body, if it is JSON.
    #[staticmethod]
    #[pyo3(signature = (status, body=None, *, dialect="auto"))]
    fn of_answer(status: Option<Small<u16>>, body: Option<&Bound<'_, PyAny>>, dialect: &str) -> PyResult<Outcome> {
        let dialect = self::dialect(dialect)?;
        let body = body.map(convert::document).transpose()?.filter(|body| !body.is_null());
        Ok(Outcome(outcome_of(status.map(|status| status.0), dialect, body.as_ref())))
    }

    /// The provider told what was used.
    #[staticmethod]
    #[pyo3(signature = (usage, *, dialect="auto"))]
    fn r#final(usage: &Bound<'_, PyAny>, dialect: &str) -> PyResult<Outcome> {
        read(usage, dialect).map(|usage| Outcome(core::usage::Outcome::Final(usage)))
    }

    /// The upstream failed without a report: whether anything is charged is the policy's choice.
    #[staticmethod]
    fn failed() -> Outcome {
        Outcome(core::usage::Outcome::FailedWithoutUsage)
    }

    /// The request was not run: nothing is charged.
    #[staticmethod]
    fn not_run() -> Outcome {
        Outcome(core::usage::Outcome::NotRun)
    }

    /// `final`, `unresolved`, `failed_without_usage` or `not_run`.
    #[getter]
    fn state(&self) -> &'static str {
        match self.0 {
            core::usage::Outcome::Final(_) => "final",
            core::usage::Outcome::Unresolved(_) => "unresolved",
            core::usage::Outcome::FailedWithoutUsage => "failed_without_usage",
            core::usage::Outcome::NotRun => "not_run",
        }
    }

    /// The usage of a final one.
    #[getter]
    fn usage(&self) -> Option<Usage> {
        match &self.0 {
            core::usage::Outcome::Final(usage) => Some(Usage(usage.clone())),
            _ => None,
        }
    }

    /// Why the usage of an unresolved one is unknown.
    #[getter]
    fn code(&self) -> Option<&'static str> {
        match &self.0 {
            core::usage::Outcome::Unresolved(why) => Some(why.code()),
            _ => None,
        }
    }

    /// The same in words.
    #[getter]
    fn message(&self) -> Option<String> {
        match &self.0 {
            core::usage::Outcome::Unresolved(why) => Some(why.to_string()),
            _ => None,
        }
    }

    pub fn __repr__(&self) -> String {
        format!("Outcome({})", self.state())
    }
}
