//! The inbox: what has to be done with a state that one thread at a time may touch, without anyone waiting for that thread.
//!
//! Floor 2. Invariant: whoever sends a message either works through the inbox itself or leaves it to a thread that will
//! look again after it; no message is left lying but those that may wait for the next.

use smallvec::SmallVec;

use crate::sync::{Alone, AtomicU64, Ordering, Queue};

/// Messages that are worked through before what follows from them is done.
const PASS: usize = 256;

/// Passes before what came of them is told, however much there is to do.
const PASSES: usize = 16;

/// Messages for a state.
pub(super) struct Inbox<M, S> {
    messages: Queue<M>,
    /// Messages put in since a thread last gave up working; 0: nobody works. Raised by whoever puts one in, and by the
    /// thread that gave up and finds more; set to 0 by the one that works.
    pending: AtomicU64,
    state: Alone<S>,
}

impl<M, S> Inbox<M, S> {
    pub(super) fn new(state: S) -> Inbox<M, S> {
        Inbox { messages: Queue::new(), pending: AtomicU64::new(0), state: Alone::new(state) }
    }

    /// Puts a message in that is acted on together with the next that is sent, before it: for what nobody waits for and
    /// something is always sent after.
    pub(super) fn leave(&self, message: M) {
        self.messages.push(message);
    }

    /// Puts a message in. If nobody works through the inbox, this call does: it hands messages to `act`, after some of them
    /// calls `rest` and lets others work, until it finds nothing more or another at work. Then it calls `after` with what came
    /// of each pass; `after` may do anything, also put messages in.
    pub(super) fn send<R>(
        &self,
        message: M,
        mut act: impl FnMut(&mut S, M),
        mut rest: impl FnMut(&mut S) -> R,
        mut after: impl FnMut(R),
    ) {
        self.messages.push(message);
        loop {
            let mut done: SmallVec<[R; 1]> = SmallVec::new();
            // ORDERING: release hands the message over to whoever works, who acquires by its swap below; acquire sees what
            // the last one who worked left.
            while done.len() < PASSES && self.pending.fetch_add(1, Ordering::AcqRel) == 0 {
                let role = Role(&self.pending);
                done.push(self.state.with(|state| {
                    for _ in 0..PASS {
                        let Some(message) = self.messages.pop() else { break };
                        act(state, message);
                    }
                    rest(state)
                }));
                drop(role);
                // Whoever put a message in before the role was given up has left it to this thread, and the swap that gave
                // it up has seen it; whoever came after found the role free.
                if self.messages.is_empty() {
                    break;
                }
            }
            let all = done.len() < PASSES;
            done.into_iter().for_each(&mut after);
            if all || self.messages.is_empty() {
                return;
            }
        }
    }
}

/// The role of the thread that works; given up when dropped, also by a panic.
struct Role<'a>(&'a AtomicU64);

impl Drop for Role<'_> {
    fn drop(&mut self) {
        // ORDERING: acquire sees the messages of all that were counted; release hands the state over to the next.
        self.0.swap(0, Ordering::AcqRel);
    }
}
