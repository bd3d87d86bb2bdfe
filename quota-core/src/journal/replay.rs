//! Replay: the balances that a journal adds up to.
//!
//! Floor 2. Invariant: replaying every entry since the beginning gives the amounts that the live accounts show.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::{Entry, Event, Journal};
use crate::account::Bound;
use crate::lease::{Hold, Record};
use crate::meter::{At, Rule};
use crate::time::{Now, Period};

/// The words that a journal adds up to, by scope and limit.
#[derive(Debug, Default)]
pub struct Replayed {
    words: BTreeMap<(Arc<str>, Arc<str>), (Rule, u64)>,
    /// Entries that were no longer there; what they did is missing from the words.
    pub missing: u64,
}

impl Replayed {
    /// The amount in use of a limit at a moment; `None` for a limit that no entry names.
    ///
    /// `period` is the limit's present period; it is ignored by rates and gauges.
    pub fn used(&self, scope: &str, limit: &str, now: Now, period: Period) -> Option<u64> {
        let (rule, word) = self.words.get(&(scope.into(), limit.into()))?;
        Some(rule.read(*word, &At { now, period }).used)
    }

    /// Every limit that an entry names: scope and limit.
    pub fn limits(&self) -> impl Iterator<Item = (&str, &str)> {
        self.words.keys().map(|(scope, limit)| (&**scope, &**limit))
    }

    fn word(&mut self, bound: &Bound) -> &mut u64 {
        let key = (bound.scope.clone(), bound.limit.clone());
        let entry = self.words.entry(key).or_insert((bound.rule, 0));
        entry.0 = bound.rule;
        &mut entry.1
    }

    fn take(&mut self, record: &Record, hold: &Hold, now: Now) {
        let bound = record.limit(hold);
        // A budget's mark is the number of the period that the hold was taken in.
        let at = At { now, period: Period { number: hold.mark as u32, start: 0, end: u64::MAX } };
        let word = self.word(bound);
        *word = bound.rule.charge(*word, hold.amount, &at).word;
    }

    fn apply(&mut self, entry: &Entry) {
        match &entry.event {
            Event::Admitted(record) => {
                for hold in &record.claim.holds {
                    self.take(record, hold, record.claim.at);
                }
            }
            Event::Extended(record) => {
                let last = last_extension(record);
                for hold in last {
                    self.take(record, hold, entry.at);
                }
            }
            Event::Ended(record) => {
                let at = At { now: entry.at, period: Period::default() };
                for (hold, to) in record.corrections() {
                    let Some(to) = to else { continue };
                    let bound = record.limit(hold);
                    let word = self.word(bound);
                    *word = bound.rule.correct(*word, hold.mark, hold.amount, to, &at);
                }
            }
            // No other event moves an account.
            _ => {}
        }
    }
}

/// The holds that the last extension added: from the last place where the limits' order starts over.
fn last_extension(record: &Record) -> &[Hold] {
    let mut from = 0;
    for at in 1..record.more.len() {
        if record.more[at].limit <= record.more[at - 1].limit {
            from = at;
        }
    }
    &record.more[from..]
}

/// Adds up a journal.
///
/// Budgets and gauges come out exact in any order; a rate comes out exact if no two of its operations were written in
/// another order than they happened in, which only operations of different threads within some nanoseconds can be.
pub fn replay(journal: &dyn Journal) -> Replayed {
    let mut replayed = Replayed { missing: journal.dropped(), ..Replayed::default() };
    journal.scan(&mut |entry| {
        replayed.apply(entry);
        true
    });
    replayed
}
