//! Retry storms: the same principal sending the same refused request again and again before it was told to.
//!
//! The first early retry is decided like any other request; from the second on the wait grows.
//!
//! Floor 3. Invariant: looking costs no account a write, and what is remembered is bounded.

use std::hash::{BuildHasher, Hash, Hasher};
use std::time::Duration;

use crate::principal::Principal;
use crate::request::{Input, Part, Request};
use crate::sync::{AtomicU64, Ordering};
use crate::time::Now;

/// Refused requests remembered; when there are more, those whose wait is over are forgotten, then all.
const MOST: usize = 1 << 16;

/// The first penalty for coming too early, in nanoseconds; it doubles with every time.
const FIRST: u64 = 1_000_000_000;

/// The longest penalty. Official clients obey a `retry-after` of up to 60 seconds; a longer one they ignore or sleep out.
const LONGEST: u64 = 60_000_000_000;

/// How many times an early retry is counted; more doublings than these are past the longest penalty anyway.
const MOST_STRIKES: u64 = 6;

/// Refused requests and when they may come back.
pub(super) struct Storms {
    until: papaya::HashMap<u128, Early, ahash::RandomState>,
    /// Two keyed hashes make a name of 128 bits: two requests are never taken for one.
    hashers: [ahash::RandomState; 2],
}

/// When a request may come back, and how often it came too early.
struct Early {
    /// Engine time in nanoseconds of the refusal that named the wait.
    since: u64,
    /// Engine time in nanoseconds. Raised by whoever comes too early; read by whoever comes.
    until: AtomicU64,
    /// Early retries so far. Raised with `until`.
    strikes: AtomicU64,
}

impl Storms {
    pub(super) fn new() -> Storms {
        let hasher = ahash::RandomState::new;
        Storms { until: papaya::HashMap::default(), hashers: [hasher(), hasher()] }
    }

    /// What makes two requests the same: the principal, the model, and the last tool call with its arguments, or the
    /// last text where there is none, or what the gateway says. `None` where nothing tells requests apart.
    fn name(&self, who: &Principal, request: &Request) -> Option<u128> {
        if request.fingerprint.is_none() && matches!(request.input, Input::Counted(_)) {
            return None;
        }
        let hash = |hasher: &ahash::RandomState| {
            let mut state = hasher.build_hasher();
            who.hash(&mut state);
            request.user.hash(&mut state);
            request.model.hash(&mut state);
            // With another ceiling it is another request: a client that follows the refusal's hint is not early.
            request.max_output_tokens.hash(&mut state);
            request.choices.hash(&mut state);
            match (&request.input, request.fingerprint) {
                (_, Some(fingerprint)) => fingerprint.hash(&mut state),
                (Input::Counted(_), None) => {}
                (Input::Parts(parts), None) => {
                    let call = parts.iter().rev().find_map(|part| match part {
                        Part::ToolCall { name, arguments } => Some((name, arguments)),
                        _ => None,
                    });
                    let text = || {
                        parts.iter().rev().find_map(|part| match part {
                            Part::Text(text) => Some(text),
                            _ => None,
                        })
                    };
                    match call {
                        Some(call) => call.hash(&mut state),
                        None => text().hash(&mut state),
                    }
                }
            }
            state.finish()
        };
        Some((hash(&self.hashers[0]) as u128) << 64 | hash(&self.hashers[1]) as u128)
    }

    /// How long a request that comes too early has to stay away now; `None` if it does not come too early.
    pub(super) fn early(&self, who: &Principal, request: &Request, now: Now) -> Option<Duration> {
        if self.until.is_empty() {
            return None;
        }
        let known = self.until.pin();
        let early = known.get(&self.name(who, request)?)?;
        // ORDERING: relaxed throughout; the two numbers are hints of their own, and whoever reads an old pair is told a
        // wait that was right an instant ago.
        let until = early.until.load(Ordering::Relaxed);
        if now.mono >= until {
            return None;
        }
        let strikes = early.strikes.fetch_add(1, Ordering::Relaxed);
        let penalty = (FIRST << strikes.checked_sub(1)?.min(MOST_STRIKES)).min(LONGEST);
        // However often it comes, it is decided on again within the longest penalty of its last real refusal.
        let last = early.since.saturating_add(LONGEST).max(until);
        let until = until.max(now.mono.saturating_add(penalty)).min(last);
        // ORDERING: relaxed, as above. A maximum: of two that come at once the later instant counts.
        early.until.fetch_max(until, Ordering::Relaxed);
        Some(Duration::from_nanos(until - now.mono))
    }

    /// Remembers a refusal that said when to come back.
    pub(super) fn refused(&self, who: &Principal, request: &Request, wait: Duration, now: Now) {
        let Some(name) = self.name(who, request) else { return };
        let until = now.mono.saturating_add(u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        let known = self.until.pin();
        if known.len() >= MOST {
            // ORDERING: relaxed, as in `early`.
            known.retain(|_, early| early.until.load(Ordering::Relaxed) > now.mono);
            if known.len() >= MOST {
                known.clear();
            }
        }
        // ORDERING: relaxed, as in `early`.
        let strikes = known.get(&name).filter(|early| now.mono < early.until.load(Ordering::Relaxed));
        let strikes = strikes.map_or(0, |early| early.strikes.load(Ordering::Relaxed));
        known.insert(name, Early { since: now.mono, until: AtomicU64::new(until), strikes: AtomicU64::new(strikes) });
    }

    /// Forgets a request that was admitted.
    pub(super) fn admitted(&self, who: &Principal, request: &Request) {
        if !self.until.is_empty()
            && let Some(name) = self.name(who, request)
        {
            self.until.pin().remove(&name);
        }
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    fn call(name: &str, arguments: &str) -> Request {
        let call = Part::ToolCall { name: name.into(), arguments: arguments.into() };
        Request { input: Input::Parts(vec![Part::Text("go on".into()), call]), ..Request::chat("m") }
    }

    #[test]
    fn an_early_retry_waits_longer_each_time_and_a_late_one_does_not() {
        let (storms, who) = (Storms::new(), Principal::builder("acme").build());
        let (request, start) = (call("search", "{}"), Now::at(1 << 40));
        assert_eq!(storms.early(&who, &request, start), None);
        storms.refused(&who, &request, Duration::from_secs(2), start);
        assert_eq!(storms.early(&who, &request, start), None, "the first is decided like any other");
        storms.refused(&who, &request, Duration::from_secs(2), start);
        let waits: Vec<_> = (0..8).map(|_| storms.early(&who, &request, start).unwrap().as_secs()).collect();
        assert_eq!(waits, [2, 2, 4, 8, 16, 32, 60, 60]);
        assert_eq!(storms.early(&who, &request, Now::at((1 << 40) + 60 * FIRST)), None);
        assert_eq!(storms.early(&who, &request.clone().max_output_tokens(9), start), None);
        // Another tool call, another principal: another request.
        assert_eq!(storms.early(&who, &call("search", "{\"q\": 1}"), start), None);
        assert_eq!(storms.early(&Principal::builder("other").build(), &request, start), None);
        assert_eq!(storms.name(&who, &Request::chat("m").input_tokens(7)), None, "nothing tells such requests apart");
        storms.admitted(&who, &request);
        assert_eq!(storms.early(&who, &request, start), None);
    }

    #[test]
    fn whoever_keeps_asking_is_decided_on_again_within_the_longest_penalty() {
        let (storms, who, request) = (Storms::new(), Principal::builder("acme").build(), call("search", "{}"));
        storms.refused(&who, &request, Duration::from_secs(1), Now::at(1 << 40));
        let early = |after: u64| storms.early(&who, &request, Now::at((1 << 40) + after * FIRST / 10));
        let first = (0..).find(|tenths| *tenths > 0 && early(*tenths).is_none()).unwrap();
        assert_eq!(first, 1, "the first is decided like any other");
        let next = (2..).find(|tenths| early(*tenths).is_none()).unwrap();
        assert!(next <= 600, "{next}");
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let (storms, who) = (Storms::new(), Principal::builder("acme").build());
        for n in 0..MOST as u64 + 10 {
            storms.refused(&who, &Request::chat("m").fingerprint(n), Duration::from_secs(9), Now::at(1));
        }
        assert!(storms.until.len() <= MOST);
    }
}
