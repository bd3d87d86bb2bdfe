//! What an upstream tells beside its answer: rate-limit headers, waits and errors.

use std::time::Duration;

use napi::{Env, Result};
use napi_derive::napi;
use quota_core::time::{Clock, Now, SystemClock};
use quota_core::usage::upstream as core;

use crate::convert;
use crate::convert::number;
use crate::count::Whole16;
use crate::testing::ManualClock;

fn now(clock: Option<&ManualClock>) -> Now {
    clock.map_or_else(|| SystemClock::new().now(), |clock| clock.0.now())
}

fn millis(time: Duration) -> f64 {
    time.as_millis() as f64
}

/// One limit that an upstream tells of.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct UpstreamLimit {
    pub limit: Option<f64>,
    pub remaining: Option<f64>,
    pub resets_in_ms: Option<f64>,
}

/// What an upstream's headers tell of its limits.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct UpstreamLimits {
    pub requests: Option<UpstreamLimit>,
    pub tokens: Option<UpstreamLimit>,
    pub input_tokens: Option<UpstreamLimit>,
    pub output_tokens: Option<UpstreamLimit>,
    pub retry_after_ms: Option<f64>,
    pub should_retry: Option<bool>,
}

/// Reads pairs of names and values, in any case and order.
#[napi(js_name = "_upstreamLimits")]
pub fn upstream_limits(headers: Vec<Vec<String>>, clock: Option<&ManualClock>) -> UpstreamLimits {
    let pairs = headers.iter().filter_map(|pair| match pair.as_slice() {
        [name, value] => Some((name.as_str(), value.as_str())),
        _ => None,
    });
    let read = core::UpstreamLimits::read(pairs, now(clock));
    let shown = |limit: core::UpstreamLimit| UpstreamLimit {
        limit: limit.limit.map(number),
        remaining: limit.remaining.map(number),
        resets_in_ms: limit.resets_in.map(millis),
    };
    UpstreamLimits {
        requests: read.requests.map(shown),
        tokens: read.tokens.map(shown),
        input_tokens: read.input_tokens.map(shown),
        output_tokens: read.output_tokens.map(shown),
        retry_after_ms: read.retry_after.map(millis),
        should_retry: read.should_retry,
    }
}

/// What an upstream's error means.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct UpstreamError {
    /// Whose fault it is, as a stable code.
    pub fault: &'static str,
    pub is_retryable: bool,
    /// The provider's own code.
    pub code: Option<String>,
    pub retry_after_ms: Option<f64>,
}

#[napi(js_name = "_upstreamError")]
pub fn upstream_error(
    env: Env,
    status: Whole16,
    body: Option<String>,
    clock: Option<&ManualClock>,
) -> Result<UpstreamError> {
    let body = body.map(|body| convert::parse(&env, &body)).transpose()?;
    let read = core::UpstreamError::read(status.0, body.as_ref(), now(clock));
    Ok(UpstreamError {
        fault: read.fault.name(),
        is_retryable: read.fault.is_retryable(),
        code: read.code,
        retry_after_ms: read.retry_after.map(millis),
    })
}

/// How long a header says that one should wait: seconds, a duration, or an HTTP date; `null` where it says nothing of the
/// kind.
#[napi(js_name = "_upstreamWaitMs")]
pub fn upstream_wait_ms(value: String, clock: Option<&ManualClock>) -> Option<f64> {
    core::wait(&value, now(clock)).map(millis)
}
