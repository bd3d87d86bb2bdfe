//! Replay: the balances that a journal adds up to.
//!
//! Floor 2. Invariant: replaying every entry since the beginning gives the amounts that the live accounts show, also
//! where the entries of different threads were written in another order than they happened in.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::{Entry, Event, Journal};
use crate::account::{Bound, Column};
use crate::lease::{Hold, LeaseId, Record, State};
use crate::meter::{At, Budget, Rule};
use crate::policy::plan::Window;
use crate::time::{Now, Period};

/// The words that a journal adds up to, by scope and limit.
#[derive(Debug, Default)]
pub struct Replayed {
    words: BTreeMap<(Arc<str>, Arc<str>), Vec<Kept>>,
    leases: HashMap<LeaseId, Seen>,
    /// Entries that were no longer there; what they did is missing from the words.
    pub missing: u64,
}

/// The word of one account. A limit whose window has changed has an account for each; the latest is the live one.
#[derive(Debug)]
struct Kept {
    column: Column,
    rule: Rule,
    word: u64,
}

/// What has been replayed of one lease.
#[derive(Debug, Default)]
struct Seen {
    /// What each of its holds stands at, in the order of the holds.
    amounts: Vec<u64>,
    /// How far its life has come: held, unresolved, closed.
    stage: u8,
}

impl Replayed {
    /// The amount in use of a limit at a moment; `None` for a limit that no entry names.
    ///
    /// `period` is the limit's present period; it is ignored by rates and gauges.
    pub fn used(&self, scope: &str, limit: &str, now: Now, period: Period) -> Option<u64> {
        let kept = self.words.get(&(scope.into(), limit.into()))?.last()?;
        Some(kept.rule.read(kept.word, &At { now, period }).used)
    }

    /// Every limit that an entry names: scope and limit.
    pub fn limits(&self) -> impl Iterator<Item = (&str, &str)> {
        self.words.keys().map(|(scope, limit)| (&**scope, &**limit))
    }

    fn word(&mut self, bound: Bound<'_>) -> &mut u64 {
        let key = (bound.scope.clone(), bound.limit.clone());
        let accounts = self.words.entry(key).or_default();
        let at = accounts.iter().position(|kept| kept.column == bound.column).unwrap_or_else(|| {
            accounts.push(Kept { column: bound.column.clone(), rule: bound.rule, word: 0 });
            accounts.len() - 1
        });
        accounts[at].rule = bound.rule;
        &mut accounts[at].word
    }

    fn take(&mut self, bound: Bound<'_>, hold: &Hold, now: Now) {
        let word = self.word(bound);
        if let Window::Fixed(_) = &bound.column.window {
            let bits = bound.column.window.amount_bits().clamp(1, 63);
            if *word != 0 && Budget::is_past(hold.mark << bits | 1, bits, (*word >> bits) as u32) {
                // The account has gone on to a later period.
                return;
            }
        }
        // A budget's mark is the number of the period that the hold was taken in.
        let at = At { now, period: Period { number: hold.mark as u32, start: 0, end: u64::MAX } };
        *word = bound.rule.charge(*word, hold.amount, &at).word;
    }

    /// Brings a lease to a record of it: takes the holds that no entry has named yet, then corrects what the record
    /// leaves at another amount. An entry that comes after a later one of the same lease adds nothing.
    fn bring(&mut self, record: &Record, now: Now) {
        let mut seen = self.leases.remove(&record.claim.id).unwrap_or_default();
        let first = record.claim.holds().len();
        for (nth, hold) in record.holds().enumerate() {
            if nth == seen.amounts.len() {
                seen.amounts.push(0);
            }
            // A hold grows while the lease is held, by being extended.
            let more = hold.amount.saturating_sub(seen.amounts[nth]);
            let new = seen.stage == 0 && (more > 0 || hold.amount == 0);
            if new {
                let at = if nth < first { record.claim.at } else { now };
                self.take(record.limit(&hold), &Hold { amount: more, ..hold }, at);
                seen.amounts[nth] = hold.amount;
            }
        }
        let stage = match &*record.state() {
            State::Held => 0,
            State::Unresolved(_) => 1,
            State::Settled(_) | State::Cancelled(_) => 2,
        };
        if stage > seen.stage {
            seen.stage = stage;
            let at = At { now, period: Period::default() };
            for ((hold, to), amount) in record.standing().into_iter().zip(&mut seen.amounts) {
                if to != *amount {
                    let bound = record.limit(&hold);
                    let word = self.word(bound);
                    *word = bound.rule.correct(*word, hold.mark, *amount, to, &at);
                    *amount = to;
                }
            }
        }
        self.leases.insert(record.claim.id, seen);
    }
}

/// The record that an entry tells of, and when that came about; `None` for entries that move no account.
///
/// Not when it was written down: the answer that told of an admission or an ending may have been lost, and whoever met the
/// lease next wrote it, later. What a correction gives back of a rate depends on the moment.
fn moved(entry: &Entry) -> Option<(&Record, Now)> {
    match &entry.event {
        Event::Admitted(record) => Some((record, record.claim.at)),
        Event::Extended(record) => Some((record, entry.at)),
        Event::Ended(record) => {
            let at = match &*record.state() {
                State::Held => entry.at,
                State::Unresolved(unresolved) => unresolved.since,
                State::Settled(settled) => settled.at,
                State::Cancelled(at) => *at,
            };
            Some((record, at))
        }
        _ => None,
    }
}

/// Adds up a journal.
///
/// Budgets and gauges come out exact in any order; a rate comes out exact if its operations came about at the moments that
/// their callers had read, one after the other. Operations of different threads within some nanoseconds can differ from that,
/// and an extension whose answer was lost, which is told when it was written down.
/// Memory: the entries, leases and limits of the journal.
pub fn replay(journal: &dyn Journal) -> Replayed {
    let mut replayed = Replayed { missing: journal.dropped(), ..Replayed::default() };
    let mut entries = Vec::new();
    journal.scan(&mut |entry| {
        if let Some((_, at)) = moved(entry) {
            entries.push((at, entry.clone()));
        }
        true
    });
    // Stable: what came about at one moment stays in the order of the entries.
    entries.sort_by_key(|(at, _)| at.mono);
    for (at, entry) in &entries {
        if let Some((record, _)) = moved(entry) {
            replayed.bring(record, *at);
        }
    }
    replayed
}
