//! Accounts: the limits that apply to a request, each bound to where its word lives.
//!
//! Floor 2. Invariant: plain data; the same meter and window in the same scope is the same account, whatever its amounts.

use std::num::NonZeroU64;
use std::sync::Arc;

use crate::meter::{At, Rule};
use crate::policy::plan::{Hold, Window};
use crate::time::{Now, Period};
use crate::units::Meter;

/// Which scope a row of accounts belongs to.
///
/// A row that has been given to another scope has another identity, so an old reference to it is noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) struct Identity(NonZeroU64);

impl Identity {
    /// Bits that a store may pack below an identity in one word.
    pub(crate) const BITS_BELOW: u32 = 24;

    /// The `n`th identity that was ever given; `n` from 1 to 2^40 − 1.
    pub(crate) fn new(n: u64) -> Option<Identity> {
        NonZeroU64::new(n).filter(|n| n.get() < 1 << (64 - Identity::BITS_BELOW)).map(Identity)
    }

    pub(crate) fn get(self) -> u64 {
        self.0.get()
    }
}

/// Where the word of one limit lives in a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Account {
    pub(crate) row: u32,
    pub(crate) column: u8,
    pub(crate) identity: Option<Identity>,
}

/// One limit, bound to its account: everything that a store needs to know of it.
#[derive(Debug, Clone)]
pub struct Bound {
    /// Where its word lives.
    pub account: Account,
    /// The scope that it belongs to, for people and journals.
    pub scope: Arc<str>,
    /// Its name, for people and journals.
    pub limit: Arc<str>,
    /// What it counts.
    pub meter: Meter,
    /// Which of the scope's accounts it is.
    pub column: Column,
    /// How its word is read.
    pub rule: Rule,
    /// How much of an output it holds.
    pub hold: Hold,
    /// The period of its calendar in which the lineup was made, and holds; ignored by rates and gauges.
    pub period: Period,
    /// Counted but never refused.
    pub shadow: bool,
    /// Its soft amount.
    pub soft: Option<u64>,
    /// Whether the scope comes and goes with the callers' names, see `Store::bind`.
    pub passing: bool,
}

impl Bound {
    /// The moment, as its rule needs it.
    pub fn at(&self, now: Now) -> At {
        At { now, period: self.period }
    }

    /// The amount in use that a word of its account says, at the moment when it was written.
    pub fn used(&self, word: u64, now: Now) -> u64 {
        self.rule.read(word, &self.at(now)).used
    }
}

/// All limits that apply to one principal and model, widest scope first. Stores take them in this order.
#[derive(Debug, Default)]
pub struct Lineup {
    limits: Box<[Bound]>,
    rows: Box<[RowSpan]>,
    spots: Box<[Spot]>,
}

/// What taking and correcting need of a limit, close together: a reservation reads these and not the limits.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Spot {
    pub(crate) rule: Rule,
    pub(crate) period: Period,
    pub(crate) meter: Meter,
    pub(crate) hold: Hold,
    pub(crate) column: u8,
    pub(crate) shadow: bool,
    /// Whether it refuses, and is asked for the same amount whatever is in use.
    pub(crate) is_plain: bool,
    pub(crate) soft: Option<u64>,
}

impl Spot {
    fn of(bound: &Bound) -> Spot {
        let &Bound { account, meter, rule, hold, period, shadow, soft, .. } = bound;
        let is_plain = !shadow && hold != Hold::Adaptive;
        Spot { rule, period, meter, hold, column: account.column, shadow, is_plain, soft }
    }

    #[inline(always)]
    pub(crate) fn at(&self, now: Now) -> At {
        At { now, period: self.period }
    }
}

/// The limits of a lineup that share a row.
#[derive(Debug, Clone, Copy)]
pub(crate) struct RowSpan {
    pub(crate) row: u32,
    pub(crate) identity: Option<Identity>,
    pub(crate) from: u16,
    pub(crate) to: u16,
}

impl Lineup {
    /// A lineup of these limits (at most 65,535). Limits of one row must stand together.
    pub fn new(limits: Vec<Bound>) -> Lineup {
        let mut rows: Vec<RowSpan> = Vec::new();
        for (at, bound) in limits.iter().enumerate().take(u16::MAX as usize) {
            let (row, identity, at) = (bound.account.row, bound.account.identity, at as u16);
            match rows.last_mut() {
                Some(span) if span.row == row && span.identity == identity => span.to = at + 1,
                _ => rows.push(RowSpan { row, identity, from: at, to: at + 1 }),
            }
        }
        Lineup { spots: limits.iter().map(Spot::of).collect(), limits: limits.into(), rows: rows.into() }
    }

    /// The limits, widest scope first.
    pub fn limits(&self) -> &[Bound] {
        &self.limits
    }

    /// In the order of the limits.
    pub(crate) fn spots(&self) -> &[Spot] {
        &self.spots
    }

    pub(crate) fn rows(&self) -> &[RowSpan] {
        &self.rows
    }
}

/// What an account is: the same meter and window in the same scope is the same account, whatever its amounts.
#[derive(Debug, Clone, PartialEq)]
pub struct Column {
    /// What it counts.
    pub meter: Meter,
    /// Over what.
    pub window: Window,
    /// Which of several limits of the same meter and window in the same scope it is, from 0.
    pub nth: u8,
}
