//! Asking: what a history does with requests.
//!
//! Floor 5. Invariant: what the gate answers is what the model answers, whatever the store has lost.

use std::time::Duration;

use super::policies::SCHOOL;
use super::{Ask, By, History, Known, PEOPLE, Report, Step, shorts};
use crate::gate::{Decision, Lease, Queued};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::request::Request;
use crate::store::Store;
use crate::testkit::model::{Agreed, Ending, ModelReceipt, Verdict};
use crate::testkit::{Failing, Fault, TestStore};
use crate::units::Pico;
use crate::usage::Usage;

/// Settlements that make a lesson: so many that a length is learned.
const LESSON: usize = 32;

/// Lessons of a history; more would have its first leases forgotten.
const MOST_LESSONS: usize = 10;

type Decided<S> = Decision<Lease<Failing<S>>>;

/// Of a lease or an offer: its model, lane, largest output and worst case.
type Terms<'a> = (&'a str, &'a str, u64, Pico);

/// The form that a decision names, if it admits.
fn agreed_by<L>(decision: &Decision<L>, terms: impl Fn(&L) -> Terms<'_>) -> Option<Agreed> {
    let (admitted, lesser) = match decision {
        Decision::Allow(admitted) => (admitted, None),
        Decision::Degrade(admitted, lesser) => (admitted, Some(lesser.clone())),
        Decision::Queue(_) | Decision::Reject(_) => return None,
    };
    let (model, lane, output, worst) = terms(admitted);
    Some(Agreed { model: model.into(), lane: lane.into(), output, worst, lesser })
}

fn of_lease<S: Store>(lease: &Lease<S>) -> Terms<'_> {
    (lease.model(), lease.lane(), lease.max_output_tokens(), lease.claim().terms.worst_cost)
}

impl<S: TestStore> History<S> {
    pub(super) fn admit(&mut self, ask: &Ask) {
        let (who, request) = (PEOPLE[ask.who].clone(), self.request(ask));
        // Who is told to wait gives its place up.
        self.ask(ask, &who, &request);
    }

    pub(super) fn preview(&mut self, ask: &Ask) {
        let (who, request) = (PEOPLE[ask.who].clone(), self.request(ask));
        let (decision, verdict, fault) = self.both(
            |this| Self::wait(this.gate.preview(&who, &request)),
            |model, now| model.admit(&who, &request, now, true),
        );
        if fault != Fault::None && goes_to_the_store(&verdict) {
            assert_eq!(decision.reason(), Some(Reason::StoreUnavailable));
            return;
        }
        let agreed =
            agreed_by(&decision, |offer| (&offer.model, &offer.lane, offer.max_output_tokens, offer.worst_cost));
        match (&decision, verdict) {
            (Decision::Allow(offer) | Decision::Degrade(offer, _), Verdict::Admit(None, wanted)) => {
                assert_eq!((agreed, offer.input_tokens), (Some(*wanted), ask.input));
            }
            (Decision::Queue(queued), Verdict::Queue(reason, short)) => {
                assert_eq!((queued.refusal.reason, shorts(&queued.refusal)), (reason, short));
            }
            (Decision::Reject(refusal), Verdict::Reject(reason, short)) => {
                assert_eq!((refusal.reason, shorts(refusal)), (reason, short));
            }
            (_, verdict) => panic!("{decision:?} but {verdict:?}"),
        }
    }

    /// Asks, and where it is told to wait waits until its time has come or a lease has ended, and asks again.
    pub(super) fn wait_for(&mut self, ask: &Ask, end: Option<usize>) {
        let (who, request) = (PEOPLE[ask.who].clone(), self.request(ask));
        let Some(queued) = self.ask(ask, &who, &request) else { return };
        let end = end.filter(|_| !self.leases.is_empty());
        match (end, queued.refusal.wait) {
            (Some(at), _) => {
                let at = at % self.leases.len();
                self.on_lease(&Step::Finish(at, Report::NotRun, By::Lease), at);
                // The latest at which whoever waits tries again, whatever has happened.
                self.clock.advance(Duration::from_secs(1));
                self.sweep();
            }
            (None, Wait::After(time)) => self.clock.advance(time),
            (None, _) => {
                self.clock.advance(queued.max_wait + Duration::from_secs(1));
                let decision = Self::wait(self.gate.admit_again(queued, &who, &request));
                assert_eq!(decision.reason(), Some(Reason::QueueTimeout));
                return;
            }
        }
        let (decision, verdict, _) = self.both(
            |this| Self::wait(this.gate.admit_again(queued, &who, &request)),
            |model, now| model.admit(&who, &request, now, false),
        );
        // One that has not tried again still says what it lacked at first.
        if !matches!((&decision, &verdict), (Decision::Queue(_), Verdict::Queue(..))) {
            self.compare_decision(ask, decision, verdict);
        }
    }

    /// Has a principal's answers by a model be so long for a while, under a policy that limits nothing.
    pub(super) fn teach(&mut self, who: usize, model: usize, output: u64) {
        self.lessons += 1;
        if self.lessons > MOST_LESSONS {
            return;
        }
        let before = self.policy;
        self.put_in_force(&SCHOOL);
        let (who, now) = (PEOPLE[who].clone(), self.now());
        let request = Request::chat(["a", "b", "c"][model]).input_tokens(1).max_output_tokens(output).choices(2);
        for _ in 0..LESSON {
            let usage = Usage::tokens(1, 2 * output);
            match (Self::wait(self.gate.admit(&who, &request)), self.model.admit(&who, &request, now, false)) {
                (Decision::Allow(lease), Verdict::Admit(Some(place), _)) => {
                    assert!(Self::wait(lease.settle(usage.clone())).is_ok());
                    assert!(self.model.end(place, &Ending::Settle(Box::new(usage)), now).is_ok());
                    self.model.heard(place);
                }
                (Decision::Reject(refusal), Verdict::Reject(reason, _)) => assert_eq!(refusal.reason, reason),
                (decision, verdict) => panic!("{decision:?} but {verdict:?}"),
            }
        }
        self.put_in_force(before);
    }

    /// Asks the gate and the model, and compares; the place in the queue of who is told to wait.
    fn ask(&mut self, ask: &Ask, who: &Principal, request: &Request) -> Option<Queued> {
        let (decision, verdict, fault) = self
            .both(|this| Self::wait(this.gate.admit(who, request)), |model, now| model.admit(who, request, now, false));
        if fault == Fault::None || !goes_to_the_store(&verdict) {
            return self.compare_decision(ask, decision, verdict);
        }
        let refusal = decision.refusal().unwrap_or_else(|| panic!("{decision:?} of a store that does not answer"));
        assert_eq!((refusal.reason, shorts(refusal)), (Reason::StoreUnavailable, Vec::new()));
        if let (Fault::After, Verdict::Admit(Some(place), _)) = (fault, verdict) {
            self.find(ask, place);
        }
        None
    }

    fn compare_decision(&mut self, ask: &Ask, decision: Decided<S>, verdict: Verdict) -> Option<Queued> {
        let agreed = agreed_by(&decision, of_lease);
        match (decision, verdict) {
            (
                Decision::Allow(lease) | Decision::Degrade(lease, _),
                Verdict::Admit(Some(place), wanted) | Verdict::Open(place, wanted),
            ) => {
                assert_eq!((agreed, lease.degradation()), (Some(*wanted.clone()), wanted.lesser.as_ref()));
                let known = self.leases.iter().find(|known| known.place == place);
                assert_eq!(known.map_or(lease.id(), |known| known.lease), lease.id());
                // The first handle on a lease owns it, also where nobody was told of it when it was opened.
                let owned = self.leases.iter().any(|known| known.place == place && known.owner);
                assert_eq!(lease.is_repeat(), owned);
                self.leases.push(Known {
                    lease: lease.id(),
                    owner: !owned,
                    covered: lease.max_output_tokens(),
                    handle: Some(lease),
                    ask: ask.clone(),
                    place,
                });
            }
            (Decision::Queue(queued), Verdict::Queue(reason, short)) => {
                assert_eq!((queued.refusal.reason, shorts(&queued.refusal)), (reason, short));
                return Some(queued);
            }
            (Decision::Reject(refusal), Verdict::Reject(reason, short)) => {
                assert_eq!((refusal.reason, shorts(&refusal)), (reason, short));
            }
            (Decision::Reject(refusal), Verdict::Ended(receipt)) => {
                assert_eq!(refusal.reason, Reason::RequestAlreadyEnded);
                assert_eq!(ModelReceipt::from(refusal.receipt.as_deref().unwrap().clone()), *receipt);
            }
            (decision, verdict) => panic!("{decision:?} but {verdict:?}"),
        }
        None
    }

    /// The lease of which nobody was told when it was opened.
    fn find(&mut self, ask: &Ask, place: usize) {
        let open = Self::wait(self.gate.store().open(usize::MAX, |open| open));
        let is_new = |id| self.leases.iter().all(|known| known.lease != id);
        let found: Vec<_> = open.iter().map(|record| record.claim.id).filter(|id| is_new(*id)).collect();
        let [lease] = found[..] else { panic!("{found:?} were opened") };
        self.leases.push(Known { handle: None, owner: false, covered: 0, lease, ask: ask.clone(), place });
    }
}

/// What is refused before the store is asked can't be lost.
fn goes_to_the_store(verdict: &Verdict) -> bool {
    let early = [Reason::TenantUnknown, Reason::ModelNotAllowed, Reason::Frozen];
    !matches!(verdict, Verdict::Reject(reason, _) if early.contains(reason))
}
