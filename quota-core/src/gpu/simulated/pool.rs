//! The simulated pool behind the seam, for demonstrations: whoever looks moves it on to the present.
//!
//! Floor 2. Invariant: no event is lost; what happened since the last look is kept for the host.

use std::collections::VecDeque;

use parking_lot::Mutex;

use super::{Event, Shape, Simulator, SubmitError};
use crate::gpu::{GpuBackend, Load};
use crate::time::Now;

/// A [`Simulator`] that many threads share, whose time is the engine's.
///
/// The host submits, sleeps until [`next_event`](Self::next_event) and asks [`advance`](Self::advance) what has happened.
#[derive(Debug)]
pub struct SimulatedPool {
    inner: Mutex<Inner>,
}

#[derive(Debug)]
struct Inner {
    simulator: Simulator,
    /// What happened and was not told yet.
    events: VecDeque<Event>,
}

impl Inner {
    fn catch_up(&mut self, now: Now) {
        let events = &mut self.events;
        self.simulator.advance(now.mono, &mut |event| events.push_back(event));
    }
}

impl SimulatedPool {
    /// An empty pool.
    pub fn new(shape: Shape) -> SimulatedPool {
        SimulatedPool { inner: Mutex::new(Inner { simulator: Simulator::new(shape), events: VecDeque::new() }) }
    }

    /// Gives a request to the least loaded replica.
    ///
    /// # Errors
    /// As [`Simulator::submit`].
    pub fn submit(&self, now: Now, id: u64, input: u64, output: u64) -> Result<(), SubmitError> {
        let mut inner = self.inner.lock();
        inner.catch_up(now);
        inner.simulator.submit(now.mono, id, input, output)
    }

    /// Lets a request go; gives how many tokens its answer had, or nothing where no such request is inside any more.
    pub fn cancel(&self, now: Now, id: u64) -> Option<u64> {
        let mut inner = self.inner.lock();
        inner.catch_up(now);
        inner.simulator.cancel(now.mono, id)
    }

    /// Tells of everything up to `now` that was not told yet, in the order in which it happened.
    pub fn advance(&self, now: Now, mut on: impl FnMut(Event)) {
        // What is told may lead to the next call on the pool, so the lock is not held meanwhile.
        let events = {
            let mut inner = self.inner.lock();
            inner.catch_up(now);
            std::mem::take(&mut inner.events)
        };
        events.into_iter().for_each(&mut on);
    }

    /// The engine time at which there is something to be told next.
    pub fn next_event(&self) -> Option<u64> {
        let inner = self.inner.lock();
        // An event that was kept is due at its own moment, which has passed.
        if inner.events.is_empty() { inner.simulator.next_event() } else { Some(0) }
    }

    /// Adds an empty replica.
    pub fn add_replica(&self, now: Now) {
        let mut inner = self.inner.lock();
        inner.catch_up(now);
        inner.simulator.add_replica();
    }

    /// Takes the replica at this place away; its requests are lost, which is told with the other events.
    pub fn remove_replica(&self, now: Now, place: usize) {
        let mut inner = self.inner.lock();
        inner.catch_up(now);
        let Inner { simulator, events } = &mut *inner;
        simulator.remove_replica(now.mono, place, &mut |event| events.push_back(event));
    }
}

impl GpuBackend for SimulatedPool {
    fn load(&self, now: Now) -> Load {
        let mut inner = self.inner.lock();
        inner.catch_up(now);
        inner.simulator.load(now.mono)
    }
}
