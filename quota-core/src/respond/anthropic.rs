//! Anthropic's manner: `{"type": "error", "error": {"type", "message"}, "request_id"}` and `request-id`.
//!
//! Floor 4. Invariant: `error.type` belongs to the status; the cause stands in `error.details.error_code`.

use serde_json::{Value, json};

use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::respond::{Response, explain, request_id, retry};

/// The answer to a request that was refused before the first byte of its answer.
///
/// `error.details.error_code` and `error.reason` are the reason's code; `error.limits`, `error.retry_after_ms` and
/// `error.fits` are those of OpenAI's manner. What the gateway itself has no room for is 529 `overloaded_error`.
pub fn response(refusal: &Refusal) -> Response {
    let mut headers = retry(refusal);
    request_id(&mut headers, "request-id", refusal);
    Response { status: status(refusal.reason), headers, body: body(refusal) }
}

/// The same error as the last frame of an event stream that has begun; the stream is closed after it.
pub fn stream_error(refusal: &Refusal) -> String {
    // Anthropic's clients skip frames without an `event` line. Compact JSON has no line break.
    format!("event: error\ndata: {}\n\n", body(refusal))
}

fn status(reason: Reason) -> u16 {
    match reason {
        Reason::LeasesExhausted | Reason::AccountsExhausted => 529,
        _ => super::status(reason),
    }
}

fn body(refusal: &Refusal) -> Value {
    let mut error = json!({
        "type": kind(status(refusal.reason)),
        "message": refusal.message(),
        "details": { "error_code": refusal.reason.code() },
    });
    explain(&mut error, refusal);
    json!({ "type": "error", "error": error, "request_id": refusal.request_id.as_deref() })
}

/// Anthropic's error type of a status.
fn kind(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        409 => "conflict_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_anthropic_words() {
        for (reason, want, word) in [
            (Reason::RequestRateExceeded, 429, "rate_limit_error"),
            (Reason::TokenQuotaExceeded, 429, "rate_limit_error"),
            (Reason::BudgetExceeded, 402, "billing_error"),
            (Reason::ConcurrencyExceeded, 429, "rate_limit_error"),
            (Reason::ContextLengthExceeded, 400, "invalid_request_error"),
            (Reason::RequestTooLarge, 400, "invalid_request_error"),
            (Reason::KeyRevoked, 401, "authentication_error"),
            (Reason::ModelNotAllowed, 403, "permission_error"),
            (Reason::RequestAlreadyEnded, 409, "conflict_error"),
            (Reason::LeasesExhausted, 529, "overloaded_error"),
            (Reason::AccountsExhausted, 529, "overloaded_error"),
            (Reason::StoreUnavailable, 503, "api_error"),
            (Reason::RunStepsExceeded, 429, "rate_limit_error"),
            (Reason::RunBudgetExceeded, 402, "billing_error"),
            (Reason::SoftLimitPassed, 429, "rate_limit_error"),
        ] {
            assert_eq!((status(reason), kind(status(reason))), (want, word), "{reason}");
        }
    }
}
