//! Upstream: an upstream's rate-limit headers and errors.
//!
//! Floor 1. Invariant: whatever a header or a body holds, it is read or left out; nothing of it fails, and no message
//! is kept.

use std::time::Duration;

use serde_json::Value;

use crate::time::{Now, parse_http_date, parse_instant};
use crate::units::parse_decimal_rounded;

/// A bare number above this is an instant, in seconds of Unix time; below it is a span of seconds.
const EPOCH_SECONDS: u128 = 1_000_000_000;
/// A bare number above this is an instant in milliseconds.
const EPOCH_MILLIS: u128 = 1_000_000_000_000;
/// The longest code that is kept, in bytes.
const MAX_CODE: usize = 64;

/// How long a header's value says to wait from now: `1h2m3.5s` or `12ms` as Go writes durations, seconds (`60`, `1.5`),
/// an instant in RFC 3339, an HTTP date, or Unix time in seconds or milliseconds.
///
/// An instant that has passed is no wait; what is none of these, or negative, is `None`.
pub fn wait(value: &str, now: Now) -> Option<Duration> {
    let value = value.trim_ascii();
    if value.is_empty() || value.len() > 64 {
        return None;
    }
    let until = |instant: u64| Duration::from_nanos(instant.saturating_sub(now.wall));
    if let Some(millis) = plain(value, 3) {
        let nanos = |millis: u128| u64::try_from(millis.checked_mul(1_000_000)?).ok();
        return if millis <= EPOCH_SECONDS * 1000 {
            nanos(millis).map(Duration::from_nanos)
        } else if millis <= EPOCH_MILLIS * 1000 {
            nanos(millis).map(until)
        } else {
            nanos(millis / 1000).map(until)
        };
    }
    span(value).or_else(|| parse_instant(value).or_else(|_| parse_http_date(value)).ok().map(until))
}

/// A number of digits with at most one point, as an integer of 10^-`scale`.
fn plain(text: &str, scale: u32) -> Option<u128> {
    let digits = text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    Some(parse_decimal_rounded(text, scale).ok().filter(|_| digits)?.0)
}

/// A duration as Go writes it: numbers, each with its unit.
fn span(text: &str) -> Option<Duration> {
    let mut rest = text;
    let mut nanos: u128 = 0;
    while !rest.is_empty() {
        let (number, tail) = rest.split_at(rest.find(|c: char| !c.is_ascii_digit() && c != '.')?);
        let unit = &tail[..tail.find(|c: char| c.is_ascii_digit() || c == '.').unwrap_or(tail.len())];
        let (scale, times) = match unit {
            "h" => (9, 3600),
            "m" => (9, 60),
            "s" => (9, 1),
            "ms" => (6, 1),
            "us" | "µs" | "μs" => (3, 1),
            "ns" => (0, 1),
            _ => return None,
        };
        nanos = nanos.checked_add(plain(number, scale)?.checked_mul(times)?)?;
        rest = &tail[unit.len()..];
    }
    u64::try_from(nanos).ok().map(Duration::from_nanos)
}

/// One of an upstream's limits, as far as it is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpstreamLimit {
    /// The ceiling of the present window.
    pub limit: Option<u64>,
    /// What is left. Anthropic rounds tokens to thousands.
    pub remaining: Option<u64>,
    /// Until the limit is full again.
    pub resets_in: Option<Duration>,
}

impl UpstreamLimit {
    fn is_told(&self) -> bool {
        *self != UpstreamLimit::default()
    }
}

/// What an upstream's headers say about its limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct UpstreamLimits {
    /// Requests.
    pub requests: Option<UpstreamLimit>,
    /// Tokens, input and output together; of Anthropic's the most restrictive.
    pub tokens: Option<UpstreamLimit>,
    /// Input tokens.
    pub input_tokens: Option<UpstreamLimit>,
    /// Output tokens.
    pub output_tokens: Option<UpstreamLimit>,
    /// How long to wait before the next request: `retry-after-ms`, or else `retry-after`. A wait that is longer than one
    /// is ready for means to give up, not to come back sooner.
    pub retry_after: Option<Duration>,
    /// Whether the upstream says to retry (`x-should-retry`).
    pub should_retry: Option<bool>,
}

impl UpstreamLimits {
    /// Reads OpenAI's headers (and those of the many who copy them), Anthropic's, OpenRouter's, and `retry-after`.
    ///
    /// Names are taken in any case, unknown ones are passed over; of a name that is repeated the first usable value
    /// counts.
    pub fn read<'a>(headers: impl IntoIterator<Item = (&'a str, &'a str)>, now: Now) -> UpstreamLimits {
        let mut kinds = [UpstreamLimit::default(); 4];
        let (mut exact, mut coarse, mut should_retry) = (None, None, None);
        for (name, value) in headers {
            let name = name.to_ascii_lowercase();
            let value = value.trim_ascii();
            match name.as_str() {
                "retry-after-ms" => {
                    let millis = plain(value, 6).and_then(|nanos| u64::try_from(nanos).ok());
                    exact = exact.or(millis.map(Duration::from_nanos));
                }
                "retry-after" => coarse = coarse.or_else(|| wait(value, now)),
                "x-should-retry" => should_retry = should_retry.or_else(|| value.parse().ok()),
                _ => {
                    let Some((kind, part)) = kind_and_part(&name) else { continue };
                    let limit = &mut kinds[kind];
                    match part {
                        "limit" => limit.limit = limit.limit.or_else(|| value.parse().ok()),
                        "remaining" => limit.remaining = limit.remaining.or_else(|| value.parse().ok()),
                        _ => limit.resets_in = limit.resets_in.or_else(|| wait(value, now)),
                    }
                }
            }
        }
        let [requests, tokens, input_tokens, output_tokens] = kinds.map(|kind| kind.is_told().then_some(kind));
        UpstreamLimits { requests, tokens, input_tokens, output_tokens, retry_after: exact.or(coarse), should_retry }
    }
}

/// Which limit a header is about, and which part of it: `x-ratelimit-reset-tokens`,
/// `anthropic-ratelimit-input-tokens-remaining`, `x-ratelimit-limit` (requests).
fn kind_and_part(name: &str) -> Option<(usize, &str)> {
    let (part, kind) = match name.strip_prefix("x-ratelimit-") {
        Some(rest) => rest.split_once('-').unwrap_or((rest, "requests")),
        None => {
            let (kind, part) = name.strip_prefix("anthropic-ratelimit-")?.rsplit_once('-')?;
            (part, kind)
        }
    };
    let kind = ["requests", "tokens", "input-tokens", "output-tokens"].iter().position(|known| *known == kind)?;
    matches!(part, "limit" | "remaining" | "reset").then_some((kind, part))
}

/// What kind of failure an upstream reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum UpstreamFault {
    /// Too many requests or tokens at present; it passes.
    RateLimited,
    /// The upstream's account is out of money or past a spending limit; it does not pass by waiting.
    Exhausted,
    /// The upstream has no room for anybody.
    Overloaded,
    /// The request does not fit the model or the upstream.
    TooLarge,
    /// The upstream refuses the key, or what it may do.
    Denied,
    /// No such model.
    NotFound,
    /// The request is not valid.
    Invalid,
    /// The upstream took too long.
    TimedOut,
    /// Anything else.
    Failed,
}

impl UpstreamFault {
    /// The stable name, in `snake_case`.
    pub const fn name(self) -> &'static str {
        match self {
            UpstreamFault::RateLimited => "rate_limited",
            UpstreamFault::Exhausted => "exhausted",
            UpstreamFault::Overloaded => "overloaded",
            UpstreamFault::TooLarge => "too_large",
            UpstreamFault::Denied => "denied",
            UpstreamFault::NotFound => "not_found",
            UpstreamFault::Invalid => "invalid",
            UpstreamFault::TimedOut => "timed_out",
            UpstreamFault::Failed => "failed",
        }
    }

    /// Whether the same request can succeed at the same upstream later.
    pub const fn is_retryable(self) -> bool {
        use UpstreamFault::*;
        matches!(self, RateLimited | Overloaded | TimedOut | Failed)
    }
}

/// An upstream's error, without its message, which may quote a prompt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UpstreamError {
    /// What kind it is.
    pub fault: UpstreamFault,
    /// The finest code that the body has; at most 64 bytes.
    pub code: Option<String>,
    /// How long the body says to wait.
    pub retry_after: Option<Duration>,
}

impl UpstreamError {
    /// Reads an error body of OpenAI, Anthropic, Gemini, Bedrock or a model server: `error` as an object or a text,
    /// codes as texts or numbers. Codes that are known decide, then the status.
    pub fn read(status: u16, body: Option<&Value>, now: Now) -> UpstreamError {
        let body = body.unwrap_or(&Value::Null);
        let error = if body["error"].is_object() { &body["error"] } else { body };
        let codes = [&error["details"]["error_code"], &error["code"], &error["type"], &error["status"]];
        let others = [&body["error_type"], &body["__type"]];
        let codes: Vec<String> = codes.into_iter().chain(others).filter_map(code).collect();
        let fault = codes.iter().find_map(|code| known(code)).unwrap_or_else(|| of_status(status));
        let delays = error["details"].as_array().into_iter().flatten().map(|detail| &detail["retryDelay"]);
        let retry_after = delays.filter_map(Value::as_str).find_map(|delay| wait(delay, now));
        UpstreamError { fault, code: codes.into_iter().next(), retry_after }
    }
}

fn code(value: &Value) -> Option<String> {
    match value {
        Value::String(text) if !text.is_empty() && text.len() <= MAX_CODE => Some(text.clone()),
        Value::Number(number) => Some(number.to_string()),
        _ => None,
    }
}

fn known(code: &str) -> Option<UpstreamFault> {
    Some(match code {
        "insufficient_quota" | "credit_balance_exhausted" | "billing_error" => UpstreamFault::Exhausted,
        "organization_usage_limit_exceeded" => UpstreamFault::Exhausted,
        spend if spend.contains("spend_limit") => UpstreamFault::Exhausted,
        "rate_limit_exceeded" | "rate_limit_error" | "requests" | "tokens" | "slow_down" => UpstreamFault::RateLimited,
        "RateLimitReached" | "RESOURCE_EXHAUSTED" | "ramp_limit_exceeded" => UpstreamFault::RateLimited,
        "ThrottlingException" => UpstreamFault::RateLimited,
        "overloaded_error" | "server_is_overloaded" | "UNAVAILABLE" => UpstreamFault::Overloaded,
        "ModelNotReadyException" | "ServiceUnavailableException" => UpstreamFault::Overloaded,
        "context_length_exceeded" | "string_above_max_length" | "request_too_large" => UpstreamFault::TooLarge,
        "model_not_found" | "not_found_error" => UpstreamFault::NotFound,
        "timeout_error" => UpstreamFault::TimedOut,
        _ => return None,
    })
}

fn of_status(status: u16) -> UpstreamFault {
    match status {
        401 | 403 => UpstreamFault::Denied,
        402 => UpstreamFault::Exhausted,
        404 => UpstreamFault::NotFound,
        408 | 504 => UpstreamFault::TimedOut,
        413 => UpstreamFault::TooLarge,
        429 => UpstreamFault::RateLimited,
        503 | 529 => UpstreamFault::Overloaded,
        424 => UpstreamFault::Failed, // A failure while generating.
        400..=499 => UpstreamFault::Invalid,
        _ => UpstreamFault::Failed,
    }
}
