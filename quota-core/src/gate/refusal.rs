//! Refusals and balances: the numbers that a decision is explained with.
//!
//! Floor 3. Invariant: a refusal is a value; it names every limit that had no room and never holds prompt text or a key.

use std::sync::Arc;
use std::time::Duration;

use crate::reason::Reason;
use crate::units::Meter;

/// When the same request could pass if nothing else happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// After exactly this long; one nanosecond earlier it would not.
    After(Duration),
    /// Some time, unknown when: a slot comes free when another request ends.
    Unknown,
    /// Never as it is.
    Never,
}

impl Wait {
    /// The longer of two waits: never beats unknown, unknown beats any time.
    pub fn max(self, other: Wait) -> Wait {
        match (self, other) {
            (Wait::Never, _) | (_, Wait::Never) => Wait::Never,
            (Wait::Unknown, _) | (_, Wait::Unknown) => Wait::Unknown,
            (Wait::After(a), Wait::After(b)) => Wait::After(a.max(b)),
        }
    }

    /// The wait in milliseconds, rounded up; `None` where no time is known.
    pub fn millis(self) -> Option<u64> {
        match self {
            Wait::After(time) => Some(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)),
            Wait::Unknown | Wait::Never => None,
        }
    }
}

/// One limit that had no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Shortage {
    /// The scope that the limit belongs to, for instance `tenant:acme` or `tenant:acme/model:gpt-large`.
    pub scope: Arc<str>,
    /// The limit's name, for instance `rpm` or `daily_budget_usd`.
    pub limit: Arc<str>,
    /// What it counts.
    pub meter: Meter,
    /// Its amount.
    pub hard: u64,
    /// How much of it was in use; more than `hard` where there is debt.
    pub used: u64,
    /// What the request asked of it.
    pub asked: u64,
    /// When it will have room.
    pub wait: Wait,
}

/// What would fit at the moment of a refusal. A hint, not a promise.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Fits {
    /// The largest output ceiling with which the same request would have been admitted; `None` if none would.
    pub max_output_tokens: Option<u64>,
    /// Other models of the tenant with which the same request would have been admitted; at most eight.
    pub models: Vec<Arc<str>>,
}

/// A request that was not admitted, and why.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refusal {
    /// The stable reason.
    pub reason: Reason,
    /// The tenant that asked; empty where it is unknown.
    pub tenant: Arc<str>,
    /// The model that was asked for.
    pub model: Arc<str>,
    /// The request id, where there is one.
    pub request_id: Option<Arc<str>>,
    /// The longest wait of the limits that had no room.
    pub wait: Wait,
    /// Every limit that had no room, in the order of scopes from widest to narrowest.
    pub shortages: Vec<Shortage>,
    /// What would fit now.
    pub fits: Fits,
    /// What was found, what was allowed, and where, for refusals that are not about a limit's room.
    pub detail: Option<String>,
}

impl Refusal {
    /// One sentence that names the limit, its amount, what was asked and when to come back.
    pub fn message(&self) -> String {
        let mut text = self.reason.text().trim_end_matches('.').to_owned();
        if let Some(detail) = &self.detail {
            text.push_str(": ");
            text.push_str(detail);
        }
        if let Some(worst) = self.shortages.iter().find(|s| s.wait == self.wait).or(self.shortages.first()) {
            text.push_str(&format!(
                " ({} of {}: {} of {} used, {} asked)",
                worst.limit,
                worst.scope,
                worst.meter.show(worst.used),
                worst.meter.show(worst.hard),
                worst.meter.show(worst.asked)
            ));
        }
        text.push('.');
        if let Some(millis) = self.wait.millis() {
            text.push_str(&format!(" Try again in {}.{:03} s.", millis / 1000, millis % 1000));
        }
        text
    }
}

/// The state of one limit for one principal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Balance {
    /// The scope that the limit belongs to.
    pub scope: Arc<str>,
    /// The limit's name.
    pub limit: Arc<str>,
    /// What it counts.
    pub meter: Meter,
    /// Its hard amount.
    pub hard: u64,
    /// Its soft amount.
    pub soft: Option<u64>,
    /// How much is in use: spent and held.
    pub used: u64,
    /// What is left; 0 where there is debt.
    pub remaining: u64,
    /// Until everything is back: the bucket full again, or the period over; `None` for gauges.
    pub resets_in: Option<Duration>,
    /// Whether the window rolls (a rate): what was used comes back bit by bit, not all at the end of a period.
    pub rolling: bool,
    /// The window in nanoseconds, where it has a fixed length (a rate, a budget of seconds).
    pub window: Option<u64>,
}
