//! Upstream: waits, rate-limit headers and errors of an upstream.

use std::time::Duration;

use quota_core::time::{Now, parse_instant};
use quota_core::usage::upstream::{UpstreamError, UpstreamLimit, UpstreamLimits, wait};
use serde_json::{Map, Value, json};

/// A case has `now`, and `value` with `ms` (null: none); or `headers` (a list of pairs) with `told`; or `status` and
/// `body` with `error`.
pub fn run(case: &Value) -> Result<(), String> {
    let now = Now::at(parse_instant(case["now"].as_str().ok_or("now")?).map_err(|error| error.to_string())?);
    if let Some(value) = case["value"].as_str() {
        return expect(&case["ms"], &json!(wait(value, now).map(millis)));
    }
    if let Some(headers) = case["headers"].as_array() {
        let pairs = headers.iter().filter_map(|pair| Some((pair[0].as_str()?, pair[1].as_str()?)));
        return expect(&case["told"], &told(&UpstreamLimits::read(pairs, now)));
    }
    let status = case["status"].as_u64().and_then(|status| u16::try_from(status).ok()).ok_or("status")?;
    let error = UpstreamError::read(status, case.get("body"), now);
    let mut got = Map::new();
    got.insert("fault".into(), error.fault.name().into());
    got.insert("retryable".into(), error.fault.is_retryable().into());
    if let Some(code) = error.code {
        got.insert("code".into(), code.into());
    }
    if let Some(time) = error.retry_after {
        got.insert("retry_after_ms".into(), millis(time).into());
    }
    expect(&case["error"], &got.into())
}

fn told(limits: &UpstreamLimits) -> Value {
    let mut got = Map::new();
    for (name, limit) in [
        ("requests", limits.requests),
        ("tokens", limits.tokens),
        ("input_tokens", limits.input_tokens),
        ("output_tokens", limits.output_tokens),
    ] {
        if let Some(UpstreamLimit { limit, remaining, resets_in }) = limit {
            let resets_in_ms = resets_in.map(millis);
            got.insert(name.into(), json!({"limit": limit, "remaining": remaining, "resets_in_ms": resets_in_ms}));
        }
    }
    if let Some(time) = limits.retry_after {
        got.insert("retry_after_ms".into(), millis(time).into());
    }
    if let Some(should) = limits.should_retry {
        got.insert("should_retry".into(), should.into());
    }
    got.into()
}

fn millis(time: Duration) -> u64 {
    time.as_millis() as u64
}

fn expect(wanted: &Value, got: &Value) -> Result<(), String> {
    match wanted == got {
        true => Ok(()),
        false => Err(format!("got {got}, wanted {wanted}")),
    }
}
