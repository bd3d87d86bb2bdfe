//! The scheduler: who goes next when there is not room for all.
//!
//! Floor 2. Invariant: one thread at a time decides, whichever comes first, and none waits for it.
//!
//! A pool has one. What arrives waits in a lane, in its tenant's flow; [`drr`] says whose turn it is, and the valve in
//! front of the pool whether there is room. A request holds nothing but its place while it waits: what it needs of its own limits
//! is reserved when its turn has come, and where these have no room it goes back to its place.

mod desk;
pub mod drr;
mod figures;
mod held;
mod inbox;
#[cfg(all(test, quota_loom))]
mod models;
mod pace;
mod place;
mod valve;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Sender, channel};
use std::time::Duration;

use smallvec::SmallVec;

use self::desk::{Desk, nanos};
use self::drr::{Demand, End, LaneRule, Mode};
pub use self::figures::{Counts, Figures, LaneFigures, TenantFigures, WAIT_BOUNDS_MS};
use self::held::Hints;
use self::inbox::Inbox;
use self::place::Slot;
pub use self::place::{Place, Refused, Turn, Why};
use self::valve::Valve;
pub use self::valve::{Capacity, MAX_IN_FLIGHT, ValveFigures};

use crate::gpu::Load;
use crate::sync::{AtomicU64, Ordering, WakerCell};
use crate::work::{Tokens, WorkRates};

/// A lane of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lane {
    /// Its name.
    pub name: Arc<str>,
    /// Its share against the other lanes, 1 to [`drr::MAX_WEIGHT`].
    pub weight: u32,
    /// The longest that a request waits in it.
    pub max_wait: Duration,
    /// The most requests that may wait in it; `None` for no bound of its own.
    pub max_queued: Option<u64>,
    /// With [`Mode::PriorityWithFloor`]: what it gets whatever waits above it, in percent.
    pub floor_percent: u8,
    /// The wait after which a request goes before the others of its lane, at most one in ten; `None`: no request does.
    pub age_after: Option<Duration>,
    /// What a tenant of weight 1 gains in a round, in units of work, at most 16 384; `None`: one and a half times the mean cost of a
    /// request, between 512 and that.
    pub quantum: Option<u64>,
}

impl Lane {
    /// A lane of weight 1 without bound, in which a request waits for half a minute.
    pub fn new(name: impl Into<Arc<str>>) -> Lane {
        let max_wait = Duration::from_secs(30);
        Lane {
            name: name.into(),
            weight: 1,
            max_wait,
            max_queued: None,
            floor_percent: 0,
            age_after: None,
            quantum: None,
        }
    }

    fn rule(&self, rank: u16) -> LaneRule {
        LaneRule {
            rank,
            weight: self.weight,
            max_wait: nanos(self.max_wait),
            floor_ppm: u32::from(self.floor_percent.min(100)) * 10_000,
            age_after: self.age_after.map(nanos),
            quantum: self.quantum.map(|units| units.saturating_mul(1000)),
        }
    }
}

/// How a pool's queue is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// The lanes, the first being the highest under [`Mode::PriorityWithFloor`]; at most [`drr::MAX_LANES`].
    pub lanes: Vec<Lane>,
    /// How they share the pool.
    pub mode: Mode,
    /// Whether the valve follows what the pool reports, from a quarter of the capacity on; otherwise the whole is open.
    pub adaptive: bool,
    /// Whether the valve closes while no replica of a pool that reports has reported in time; otherwise it stays as it is.
    pub close_when_stale: bool,
    /// The part of the valve that only tenants coming back from rest may use, in percent.
    pub sparse_percent: u8,
    /// Whether a request that would wait longer than its lane lets it is refused at once.
    pub early_refusal: bool,
    /// How long a tenant without requests and without debt is remembered.
    pub idle_ttl: Duration,
    /// How long a pool takes to read an input token; what comes later than that is taken for waiting inside the pool.
    pub prefill: Duration,
    /// The most tenants, once for each lane that they use.
    pub max_flows: usize,
    /// The most requests, waiting or in flight.
    pub max_requests: usize,
}

impl Default for Settings {
    /// One lane, by weights, the whole capacity open, held when stale, a fiftieth for sparse flows, early refusal, a minute's memory, 60 µs a token; 65,536
    /// flows and 65,536 requests.
    fn default() -> Settings {
        Settings {
            lanes: vec![Lane::new("default")],
            mode: Mode::Weighted,
            adaptive: false,
            close_when_stale: false,
            sparse_percent: 2,
            early_refusal: true,
            idle_ttl: Duration::from_secs(60),
            prefill: Duration::from_micros(60),
            max_flows: 1 << 16,
            max_requests: 1 << 16,
        }
    }
}

/// A request that wants its turn.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Arrival {
    /// Whose it is.
    pub tenant: Arc<str>,
    /// The lane that it waits in.
    pub lane: Arc<str>,
    /// Its tenant's share against the other tenants of the lane, 1 to [`drr::MAX_WEIGHT`].
    pub weight: u32,
    /// The input, and the output that is expected (not the most that is allowed).
    pub tokens: Tokens,
    /// What a token of it takes.
    pub rates: WorkRates,
    /// Whether [`Turn::progress`] will be told.
    pub reports_progress: bool,
    /// The most requests of its tenant that may wait, over all lanes; `None` for no bound of its own.
    pub max_queued: Option<u64>,
}

impl Arrival {
    /// A request of a tenant of weight 1 that reports no progress.
    pub fn new(tenant: impl Into<Arc<str>>, lane: impl Into<Arc<str>>, tokens: Tokens) -> Arrival {
        Arrival {
            tenant: tenant.into(),
            lane: lane.into(),
            weight: 1,
            tokens,
            rates: WorkRates::default(),
            reports_progress: false,
            max_queued: None,
        }
    }

    fn kept(&self) -> u64 {
        let Arrival { tokens, rates, reports_progress, .. } = *self;
        Demand { tokens, rates, reports_progress }.kept()
    }
}

/// Who goes next into a pool. A clone is another handle on the same one.
///
/// Every call puts a message in and returns; the thread that finds nobody at work works through what is there. Waking
/// is done by that thread too, after it has let go of the role, so that a waker may call the scheduler.
#[derive(Debug, Clone)]
pub struct Scheduler(Arc<Core>);

struct Core {
    inbox: Inbox<(Message, Option<u64>), Desk>,
    valve: Arc<Valve>,
    /// Who is held, and for what.
    hints: Arc<Hints>,
    /// Arrivals on their way to the desk. Raised by whoever arrives, lowered by the desk.
    arriving: AtomicU64,
    /// How many wait and could go, and how many are held; written by the desk, read by all. Both may be out of date by a
    /// pass.
    ready: AtomicU64,
    held: AtomicU64,
    /// How many are held by all schedulers that were made with it: what `held` changes by is added.
    held_in_all: Arc<AtomicU64>,
    /// When something is due by itself; written by the desk, read by all.
    next_due: AtomicU64,
    /// Woken when that becomes earlier.
    alarm: WakerCell,
}

impl std::fmt::Debug for Core {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Core").field("valve", &self.valve.figures()).finish_non_exhaustive()
    }
}

/// What is told to the desk.
enum Message {
    Arrived(Arc<Slot>),
    Entered(Arc<Slot>),
    Left(Arc<Slot>),
    FirstToken(Arc<Slot>, u64),
    Progress(Arc<Slot>),
    PoolRefused,
    Ended(Arc<Slot>, End),
    Used(Arc<Slot>),
    PutBack { slot: Arc<Slot>, scope: Arc<str>, whole_flow: bool, due: u64 },
    Released(SmallVec<[Arc<str>; 4]>),
    Report(Load, Option<Capacity>),
    Tick,
    External { lane: Arc<str>, tenant: Arc<str>, weight: u32, work: u64 },
    Configure(Box<Settings>),
    Show(Sender<Figures>),
}

impl Core {
    fn send(&self, message: Message, now: Option<u64>) {
        let act = |desk: &mut Desk, (message, now)| {
            let arrival = matches!(message, Message::Arrived(_));
            desk.act(message, now);
            if arrival {
                // ORDERING: relaxed; who reads a count that is one too high queues where it could have gone at once.
                self.arriving.fetch_sub(1, Ordering::Relaxed);
            }
        };
        // A waker is the host's: one that panics must not keep the others from being called.
        let mut panicked = None;
        self.inbox.send(
            (message, now),
            act,
            |desk| self.rest(desk),
            |(woken, earlier)| {
                let mut call = |wake: &dyn Fn()| {
                    if let Err(panic) = catch_unwind(AssertUnwindSafe(wake)) {
                        panicked.get_or_insert(panic);
                    }
                };
                if earlier {
                    call(&|| self.alarm.wake());
                }
                woken.iter().for_each(|slot| call(&|| slot.wake()));
            },
        );
        if let Some(panic) = panicked {
            resume_unwind(panic);
        }
    }

    /// After some messages: who is to be woken, and whether something is due earlier than it was.
    fn rest(&self, desk: &mut Desk) -> (Vec<Arc<Slot>>, bool) {
        let seen = desk.rest();
        // ORDERING: relaxed; hints, see their declaration.
        self.ready.store(seen.ready, Ordering::Relaxed);
        let held = self.held.swap(seen.held, Ordering::Relaxed);
        if held != seen.held {
            // ORDERING: relaxed, as above.
            self.held_in_all.fetch_add(seen.held.wrapping_sub(held), Ordering::Relaxed);
        }
        // ORDERING: release, so that whom the alarm wakes reads this time or a later one.
        let before = self.next_due.swap(seen.next_due, Ordering::Release);
        (seen.woken, seen.next_due < before)
    }
}

impl Scheduler {
    /// A scheduler in front of a pool that can take so much.
    pub fn new(settings: &Settings, capacity: Capacity) -> Scheduler {
        Scheduler::among(settings, capacity, Arc::default())
    }

    /// The same, of several that count together how many they hold.
    pub(crate) fn among(settings: &Settings, capacity: Capacity, held_in_all: Arc<AtomicU64>) -> Scheduler {
        let valve = Arc::new(Valve::new(capacity, settings.sparse_percent));
        let hints = Arc::new(Hints::default());
        let desk = Desk::new(settings, valve.clone(), capacity, hints.clone());
        Scheduler(Arc::new(Core {
            inbox: Inbox::new(desk),
            valve,
            hints,
            arriving: AtomicU64::new(0),
            ready: AtomicU64::new(0),
            held: AtomicU64::new(0),
            held_in_all,
            next_due: AtomicU64::new(u64::MAX),
            alarm: WakerCell::default(),
        }))
    }

    /// Takes a place in the queue; its turn may have come when this returns.
    ///
    /// # Errors
    /// The refusal where it is known at once. While another thread decides it may come through the place.
    pub fn arrive(&self, arrival: Arrival, now: u64) -> Result<Place, Refused> {
        let slot = Arc::new(Slot::new(arrival, now));
        // ORDERING: relaxed, see `send`.
        self.0.arriving.fetch_add(1, Ordering::Relaxed);
        self.0.send(Message::Arrived(slot.clone()), Some(now));
        match slot.known_refusal() {
            Some(refused) => Err(refused),
            None => Ok(Place { core: self.0.clone(), slot: Some(slot) }),
        }
    }

    /// Whether a request would have to wait at this moment.
    pub fn would_wait(&self, arrival: &Arrival) -> bool {
        self.someone_waits() || !self.0.valve.has_room(arrival.kept())
    }

    /// Whether turns that were put back are held for a limit.
    pub fn is_holding(&self) -> bool {
        // ORDERING: relaxed, see the declaration.
        self.0.held.load(Ordering::Relaxed) > 0
    }

    /// Whether anything of a tenant's may be held for a limit, so that its next request has to line up behind.
    pub fn may_hold(&self, tenant: &str) -> bool {
        self.0.hints.tenants.may_have(tenant)
    }

    /// Whether anything waits, is held or is in the pool.
    pub fn is_in_use(&self) -> bool {
        self.someone_waits() || self.is_holding() || self.valve().in_flight > 0
    }

    fn someone_waits(&self) -> bool {
        // ORDERING: relaxed; whoever arrives beside this has no order with it.
        self.0.arriving.load(Ordering::Relaxed) + self.0.ready.load(Ordering::Relaxed) > 0
    }

    /// A turn at once, where the pool has room and nobody waits for it; `None` otherwise, and nothing is taken. It is
    /// charged like any other.
    pub fn enter(&self, arrival: Arrival, now: u64) -> Option<Turn> {
        let goes = !self.someone_waits() && self.0.valve.try_take(arrival.kept(), false);
        goes.then(|| self.entered(arrival, now))
    }

    /// A turn at once, whether there is room or not: for a request that is run in any case, so that it is counted and
    /// charged.
    pub fn enter_anyway(&self, arrival: Arrival, now: u64) -> Turn {
        self.0.valve.take(arrival.kept());
        self.entered(arrival, now)
    }

    fn entered(&self, arrival: Arrival, now: u64) -> Turn {
        let slot = Arc::new(Slot::taken(arrival, now));
        // Its room is taken and nobody can go for its coming, so it is enough that the desk has it before whatever follows.
        self.0.inbox.leave((Message::Entered(slot.clone()), Some(now)));
        Turn::new(self.0.clone(), slot)
    }

    /// Tells that something was given back in these scopes: of those whose turns were put back for one of them the first
    /// two try again, and two more for each that succeeds ([`Turn::used`]). Cheap while nobody is held.
    pub fn released(&self, scopes: impl IntoIterator<Item = Arc<str>>, now: u64) {
        // Who is put back beside this tries again within a second by itself.
        if self.is_holding() {
            let held = |scope: &Arc<str>| self.0.hints.scopes.may_have(scope);
            let mut scopes: SmallVec<_> = scopes.into_iter().filter(held).collect();
            // A scope of more limits than a row has is there once for each row.
            scopes.dedup();
            if !scopes.is_empty() {
                self.0.send(Message::Released(scopes), Some(now));
            }
        }
    }

    /// Takes in what the pool reports; about once a second, from one source. `capacity` changes what the pool can take,
    /// at once; `None` leaves that as it is.
    pub fn report(&self, load: Load, capacity: Option<Capacity>, now: u64) {
        self.0.send(Message::Report(load, capacity), Some(now));
    }

    /// Refuses whoever has waited too long, lets those that are held try again whose time has come, and forgets tenants
    /// at rest. Call it when [`next_due`](Scheduler::next_due) has come.
    pub fn tick(&self, now: u64) {
        self.0.send(Message::Tick, Some(now));
    }

    /// When something is due that no call would bring about, in nanoseconds of engine time; `None`: nothing is.
    pub fn next_due(&self) -> Option<u64> {
        // ORDERING: acquire pairs with the release of `after`.
        let due = self.0.next_due.load(Ordering::Acquire);
        (due != u64::MAX).then_some(due)
    }

    /// Has a waker called whenever [`next_due`](Scheduler::next_due) becomes earlier; in place of an earlier one.
    pub fn alarm(&self, waker: &std::task::Waker) {
        self.0.alarm.register(waker);
    }

    /// Moves a tenant's deficit by work that was done for it elsewhere, in milli-units: gateways that exchange what they
    /// have served share a pool fairly, but for what is served between two exchanges.
    pub fn charge_external(&self, tenant: &Arc<str>, lane: &Arc<str>, weight: u32, work: u64) {
        let (lane, tenant) = (lane.clone(), tenant.clone());
        self.0.send(Message::External { lane, tenant, weight, work }, None);
    }

    /// Runs the queue by other settings from now on. What waits keeps its place and its deadline; a lane that is no longer named goes on
    /// for what is in it; the bounds on tenants and requests and the valve's shares stay as they were.
    pub fn configure(&self, settings: Settings) {
        self.0.send(Message::Configure(Box::new(settings)), None);
    }

    /// What is in flight and what may be.
    pub fn valve(&self) -> ValveFigures {
        self.0.valve.figures()
    }

    /// All figures of one moment. Waits for the thread that decides, if one does: for people and their instruments, not for the path of
    /// a request. Cost: linear in the tenants.
    pub fn figures(&self) -> Option<Figures> {
        let (to, from) = channel();
        self.0.send(Message::Show(to), None);
        from.recv().ok()
    }
}
