//! The failing store: another store behind a network that breaks when told so.
//!
//! Floor 5. Invariant: a trip that fails before its operation has done nothing; one that fails after it has done
//! everything and tells nobody.

use std::collections::VecDeque;
use std::sync::Arc;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::TestStore;
use crate::account::{Account, Column, Lineup};
use crate::lease::{Cause, End, EndError, LeaseId, Record};
use crate::store::memory::Bounds;
use crate::store::{AccountsFull, Ended, Extended, Name, Reservation, Reserved, Store, Swept};
use crate::time::{Now, Period};
use crate::units::Amounts;
use crate::usage::Usage;

/// How a trip fails.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It does not: the trip goes through.
    None,
    /// The request is lost: nothing happened.
    Before,
    /// The answer is lost: it happened.
    After,
}

/// A store whose trips fail by a schedule: one fault a trip, in order; when it is used up, trips go through, or all
/// fail alike.
#[derive(Debug)]
pub struct Failing<S> {
    store: S,
    schedule: Mutex<Schedule>,
}

#[derive(Debug)]
struct Schedule {
    next: VecDeque<Fault>,
    then: Fault,
}

impl<S: Store> Failing<S> {
    /// A store that fails by this schedule.
    pub fn new(store: S, schedule: impl IntoIterator<Item = Fault>) -> Failing<S> {
        let next = schedule.into_iter().collect();
        Failing { store, schedule: Mutex::new(Schedule { next, then: Fault::None }) }
    }

    /// Puts these faults at the end of the schedule.
    pub fn fail(&self, faults: impl IntoIterator<Item = Fault>) {
        self.schedule.lock().next.extend(faults);
    }

    /// Has every trip fail like this that the schedule says nothing of, from now on: a store that is gone, until it comes
    /// back with [`Fault::None`].
    pub fn always(&self, fault: Fault) {
        self.schedule.lock().then = fault;
    }

    /// Empties the schedule.
    pub fn heal(&self) {
        self.schedule.lock().next.clear();
    }

    fn next(&self) -> Fault {
        let mut schedule = self.schedule.lock();
        let then = schedule.then;
        schedule.next.pop_front().unwrap_or(then)
    }
}

impl<S: TestStore> TestStore for Failing<S> {
    fn fresh(bounds: Bounds) -> Failing<S> {
        Failing::new(S::fresh(bounds), [])
    }

    fn wait<'a, T: Send + 'a>(answer: S::Answer<'a, T>) -> T {
        S::wait(answer)
    }
}

impl<S: Store> Store for Failing<S> {
    type Answer<'a, T: Send + 'a> = S::Answer<'a, T>;

    fn bind(
        &self,
        scope: &Arc<str>,
        columns: &[Column],
        passing: bool,
        now: Now,
    ) -> Result<Vec<Account>, AccountsFull> {
        self.store.bind(scope, columns, passing, now)
    }

    fn chain<'a, T: Send + 'a, U: Send + 'a>(
        answer: S::Answer<'a, T>,
        next: impl FnOnce(T) -> S::Answer<'a, U> + Send + 'a,
    ) -> S::Answer<'a, U> {
        S::chain(answer, next)
    }

    fn future<'a, T: Send + 'a>(answer: S::Answer<'a, T>) -> impl Future<Output = T> + Send + 'a {
        S::future(answer)
    }

    fn ready<'a, T: Send + 'a>(value: T) -> S::Answer<'a, T> {
        S::ready(value)
    }

    fn reserve<'a, T: Send + 'a>(
        &'a self,
        reservation: Reservation,
        now: Now,
        then: impl FnOnce(Reserved, Swept) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.reserve(reservation, now, then),
            Fault::Before => S::ready(then(Reserved::Unavailable, Swept::new())),
            Fault::After => self.store.reserve(reservation, now, |_, _| then(Reserved::Unavailable, Swept::new())),
        }
    }

    fn extend<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        to: Amounts,
        periods: SmallVec<[Period; 8]>,
        now: Now,
        then: impl FnOnce(Extended) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.extend(lease, to, periods, now, then),
            Fault::Before => S::ready(then(Extended::Unavailable)),
            Fault::After => self.store.extend(lease, to, periods, now, |_| then(Extended::Unavailable)),
        }
    }

    fn end<'a, T: Send + 'a>(
        &'a self,
        name: Name,
        end: impl FnOnce(&Record) -> End + Send + 'a,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.end(name, end, now, then),
            Fault::Before => S::ready(then(Err(EndError::StoreUnavailable))),
            Fault::After => self.store.end(name, end, now, |_| then(Err(EndError::StoreUnavailable))),
        }
    }

    fn abandon(
        &self,
        lease: LeaseId,
        cause: Cause,
        seen: Option<Box<Usage>>,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) + Send + 'static,
    ) {
        match self.next() {
            Fault::None => self.store.abandon(lease, cause, seen, now, then),
            Fault::Before => then(Err(EndError::StoreUnavailable)),
            Fault::After => {
                self.store.abandon(lease, cause, seen, now, |_| then(Err(EndError::StoreUnavailable)));
            }
        }
    }

    fn touch<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        sent: bool,
        until: u64,
        then: impl FnOnce(bool) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.touch(lease, sent, until, then),
            Fault::Before => S::ready(then(false)),
            Fault::After => self.store.touch(lease, sent, until, |_| then(false)),
        }
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        lineup: Arc<Lineup>,
        then: impl FnOnce(Option<SmallVec<[u64; 8]>>) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.read(lineup, then),
            Fault::Before | Fault::After => S::ready(then(None)),
        }
    }

    fn find<'a, T: Send + 'a>(
        &'a self,
        name: Name,
        then: impl FnOnce(Option<Record>) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.find(name, then),
            Fault::Before | Fault::After => S::ready(then(None)),
        }
    }

    fn open<'a, T: Send + 'a>(
        &'a self,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.open(at_most, then),
            Fault::Before | Fault::After => S::ready(then(Vec::new())),
        }
    }

    fn sweep<'a, T: Send + 'a>(
        &'a self,
        now: Now,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> S::Answer<'a, T> {
        match self.next() {
            Fault::None => self.store.sweep(now, at_most, then),
            Fault::Before => S::ready(then(Vec::new())),
            Fault::After => self.store.sweep(now, at_most, |_| then(Vec::new())),
        }
    }
}
