//! The model's accounts: a bucket, a table of periods, a set of holds, the time of a run.
//!
//! Floor 5. Invariant: exact; no account is a word, and nothing is rounded but a wait, upwards.

use std::collections::BTreeMap;
use std::time::Duration;

use crate::policy::plan::{Limit, Mode, Window};
use crate::refusal::Wait;
use crate::time::{Now, Period, SECOND};
use crate::units::Meter;

/// The running state of one limit of one scope.
#[derive(Debug, Clone)]
pub(super) enum Account {
    /// A token bucket.
    Bucket(Bucket),
    /// What was used in each period, and the latest period that anything was asked of.
    Periods { used: BTreeMap<u32, u64>, latest: Option<u32> },
    /// What is held.
    Held(u64),
    /// The engine's time at which a run is over, once it has begun.
    Span(Option<u64>),
}

/// A token bucket by what is missing from it.
#[derive(Debug, Clone)]
pub(super) struct Bucket {
    /// Units that are missing from the full bucket, times the period in nanoseconds, so that a nanosecond refills a
    /// whole number of them.
    missing: i128,
    /// When that was so.
    at: u64,
    /// Units that come back in a period, under the limit that it was last seen with.
    rate: u64,
    period: u64,
}

/// What a hold has to remember to be corrected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Mark {
    /// When time will have refilled all of the hold, and what a unit took to refill then.
    Refilled { by: u64, rate: u64 },
    /// The period that it was taken in.
    Period(u32),
    /// Nothing.
    None,
}

impl Mark {
    /// Whether two holds of one lease on one limit are kept as one.
    pub(super) fn joins(&self, later: &Mark) -> bool {
        match (self, later) {
            (Mark::Period(first), Mark::Period(second)) => first == second,
            _ => true,
        }
    }
}

impl Bucket {
    /// The bucket at a moment under a limit. One of another amount needs as long until it is full.
    fn seen(&self, limit: &Limit, now: Now) -> Bucket {
        let missing = (self.missing - (now.mono - self.at) as i128 * self.rate as i128).max(0);
        let missing = missing * limit.hard as i128 / self.rate as i128;
        Bucket { missing, at: now.mono, rate: limit.hard, period: self.period }
    }

    fn of(&self, units: u64) -> i128 {
        units as i128 * self.period as i128
    }

    /// The nanoseconds in which so much comes back at a rate.
    fn time(amount: i128, rate: u64) -> i128 {
        (amount + rate as i128 - 1) / rate as i128
    }
}

fn burst(limit: &Limit) -> u64 {
    if limit.hard == 0 { 0 } else { limit.burst }
}

/// The hard amount: the most of an empty account.
pub(super) fn hard(limit: &Limit) -> u64 {
    if let Window::Rolling { .. } = limit.window { burst(limit) } else { limit.hard }
}

/// The period of a limit's calendar at a moment.
pub(super) fn period(limit: &Limit, now: Now) -> Period {
    match &limit.window {
        Window::Fixed(calendar) => calendar.period(now.wall),
        Window::Rolling { .. } | Window::Held | Window::Run => Period::default(),
    }
}

impl Account {
    pub(super) fn new(limit: &Limit, now: Now) -> Account {
        match limit.window {
            Window::Rolling { nanos: period } => {
                Account::Bucket(Bucket { missing: 0, at: now.mono, rate: limit.hard, period })
            }
            Window::Fixed(_) => Account::Periods { used: BTreeMap::new(), latest: None },
            Window::Run if limit.meter == Meter::RunTime => Account::Span(None),
            Window::Held | Window::Run => Account::Held(0),
        }
    }

    /// The amount in use.
    pub(super) fn used(&self, limit: &Limit, now: Now) -> u64 {
        match self {
            Account::Bucket(bucket) => {
                let period = bucket.period as i128;
                ((bucket.seen(limit, now).missing + period - 1) / period) as u64
            }
            Account::Periods { used, latest } => {
                let present = period(limit, now).number;
                let number = latest.map_or(present, |latest| latest.max(present));
                used.get(&number).copied().unwrap_or(0)
            }
            Account::Held(sum) => *sum,
            // Whole seconds that are left are not used.
            Account::Span(over) => {
                let left = over.map_or(limit.hard, |over| over.saturating_sub(now.mono) / SECOND);
                limit.hard.saturating_sub(left)
            }
        }
    }

    /// When so much would fit; `None` if it does now.
    pub(super) fn lacks(&self, limit: &Limit, amount: u64, now: Now) -> Option<Wait> {
        if amount == 0 || limit.mode == Mode::Shadow {
            return None;
        }
        if amount > hard(limit) {
            return Some(Wait::Never);
        }
        match self {
            Account::Bucket(bucket) => {
                let bucket = bucket.seen(limit, now);
                let over = bucket.missing + bucket.of(amount) - bucket.of(burst(limit));
                let wait = || Wait::After(Duration::from_nanos(Bucket::time(over, bucket.rate) as u64));
                (over > 0).then(wait)
            }
            Account::Periods { .. } => {
                let rest = period(limit, now).end - now.wall;
                (self.used(limit, now) + amount > limit.hard).then(|| Wait::After(Duration::from_nanos(rest)))
            }
            // What a run has used never comes back; other holds come back some time.
            Account::Held(sum) if limit.window == Window::Run => (sum + amount > limit.hard).then_some(Wait::Never),
            Account::Held(sum) => (sum + amount > limit.hard).then_some(Wait::Unknown),
            Account::Span(over) => over.is_some_and(|over| over < now.mono).then_some(Wait::Never),
        }
    }

    /// Takes an amount, which has been found to fit or is in shadow.
    pub(super) fn take(&mut self, limit: &Limit, amount: u64, now: Now) -> Mark {
        let present = period(limit, now).number;
        match self {
            Account::Bucket(bucket) => {
                *bucket = bucket.seen(limit, now);
                let before = bucket.missing;
                let all = before + bucket.of(amount);
                // In shadow a bucket is emptied and no more: it runs up no debt.
                let empty = before.max(bucket.of(burst(limit)));
                bucket.missing = all.min(empty);
                let ahead = if all <= empty { bucket.missing } else { bucket.missing - before };
                let by = now.mono + Bucket::time(ahead, bucket.rate) as u64;
                Mark::Refilled { by, rate: bucket.rate }
            }
            Account::Periods { used, latest } => {
                let number = latest.map_or(present, |latest| latest.max(present));
                *latest = Some(number);
                *used.entry(number).or_default() += amount;
                Mark::Period(number)
            }
            Account::Held(sum) => {
                *sum += amount;
                Mark::None
            }
            Account::Span(over) => {
                over.get_or_insert(now.mono + limit.hard * SECOND);
                Mark::None
            }
        }
    }

    /// Replaces a hold by what was used of it.
    ///
    /// A bucket refills a hold as time passes, whether it is used or not. So only the part of a hold that still lies
    /// ahead can come back; what was used beyond it goes missing from now on. A period that is over stays as it was.
    pub(super) fn correct(&mut self, mark: Mark, held: u64, used: u64, now: Now) {
        match (self, mark) {
            (Account::Bucket(bucket), Mark::Refilled { by, rate }) => {
                let elapsed = (now.mono - bucket.at) as i128;
                bucket.missing = (bucket.missing - elapsed * bucket.rate as i128).max(0);
                bucket.at = now.mono;
                let change = Bucket::time(bucket.of(held.abs_diff(used)), rate);
                let change = if used > held { -change } else { change.min(by.saturating_sub(now.mono) as i128) };
                bucket.missing = (bucket.missing - change * bucket.rate as i128).max(0);
            }
            (Account::Periods { used: table, latest }, Mark::Period(number)) if *latest == Some(number) => {
                let amount = table.entry(number).or_default();
                *amount = *amount + used - held;
            }
            (Account::Held(sum), _) => *sum = *sum + used - held,
            _ => {}
        }
    }
}
