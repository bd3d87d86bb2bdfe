//! Conversion: counts, money and times as JavaScript has them.
//!
//! Invariant: money is decimal text and a count a number; the core's counts are below 2^53.

use napi::bindgen_prelude::Either;
use napi::{Env, Result};
use napi_derive::napi;
use quota_core::time::parse_instant;
use quota_core::units::{Amounts as CoreAmounts, Meter};
use serde_json::Value;

use crate::count::type_error;
use crate::errors;

/// A count.
pub fn number(count: u64) -> f64 {
    count as f64
}

/// An amount: money as decimal text, anything else as a count.
pub fn amount(meter: Meter, amount: u64) -> Either<f64, String> {
    match meter {
        Meter::Money => Either::B(meter.show(amount)),
        _ => Either::A(number(amount)),
    }
}

/// Whole milliseconds of nanoseconds, rounded up.
pub fn millis(nanos: u128) -> f64 {
    nanos.div_ceil(1_000_000) as f64
}

/// An RFC 3339 instant in nanoseconds since 1970.
pub fn instant(env: &Env, text: &str) -> Result<u64> {
    parse_instant(text).map_err(|error| type_error(*env, error.to_string()))
}

/// JSON text as a value.
pub fn parse(env: &Env, text: &str) -> Result<Value> {
    // Its message shows where in the text, and nothing of it.
    serde_json::from_str(text).map_err(|error| {
        let message = error.to_string();
        let code = if message.starts_with("recursion limit") { "too_deep" } else { "json_invalid" };
        errors::input(env, code, format!("this is no JSON: {message}"))
    })
}

/// One amount per meter.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Amounts {
    pub requests: f64,
    pub input_tokens: f64,
    pub output_tokens: f64,
    /// Input and output together.
    pub tokens: f64,
    pub usd: String,
    pub in_flight: f64,
    pub streams: f64,
    pub steps: f64,
    pub tool_calls: f64,
    pub run_seconds: f64,
}

impl Amounts {
    pub fn of(amounts: &CoreAmounts) -> Amounts {
        let count = |meter| number(amounts.get(meter));
        Amounts {
            requests: count(Meter::Requests),
            input_tokens: count(Meter::Input),
            output_tokens: count(Meter::Output),
            tokens: count(Meter::Total),
            usd: Meter::Money.show(amounts.get(Meter::Money)),
            in_flight: count(Meter::InFlight),
            streams: count(Meter::Streams),
            steps: count(Meter::Steps),
            tool_calls: count(Meter::ToolCalls),
            run_seconds: count(Meter::RunTime),
        }
    }
}
