//! The gate: the door that every request goes through, and that every ending comes back to.
//!
//! Floor 3. Invariant: whatever the store, what is decided before and after its one trip is this code.

mod alert;
mod common;
mod count;
mod decision;
mod freeze;
mod identity;
mod keyring;
mod keys;
mod lease;
#[cfg(all(test, quota_loom))]
mod models;
mod pools;
mod prepare;
mod queue;
mod snapshot;
mod storm;
mod stream;
mod verdict;
mod view;
mod wiring;

use std::sync::{Arc, Weak};
use std::task::Waker;

use smallvec::SmallVec;

pub use self::alert::Subscriber;
pub use self::decision::{Decision, Degradation, Offer, Queued};
pub use self::freeze::{Freeze, Target};
pub use self::keyring::MAX_KEYS;
pub use self::keys::{Issued, KeyError, KeySpec, KeyState, KeyView};
pub use self::lease::Lease;
pub use self::pools::{DEFAULT_MAX_RUNNING, PoolFigures};
use self::prepare::refusal;
pub use self::queue::Ticket;
use self::queue::{Entrance, LinedUp, Ready, Seat, unqueued};
pub use self::snapshot::Snapshot;
pub use self::stream::StreamMeter;
use self::wiring::{Route, Tallies, Wiring};
use crate::estimate::{Estimator, Standard};
use crate::gpu::GpuBackend;
use crate::journal::{Entry, Event, Journal, Ring};
use crate::lease::{Claim, EndError, LeaseId, Receipt, Record};
use crate::policy::Policy;
use crate::policy::plan::UpstreamFailure;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::{Refusal, Shortages, Wait};
use crate::request::Request;
use crate::scheduler::Turn;
use crate::store::{Ended, Lacks, Memory, Name, Reserved, Store, Swept};
use crate::sync::{ArcCell, AtomicU32, AtomicU64};
pub use crate::tally::{Counter, Tally};
use crate::time::{Clock, Now, Period, SystemClock};
use crate::units::{Amounts, Meter};
use crate::usage::Outcome;

/// The gate of a policy over a store.
///
/// A clone is another handle on the same gate with a reference count of its own: give each worker thread one, so that
/// threads do not meet on a counter when leases come and go.
pub struct Gate<S: Store = Memory>(Arc<Handle<S>>);

/// A refusal on its way to its hints, and where it is counted.
struct Refused {
    refusal: Arc<Refusal>,
    /// The input that would have been reserved.
    input: u64,
    route: Arc<Route>,
}

impl Refused {
    fn of(question: verdict::Question<'_>, refusal: Arc<Refusal>) -> Refused {
        Refused { refusal, input: question.input(), route: question.into_route() }
    }
}

/// What leases keep alive; one a clone of the gate.
struct Handle<S: Store> {
    shared: Arc<Shared<S>>,
}

struct Shared<S: Store> {
    store: S,
    journal: Arc<dyn Journal>,
    estimator: Arc<dyn Estimator>,
    clock: Arc<dyn Clock>,
    wiring: ArcCell<Wiring>,
    tallies: Tallies,
    keyring: keyring::Keyring,
    frozen: ArcCell<freeze::Frozen>,
    /// 1 once anything was frozen. Set by whoever freezes, read by requests.
    ever_frozen: AtomicU32,
    storms: storm::Storms,
    alerts: alert::Alerts,
    /// How full pools are, by name.
    backends: pools::Backends,
    /// How many requests are held for a limit, in all pools that there have been. Written by their schedulers, read by
    /// endings.
    held_in_pools: Arc<AtomicU64>,
    /// The turns of open leases that have one. The handle on the lease owns it.
    turns: papaya::HashMap<LeaseId, Weak<Turn>, ahash::RandomState>,
    /// Held by a reload.
    reloads: parking_lot::Mutex<()>,
    /// Who is woken when something in a queue is due earlier.
    alarm: ArcCell<Waker>,
}

impl<S: Store> Clone for Gate<S> {
    fn clone(&self) -> Gate<S> {
        Gate(Arc::new(Handle { shared: self.0.shared.clone() }))
    }
}

impl<S: Store> std::fmt::Debug for Gate<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("policy", &self.digest()).finish_non_exhaustive()
    }
}

/// Builds a [`Gate`] with other parts than the usual ones.
#[must_use]
pub struct GateBuilder<S: Store> {
    policy: Policy,
    /// Makes the store when the gate is built: one that another replaces is never made.
    store: Box<dyn FnOnce() -> S + Send + Sync>,
    journal: Arc<dyn Journal>,
    estimator: Arc<dyn Estimator>,
    clock: Arc<dyn Clock>,
    backends: pools::Backends,
}

impl Gate<Memory> {
    /// A gate on the memory store, the system clock and a ring journal.
    pub fn new(policy: Policy) -> Gate<Memory> {
        Gate::builder(policy).build()
    }

    /// A builder that starts with the same parts.
    pub fn builder(policy: Policy) -> GateBuilder<Memory> {
        GateBuilder {
            policy,
            store: Box::new(Memory::default),
            journal: Arc::new(Ring::default()),
            estimator: Arc::new(Standard),
            clock: Arc::new(SystemClock::new()),
            backends: pools::Backends::new(),
        }
    }
}

impl<S: Store> GateBuilder<S> {
    /// Keeps accounts and leases in another store.
    pub fn store<T: Store>(self, store: T) -> GateBuilder<T> {
        let GateBuilder { policy, journal, estimator, clock, backends, .. } = self;
        GateBuilder { policy, store: Box::new(move || store), journal, estimator, clock, backends }
    }

    /// Writes the journal elsewhere.
    pub fn journal(mut self, journal: impl Journal) -> Self {
        self.journal = Arc::new(journal);
        self
    }

    /// Counts input differently.
    pub fn estimator(mut self, estimator: impl Estimator) -> Self {
        self.estimator = Arc::new(estimator);
        self
    }

    /// Takes the time from another clock.
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Puts a valve in front of a pool: requests for models that name it in the policy need a turn, and wait for it where the
    /// pool is full. What is full is what the backend says that the pool takes; where it measures, the valve begins with a
    /// quarter of that and follows. A second backend for a pool takes the place of the first.
    ///
    /// A pool without a backend takes whatever its tenants' limits allow. A backend that others use too is handed over as
    /// an `Arc`, of its own type or of `dyn GpuBackend`.
    pub fn pool(mut self, name: impl Into<Arc<str>>, backend: impl GpuBackend) -> Self {
        self.backends.insert(name.into(), Arc::new(backend));
        self
    }

    /// The gate.
    pub fn build(self) -> Gate<S> {
        let now = self.clock.now();
        let digest: Arc<str> = self.policy.digest().into();
        let (plan, asked) = (self.policy.plan().clone(), pools::ask(&self.backends, now));
        let held_in_pools = Arc::default();
        let wiring = Wiring::new(plan, digest.clone(), &asked, None, &held_in_pools);
        self.journal.append(Event::Loaded(digest), now);
        let shared = Shared {
            store: (self.store)(),
            journal: self.journal,
            estimator: self.estimator,
            clock: self.clock,
            wiring: ArcCell::new(Arc::new(wiring)),
            tallies: Tallies::default(),
            keyring: keyring::Keyring::default(),
            frozen: ArcCell::empty(),
            ever_frozen: AtomicU32::new(0),
            storms: storm::Storms::new(),
            alerts: alert::Alerts::default(),
            backends: self.backends,
            held_in_pools,
            turns: papaya::HashMap::default(),
            alarm: ArcCell::empty(),
            reloads: parking_lot::Mutex::new(()),
        };
        Gate(Arc::new(Handle { shared: Arc::new(shared) }))
    }
}

impl<S: Store> Gate<S> {
    fn shared(&self) -> &Shared<S> {
        &self.0.shared
    }

    /// Decides about a request and takes what it may use, all limits or none.
    ///
    /// A request that is malformed, a model that is unknown and a store that is lost are refusals, not errors.
    /// A request id that has an open lease of the same principal gives that lease again and takes nothing.
    /// Cost on the memory store: no lock and no I/O; linear in the limits and in the text to estimate.
    pub fn admit<'a>(&'a self, who: &'a Principal, request: &'a Request) -> S::Answer<'a, Decision<Lease<S>>> {
        self.decide(who, request, self.shared().clock.now())
    }

    /// Decides again about a request that was told to wait. As long as its turn has not come it is told to wait once more,
    /// keeps its place, and nothing is counted or journaled. [`wait`](Gate::wait) is the same as a future.
    pub fn admit_again<'a>(
        &'a self,
        queued: Queued,
        who: &'a Principal,
        request: &'a Request,
    ) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let Queued { lane, max_wait, refusal, pool, place: Some(mut place) } = queued else {
            return self.decide(who, request, now);
        };
        // What the time alone brings about may not have been looked at yet.
        place.look_at(now.mono);
        match place.try_turn() {
            None => S::ready(Decision::Queue(Queued { lane, max_wait, refusal, pool, place: Some(place) })),
            // A turn is its tenant's: another's request has to line up by itself.
            Some(Ok(turn)) if *turn.arrival().tenant != *who.tenant() => {
                drop(Seat::new(Some(turn), now));
                self.decide(who, request, now)
            }
            Some(Ok(turn)) => self.decide_now(who, request, Some(turn), now),
            Some(Err(refused)) => {
                let refusal = unqueued(refused, Arc::unwrap_or_clone(refusal), &lane, &pool);
                let tally = shared.tallies.find(&refusal.tenant, &refusal.model);
                let tally = tally.unwrap_or_else(|| shared.tallies.strangers.clone());
                S::ready(shared.refuse_in(&[tally, shared.tallies.lane(&lane)], refusal, now))
            }
        }
    }

    fn decide<'a>(&'a self, who: &'a Principal, request: &'a Request, now: Now) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let Some(wait) = shared.storms.early(who, request, now) else {
            return self.decide_now(who, request, None, now);
        };
        let Some(id) = &request.id else { return S::ready(shared.stormy(who, request, wait, now)) };
        // A repeat of a request whose lease is open is no storm: it has to find its lease.
        S::chain(shared.store.find(Name::Request(id.clone()), |record| record), move |record| match record {
            Some(record) if record.is_open() => self.decide_now(who, request, None, now),
            _ => S::ready(shared.stormy(who, request, wait, now)),
        })
    }

    fn decide_now<'a>(
        &'a self,
        who: &'a Principal,
        request: &'a Request,
        turn: Option<Turn>,
        now: Now,
    ) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let waited = turn.is_some();
        let seat = Seat::new(turn, now);
        let prepared = shared.wired(|wiring| {
            let ready = Ready::of(prepare::prepare(shared, wiring, who, request, now)?, request);
            let entrance = match waited {
                true => Entrance::Open(None),
                false => shared.entrance(wiring, &ready.question, now),
            };
            Ok((ready, entrance))
        });
        match prepared {
            Err(refusal) => S::ready(shared.reject(refusal, now)),
            Ok((ready, Entrance::Open(_))) if waited => self.reserve(ready, seat, true, who, now),
            Ok((ready, Entrance::Open(turn))) => self.reserve(ready, Seat::new(turn, now), false, who, now),
            Ok((ready, Entrance::Closed)) => self.line_up(ready, who, now),
        }
    }

    /// Waits for a turn, unless the request finds its lease open.
    fn line_up<'a>(&'a self, ready: Ready<'a>, who: &'a Principal, now: Now) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let repeat = match &ready.question.request.id {
            None => S::ready(false),
            Some(id) => shared.store.find(Name::Request(id.clone()), |record| record.is_some_and(|r| r.is_open())),
        };
        S::chain(repeat, move |repeat| {
            if repeat {
                return self.reserve(ready, Seat::new(None, now), false, who, now);
            }
            S::chain(shared.line_up(ready, now), move |lined_up| match lined_up {
                LinedUp::Turn(ready, turn) => self.reserve(*ready, Seat::new(Some(turn), now), false, who, now),
                LinedUp::Waits(question, queued) => S::ready(shared.queue(&question, queued, now)),
                LinedUp::Refused(question, refusal) => S::ready(shared.refuse_in(question.tallies(), refusal, now)),
                LinedUp::Short(question, lacks) => {
                    let (refusal, request) = (question.refused(&lacks), question.request);
                    self.refused(Refused::of(question, refusal), who, request, now)
                }
            })
        })
    }

    fn reserve<'a>(
        &'a self,
        ready: Ready<'a>,
        seat: Seat,
        waited: bool,
        who: &'a Principal,
        now: Now,
    ) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let Ready { reservation, question } = ready;
        let request = question.request;
        let concluded = shared.store.reserve(reservation, now, move |reserved, swept| {
            shared.swept(swept, now);
            self.conclude(question, reserved, seat, waited, now)
        });
        S::chain(concluded, move |concluded| match concluded {
            Ok(decision) => {
                if matches!(decision, Decision::Allow(_) | Decision::Degrade(..)) {
                    shared.storms.admitted(who, request);
                }
                S::ready(decision)
            }
            Err(refused) => self.refused(refused, who, request, now),
        })
    }

    /// Answers a refusal by the limits, with its hints.
    fn refused<'a>(
        &'a self,
        refused: Refused,
        who: &'a Principal,
        request: &'a Request,
        now: Now,
    ) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let Refused { mut refusal, route, input } = refused;
        if let Wait::After(wait) = refusal.wait {
            shared.storms.refused(who, request, wait, now);
        }
        let models = view::hint(shared, who, &route.roster.tenant, request, input, &refusal.shortages, now);
        S::chain(models, move |models| {
            if !models.is_empty() {
                Arc::make_mut(&mut refusal).fits.models = models;
            }
            S::ready(shared.refuse_in(&route.deal.tallies, refusal, now))
        })
    }

    /// The decision, or a refusal that still lacks its hints.
    fn conclude(
        &self,
        question: verdict::Question<'_>,
        reserved: Reserved,
        seat: Seat,
        waited: bool,
        now: Now,
    ) -> Result<Decision<Lease<S>>, Refused> {
        let shared = self.shared();
        let asked = question.asked;
        match reserved {
            Reserved::Taken(record, choice, lacks) => Ok(self.admitted(&question, record, choice, &lacks, seat, now)),
            Reserved::Open(record) => Ok(self.admitted(&question, record, asked, &[], seat, now)),
            Reserved::Short(lacks) => {
                let refusal = question.refused(&lacks);
                match shared.put_back(&question, seat, &lacks, &refusal, now) {
                    Some(Ok(queued)) if waited => Ok(Decision::Queue(queued)),
                    Some(Ok(queued)) => Ok(shared.queue(&question, queued, now)),
                    Some(Err(full)) => Ok(shared.refuse_in(question.tallies(), full, now)),
                    None => Err(Refused::of(question, refusal)),
                }
            }
            other => {
                let refusal = question.unreserved(&other);
                Ok(shared.refuse_in(question.tallies(), refusal, now))
            }
        }
    }

    /// The decision on a lease that is open. The first to get a handle owns it, whether its request opened it now or the
    /// answer to an earlier one was lost.
    fn admitted(
        &self,
        question: &verdict::Question<'_>,
        record: Record,
        choice: usize,
        lacks: &[Lacks],
        seat: Seat,
        now: Now,
    ) -> Decision<Lease<S>> {
        let shared = self.shared();
        let degradation = question.degradation(&record.claim.terms, lacks);
        let (first, owner) = record.claim.noted.first_and_owner();
        if first {
            shared.journal.append(Event::Admitted(record.clone()), now);
        }
        // Somebody may have ended the lease before this, and noted its admission on the way; this is the decision all the same.
        if owner {
            let counter = if degradation.is_some() { Counter::Degraded } else { Counter::Allowed };
            record.claim.terms.deal.tallies.iter().for_each(|tally| tally.count(&[(counter, 1)]));
            let (roster, lineup) = (question.roster(choice), &record.claim.terms.deal.lineup);
            // Who repeats a request may meet an admission under other limits than it has now. What that has crossed is told
            // with the next one.
            if roster.alerts && roster.lineup.is_of_same_limits(lineup) {
                shared.alert(roster, &record, now);
            }
        }
        let turn = owner.then(|| shared.turn_for(question, choice, seat)).flatten();
        let turn = turn.map(|turn| shared.keep_turn(&record, turn));
        // Accounts that had been dropped at rest were bound anew: the next request goes there at once.
        let route = question.route(choice);
        if !Arc::ptr_eq(&route.deal.lineup, &record.claim.terms.deal.lineup) && owner {
            shared.wired(|wiring| wiring.forget_route(route));
        }
        let lease = Lease::new(self.0.clone(), record.claim, owner, turn, degradation.clone());
        match degradation {
            Some(degradation) => Decision::Degrade(lease, degradation),
            None => Decision::Allow(lease),
        }
    }

    /// The answer that [`admit`](Gate::admit) would give at this moment, without taking anything. It is not journaled.
    pub fn preview<'a>(&'a self, who: &'a Principal, request: &'a Request) -> S::Answer<'a, Decision<Offer>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let prepared = shared.wired(|wiring| prepare::prepare(shared, wiring, who, request, now));
        match prepared {
            Ok(prepared) => view::preview(shared, prepared, request, now),
            Err(refusal) => S::ready(Decision::Reject(refusal.into())),
        }
    }

    /// Ends a lease by its own id or by its request's: late, or from elsewhere.
    ///
    /// An unresolved lease is settled by this once. The second time: the same figures give the first receipt.
    ///
    /// # Errors
    /// [`EndError::Unknown`] for a lease that never was or is forgotten; otherwise as [`Lease::settle`].
    pub fn finalize(&self, name: Name, outcome: Outcome) -> S::Answer<'_, Result<Receipt, EndError>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let failure = shared.upstream_failure();
        let end = move |record: &Record| lease::end_of(record, outcome, failure);
        shared.store.end(name, end, now, move |ended| shared.ended(ended, now))
    }

    /// Puts another policy in force, at once and whole.
    ///
    /// Open leases keep the terms that they were admitted on. Accounts of the same scope, meter and window go on with
    /// what they hold: nothing is refilled.
    pub fn reload(&self, policy: &Policy) {
        let shared = self.shared();
        let now = shared.clock.now();
        let asked = pools::ask(&shared.backends, now);
        // One after the other: a pool that one reload brings must be found by the next.
        let alone = shared.reloads.lock();
        let digest: Arc<str> = policy.digest().into();
        let plan = policy.plan().clone();
        let wiring =
            shared.wired(|before| Wiring::new(plan, digest.clone(), &asked, Some(before), &shared.held_in_pools));
        shared.wiring.store(Some(Arc::new(wiring)));
        drop(alone);
        if let Some(alarm) = shared.alarm.load() {
            self.alarm(&alarm);
        }
        shared.journal.append(Event::Loaded(digest), now);
    }

    /// The digest of the policy in force.
    pub fn digest(&self) -> Arc<str> {
        self.shared().wired(|wiring| wiring.digest.clone())
    }

    /// Ends leases whose deadline has passed, and closes unresolved ones that have waited as long as the policy says;
    /// no more than `at_most`; reads how full the pools are, and ends the wait of requests that have waited too long. Gives how many leases it ended: as many as `at_most` means that more may be due. Call it about once a second, or let a
    /// [`Keeper`](crate::keeper::Keeper) do so.
    pub fn sweep(&self, at_most: usize) -> S::Answer<'_, usize> {
        let shared = self.shared();
        let now = shared.clock.now();
        shared.tick_pools(now);
        shared.store.sweep(now, at_most, move |records| {
            let count = records.len();
            shared.swept(records, now);
            count
        })
    }

    /// The store.
    pub fn store(&self) -> &S {
        &self.shared().store
    }

    /// The journal.
    pub fn journal(&self) -> &dyn Journal {
        &*self.shared().journal
    }

    /// The gate's clock.
    pub fn now(&self) -> Now {
        self.shared().clock.now()
    }

    /// The story of one request: its entries that the journal still has, oldest first.
    pub fn explain(&self, request_id: &str) -> Vec<Entry> {
        self.entries(|entry| entry.event.request_id() == Some(request_id))
    }

    /// The entries of a tenant since so many nanoseconds ago, oldest first.
    pub fn recent(&self, tenant: &str, nanos: u64) -> Vec<Entry> {
        let since = self.now().mono.saturating_sub(nanos);
        self.entries(|entry| entry.at.mono >= since && entry.event.tenant() == Some(tenant))
    }

    fn entries(&self, mut wanted: impl FnMut(&Entry) -> bool) -> Vec<Entry> {
        let mut entries = Vec::new();
        self.shared().journal.scan(&mut |entry| {
            if wanted(entry) {
                entries.push(entry.clone());
            }
            true
        });
        entries
    }

    /// Leases whose usage is unknown, the oldest first, at most `at_most`.
    pub fn unresolved(&self, at_most: usize) -> S::Answer<'_, Vec<Record>> {
        self.shared().store.open(usize::MAX, move |mut open| {
            open.retain(|record| record.unresolved().is_some());
            open.sort_by_key(|record| record.unresolved().map(|unresolved| unresolved.since.mono));
            open.truncate(at_most);
            open
        })
    }

    /// The most by which the open leases could together pass what they hold, per meter: what the worst case and the hold
    /// differ by on limits that hold the learned length. No account goes further into debt when they end than this, as
    /// long as no input is longer than reserved and no output longer than agreed.
    pub fn overshoot(&self) -> S::Answer<'_, Amounts> {
        self.shared().store.open(usize::MAX, |open| {
            let mut sum = Amounts::default();
            for record in open.iter().filter(|record| record.is_open()) {
                let more = verdict::overshoot(record);
                for meter in Meter::ALL {
                    sum.set(meter, sum.get(meter).saturating_add(more.get(meter)));
                }
            }
            sum
        })
    }
}

impl<S: Store> Shared<S> {
    /// Reads the wiring in force without touching its reference count.
    fn wired<R>(&self, read: impl FnOnce(&Wiring) -> R) -> R {
        self.wiring.with(|wiring| match wiring {
            Some(wiring) => read(wiring),
            // The cell is filled when the gate is built and never emptied.
            None => unreachable!("a gate without a policy"),
        })
    }

    fn upstream_failure(&self) -> UpstreamFailure {
        self.wired(|wiring| wiring.plan.upstream_failure)
    }

    /// The answer to a retry that comes again and again before it was to.
    fn stormy<L>(&self, who: &Principal, request: &Request, wait: std::time::Duration, now: Now) -> Decision<L> {
        let refusal = refusal(Reason::RetryStorm, Some(who), request, None);
        self.reject(Arc::new(Refusal { wait: Wait::After(wait), ..*refusal }), now)
    }

    /// Counts, journals and answers a refusal before any roster was found.
    fn reject<L>(&self, refusal: Arc<Refusal>, now: Now) -> Decision<L> {
        let tally = self.tallies.find(&refusal.tenant, &refusal.model);
        self.refuse(tally.as_deref().unwrap_or(&self.tallies.strangers), refusal, now)
    }

    fn refuse<L>(&self, tally: &Tally, refusal: Arc<Refusal>, now: Now) -> Decision<L> {
        tally.rejected(refusal.reason);
        self.note_refusal(&refusal, now);
        Decision::Reject(refusal)
    }

    fn refuse_in<L>(&self, [model, lane]: &[Arc<Tally>; 2], refusal: Arc<Refusal>, now: Now) -> Decision<L> {
        lane.rejected(refusal.reason);
        self.refuse(model, refusal, now)
    }

    /// Counts, journals and answers that a request waits.
    fn queue<L>(&self, question: &verdict::Question<'_>, queued: Queued, now: Now) -> Decision<L> {
        question.tallies().iter().for_each(|tally| tally.queued(queued.refusal.reason));
        self.journal.append(Event::Queued(queued.refusal.clone(), queued.lane.clone()), now);
        Decision::Queue(queued)
    }

    fn note_refusal(&self, refusal: &Arc<Refusal>, now: Now) {
        self.journal.append(Event::Refused(refusal.clone()), now);
    }

    fn swept(&self, swept: Swept, now: Now) {
        for record in swept {
            self.note_ending(&record, now);
        }
    }

    /// Journals and counts an ending, once whoever meets it; before it the admission, if nobody has met that.
    fn note_ending(&self, record: &Record, now: Now) {
        let (first, admission) = record.first_to_note_ending();
        if first {
            if admission {
                self.journal.append(Event::Admitted(record.clone()), now);
            }
            count::ended(record);
            self.journal.append(Event::Ended(record.clone()), now);
            self.give_room_back(record, now);
        }
    }

    /// The receipt of an ending, which is journaled unless it has been.
    fn ended(&self, ended: Result<Ended, EndError>, now: Now) -> Result<Receipt, EndError> {
        let Ended { record, repeat } = ended?;
        self.note_ending(&record, now);
        Ok(Receipt::of(record, repeat))
    }

    /// The present periods of a lease's limits.
    fn periods(&self, claim: &Claim, now: Now) -> SmallVec<[Period; 8]> {
        claim.terms.deal.lineup.periods(now.wall).collect()
    }

    fn claim_refusal(&self, claim: &Claim, reason: Reason, wait: Wait, detail: Option<String>) -> Refusal {
        let terms = &claim.terms;
        let request_id = terms.request_id.clone();
        let refusal = Refusal::new(reason, terms.deal.principal.tenant(), terms.deal.model.clone());
        Refusal { request_id, wait, detail, ..refusal }
    }

    fn extension_refused(&self, claim: &Claim, lacks: &[crate::store::Lack], now: Now) -> Arc<Refusal> {
        let shortages = Shortages::of(claim.terms.deal.lineup.clone(), lacks);
        let (reason, wait) = verdict::worst(&shortages);
        let refusal = Arc::new(Refusal { shortages, ..self.claim_refusal(claim, reason, wait, None) });
        self.note_refusal(&refusal, now);
        refusal
    }

    fn gone(&self, claim: &Claim, now: Now) -> Arc<Refusal> {
        let detail = Some(format!("lease {} has ended", claim.id));
        let refusal = Arc::new(self.claim_refusal(claim, Reason::RequestAlreadyEnded, Wait::Never, detail));
        self.note_refusal(&refusal, now);
        refusal
    }

    fn store_lost(&self, claim: &Claim, now: Now) -> Arc<Refusal> {
        let refusal = Arc::new(self.claim_refusal(claim, Reason::StoreUnavailable, Wait::Unknown, None));
        self.note_refusal(&refusal, now);
        refusal
    }
}
