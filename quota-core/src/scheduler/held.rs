//! Held: who is out of turn because a limit of its own had no room, until something is given back there or some time has passed.
//!
//! Floor 2. Invariant: whoever is held is found both by the scope whose limit had no room and by the time.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use super::drr::{FlowId, JobId};

/// A flow whose turn is suspended, or one job of a flow that goes on without it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum Who {
    Flow(FlowId),
    Job(JobId),
}

#[derive(Debug)]
struct Entry {
    scope: Arc<str>,
    due: u64,
    /// Tells entries of one scope or time apart, in the order in which they came.
    number: u64,
}

#[derive(Debug, Default)]
pub(super) struct Held {
    entries: HashMap<Who, Entry, ahash::RandomState>,
    by_scope: BTreeMap<(Arc<str>, u64), Who>,
    by_due: BTreeMap<(u64, u64), Who>,
    next: u64,
}

impl Held {
    /// Holds someone until something is given back in `scope`, at most until `due` (nanoseconds of engine time).
    pub(super) fn insert(&mut self, who: Who, scope: Arc<str>, due: u64) {
        self.remove(who);
        let number = self.next;
        self.next += 1;
        self.by_scope.insert((scope.clone(), number), who);
        self.by_due.insert((due, number), who);
        self.entries.insert(who, Entry { scope, due, number });
    }

    pub(super) fn remove(&mut self, who: Who) {
        if let Some(Entry { scope, due, number }) = self.entries.remove(&who) {
            self.by_scope.remove(&(scope, number));
            self.by_due.remove(&(due, number));
        }
    }

    /// Takes out the one that has been held longest for this scope.
    pub(super) fn pop_of(&mut self, scope: &Arc<str>) -> Option<Who> {
        let range = (scope.clone(), 0)..=(scope.clone(), u64::MAX);
        let who = *self.by_scope.range(range).next()?.1;
        self.remove(who);
        Some(who)
    }

    /// Takes out one whose time has come.
    pub(super) fn pop_due(&mut self, now: u64) -> Option<Who> {
        let (&(due, _), &who) = self.by_due.first_key_value()?;
        (due <= now).then(|| {
            self.remove(who);
            who
        })
    }

    /// When the first is due.
    pub(super) fn next_due(&self) -> Option<u64> {
        self.by_due.first_key_value().map(|((due, _), _)| *due)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}
