//! Usage and outcomes: what a provider reports, read from its own objects.

use napi::bindgen_prelude::Either;
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::usage::{Dialect, outcome_of};

use crate::convert::{self, number};
use crate::count::{Count, Whole16, type_error};
use crate::errors;

/// The dialect of a name.
pub fn dialect(env: &Env, name: Option<&str>) -> Result<Dialect> {
    let name = name.unwrap_or("auto");
    Dialect::from_name(name).ok_or_else(|| {
        let names: Vec<&str> = Dialect::ALL.iter().map(|dialect| dialect.name()).collect();
        type_error(*env, format!("no dialect is called {name:?}; there are {}", names.join(", ")))
    })
}

/// The usage that a report tells.
pub fn read(env: &Env, report: &str, dialect: Option<&str>) -> Result<core::Usage> {
    let dialect = self::dialect(env, dialect)?;
    let report = convert::parse(env, report)?;
    core::Usage::read(dialect, &report).map_err(|error| errors::usage(env, &error))
}

macro_rules! usage {
    ($($(#[$doc:meta])* $field:ident $name:tt)*) => {
        /// Counts of a usage that the host has counted itself.
        #[napi(object, object_to_js = false)]
        pub struct UsageCounts {
            $(
                #[napi(js_name = $name)]
                pub $field: Option<Count>,
            )*
            pub requests: Option<Count>,
            pub service_tier: Option<String>,
            pub input_missing: Option<bool>,
        }

        impl From<UsageCounts> for core::Usage {
            fn from(counts: UsageCounts) -> core::Usage {
                core::Usage {
                    $($field: counts.$field.map_or(0, |count| count.0),)*
                    requests: counts.requests.map_or(1, |count| count.0),
                    service_tier: counts.service_tier,
                    input_missing: counts.input_missing.unwrap_or(false),
                    ..core::Usage::default()
                }
            }
        }

        #[napi]
        impl Usage {
            $(
                $(#[$doc])*
                #[napi(getter, js_name = $name)]
                pub fn $field(&self) -> f64 {
                    number(self.0.$field)
                }
            )*
        }
    };
}

/// What a call used, in disjoint counts.
#[napi]
pub struct Usage(pub(crate) core::Usage);

usage! {
    /// Prompt tokens at the full price.
    input_uncached "inputUncached"
    /// Prompt tokens served from a cache.
    input_cache_read "inputCacheRead"
    /// Prompt tokens written to a cache for five minutes.
    input_cache_write_5m "inputCacheWrite5m"
    /// Prompt tokens written to a cache for an hour.
    input_cache_write_1h "inputCacheWrite1h"
    /// Prompt tokens written to a cache for another time.
    input_cache_write_other "inputCacheWriteOther"
    /// Uncached audio tokens of the prompt.
    input_audio "inputAudio"
    /// Uncached image tokens of the prompt.
    input_image "inputImage"
    /// Uncached video tokens of the prompt.
    input_video "inputVideo"
    /// Generated tokens that are seen.
    output_text "outputText"
    /// Generated tokens of thinking.
    output_reasoning "outputReasoning"
    /// Generated audio tokens.
    output_audio "outputAudio"
    /// Generated image tokens.
    output_image "outputImage"
    /// Milliseconds of audio, where the call is priced by time.
    audio_millis "audioMillis"
    /// Searches that the provider bills.
    web_searches "webSearches"
    /// Rerank searches.
    search_units "searchUnits"
    /// Pages of documents.
    pages "pages"
    /// Pictures, where the call is priced by the picture.
    images "images"
}

#[napi]
impl Usage {
    #[napi(constructor)]
    pub fn new(counts: UsageCounts) -> Usage {
        Usage(counts.into())
    }

    /// The usage of one request whose tokens the host has counted itself.
    #[napi(factory)]
    pub fn tokens(input: Count, output: Count) -> Usage {
        Usage(core::Usage::tokens(input.0, output.0))
    }

    /// Reads a provider's usage object, or the answer that holds it.
    #[napi(js_name = "_read")]
    pub fn read(env: Env, report: String, dialect: Option<String>) -> Result<Usage> {
        self::read(&env, &report, dialect.as_deref()).map(Usage)
    }

    #[napi(getter)]
    pub fn requests(&self) -> f64 {
        number(self.0.requests)
    }

    /// What the provider itself says that the call cost.
    #[napi(getter)]
    pub fn provider_cost_usd(&self) -> Option<String> {
        self.0.provider_cost.map(|cost| cost.to_string())
    }

    #[napi(getter)]
    pub fn service_tier(&self) -> Option<&str> {
        self.0.service_tier.as_deref()
    }

    /// Whether the report has no input side; the reserved input is then charged.
    #[napi(getter)]
    pub fn input_missing(&self) -> bool {
        self.0.input_missing
    }

    /// How many times the report contradicted itself.
    #[napi(getter)]
    pub fn anomalies(&self) -> u32 {
        self.0.anomalies
    }

    #[napi(getter)]
    pub fn input_total(&self) -> f64 {
        number(self.0.input_total())
    }

    #[napi(getter)]
    pub fn output_total(&self) -> f64 {
        number(self.0.output_total())
    }

    #[napi(getter)]
    pub fn total(&self) -> f64 {
        number(self.0.total())
    }

    /// The same with so many tokens as its input if the report has none.
    #[napi]
    pub fn or_input(&self, tokens: Count) -> Usage {
        Usage(self.0.clone().or_input(tokens.0))
    }

    /// Whether all of it is the same.
    #[napi]
    pub fn equals(&self, other: &Usage) -> bool {
        self.0 == other.0
    }
}

/// How a call ended, as far as its charge is concerned.
#[napi]
pub struct Outcome(pub(crate) core::usage::Outcome);

/// What ends a lease.
pub type Given<'a> = Either<&'a Outcome, &'a Usage>;

/// An outcome, or a usage that is final.
pub fn outcome(given: Given<'_>) -> core::usage::Outcome {
    match given {
        Either::A(outcome) => outcome.0.clone(),
        Either::B(usage) => core::usage::Outcome::Final(usage.0.clone()),
    }
}

#[napi]
impl Outcome {
    #[napi(js_name = "_ofAnswer")]
    pub fn of_answer(
        env: Env,
        status: Option<Whole16>,
        body: Option<String>,
        dialect: Option<String>,
    ) -> Result<Outcome> {
        let dialect = self::dialect(&env, dialect.as_deref())?;
        let body = body.map(|body| convert::parse(&env, &body)).transpose()?;
        Ok(Outcome(outcome_of(status.map(|status| status.0), dialect, body.filter(|body| !body.is_null()).as_ref())))
    }

    #[napi(js_name = "_final")]
    pub fn final_of(usage: &Usage) -> Outcome {
        Outcome(core::usage::Outcome::Final(usage.0.clone()))
    }

    /// The upstream failed without a report: whether anything is charged is the policy's choice.
    #[napi(factory)]
    pub fn failed() -> Outcome {
        Outcome(core::usage::Outcome::FailedWithoutUsage)
    }

    /// The request was not run: nothing is charged.
    #[napi(factory)]
    pub fn not_run() -> Outcome {
        Outcome(core::usage::Outcome::NotRun)
    }

    /// `final`, `unresolved`, `failed_without_usage` or `not_run`.
    #[napi(getter)]
    pub fn state(&self) -> &'static str {
        match self.0 {
            core::usage::Outcome::Final(_) => "final",
            core::usage::Outcome::Unresolved(_) => "unresolved",
            core::usage::Outcome::FailedWithoutUsage => "failed_without_usage",
            core::usage::Outcome::NotRun => "not_run",
        }
    }

    /// The usage of a final one.
    #[napi(getter)]
    pub fn usage(&self) -> Option<Usage> {
        match &self.0 {
            core::usage::Outcome::Final(usage) => Some(Usage(usage.clone())),
            _ => None,
        }
    }

    /// Why the usage of an unresolved one is unknown.
    #[napi(getter)]
    pub fn code(&self) -> Option<&'static str> {
        match &self.0 {
            core::usage::Outcome::Unresolved(why) => Some(why.code()),
            _ => None,
        }
    }

    #[napi(getter)]
    pub fn message(&self) -> Option<String> {
        match &self.0 {
            core::usage::Outcome::Unresolved(why) => Some(why.to_string()),
            _ => None,
        }
    }
}
