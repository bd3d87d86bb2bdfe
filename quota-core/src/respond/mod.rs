//! Rendering: a refusal as the status, headers and body that a provider's own clients understand.
//!
//! Floor 4. Invariant: no I/O; every header value is printable ASCII whatever the names in a refusal hold, and a
//! client is told to retry only where a retry can help.

use serde_json::{Value, json};

use crate::reason::{Reason, Retry};
use crate::refusal::{Refusal, Shortage, Wait};
use crate::units::Meter;

pub mod anthropic;
pub mod gemini;
pub mod headers;
pub mod openai;

/// Header names, all lower case, and their values.
pub type Headers = Vec<(&'static str, String)>;

/// An HTTP answer without its transport. `content-type` is left to whoever serialises the body.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response {
    /// The status, 400 to 599.
    pub status: u16,
    /// The headers; no name twice.
    pub headers: Headers,
    /// The body.
    pub body: Value,
}

/// The longest wait, in milliseconds, that a client is asked to sit out by itself.
///
/// Longer ones are read in every way there is: `openai` 1.x and 2.x drop a `retry-after` above 60 s and come back
/// within seconds, `openai` 3.x gives up above 120 s, `anthropic` 2.x and the Node clients sleep it in full inside the
/// call. With `x-should-retry: false` they all hand the refusal to their caller at once.
const PATIENCE_MILLIS: u64 = 60_000;

/// The status: the reason's own, never a success.
fn status(reason: Reason) -> u16 {
    // A reason that usually accompanies an allowed request has the status of one; a refusal is an error all the same.
    if reason.status() < 400 { 429 } else { reason.status() }
}

/// `retry-after`, `retry-after-ms` and `x-should-retry`, as far as they apply.
fn retry(refusal: &Refusal) -> Headers {
    let mut headers = Headers::new();
    let known = refusal.wait.millis().map(|millis| millis.max(1));
    let soon = known.is_some_and(|millis| millis <= PATIENCE_MILLIS);
    match (refusal.reason.retry(), refusal.wait) {
        (Retry::No, _) | (_, Wait::Never) => {}
        // A budget that comes back in days: a general HTTP client that obeys `retry-after` would hang until then.
        (Retry::NextPeriod, _) if !soon => {}
        (_, Wait::After(_)) => {
            let millis = known.unwrap_or(1);
            headers.push(("retry-after", millis.div_ceil(1000).to_string()));
            // Read before `retry-after`. A timer of 2^31 ms and more fires at once in Node, so a long wait has none.
            if soon {
                headers.push(("retry-after-ms", millis.to_string()));
            }
        }
        (_, Wait::Unknown) => headers.push(("retry-after", guess(refusal).div_ceil(1000).to_string())),
    }
    // The official clients retry 408, 409, 429 and 5xx; the word is sent for every status, for those that retry more.
    let waits = headers.iter().any(|(name, _)| *name == "retry-after");
    let long = known.is_some_and(|millis| millis > PATIENCE_MILLIS);
    if !waits || long || status(refusal.reason) == 402 {
        headers.push(("x-should-retry", "false".to_owned()));
    }
    headers
}

/// When to ask again, in milliseconds, where the end of the wait is unknown: a second for a slot, five for what the
/// whole gateway lacks, and not before the limits of known waits have room; at most [`PATIENCE_MILLIS`].
fn guess(refusal: &Refusal) -> u64 {
    let least = if status(refusal.reason) >= 500 { 5000 } else { 1000 };
    let known = refusal.shortages.iter().filter_map(|shortage| shortage.wait.millis()).max();
    known.unwrap_or(0).clamp(least, PATIENCE_MILLIS)
}

/// Adds the id of the request under the manner's header name, where there is one.
fn request_id(headers: &mut Headers, name: &'static str, refusal: &Refusal) {
    if let Some(id) = &refusal.request_id {
        headers.push((name, headers::ascii(id)));
    }
}

/// Adds the members that every manner carries beside their own: `reason`, `limits`, `retry_after_ms`, `fits`.
fn explain(error: &mut Value, refusal: &Refusal) {
    error["reason"] = json!(refusal.reason.code());
    error["limits"] = refusal.shortages.iter().map(shortage).collect();
    error["retry_after_ms"] = json!(refusal.wait.millis());
    let models: Vec<&str> = refusal.fits.models.iter().map(|model| &**model).collect();
    error["fits"] = json!({ "max_output_tokens": refusal.fits.max_output_tokens, "models": models });
}

/// The figures of a scope that other tenants share stay out: they would tell of their load.
fn shortage(shortage: &Shortage) -> Value {
    let own = !shortage.shared;
    json!({
        "scope": *shortage.scope,
        "limit": *shortage.limit,
        "meter": shortage.meter.name(),
        "hard": own.then(|| amount(shortage.meter, shortage.hard)),
        "used": own.then(|| amount(shortage.meter, shortage.used)),
        "asked": amount(shortage.meter, shortage.asked),
    })
}

/// Counts as numbers; money as a decimal text, because a number would be read as floating point.
fn amount(meter: Meter, amount: u64) -> Value {
    match meter {
        Meter::Money => json!(meter.show(amount)),
        _ => json!(amount),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::refusal::Shortages;
    use std::time::Duration;

    fn refusal(reason: Reason, wait: Wait) -> Refusal {
        Refusal { wait, ..Refusal::new(reason, "acme", "gpt-large") }
    }

    fn get<'a>(headers: &'a Headers, name: &str) -> Option<&'a str> {
        headers.iter().find(|(n, _)| *n == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn waits_become_headers() {
        use Reason::{BudgetExceeded, ConcurrencyExceeded, RequestRateExceeded, StoreUnavailable, TokenQuotaExceeded};
        let after = |nanos: u64| Wait::After(Duration::from_nanos(nanos));
        let no = Some("false");
        for (reason, wait, seconds, millis, should) in [
            (RequestRateExceeded, after(0), Some("1"), Some("1"), None),
            (RequestRateExceeded, after(1), Some("1"), Some("1"), None),
            (RequestRateExceeded, after(1_000_000_000), Some("1"), Some("1000"), None),
            (RequestRateExceeded, after(1_000_000_001), Some("2"), Some("1001"), None),
            (RequestRateExceeded, after(60_000_000_000), Some("60"), Some("60000"), None),
            (RequestRateExceeded, after(60_000_000_001), Some("61"), None, no),
            (RequestRateExceeded, after(u64::MAX), Some("18446744074"), None, no),
            (RequestRateExceeded, Wait::After(Duration::MAX), Some("18446744073709552"), None, no),
            (RequestRateExceeded, Wait::Unknown, Some("1"), None, None),
            (RequestRateExceeded, Wait::Never, None, None, no),
            (ConcurrencyExceeded, Wait::Unknown, Some("1"), None, None),
            (StoreUnavailable, Wait::Unknown, Some("5"), None, None),
            (BudgetExceeded, after(60_000_000_000), Some("60"), Some("60000"), no),
            (BudgetExceeded, after(60_000_000_001), None, None, no),
            (BudgetExceeded, Wait::Unknown, None, None, no),
            (TokenQuotaExceeded, after(2_500_000_000), Some("3"), Some("2500"), None),
            (TokenQuotaExceeded, after(3_600_000_000_000), None, None, no),
            (Reason::RequestIdConflict, Wait::Unknown, None, None, no),
            (Reason::RequestTooLarge, Wait::Never, None, None, no),
        ] {
            let headers = retry(&refusal(reason, wait));
            let found =
                (get(&headers, "retry-after"), get(&headers, "retry-after-ms"), get(&headers, "x-should-retry"));
            assert_eq!(found, (seconds, millis, should), "{reason} {wait:?}");
        }
    }

    #[test]
    fn an_unknown_wait_is_never_shorter_than_the_known_part() {
        let mut refusal = refusal(Reason::ConcurrencyExceeded, Wait::Unknown);
        for (millis, want) in [(400, "1"), (7_200, "8"), (7_200_000, "60")] {
            refusal.shortages = Shortages::from(vec![Shortage {
                scope: "tenant:acme".into(),
                limit: "rpm".into(),
                shared: false,
                meter: Meter::Requests,
                hard: 60,
                used: 60,
                asked: 1,
                wait: Wait::After(Duration::from_millis(millis)),
            }]);
            assert_eq!(get(&retry(&refusal), "retry-after"), Some(want));
        }
    }

    #[test]
    fn every_reason_renders_as_an_error_in_every_manner() {
        for reason in Reason::ALL {
            for wait in [Wait::After(Duration::from_secs(7)), Wait::Unknown, Wait::Never] {
                let refusal = refusal(*reason, wait);
                let answers = [
                    (openai::response(&refusal), "type"),
                    (anthropic::response(&refusal), "type"),
                    (gemini::response(&refusal), "status"),
                ];
                for (response, word) in answers {
                    assert!((400..600).contains(&response.status), "{reason}");
                    let error = &response.body["error"];
                    assert_eq!(error["reason"], reason.code());
                    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{reason}");
                    assert!(error[word].is_string(), "{reason}");
                    let never = reason.retry() == Retry::No || wait == Wait::Never;
                    if never {
                        assert_eq!(get(&response.headers, "x-should-retry"), Some("false"), "{reason}");
                        assert_eq!(get(&response.headers, "retry-after"), None, "{reason}");
                    }
                }
            }
        }
    }
}
