//! Refusals and balances: the numbers that a decision is explained with.
//!
//! Floor 2. Invariant: a refusal is a value; it names every limit that had no room and never holds prompt text or a key.
//!
//! With `serde` a refusal and a balance are data, without the receipt.

mod data;
mod shortages;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};

pub use self::shortages::Shortages;
use crate::lease::Receipt;
pub use crate::meter::Wait;
use crate::reason::Reason;
use crate::units::Meter;

/// One limit that had no room.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Shortage {
    /// The scope that the limit belongs to, for instance `tenant:acme` or `tenant:acme/model:gpt-large`.
    pub scope: Arc<str>,
    /// The limit's name, for instance `rpm` or `daily_budget_usd`.
    pub limit: Arc<str>,
    /// Whether the scope is wider than the tenant: its figures tell of other tenants and are for the operator only.
    #[serde(default)]
    pub shared: bool,
    /// What it counts.
    #[serde(with = "data::meter")]
    pub meter: Meter,
    /// Its amount.
    pub hard: u64,
    /// How much of it was in use; more than `hard` where there is debt.
    pub used: u64,
    /// What the request asked of it.
    pub asked: u64,
    /// When it will have room.
    #[serde(with = "data::wait")]
    pub wait: Wait,
}

/// What would fit at the moment of a refusal. A hint, not a promise.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Fits {
    /// The largest output ceiling with which the same request would have been admitted; `None` if none would.
    pub max_output_tokens: Option<u64>,
    /// Other models of the tenant with which the same request would have been admitted; at most eight.
    pub models: Vec<Arc<str>>,
}

/// A request that was not admitted, and why.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Refusal {
    /// The stable reason.
    #[serde(with = "data::reason")]
    pub reason: Reason,
    /// The tenant that asked; empty where it is unknown.
    pub tenant: Arc<str>,
    /// The model that was asked for.
    pub model: Arc<str>,
    /// The request id, where there is one.
    #[serde(default)]
    pub request_id: Option<Arc<str>>,
    /// The longest wait of the limits that had no room.
    #[serde(with = "data::wait")]
    pub wait: Wait,
    /// Every limit that had no room, in the order of scopes from widest to narrowest.
    #[serde(default)]
    pub shortages: Shortages,
    /// What would fit now.
    #[serde(default)]
    pub fits: Fits,
    /// What was found, what was allowed, and where, for refusals that are not about a limit's room.
    #[serde(default)]
    pub detail: Option<String>,
    /// What the first request under this id was charged, where the id has ended.
    #[serde(skip)]
    pub receipt: Option<Box<Receipt>>,
}

/// The reason's code and the [`message`](Refusal::message).
impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.reason, self.message())
    }
}

/// So that a host in which a refusal ends the work can pass it on by `?`.
impl std::error::Error for Refusal {}

impl Refusal {
    /// A refusal for this reason, with nothing else to say: no wait that helps, no shortage, nothing that would fit.
    pub fn new(reason: Reason, tenant: impl Into<Arc<str>>, model: impl Into<Arc<str>>) -> Refusal {
        Refusal {
            reason,
            tenant: tenant.into(),
            model: model.into(),
            request_id: None,
            wait: Wait::Never,
            shortages: Shortages::default(),
            fits: Fits::default(),
            detail: None,
            receipt: None,
        }
    }

    /// One sentence for the asker: the limit, its amount, what was asked and when to come back. The figures of a scope
    /// that is shared with other tenants are left out.
    pub fn message(&self) -> String {
        let mut text = self.reason.text().trim_end_matches('.').to_owned();
        if let Some(detail) = &self.detail {
            text.push_str(": ");
            text.push_str(detail);
        }
        if let Some(worst) = self.shortages.iter().find(|s| s.wait == self.wait).or(self.shortages.first()) {
            text.push_str(&format!(" ({} of {}: ", worst.limit, worst.scope));
            if !worst.shared {
                text.push_str(&format!("{} of {} used, ", worst.meter.show(worst.used), worst.meter.show(worst.hard)));
            }
            text.push_str(&format!("{} asked)", worst.meter.show(worst.asked)));
        }
        text.push('.');
        if let Some(millis) = self.wait.millis() {
            text.push_str(&format!(" Try again in {}.{:03} s.", millis / 1000, millis % 1000));
        }
        text
    }
}

/// The state of one limit for one principal.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Balance {
    /// The scope that the limit belongs to.
    pub scope: Arc<str>,
    /// The limit's name.
    pub limit: Arc<str>,
    /// What it counts.
    #[serde(with = "data::meter")]
    pub meter: Meter,
    /// Its hard amount.
    pub hard: u64,
    /// Its soft amount.
    #[serde(default)]
    pub soft: Option<u64>,
    /// How much is in use: spent and held.
    pub used: u64,
    /// What is left; 0 where there is debt.
    pub remaining: u64,
    /// Until everything is back: the bucket full again, or the period over; `None` for gauges.
    #[serde(rename = "resets_in_ns", with = "data::time", default)]
    pub resets_in: Option<Duration>,
    /// Whether the window rolls (a rate): what was used comes back bit by bit, not all at the end of a period.
    #[serde(default)]
    pub rolling: bool,
    /// The window in nanoseconds, where it has a fixed length (a rate, a budget of seconds).
    #[serde(rename = "window_ns", default)]
    pub window: Option<u64>,
}
