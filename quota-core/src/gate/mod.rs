//! The gate: the door that every request goes through, and that every ending comes back to.
//!
//! Floor 3. Invariant: whatever the store, what is decided before and after its one trip is this code.

mod alert;
mod decision;
mod freeze;
mod identity;
mod keyring;
mod keys;
mod lease;
mod prepare;
mod pressure;
mod storm;
mod stream;
mod tally;
mod verdict;
mod view;
mod wiring;

use std::sync::Arc;

use smallvec::SmallVec;

pub use self::alert::Subscriber;
pub use self::decision::{Decision, Degradation, Offer, Queued};
pub use self::freeze::{Freeze, Target};
pub use self::keyring::MAX_KEYS;
pub use self::keys::{Issued, KeyError, KeySpec, KeyState, KeyView};
pub use self::lease::Lease;
use self::prepare::{Prepared, refusal};
pub use self::stream::StreamMeter;
pub use self::tally::{Counter, Tally};
pub use self::view::Snapshot;
use self::wiring::{Tallies, Wiring};
use crate::estimate::{Estimator, Standard};
use crate::journal::{Entry, Event, Journal, Ring};
use crate::lease::{Claim, EndError, Receipt, Record, State};
use crate::policy::Policy;
use crate::policy::plan::UpstreamFailure;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::{Refusal, Wait};
use crate::request::Request;
use crate::store::{Ended, Lacks, Memory, Name, Reserved, Store, Swept};
use crate::sync::ArcCell;
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
    refusal: Box<Refusal>,
    /// The input that would have been reserved.
    input: u64,
    tally: Arc<Tally>,
    lane: Arc<str>,
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
    storms: storm::Storms,
    alerts: alert::Alerts,
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
        }
    }
}

impl<S: Store> GateBuilder<S> {
    /// Keeps accounts and leases in another store.
    pub fn store<T: Store>(self, store: T) -> GateBuilder<T> {
        let GateBuilder { policy, journal, estimator, clock, .. } = self;
        GateBuilder { policy, store: Box::new(move || store), journal, estimator, clock }
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

    /// The gate.
    pub fn build(self) -> Gate<S> {
        let now = self.clock.now();
        let digest: Arc<str> = self.policy.digest().into();
        let wiring = Wiring::new(self.policy.plan().clone(), digest.clone(), None);
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
            storms: storm::Storms::new(),
            alerts: alert::Alerts::default(),
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
        self.decide(who, request, None)
    }

    /// Decides again about a request that was told to wait. Told to wait once more in the same lane, it keeps its place,
    /// and nothing is counted or journaled; otherwise it gives the place up.
    pub fn admit_again<'a>(
        &'a self,
        queued: Queued,
        who: &'a Principal,
        request: &'a Request,
    ) -> S::Answer<'a, Decision<Lease<S>>> {
        self.decide(who, request, queued._place)
    }

    fn decide<'a>(
        &'a self,
        who: &'a Principal,
        request: &'a Request,
        place: Option<tally::Place>,
    ) -> S::Answer<'a, Decision<Lease<S>>> {
        let shared = self.shared();
        let now = shared.clock.now();
        // Whoever waits was told to, and is not early.
        let early = if place.is_none() { shared.storms.early(who, request, now) } else { None };
        if let Some(wait) = early {
            let refusal = refusal(Reason::RetryStorm, Some(who), request, None);
            return S::ready(shared.reject(Box::new(Refusal { wait: Wait::After(wait), ..*refusal }), now));
        }
        let prepared = shared.wired(|wiring| prepare::prepare(shared, wiring, who, request, now));
        let Prepared { reservation, rosters, asked } = match prepared {
            Ok(prepared) => prepared,
            Err(refusal) => return S::ready(shared.reject(refusal, now)),
        };
        let question = verdict::Question::of(&reservation, rosters, asked, request);
        let concluded = shared.store.reserve(reservation, now, move |reserved, swept| {
            shared.swept(swept, now);
            self.conclude(question, reserved, place, now)
        });
        S::chain(concluded, move |concluded| match concluded {
            Ok(decision) => {
                if matches!(decision, Decision::Allow(_) | Decision::Degrade(..)) {
                    shared.storms.admitted(who, request);
                }
                S::ready(decision)
            }
            Err(refused) => {
                let Refused { refusal, tally, lane, input } = *refused;
                if let Wait::After(wait) = refusal.wait {
                    shared.storms.refused(who, request, wait, now);
                }
                let hinted = view::hint(shared, who, request, input, refusal, now);
                S::chain(hinted, move |refusal| S::ready(shared.refuse_in(&lane, &tally, refusal, now)))
            }
        })
    }

    /// The decision, or a refusal that still lacks its hints.
    fn conclude(
        &self,
        question: verdict::Question<'_>,
        reserved: Reserved,
        place: Option<tally::Place>,
        now: Now,
    ) -> Result<Decision<Lease<S>>, Box<Refused>> {
        let shared = self.shared();
        let tally = |choice| &question.roster(choice).tally;
        let asked = question.asked;
        match reserved {
            Reserved::Taken(record, choice, lacks) => Ok(self.admitted(&question, &record, choice, &lacks, now)),
            Reserved::Open(record) => Ok(self.admitted(&question, &record, asked, &[], now)),
            Reserved::Short(lacks) => {
                let refusal = question.refused(&lacks);
                let waited = place.is_some();
                let queued = shared.wired(|wiring| question.queued(wiring, &shared.tallies, &lacks, &refusal, place));
                match queued {
                    Some(Ok(queued)) if waited => Ok(Decision::Queue(queued)),
                    Some(Ok(queued)) => {
                        let count = |tally: &Tally| {
                            tally.add(Counter::Queued, 1);
                            tally.refused(refusal.reason);
                        };
                        count(tally(asked));
                        shared.tallies.in_lane(&queued.lane, count);
                        shared.journal.append(Event::Queued(Arc::new(*refusal), queued.lane.clone()), now);
                        Ok(Decision::Queue(queued))
                    }
                    Some(Err(full)) => Ok(shared.refuse_in(question.lane(), tally(asked), full, now)),
                    None => {
                        let (tally, lane) = (tally(asked).clone(), question.lane().clone());
                        Err(Box::new(Refused { refusal, tally, lane, input: question.input() }))
                    }
                }
            }
            other => {
                let refusal = question.unreserved(&other);
                Ok(shared.refuse_in(question.lane(), tally(asked), refusal, now))
            }
        }
    }

    /// The decision on a lease that is open. The first to get a handle owns it, whether its request opened it now or the
    /// answer to an earlier one was lost.
    fn admitted(
        &self,
        question: &verdict::Question<'_>,
        record: &Arc<Record>,
        choice: usize,
        lacks: &[Lacks],
        now: Now,
    ) -> Decision<Lease<S>> {
        let shared = self.shared();
        let degradation = shared.wired(|wiring| question.degradation(wiring, &record.claim.terms, lacks));
        let (first, owner) = record.claim.noted.first_and_owner();
        if first {
            shared.journal.append(Event::Admitted(record.clone()), now);
            let counter = if degradation.is_some() { Counter::Degraded } else { Counter::Allowed };
            question.roster(choice).tally.add(counter, 1);
            shared.tallies.in_lane(&record.claim.terms.lane, |tally| tally.add(counter, 1));
            if question.roster(choice).alerts {
                shared.alert(question.roster(choice), record, now);
            }
        }
        let lease = Lease::new(self.0.clone(), record, owner);
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
            Err(refusal) => S::ready(Decision::Reject(refusal)),
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
        let digest: Arc<str> = policy.digest().into();
        let wiring = shared.wired(|before| Wiring::new(policy.plan().clone(), digest.clone(), Some(before)));
        shared.wiring.store(Some(Arc::new(wiring)));
        shared.journal.append(Event::Loaded(digest), now);
    }

    /// The digest of the policy in force.
    pub fn digest(&self) -> Arc<str> {
        self.shared().wired(|wiring| wiring.digest.clone())
    }

    /// Ends leases whose deadline has passed, and closes unresolved ones that have waited as long as the policy says;
    /// no more than `at_most`. Gives how many it ended: as many as `at_most` means that more may be due. Call it about once a second, or let a
    /// [`Keeper`](crate::keeper::Keeper) do so.
    pub fn sweep(&self, at_most: usize) -> S::Answer<'_, usize> {
        let shared = self.shared();
        let now = shared.clock.now();
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
    pub fn unresolved(&self, at_most: usize) -> S::Answer<'_, Vec<Arc<Record>>> {
        self.shared().store.open(usize::MAX, move |mut open| {
            open.retain(|record| matches!(record.state, State::Unresolved(_)));
            open.sort_by_key(|record| match &record.state {
                State::Unresolved(unresolved) => unresolved.since.mono,
                _ => 0,
            });
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

    /// Counts, journals and answers a refusal before any roster was found.
    fn reject<L>(&self, refusal: Box<Refusal>, now: Now) -> Decision<L> {
        let tally = self.tallies.find(&refusal.tenant, &refusal.model);
        self.refuse(tally.as_deref().unwrap_or(&self.tallies.strangers), refusal, now)
    }

    fn refuse<L>(&self, tally: &Tally, refusal: Box<Refusal>, now: Now) -> Decision<L> {
        tally.add(Counter::Rejected, 1);
        tally.refused(refusal.reason);
        self.note_refusal(&refusal, now);
        Decision::Reject(refusal)
    }

    fn refuse_in<L>(&self, lane: &Arc<str>, tally: &Tally, refusal: Box<Refusal>, now: Now) -> Decision<L> {
        self.tallies.in_lane(lane, |tally| {
            tally.add(Counter::Rejected, 1);
            tally.refused(refusal.reason);
        });
        self.refuse(tally, refusal, now)
    }

    fn note_refusal(&self, refusal: &Refusal, now: Now) {
        self.journal.append(Event::Refused(Arc::new(refusal.clone())), now);
    }

    fn swept(&self, swept: Swept, now: Now) {
        for record in swept {
            self.note_ending(&record, now);
        }
    }

    /// Journals and counts an ending, once whoever meets it; before it the admission, if nobody has met that.
    fn note_ending(&self, record: &Arc<Record>, now: Now) {
        if record.noted.first() {
            if record.claim.noted.first() {
                self.journal.append(Event::Admitted(record.clone()), now);
            }
            self.count(record);
            self.journal.append(Event::Ended(record.clone()), now);
        }
    }

    fn count(&self, record: &Record) {
        let terms = &record.claim.terms;
        if let Some(tally) = self.tallies.find(terms.principal.tenant(), &terms.group) {
            tally.ended(record);
        }
        self.tallies.in_lane(&terms.lane, |tally| tally.ended(record));
    }

    /// The receipt of an ending, which is journaled unless it has been.
    fn ended(&self, ended: Result<Ended, EndError>, now: Now) -> Result<Receipt, EndError> {
        let Ended { record, repeat } = ended?;
        self.note_ending(&record, now);
        Ok(Receipt::of(&record, repeat))
    }

    /// The present periods of a lease's limits.
    fn periods(&self, claim: &Claim, now: Now) -> SmallVec<[Period; 8]> {
        let limits = claim.terms.lineup.limits().iter();
        limits
            .map(|bound| match &bound.column.window {
                crate::policy::plan::Window::Fixed(calendar) => calendar.period(now.wall),
                _ => Period::default(),
            })
            .collect()
    }

    fn claim_refusal(&self, claim: &Claim, reason: Reason, wait: Wait, detail: Option<String>) -> Box<Refusal> {
        let terms = &claim.terms;
        Box::new(Refusal {
            reason,
            tenant: terms.principal.tenant().into(),
            model: terms.model.clone(),
            request_id: terms.request_id.clone(),
            wait,
            shortages: Vec::new(),
            fits: Default::default(),
            detail,
            receipt: None,
        })
    }

    fn extension_refused(&self, claim: &Claim, lacks: &[crate::store::Lack], now: Now) -> Box<Refusal> {
        let limits = claim.terms.lineup.limits();
        let shared = |limit: u16| !limits[limit as usize].scope.starts_with("tenant:");
        let shortages = verdict::shortages(&claim.terms.lineup, lacks, shared);
        let (reason, wait) = verdict::worst(&shortages, &claim.terms.lineup, lacks);
        let refusal = Box::new(Refusal { shortages, ..*self.claim_refusal(claim, reason, wait, None) });
        self.note_refusal(&refusal, now);
        refusal
    }

    fn gone(&self, claim: &Claim, now: Now) -> Box<Refusal> {
        let detail = Some(format!("lease {} has ended", claim.id));
        let refusal = self.claim_refusal(claim, Reason::RequestAlreadyEnded, Wait::Never, detail);
        self.note_refusal(&refusal, now);
        refusal
    }

    fn store_lost(&self, claim: &Claim, now: Now) -> Box<Refusal> {
        let refusal = self.claim_refusal(claim, Reason::StoreUnavailable, Wait::Unknown, None);
        self.note_refusal(&refusal, now);
        refusal
    }
}
