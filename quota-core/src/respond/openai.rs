//! OpenAI's manner: `{"error": {"message", "type", "param", "code"}}` and `x-request-id`.
//!
//! Floor 4. Invariant: the four members of OpenAI's schema are always there; our own stand beside them.

use serde_json::{Value, json};

use crate::reason::{Reason, Retry};
use crate::refusal::Refusal;
use crate::respond::{Response, explain, request_id, retry, status};

/// The answer to a request that was refused before the first byte of its answer.
///
/// `error.code` is OpenAI's own word where it has one (`rate_limit_exceeded`, `insufficient_quota`,
/// `context_length_exceeded`, `model_not_found`, `invalid_api_key`, `server_is_overloaded`) and the reason's code
/// elsewhere. `error.reason` is always the reason's code; `error.limits` are the limits that had no room,
/// `error.retry_after_ms` the wait or null, `error.fits` what would pass now.
pub fn response(refusal: &Refusal) -> Response {
    let mut headers = retry(refusal);
    request_id(&mut headers, "x-request-id", refusal);
    Response { status: status(refusal.reason), headers, body: body(refusal) }
}

/// The same error as the last frame of an event stream that has begun. No `[DONE]` follows; the stream is closed.
pub fn stream_error(refusal: &Refusal) -> String {
    // Compact JSON has no line break, so the object is one `data` line.
    format!("data: {}\n\n", body(refusal))
}

fn body(refusal: &Refusal) -> Value {
    let (kind, code) = words(refusal.reason);
    let param = match refusal.reason {
        Reason::ModelNotAllowed => Some("model"),
        _ => None,
    };
    let mut error = json!({ "message": refusal.message(), "type": kind, "param": param, "code": code });
    explain(&mut error, refusal);
    json!({ "error": error })
}

/// OpenAI's `type` and `code` for a reason.
fn words(reason: Reason) -> (&'static str, &'static str) {
    let own = reason.code();
    match reason {
        Reason::RequestRateExceeded => ("requests", "rate_limit_exceeded"),
        Reason::InputTokenRateExceeded | Reason::OutputTokenRateExceeded | Reason::TokenRateExceeded => {
            ("tokens", "rate_limit_exceeded")
        }
        Reason::RunTokensExceeded => ("tokens", own),
        Reason::RunBudgetExceeded => ("insufficient_quota", own),
        Reason::ModelNotAllowed => ("invalid_request_error", "model_not_found"),
        Reason::LeasesExhausted | Reason::AccountsExhausted => ("service_unavailable_error", "server_is_overloaded"),
        // What the period has no more of is money in OpenAI's eyes, whatever is counted.
        _ if reason.retry() == Retry::NextPeriod => ("insufficient_quota", "insufficient_quota"),
        _ => match status(reason) {
            401 => ("invalid_request_error", "invalid_api_key"),
            403 => ("permission_error", own),
            429 => ("requests", own),
            500.. => ("service_unavailable_error", own),
            _ => ("invalid_request_error", own),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_have_openai_words() {
        for (reason, kind, code) in [
            (Reason::RequestRateExceeded, "requests", "rate_limit_exceeded"),
            (Reason::InputTokenRateExceeded, "tokens", "rate_limit_exceeded"),
            (Reason::OutputTokenRateExceeded, "tokens", "rate_limit_exceeded"),
            (Reason::TokenRateExceeded, "tokens", "rate_limit_exceeded"),
            (Reason::RequestQuotaExceeded, "insufficient_quota", "insufficient_quota"),
            (Reason::TokenQuotaExceeded, "insufficient_quota", "insufficient_quota"),
            (Reason::BudgetExceeded, "insufficient_quota", "insufficient_quota"),
            (Reason::ConcurrencyExceeded, "requests", "concurrency_exceeded"),
            (Reason::StreamsExceeded, "requests", "streams_exceeded"),
            (Reason::QueueFull, "requests", "queue_full"),
            (Reason::ContextLengthExceeded, "invalid_request_error", "context_length_exceeded"),
            (Reason::RequestTooLarge, "invalid_request_error", "request_too_large"),
            (Reason::RequestInvalid, "invalid_request_error", "request_invalid"),
            (Reason::ModelNotAllowed, "invalid_request_error", "model_not_found"),
            (Reason::TenantUnknown, "permission_error", "tenant_unknown"),
            (Reason::KeyUnknown, "invalid_request_error", "invalid_api_key"),
            (Reason::KeyExpired, "invalid_request_error", "invalid_api_key"),
            (Reason::KeyRevoked, "invalid_request_error", "invalid_api_key"),
            (Reason::PriceUnknown, "permission_error", "price_unknown"),
            (Reason::RequestIdConflict, "invalid_request_error", "request_id_conflict"),
            (Reason::RequestAlreadyEnded, "invalid_request_error", "request_already_ended"),
            (Reason::LeasesExhausted, "service_unavailable_error", "server_is_overloaded"),
            (Reason::AccountsExhausted, "service_unavailable_error", "server_is_overloaded"),
            (Reason::StoreUnavailable, "service_unavailable_error", "store_unavailable"),
            (Reason::RunStepsExceeded, "requests", "run_steps_exceeded"),
            (Reason::RunTokensExceeded, "tokens", "run_tokens_exceeded"),
            (Reason::RunToolCallsExceeded, "requests", "run_tool_calls_exceeded"),
            (Reason::RunBudgetExceeded, "insufficient_quota", "run_budget_exceeded"),
            (Reason::RunTimeExceeded, "requests", "run_time_exceeded"),
            (Reason::SoftLimitPassed, "requests", "soft_limit_passed"),
        ] {
            assert_eq!(words(reason), (kind, code), "{reason}");
        }
    }
}
