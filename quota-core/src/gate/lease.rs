//! The lease: the handle on what an admitted request holds.
//!
//! Floor 3. Invariant: however a handle goes away, the lease behind it ends; only a handle that was told so gives
//! anything back.

use std::sync::Arc;
use std::time::Duration;

use super::decision::Degradation;
use super::{Handle, Shared};
use crate::lease::{Cause, Claim, End, EndError, LeaseId, Receipt, Record};
use crate::policy::plan::UpstreamFailure;
use crate::refusal::Refusal;
use crate::scheduler::Turn;
use crate::store::{Extended, Memory, Name, Store};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Now;
use crate::units::{Amounts, Meter};
use crate::usage::{Outcome, Usage};

/// The least and the most output tokens that a growing answer is covered ahead of itself.
const STEP: std::ops::RangeInclusive<u64> = 64..=1024;

/// An admitted request.
///
/// Call [`sent`](Lease::sent) before the first byte leaves for the upstream, and end the lease once:
/// [`settle`](Lease::settle) with the provider's figures, [`cancel`](Lease::cancel) if the request never left,
/// [`finish`](Lease::finish) with whatever the upstream's answer came to. Ending it again is safe: the same figures give
/// the first receipt.
///
/// Dropped without an ending, it is *unresolved*: slots are free, tokens and money stay charged as reserved until one
/// later [`Gate::finalize`](crate::Gate::finalize), or until the policy's time for that has passed.
#[must_use = "a lease that is dropped is charged as reserved"]
pub struct Lease<S: Store = Memory> {
    gate: Arc<Handle<S>>,
    claim: Arc<Claim>,
    /// Whether this handle was the first on the lease. One that a repeated request found later does not end it when
    /// dropped: somebody else is running the request.
    owner: bool,
    /// Its turn in the pool, where it needed one.
    turn: Option<Arc<Turn>>,
    degradation: Option<Box<Degradation>>,
    /// Output tokens that were agreed or last extended to. Raised by the holder of the handle.
    covered: AtomicU64,
    /// Output tokens that the queue was told of. Raised by the holder of the handle.
    told: AtomicU64,
    /// 1 once the lease is known to have ended. Set by the answer to an ending, read when the handle is dropped.
    ended: AtomicU32,
}

impl<S: Store> std::fmt::Debug for Lease<S> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Lease")
            .field("id", &self.claim.id)
            .field("tenant", &self.claim.terms.deal.principal.tenant())
            .finish()
    }
}

impl<S: Store> Lease<S> {
    pub(super) fn new(
        gate: Arc<Handle<S>>,
        claim: Arc<Claim>,
        owner: bool,
        turn: Option<Arc<Turn>>,
        degradation: Option<Degradation>,
    ) -> Lease<S> {
        Lease {
            gate,
            owner,
            turn,
            degradation: degradation.map(Box::new),
            covered: AtomicU64::new(claim.terms.output_ceiling),
            claim,
            told: AtomicU64::new(0),
            ended: AtomicU32::new(0),
        }
    }

    fn shared(&self) -> &Shared<S> {
        &self.gate.shared
    }

    /// The lease's id.
    pub fn id(&self) -> LeaseId {
        self.claim.id
    }

    /// The request's id, where it has one.
    pub fn request_id(&self) -> Option<&str> {
        self.claim.terms.request_id.as_deref()
    }

    /// The model to run on.
    pub fn model(&self) -> &str {
        &self.claim.terms.deal.model
    }

    /// The model to name to the upstream: the `upstream` of the model where the policy in force gives it one, else its own
    /// name.
    pub fn upstream_model(&self) -> Arc<str> {
        let model = &self.claim.terms.deal.model;
        self.shared().wired(|wiring| {
            let upstream = wiring.plan.models.get(model).and_then(|model| model.upstream.as_ref());
            upstream.unwrap_or(model).clone()
        })
    }

    /// The lane to run in.
    pub fn lane(&self) -> &str {
        &self.claim.terms.deal.lane
    }

    /// The largest output over all choices that was agreed, in tokens: what to tell the upstream.
    pub fn max_output_tokens(&self) -> u64 {
        self.claim.terms.output_ceiling
    }

    /// The input that was reserved, in tokens.
    pub fn input_tokens(&self) -> u64 {
        self.claim.terms.input.reserve
    }

    /// What was agreed, and what was taken.
    pub fn claim(&self) -> &Claim {
        &self.claim
    }

    /// Whether another request under the same id has this lease already. Of all handles on one lease exactly one is no
    /// repeat; the request is run by its holder, and only its drop ends the lease.
    pub fn is_repeat(&self) -> bool {
        !self.owner
    }

    /// In which lesser form it must run; `None` as asked.
    pub fn degradation(&self) -> Option<&Degradation> {
        self.degradation.as_deref()
    }

    /// The place of its lane among the policy's, 0 the first: what an engine with a queue of its own is told, see
    /// [`gpu::Dialect::priority`](crate::gpu::Dialect::priority).
    pub fn rank(&self) -> u8 {
        self.shared().wired(|wiring| wiring.plan.lanes.get(&self.claim.terms.deal.lane).map_or(0, |lane| lane.rank))
    }

    /// How long it lives without a heartbeat.
    pub fn ttl(&self) -> Duration {
        Duration::from_nanos(self.claim.terms.deal.ttl)
    }

    /// How long it waited for its turn; zero where it needed none.
    pub fn waited(&self) -> Duration {
        self.turn.as_ref().map_or(Duration::ZERO, |turn| turn.waited())
    }

    /// Tells the queue how far the answer is, in output tokens: from the first on, now and then. Work is charged as it comes,
    /// and how long the first token took says how full the pool is. A [`StreamMeter`](crate::StreamMeter) does this by itself.
    pub fn progress(&self, output_tokens: u64) {
        if let Some(turn) = self.turn.as_ref().filter(|_| output_tokens > 0) {
            // ORDERING: relaxed; a hint by itself, and who tells it twice tells the same.
            if self.told.fetch_max(output_tokens, Ordering::Relaxed) == 0 {
                turn.first_token(self.now().mono);
            }
            turn.progress(output_tokens);
        }
    }

    /// Tells that the pool itself refused the request for lack of room (429, 503), so that less is let in. The lease has
    /// still to be ended.
    pub fn pool_refused(&self) {
        if let Some(turn) = &self.turn {
            turn.pool_refused();
        }
    }

    /// Limits whose soft amount is passed with this request: scope and name.
    pub fn soft_passed(&self) -> impl Iterator<Item = (&str, &str)> {
        let lineup = &self.claim.terms.deal.lineup;
        self.claim.holds().filter_map(move |hold| {
            let bound = lineup.limit(hold.limit);
            let (scope, limit) = bound.names();
            bound.soft.is_some_and(|soft| self.claim.used_after(&hold) > soft).then_some((scope, limit))
        })
    }

    /// Whether it has not ended: everything reserved is held. Another may end it in the next moment.
    pub fn is_open(&self) -> S::Answer<'_, bool> {
        self.shared().store.touch(self.claim.id, false, 0, |open| open)
    }

    /// Marks that bytes are about to leave. `false` if the lease has ended meanwhile: the request must then not be sent.
    pub fn sent(&self) -> S::Answer<'_, bool> {
        self.shared().store.touch(self.claim.id, true, 0, |open| open)
    }

    /// A heartbeat: moves the deadline to the policy's time from now. `false` if the lease has ended meanwhile.
    pub fn renew(&self) -> S::Answer<'_, bool> {
        let until = self.shared().clock.now().mono.saturating_add(self.claim.terms.deal.ttl);
        self.shared().store.touch(self.claim.id, false, until, |open| open)
    }

    /// Raises the hold to cover so many output tokens more than it was agreed or last extended to, with the tokens and
    /// money that go with them, on every limit or on none.
    ///
    /// # Errors
    /// The refusal, if a limit has no room: end the answer cleanly. The hold stays as it was.
    pub fn extend(&self, output_tokens: u64) -> S::Answer<'_, Result<(), Arc<Refusal>>> {
        // ORDERING: relaxed; a count by itself, whose holder extends one after the other.
        let before = self.covered.load(Ordering::Relaxed);
        self.cover(before.saturating_add(output_tokens))
    }

    /// Raises the hold to cover so many output tokens in all, on every limit that holds less: one that holds the worst
    /// case does so from the beginning, one that holds the learned length is raised as the answer grows. Covering no
    /// more than is covered takes nothing.
    ///
    /// # Errors
    /// As [`extend`](Lease::extend).
    pub fn cover(&self, output_tokens: u64) -> S::Answer<'_, Result<(), Arc<Refusal>>> {
        let now = self.now();
        S::chain(self.raise(output_tokens, now), move |extended| S::ready(self.raised(extended, now)))
    }

    /// Covers an answer that has grown to so many output tokens, some ahead (a tenth, from 64 to 1024), so that a long
    /// answer asks seldom and a short one holds little: not beyond what was agreed while it keeps to that, and exactly
    /// itself where a limit has no room for more. Tells how many output tokens are covered; until the answer has grown
    /// beyond them there is nothing to follow.
    ///
    /// # Errors
    /// As [`extend`](Lease::extend); the answer itself is then beyond what a limit has room for.
    pub fn follow(&self, output_tokens: u64) -> S::Answer<'_, Result<u64, Arc<Refusal>>> {
        let now = self.now();
        let ahead = output_tokens.saturating_add((output_tokens / 10).clamp(*STEP.start(), *STEP.end()));
        let agreed = self.max_output_tokens();
        let ahead = if output_tokens <= agreed { ahead.min(agreed) } else { ahead };
        S::chain(self.raise(ahead, now), move |extended| match extended {
            Extended::Short(_) if ahead > output_tokens => S::chain(self.raise(output_tokens, now), move |extended| {
                S::ready(self.raised(extended, now).map(|()| output_tokens))
            }),
            extended => S::ready(self.raised(extended, now).map(|()| ahead)),
        })
    }

    fn raise(&self, output_tokens: u64, now: Now) -> S::Answer<'_, Extended> {
        let shared = self.shared();
        let to = self.amounts_at(output_tokens);
        let periods = shared.periods(&self.claim, now);
        shared.store.extend(self.claim.id, to, periods, now, move |extended| {
            if let Extended::Raised(record) = &extended {
                // ORDERING: relaxed, as in `extend`.
                self.covered.fetch_max(output_tokens, Ordering::Relaxed);
                if record.first_to_note_extension() {
                    shared.journal.append(crate::journal::Event::Extended(record.clone()), now);
                }
            }
            extended
        })
    }

    /// What the host is told of an extension.
    fn raised(&self, extended: Extended, now: Now) -> Result<(), Arc<Refusal>> {
        let shared = self.shared();
        match extended {
            Extended::Raised(_) => Ok(()),
            Extended::Short(lacks) => Err(shared.extension_refused(&self.claim, &lacks, now)),
            Extended::Gone => Err(shared.gone(&self.claim, now)),
            Extended::Unavailable => Err(shared.store_lost(&self.claim, now)),
        }
    }

    /// What so many output tokens come to per meter.
    fn amounts_at(&self, output: u64) -> Amounts {
        let terms = &self.claim.terms;
        let money = terms.price().map_or(0, |price| {
            let ask = crate::policy::price::Ask {
                input: terms.input.reserve,
                output,
                service_tier: terms.service_tier(),
                text_only: terms.text_only,
                ..Default::default()
            };
            price.worst_case(&ask).to_usd().units()
        });
        Amounts::default()
            .with(Meter::Output, output)
            .with(Meter::Total, terms.input.reserve.saturating_add(output))
            .with(Meter::Money, money)
    }

    /// Settles with the provider's figures: charges what was used, gives back the rest of what was held, once.
    ///
    /// Usage above the hold is charged too: it is debt. A usage without an input side is charged the reserved input.
    /// The second time: the same figures give the first receipt, marked as a repeat.
    ///
    /// # Errors
    /// [`EndError::Conflict`] if it has ended otherwise or with other figures; nothing is changed then.
    pub fn settle(&self, usage: Usage) -> S::Answer<'_, Result<Receipt, EndError>> {
        self.end(move |record| settlement(record, usage))
    }

    /// Gives everything back: the request never left.
    ///
    /// # Errors
    /// [`EndError::CancelAfterSent`] after [`sent`](Lease::sent); [`EndError::Conflict`] if it has ended otherwise.
    pub fn cancel(&self) -> S::Answer<'_, Result<Receipt, EndError>> {
        self.end(|_| End::Cancel)
    }

    /// Ends it as unresolved, with the best-known figures, for instance the running count of a stream that broke.
    ///
    /// # Errors
    /// [`EndError::Unknown`] if it is forgotten.
    pub fn unresolved(&self, cause: Cause, seen: Option<Usage>) -> S::Answer<'_, Result<Receipt, EndError>> {
        self.end(move |_| End::Abandon(cause, seen.map(Box::new)))
    }

    /// Ends it as the upstream's answer says.
    ///
    /// # Errors
    /// As [`settle`](Lease::settle).
    pub fn finish(&self, outcome: Outcome) -> S::Answer<'_, Result<Receipt, EndError>> {
        let failure = self.shared().upstream_failure();
        self.end(move |record| end_of(record, outcome, failure))
    }

    fn end<'a>(&'a self, end: impl FnOnce(&Record) -> End + Send + 'a) -> S::Answer<'a, Result<Receipt, EndError>> {
        let shared = self.shared();
        let now = shared.clock.now();
        let then = move |ended| {
            let receipt = shared.ended(ended, now);
            if receipt.is_ok() {
                // Otherwise, or if nobody waits for this answer, a drop must still see to it; if the lease has ended,
                // abandoning it changes nothing.
                // ORDERING: relaxed; the handle itself carries the order between its uses and its drop.
                self.ended.store(1, Ordering::Relaxed);
            }
            receipt
        };
        shared.store.end(Name::Claim(self.claim.clone()), end, now, then)
    }
}

impl<S: Store> Lease<S> {
    /// Ends it as dropped, with what was seen, without waiting for the store's answer.
    pub(super) fn abandon(&self, seen: Option<Usage>) {
        // ORDERING: relaxed, see `end`. The look first, as nearly every lease has ended by then and needs no locked step.
        let has_ended = || self.ended.load(Ordering::Relaxed) == 1 || self.ended.swap(1, Ordering::Relaxed) == 1;
        if !self.owner || has_ended() {
            return;
        }
        let gate = self.gate.clone();
        let now = gate.shared.clock.now();
        self.shared().store.abandon(self.claim.id, Cause::Dropped, seen.map(Box::new), now, move |ended| {
            let _ = gate.shared.ended(ended, now);
        });
    }

    /// Ends it after an upstream that failed, as the policy says.
    pub(super) fn failed(&self, seen: Option<Usage>) -> S::Answer<'_, Result<Receipt, EndError>> {
        match self.shared().upstream_failure() {
            UpstreamFailure::Release => self.finish(Outcome::FailedWithoutUsage),
            UpstreamFailure::Unresolved => self.unresolved(Cause::UpstreamFailed, seen),
        }
    }

    /// The output that every limit covers.
    pub(super) fn least_covered(&self) -> u64 {
        let terms = &self.claim.terms;
        let covered = self.claim.holds().map(|hold| match terms.deal.lineup.limit(hold.limit).meter {
            Meter::Output => hold.amount,
            Meter::Total => hold.amount.saturating_sub(terms.input.reserve),
            Meter::Money if hold.amount < terms.worst_cost.to_usd().units() => terms.output_expected,
            _ => terms.output_ceiling,
        });
        covered.min().unwrap_or(terms.output_ceiling)
    }

    pub(super) fn now(&self) -> Now {
        self.shared().clock.now()
    }

    /// The refusal of a lease that has ended meanwhile.
    pub(super) fn gone(&self) -> Arc<Refusal> {
        let shared = self.shared();
        shared.gone(&self.claim, shared.clock.now())
    }
}

impl<S: Store> Drop for Lease<S> {
    fn drop(&mut self) {
        self.abandon(None);
        if self.turn.is_some() {
            // It has been removed by the ending, unless that came before it was put there.
            self.shared().turns.pin().remove(&self.claim.id);
        }
    }
}

/// The ending of a record by a usage.
pub(super) fn settlement(record: &Record, usage: Usage) -> End {
    let terms = &record.claim.terms;
    let usage = usage.or_input(terms.input.reserve);
    let price = terms.price();
    let cost = price.map(|price| price.exact(&price.billed(&usage, terms.service_tier()))).unwrap_or_default();
    End::Settle { usage, cost }
}

/// The ending of a record by what the upstream's answer came to.
pub(super) fn end_of(record: &Record, outcome: Outcome, failure: UpstreamFailure) -> End {
    match outcome {
        Outcome::Final(usage) => settlement(record, usage),
        Outcome::NotRun => settlement(record, Usage::not_run()),
        Outcome::FailedWithoutUsage if failure == UpstreamFailure::Release => settlement(record, Usage::not_run()),
        Outcome::FailedWithoutUsage => End::Abandon(Cause::UpstreamFailed, None),
        Outcome::Unresolved(_) => End::Abandon(Cause::NoUsage, None),
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use crate::gate::{Decision, Gate};
    use crate::policy::Policy;
    use crate::principal::Principal;
    use crate::request::Request;
    use crate::store::Name;
    use crate::usage::Usage;

    fn policy(upstream: &str) -> Policy {
        let models = format!("{{fast: {{upstream: {upstream}}}, m: {{}}, n: {{}}}}");
        Policy::from_yaml(&format!("models: {models}\ntenants: {{acme: {{rpm: 100, models: ['*']}}}}")).unwrap()
    }

    #[test]
    fn the_upstream_is_told_its_own_name_of_the_model() {
        let (gate, who) = (Gate::new(policy("m")), Principal::builder("acme").build());
        for (asked, named) in [("fast", "m"), ("m", "m"), ("unnamed", "unnamed")] {
            let Decision::Allow(lease) = gate.admit(&who, &Request::chat(asked)) else { panic!("{asked}") };
            assert_eq!((lease.model(), &*lease.upstream_model()), (asked, named));
            lease.cancel().unwrap();
        }
        let lease = gate.admit(&who, &Request::chat("fast")).lease().unwrap();
        gate.reload(&policy("n"));
        assert_eq!(&*lease.upstream_model(), "n");
        gate.reload(&Policy::from_yaml("tenants: {}").unwrap());
        assert_eq!(&*lease.upstream_model(), "fast");
    }

    #[test]
    fn a_lease_is_open_until_it_ends() {
        let (gate, who) = (Gate::new(policy("m")), Principal::builder("acme").build());
        let lease = gate.admit(&who, &Request::chat("m")).lease().unwrap();
        assert!(lease.is_open() && lease.is_open());
        lease.cancel().unwrap();
        assert!(!lease.is_open(), "looking has not marked it as sent");
        let lease = gate.admit(&who, &Request::chat("m")).lease().unwrap();
        gate.finalize(Name::Lease(lease.id()), crate::usage::Outcome::Final(Usage::tokens(1, 1))).unwrap();
        assert!(!lease.is_open(), "whoever ended it");
    }
}
