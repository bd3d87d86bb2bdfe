//! The agenda: what is to happen when, in the order of time, and of two at one moment in the order of writing.
//!
//! Floor 5. Invariant: what is taken out is never earlier than what was taken out before it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// What happens by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Wake {
    /// The next request arrives.
    Arrival,
    /// Something of a request is due: its slot, the slot's use, and what.
    Job(u32, u32, Step),
    /// An ending arrives that was on its way apart from its request.
    Letter(u32),
    /// The keeper's second has passed.
    Second,
    /// Something in a queue is due.
    Due,
    /// The wall clock is corrected.
    Wall,
    /// Another policy comes into force.
    Reload,
    /// The store goes, or comes back.
    Outage(bool),
    /// A replica of the pool goes, or comes back.
    Replica(bool),
    /// All balances are looked at.
    Look,
}

/// What a request does next.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// It is asked for again after a refusal.
    Retry,
    /// Its turn may have come.
    Again,
    /// Whoever asked leaves while it waits.
    Leave,
    /// Its answer has grown.
    Progress,
    /// It is kept alive.
    Beat,
    /// Its answer is complete.
    Answer,
    /// It is ended once more, since the store did not answer.
    End,
}

#[derive(Debug, Default)]
pub(super) struct Agenda {
    wakes: BinaryHeap<Reverse<(u64, u64, Wake)>>,
    written: u64,
}

impl Agenda {
    pub(super) fn at(&mut self, when: u64, wake: Wake) {
        self.wakes.push(Reverse((when, self.written, wake)));
        self.written += 1;
    }

    /// When the next is due.
    pub(super) fn next(&self) -> Option<u64> {
        self.wakes.peek().map(|Reverse((when, ..))| *when)
    }

    pub(super) fn take(&mut self) -> Option<Wake> {
        self.wakes.pop().map(|Reverse((_, _, wake))| wake)
    }
}
