//! Outcome: what an upstream's answer means for the account.
//!
//! Floor 1. Invariant: nothing is released unless the answer proves that nothing was run.

use serde_json::Value;

use super::{Dialect, Unusable, Usage};

/// How a call ended, as far as its charge is concerned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider told what was used.
    Final(Usage),
    /// The call ran and what it used is not known: the reservation stays charged until one later report.
    Unresolved(Unusable),
    /// The upstream failed without a report; whether anything is charged is the policy's choice.
    FailedWithoutUsage,
    /// The request was not run: nothing is charged.
    NotRun,
}

/// What an answer means: its HTTP status, or `None` if no connection was made, and its body, if it is JSON.
///
/// A connection that broke after the request was sent has no status either, but is not this `None`: its request may
/// have run, so it is [`Outcome::FailedWithoutUsage`]. A report is believed whatever the status. Without one, 2xx is
/// unresolved; 4xx was not run, except 408, 409, 424, 425 and 499, which do not say so; everything else has failed.
pub fn outcome_of(status: Option<u16>, dialect: Dialect, body: Option<&Value>) -> Outcome {
    let Some(status) = status else {
        return Outcome::NotRun;
    };
    let unusable = match body.map_or(Err(Unusable::Missing), |body| Usage::read(dialect, body)) {
        Ok(usage) => return Outcome::Final(usage),
        Err(unusable) => unusable,
    };
    match status {
        200..=299 => Outcome::Unresolved(unusable),
        408 | 409 | 424 | 425 | 499 => Outcome::FailedWithoutUsage,
        300..=499 => Outcome::NotRun,
        _ => Outcome::FailedWithoutUsage,
    }
}
