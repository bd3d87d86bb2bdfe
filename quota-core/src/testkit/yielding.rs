//! The yielding store: the memory store behind an answer that has to be awaited.
//!
//! Floor 5. Invariant: no answer is there at the first poll, so whatever works on this store waits where it must.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::thread::Thread;

use parking_lot::Mutex;
use smallvec::SmallVec;

use super::TestStore;
use crate::account::{Account, Column, Lineup};
use crate::lease::{Cause, End, EndError, LeaseId, Record};
use crate::store::memory::{Bounds, Memory};
use crate::store::{AccountsFull, Ended, Extended, Name, Reservation, Reserved, Store, Swept};
use crate::time::{Now, Period};
use crate::units::Amounts;
use crate::usage::Usage;

/// A store that has to be awaited: each trip is under way for one poll before it reaches the memory store within.
///
/// An answer that is dropped before it was polled is a trip that never began. A lease that is abandoned is on its way
/// until the next trip of anybody, and keeps its gate alive: one whose last act it was is never freed.
#[derive(Default)]
pub struct Yielding {
    memory: Memory,
    underway: Mutex<Vec<Abandoned>>,
}

type Abandoned = Box<dyn FnOnce(&Memory) + Send>;

impl std::fmt::Debug for Yielding {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Yielding {{ {:?} }}", self.memory)
    }
}

impl Yielding {
    /// A trip: pending once, then what was abandoned before it arrives, then the operation itself.
    fn trip<'a, T: Send + 'a>(&'a self, operation: impl FnOnce(&'a Memory) -> T + Send + 'a) -> Trip<'a, T> {
        Box::pin(async move {
            YieldOnce::default().await;
            let underway = std::mem::take(&mut *self.underway.lock());
            underway.into_iter().for_each(|abandoned| abandoned(&self.memory));
            operation(&self.memory)
        })
    }
}

/// An answer on its way.
pub type Trip<'a, T> = Pin<Box<dyn Future<Output = T> + Send + 'a>>;

/// Pending at the first poll, which wakes it at once.
#[derive(Default)]
struct YieldOnce {
    polled: bool,
}

impl Future for YieldOnce {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.polled, true) {
            return Poll::Ready(());
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }
}

/// Waits for a future on this thread, which stands still meanwhile.
pub fn block_on<F: Future>(future: F) -> F::Output {
    struct Unpark(Thread);
    impl Wake for Unpark {
        fn wake(self: Arc<Self>) {
            self.0.unpark();
        }
    }
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

impl TestStore for Yielding {
    fn fresh(bounds: Bounds) -> Yielding {
        Yielding { memory: Memory::new(bounds), underway: Mutex::default() }
    }

    fn wait<'a, T: Send + 'a>(answer: Trip<'a, T>) -> T {
        block_on(answer)
    }
}

impl Store for Yielding {
    type Answer<'a, T: Send + 'a> = Trip<'a, T>;

    fn bind(
        &self,
        scope: &Arc<str>,
        columns: &[Column],
        passing: bool,
        now: Now,
    ) -> Result<Vec<Account>, AccountsFull> {
        self.memory.bind(scope, columns, passing, now)
    }

    fn chain<'a, T: Send + 'a, U: Send + 'a>(
        answer: Trip<'a, T>,
        next: impl FnOnce(T) -> Trip<'a, U> + Send + 'a,
    ) -> Trip<'a, U> {
        Box::pin(async move { next(answer.await).await })
    }

    fn future<'a, T: Send + 'a>(answer: Trip<'a, T>) -> impl Future<Output = T> + Send + 'a {
        answer
    }

    fn ready<'a, T: Send + 'a>(value: T) -> Trip<'a, T> {
        Box::pin(std::future::ready(value))
    }

    fn reserve<'a, T: Send + 'a>(
        &'a self,
        reservation: Reservation,
        now: Now,
        then: impl FnOnce(Reserved, Swept) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.reserve(reservation, now, then))
    }

    fn extend<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        to: Amounts,
        periods: SmallVec<[Period; 8]>,
        now: Now,
        then: impl FnOnce(Extended) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.extend(lease, to, periods, now, then))
    }

    fn end<'a, T: Send + 'a>(
        &'a self,
        name: Name,
        end: impl FnOnce(&Record) -> End + Send + 'a,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.end(name, end, now, then))
    }

    fn abandon(
        &self,
        lease: LeaseId,
        cause: Cause,
        seen: Option<Box<Usage>>,
        now: Now,
        then: impl FnOnce(Result<Ended, EndError>) + Send + 'static,
    ) {
        self.underway.lock().push(Box::new(move |memory| memory.abandon(lease, cause, seen, now, then)));
    }

    fn touch<'a, T: Send + 'a>(
        &'a self,
        lease: LeaseId,
        sent: bool,
        until: u64,
        then: impl FnOnce(bool) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.touch(lease, sent, until, then))
    }

    fn read<'a, T: Send + 'a>(
        &'a self,
        lineup: Arc<Lineup>,
        then: impl FnOnce(Option<SmallVec<[u64; 8]>>) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.read(lineup, then))
    }

    fn find<'a, T: Send + 'a>(&'a self, name: Name, then: impl FnOnce(Option<Record>) -> T + Send + 'a) -> Trip<'a, T> {
        self.trip(move |memory| memory.find(name, then))
    }

    fn open<'a, T: Send + 'a>(
        &'a self,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.open(at_most, then))
    }

    fn sweep<'a, T: Send + 'a>(
        &'a self,
        now: Now,
        at_most: usize,
        then: impl FnOnce(Vec<Record>) -> T + Send + 'a,
    ) -> Trip<'a, T> {
        self.trip(move |memory| memory.sweep(now, at_most, then))
    }
}
