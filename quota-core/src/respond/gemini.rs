//! Google's manner, of Gemini: `{"error": {"code", "message", "status", "details"}}`.
//!
//! Floor 4. Invariant: `error.code` is the HTTP status, which Google's clients take from the body of an event stream.

use serde_json::{Value, json};

use crate::refusal::Refusal;
use crate::respond::{Response, explain, request_id, retry, status};

/// The answer to a request that was refused before the first byte of its answer.
///
/// `error.status` is Google's word for the status. `error.details` has the reason's code as a `google.rpc.ErrorInfo` and,
/// where a retry can help, the wait as a `google.rpc.RetryInfo`. `error.reason`, `error.limits`, `error.retry_after_ms`
/// and `error.fits` are those of OpenAI's manner.
pub fn response(refusal: &Refusal) -> Response {
    let mut headers = retry(refusal);
    request_id(&mut headers, "x-request-id", refusal);
    Response { status: status(refusal.reason), headers, body: body(refusal) }
}

/// The same error as the last frame of an event stream that has begun; the stream is closed after it.
pub fn stream_error(refusal: &Refusal) -> String {
    // Compact JSON has no line break, so the object is one `data` line.
    format!("data: {}\n\n", body(refusal))
}

fn body(refusal: &Refusal) -> Value {
    let code = status(refusal.reason);
    let mut details = vec![json!({
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": refusal.reason.code().to_ascii_uppercase(),
        "domain": "quota",
    })];
    if let Some((_, seconds)) = retry(refusal).iter().find(|(name, _)| *name == "retry-after") {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.RetryInfo",
            "retryDelay": format!("{seconds}s"),
        }));
    }
    let mut error = json!({ "code": code, "message": refusal.message(), "status": word(code), "details": details });
    explain(&mut error, refusal);
    json!({ "error": error })
}

/// Google's word for a status.
fn word(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        // It has no status of its own for money.
        402 | 429 => "RESOURCE_EXHAUSTED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::reason::Reason;
    use crate::refusal::{Shortage, Wait};
    use crate::units::Meter;

    fn refusal(reason: Reason, wait: Wait) -> Refusal {
        let shortages = vec![Shortage {
            scope: "tenant:acme".into(),
            limit: "rpm".into(),
            shared: false,
            meter: Meter::Requests,
            hard: 60,
            used: 60,
            asked: 1,
            wait,
        }];
        let request_id = Some("req-1".into());
        Refusal { request_id, wait, shortages: shortages.into(), ..Refusal::new(reason, "acme", "gemini-pro") }
    }

    #[test]
    fn reasons_have_google_words() {
        for (reason, code, word) in [
            (Reason::RequestRateExceeded, 429, "RESOURCE_EXHAUSTED"),
            (Reason::TokenQuotaExceeded, 429, "RESOURCE_EXHAUSTED"),
            (Reason::BudgetExceeded, 402, "RESOURCE_EXHAUSTED"),
            (Reason::ContextLengthExceeded, 400, "INVALID_ARGUMENT"),
            (Reason::RequestTooLarge, 400, "INVALID_ARGUMENT"),
            (Reason::KeyRevoked, 401, "UNAUTHENTICATED"),
            (Reason::ModelNotAllowed, 403, "PERMISSION_DENIED"),
            (Reason::RequestAlreadyEnded, 409, "ABORTED"),
            (Reason::LeasesExhausted, 503, "UNAVAILABLE"),
            (Reason::StoreUnavailable, 503, "UNAVAILABLE"),
            (Reason::SoftLimitPassed, 429, "RESOURCE_EXHAUSTED"),
        ] {
            let response = response(&refusal(reason, Wait::Unknown));
            let error = &response.body["error"];
            assert_eq!(
                (response.status, &error["code"], &error["status"]),
                (code, &json!(code), &json!(word)),
                "{reason}"
            );
        }
    }

    #[test]
    fn the_body_is_as_google_lays_it_out() {
        let after = Wait::After(Duration::from_millis(2500));
        let answer = response(&refusal(Reason::RequestRateExceeded, after));
        let headers = vec![
            ("retry-after", "3".to_owned()),
            ("retry-after-ms", "2500".to_owned()),
            ("x-request-id", "req-1".to_owned()),
        ];
        assert_eq!(answer.headers, headers);
        let message = "A limit on requests in a window has no room (rpm of tenant:acme: 60 of 60 used, 1 asked). Try again in 2.500 s.";
        let limit = json!({
            "scope": "tenant:acme", "limit": "rpm", "meter": "requests", "hard": 60, "used": 60, "asked": 1,
        });
        let error = json!({
            "code": 429,
            "message": message,
            "status": "RESOURCE_EXHAUSTED",
            "details": [
                {
                    "@type": "type.googleapis.com/google.rpc.ErrorInfo",
                    "reason": "REQUEST_RATE_EXCEEDED",
                    "domain": "quota",
                },
                { "@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "3s" },
            ],
            "reason": "request_rate_exceeded",
            "retry_after_ms": 2500,
            "limits": [limit],
            "fits": { "max_output_tokens": null, "models": [] },
        });
        assert_eq!(answer.body, json!({ "error": error }));
        let event = stream_error(&refusal(Reason::RequestRateExceeded, after));
        assert_eq!(event, format!("data: {}\n\n", answer.body));
        assert!(event.starts_with("data: {\"error\":{"), "how Google's client finds an error in a stream");
    }

    #[test]
    fn who_can_only_wait_in_vain_is_told_of_no_delay() {
        for (reason, wait) in
            [(Reason::RequestTooLarge, Wait::Never), (Reason::BudgetExceeded, Wait::After(Duration::from_secs(86_400)))]
        {
            let body = response(&refusal(reason, wait)).body;
            assert_eq!(body["error"]["details"].as_array().map(Vec::len), Some(1), "{reason}");
        }
    }
}
