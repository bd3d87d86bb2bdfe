//! The tape: a journal that is read entry by entry, right after each call of the gate.
//!
//! Floor 5. Invariant: each entry is read once, in the order of writing.

use std::sync::Arc;

use parking_lot::Mutex;

use crate::journal::{Entry, Event, Journal};
use crate::time::Now;

/// A journal whose newest entries are taken out as they come. A clone is the same tape.
#[derive(Clone, Default)]
pub(super) struct Tape(Arc<Mutex<Written>>);

#[derive(Default)]
struct Written {
    /// Whether what has been read is kept, to be replayed.
    keeps: bool,
    next: u64,
    unread: Vec<Entry>,
    read: Vec<Entry>,
}

impl Tape {
    /// A tape that keeps all of it, or only what has not been read.
    pub(super) fn new(keeps: bool) -> Tape {
        Tape(Arc::new(Mutex::new(Written { keeps, ..Written::default() })))
    }

    /// Puts what has been written since the last time into `entries`, in place of what is there.
    pub(super) fn read(&self, entries: &mut Vec<Entry>) {
        entries.clear();
        let mut written = self.0.lock();
        std::mem::swap(&mut written.unread, entries);
        if written.keeps {
            written.read.extend(entries.iter().cloned());
        }
    }
}

impl Journal for Tape {
    fn append(&self, event: Event, now: Now) {
        let mut written = self.0.lock();
        let seq = written.next;
        written.next += 1;
        written.unread.push(Entry { seq, at: now, event });
    }

    fn scan(&self, show: &mut dyn FnMut(&Entry) -> bool) {
        let written = self.0.lock();
        let _ = written.read.iter().chain(&written.unread).all(show);
    }

    fn dropped(&self) -> u64 {
        0
    }
}
