//! The inbox: what has to be done with a state that one thread at a time may touch, without anyone waiting for that thread.
//!
//! Floor 2. Invariant: whoever puts a message in either works through the inbox itself or leaves it to a thread that will
//! look again after it; no message is left lying.

use crate::sync::{Alone, AtomicU64, Ordering, Queue};

/// Messages for a state.
pub(super) struct Inbox<M, S> {
    messages: Queue<M>,
    /// Messages put in since the thread that works through them last found the inbox done; 0: nobody works.
    /// Raised by whoever puts one in, set back to 0 by the one that works.
    pending: AtomicU64,
    state: Alone<S>,
}

impl<M, S> Inbox<M, S> {
    pub(super) fn new(state: S) -> Inbox<M, S> {
        Inbox { messages: Queue::new(), pending: AtomicU64::new(0), state: Alone::new(state) }
    }

    /// Puts a message in. If nobody works through the inbox, this call does until it is empty: it hands each message to
    /// `act`, and when there is none left for the moment it calls `rest`, whose result `after` gets once the state is
    /// free again. `after` may put messages in.
    pub(super) fn send<R>(
        &self,
        message: M,
        mut act: impl FnMut(&mut S, M),
        mut rest: impl FnMut(&mut S) -> R,
        mut after: impl FnMut(R),
    ) {
        self.messages.push(message);
        // ORDERING: release hands the message over to whoever works, who acquires below; acquire sees what the last one who
        // worked left.
        if self.pending.fetch_add(1, Ordering::AcqRel) != 0 {
            return;
        }
        let _pass = Pass(&self.pending);
        let mut seen = 1;
        loop {
            let done = self.state.with(|state| {
                while let Some(message) = self.messages.pop() {
                    act(state, message);
                }
                rest(state)
            });
            after(done);
            // ORDERING: as above: release hands the state over to the next, acquire sees the messages that came meanwhile.
            match self.pending.compare_exchange(seen, 0, Ordering::AcqRel, Ordering::Acquire) {
                Ok(_) => return,
                Err(more) => seen = more,
            }
        }
    }
}

/// Lets another thread work if this one panics (a waker of the host's can).
struct Pass<'a>(&'a AtomicU64);

impl Drop for Pass<'_> {
    fn drop(&mut self) {
        if std::thread::panicking() {
            // ORDERING: release, as when the work is done.
            self.0.store(0, Ordering::Release);
        }
    }
}
