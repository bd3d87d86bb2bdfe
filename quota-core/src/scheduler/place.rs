//! The place in the queue and the turn that comes of it: what whoever waits holds.
//!
//! Floor 2. Invariant: a turn is given to a place that is still there or to nobody, and whoever drops either gives back what
//! it held.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use super::drr::{End, JobId};
use super::{Arrival, Core, Message};
use crate::sync::{AtomicU32, AtomicU64, Ordering, WakerCell};

/// Waits; the scheduler may give it its turn or refuse it.
const WAITING: u32 = 0;
/// Its turn has come and is not yet picked up.
const GRANTED: u32 = 1;
/// It is refused.
const REFUSED: u32 = 2;
/// Whoever waited has left.
const GONE: u32 = 3;
/// The turn is held.
const TAKEN: u32 = 4;
/// The turn has ended.
const OVER: u32 = 5;

/// No job yet.
const NO_JOB: u64 = u64::MAX;

/// One arrival, from the queue to its end.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) arrival: Arrival,
    /// When it arrived, in nanoseconds of engine time.
    pub(super) arrived: u64,
    /// One of the states above. Written by the thread that decides (waiting to granted or refused) and by the holder (all
    /// others), each by a swap that only one of two can win.
    state: AtomicU32,
    /// The job, packed; written and read by the thread that decides.
    job: AtomicU64,
    /// Its place in the order of arrival; written and read by the thread that decides.
    order: AtomicU64,
    /// Output tokens that were told, and 1 while a message about them is under way. Raised by the holder, read by the
    /// thread that decides.
    output: AtomicU64,
    told: AtomicU32,
    /// 1 once it has a place among those that wait; written and read by the thread that decides.
    placed: AtomicU32,
    /// The refusal: its kind, and the time after which a retry may help, in nanoseconds (`u64::MAX`: unknown). Written before the
    /// state says that there is one.
    why: AtomicU32,
    retry_after: AtomicU64,
    /// When its turn came, in nanoseconds of engine time. Written before the state says so.
    granted: AtomicU64,
    waker: WakerCell,
}

impl std::fmt::Debug for WakerCell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("WakerCell")
    }
}

/// Why a place was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Why {
    /// The tenant's queue, the lane's or the whole pool's is full.
    Full,
    /// What waits before it would take longer than it may wait, so it was not let in to wait in vain.
    Overloaded,
    /// It has waited as long as it may.
    TimedOut,
    /// There is no such lane.
    UnknownLane,
    /// The turn that was to be put back had ended.
    Over,
}

/// A refusal by the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("the pool's queue: {why:?}")]
pub struct Refused {
    /// Why.
    pub why: Why,
    /// After how long a retry may help, where that is known.
    pub retry_after: Option<Duration>,
}

impl Slot {
    pub(super) fn new(arrival: Arrival, now: u64) -> Slot {
        Slot {
            arrival,
            arrived: now,
            state: AtomicU32::new(WAITING),
            job: AtomicU64::new(NO_JOB),
            order: AtomicU64::new(0),
            output: AtomicU64::new(0),
            told: AtomicU32::new(0),
            placed: AtomicU32::new(0),
            why: AtomicU32::new(0),
            retry_after: AtomicU64::new(u64::MAX),
            granted: AtomicU64::new(now),
            waker: WakerCell::default(),
        }
    }

    /// A slot whose turn is held from the start.
    pub(super) fn taken(arrival: Arrival, now: u64) -> Slot {
        let slot = Slot::new(arrival, now);
        // ORDERING: relaxed; nobody else has it yet.
        slot.state.store(TAKEN, Ordering::Relaxed);
        slot
    }

    /// Of the job, once the thread that decides has made it.
    pub(super) fn job(&self) -> Option<JobId> {
        // ORDERING: relaxed; only the thread that decides uses it, and it hands everything over by the inbox.
        let packed = self.job.load(Ordering::Relaxed);
        (packed != NO_JOB).then(|| JobId::unpack(packed))
    }

    pub(super) fn set_job(&self, job: JobId) {
        // ORDERING: relaxed, as in `job`.
        self.job.store(job.pack(), Ordering::Relaxed);
    }

    pub(super) fn order(&self) -> u64 {
        // ORDERING: relaxed, as in `job`.
        self.order.load(Ordering::Relaxed)
    }

    pub(super) fn set_order(&self, order: u64) {
        // ORDERING: relaxed, as in `job`.
        self.order.store(order, Ordering::Relaxed);
    }

    /// The newest output that was told; what is told from now on is a new message.
    pub(super) fn take_progress(&self) -> u64 {
        // ORDERING: acquire and release pair with the swap of `progress`: whoever finds the mark still set has raised the
        // output before this reads it.
        self.told.swap(0, Ordering::AcqRel);
        self.output.load(Ordering::Relaxed)
    }

    pub(super) fn is_placed(&self) -> bool {
        // ORDERING: relaxed, as in `job`.
        self.placed.load(Ordering::Relaxed) == 1
    }

    pub(super) fn set_placed(&self, placed: bool) {
        // ORDERING: relaxed, as in `job`.
        self.placed.store(placed.into(), Ordering::Relaxed);
    }

    /// Gives it its turn; `false` if whoever waited has left. The waker is not called.
    pub(super) fn grant(&self, now: u64) -> bool {
        // ORDERING: relaxed, published by the release of `turn`.
        self.granted.store(now, Ordering::Relaxed);
        self.turn(WAITING, GRANTED)
    }

    /// Refuses it; `false` if whoever waited has left.
    pub(super) fn refuse(&self, refused: Refused) -> bool {
        let nanos = refused.retry_after.map_or(u64::MAX, |wait| u64::try_from(wait.as_nanos()).unwrap_or(u64::MAX));
        // ORDERING: relaxed, published by the release of `turn`.
        self.why.store(refused.why as u32, Ordering::Relaxed);
        self.retry_after.store(nanos, Ordering::Relaxed);
        self.turn(WAITING, REFUSED)
    }

    pub(super) fn wake(&self) {
        self.waker.wake();
    }

    /// The refusal, if it has been refused.
    pub(super) fn known_refusal(&self) -> Option<Refused> {
        // ORDERING: acquire pairs with the release of `refuse`.
        (self.state.load(Ordering::Acquire) == REFUSED).then(|| self.refused())
    }

    /// When its turn came, in nanoseconds of engine time.
    pub(super) fn granted(&self) -> u64 {
        // ORDERING: relaxed; whoever asks was told of the turn by an acquire.
        self.granted.load(Ordering::Relaxed)
    }

    /// Lets it wait again after a turn that it could not use.
    fn wait_again(&self) -> bool {
        self.turn(TAKEN, WAITING)
    }

    fn turn(&self, from: u32, to: u32) -> bool {
        // ORDERING: release publishes what was written for the new state, acquire sees what was for the old one.
        self.state.compare_exchange(from, to, Ordering::AcqRel, Ordering::Acquire).is_ok()
    }

    fn refused(&self) -> Refused {
        // ORDERING: relaxed; the acquire by which the state was read has these too.
        let why = match self.why.load(Ordering::Relaxed) {
            why if why == Why::Full as u32 => Why::Full,
            why if why == Why::Overloaded as u32 => Why::Overloaded,
            why if why == Why::UnknownLane as u32 => Why::UnknownLane,
            why if why == Why::Over as u32 => Why::Over,
            _ => Why::TimedOut,
        };
        // ORDERING: relaxed, see above.
        let nanos = self.retry_after.load(Ordering::Relaxed);
        Refused { why, retry_after: (nanos != u64::MAX).then(|| Duration::from_nanos(nanos)) }
    }
}

/// A place in a pool's queue: a future of its [`Turn`]. Dropping it gives the place up, and a turn that has come and was
/// not picked up.
#[derive(Debug)]
#[must_use]
pub struct Place {
    pub(super) core: Arc<Core>,
    pub(super) slot: Option<Arc<Slot>>,
}

impl Place {
    /// The turn if it has come, or the refusal; `None` while it waits. After either the place is used up, and further
    /// calls give `None`.
    pub fn try_turn(&mut self) -> Option<Result<Turn, Refused>> {
        let slot = self.slot.as_ref()?;
        if let Some(refused) = slot.known_refusal() {
            self.slot = None;
            return Some(Err(refused));
        }
        slot.turn(GRANTED, TAKEN).then_some(())?;
        Some(Ok(Turn { core: self.core.clone(), slot: self.slot.take()? }))
    }

    /// Has what the time alone brings about looked at, if something is due.
    pub fn look_at(&self, now: u64) {
        // ORDERING: acquire, as in `Scheduler::next_due`.
        if self.core.next_due.load(Ordering::Acquire) <= now {
            self.core.send(Message::Tick, Some(now));
        }
    }

    /// Whether there is something to pick up, or it was.
    pub fn is_due(&self) -> bool {
        // ORDERING: acquire, as in `try_turn`.
        self.slot.as_ref().is_none_or(|slot| slot.state.load(Ordering::Acquire) != WAITING)
    }

    /// Registers the waker that is called when there is something to pick up. It may call the scheduler, but is not to run
    /// the task that waits by itself: tasks that end their turns would be run one inside the other.
    pub fn wake_by(&self, waker: &std::task::Waker) {
        if let Some(slot) = &self.slot {
            slot.waker.register(waker);
        }
    }
}

impl Future for Place {
    type Output = Result<Turn, Refused>;

    /// # Panics
    /// When it is polled after it was ready, like most futures.
    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        assert!(self.slot.is_some(), "a place was polled after its turn");
        if let Some(ready) = self.try_turn() {
            return Poll::Ready(ready);
        }
        // What comes between the look and the registration is seen by the look after it.
        self.wake_by(cx.waker());
        match self.try_turn() {
            Some(ready) => Poll::Ready(ready),
            None => Poll::Pending,
        }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let Some(slot) = self.slot.take() else { return };
        // ORDERING: as in `turn`.
        match slot.state.swap(GONE, Ordering::AcqRel) {
            WAITING => self.core.send(Message::Left(slot), None),
            GRANTED => self.core.send(Message::Ended(slot, End::NeverStarted), None),
            _ => {}
        }
    }
}

/// A turn: a request that the pool has room for. It holds its room until it ends; dropped without an ending it ends as
/// [`End::Unknown`].
#[derive(Debug)]
#[must_use]
pub struct Turn {
    core: Arc<Core>,
    slot: Arc<Slot>,
}

impl Turn {
    pub(super) fn new(core: Arc<Core>, slot: Arc<Slot>) -> Turn {
        Turn { core, slot }
    }

    /// What asked for it.
    pub fn arrival(&self) -> &Arrival {
        &self.slot.arrival
    }

    /// How long it waited.
    pub fn waited(&self) -> Duration {
        Duration::from_nanos(self.slot.granted().saturating_sub(self.slot.arrived))
    }

    /// The first token has come, at this moment. Later ones say nothing; tell it once.
    pub fn first_token(&self, now: u64) {
        self.core.send(Message::FirstToken(self.slot.clone(), now), Some(now));
    }

    /// The output so far, in tokens. Less than before changes nothing. May be told for each token, now and then, or never.
    pub fn progress(&self, output: u64) {
        // ORDERING: relaxed, published by the swap that follows.
        self.slot.output.fetch_max(output, Ordering::Relaxed);
        // ORDERING: see `take_progress`.
        if self.slot.told.swap(1, Ordering::AcqRel) == 0 {
            self.core.send(Message::Progress(self.slot.clone()), None);
        }
    }

    /// Tells that the turn is used: what its request needed of its limits is reserved, and of those that are held for the
    /// same others may try. Who doesn't tell lets them wait until the turn ends.
    pub fn used(&self) {
        if self.slot.is_placed() {
            self.core.send(Message::Used(self.slot.clone()), None);
        }
    }

    /// Whether it is a turn of this scheduler.
    pub fn is_of(&self, scheduler: &super::Scheduler) -> bool {
        Arc::ptr_eq(&self.core, &scheduler.0)
    }

    /// The pool itself had no room (429, 503): the valve is closed by some. The turn has still to be ended.
    pub fn pool_refused(&self) {
        self.core.send(Message::PoolRefused, None);
    }

    /// Ends the turn and gives its room back. `false`, and nothing changes, if it has ended.
    pub fn end(&self, end: End, now: u64) -> bool {
        let first = self.slot.turn(TAKEN, OVER);
        if first {
            self.core.send(Message::Ended(self.slot.clone(), end), Some(now));
        }
        first
    }

    /// Gives the turn back unused because a limit in `scope` has no room: it waits again in its old place with its old deadline,
    /// until something is given back there ([`Scheduler::released`](super::Scheduler::released)), at most until `due` (engine time) or
    /// a second. With `whole_flow` what is behind it waits too, otherwise that goes on.
    ///
    /// # Errors
    /// [`Why::Over`] if it has ended; [`Why::Full`] if it came without a wait and there is no place to wait in.
    pub fn put_back(self, scope: Arc<str>, whole_flow: bool, due: u64, now: u64) -> Result<Place, Refused> {
        if !self.slot.wait_again() {
            return Err(Refused { why: Why::Over, retry_after: None });
        }
        let slot = self.slot.clone();
        self.core.send(Message::PutBack { slot: slot.clone(), scope, whole_flow, due }, Some(now));
        match slot.known_refusal() {
            Some(refused) => Err(refused),
            None => Ok(Place { core: self.core.clone(), slot: Some(slot) }),
        }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        if self.slot.turn(TAKEN, OVER) {
            self.core.send(Message::Ended(self.slot.clone(), End::Unknown), None);
        }
    }
}
