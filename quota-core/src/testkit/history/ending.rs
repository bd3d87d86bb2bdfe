//! Ending: what a history does with leases.
//!
//! Floor 5. Invariant: an answer that is lost is no ending to whoever waits for it, and one to whoever asks again.

use super::{By, History, Known, Report, Step, id_of, shorts};
use crate::lease::{Cause, EndError, Receipt};
use crate::policy::plan::UpstreamFailure;
use crate::reason::Reason;
use crate::refusal::Refusal;
use crate::store::Name;
use crate::testkit::model::{Ending, Model, ModelReceipt, Short, error_of};
use crate::testkit::{Fault, TestStore};
use crate::time::Now;
use crate::usage::{Outcome, Unusable, Usage};

type Ended = Result<Receipt, EndError>;

fn told(refusal: &Refusal) -> (Reason, Vec<Short>) {
    (refusal.reason, shorts(refusal))
}

fn unavailable() -> (Reason, Vec<Short>) {
    (Reason::StoreUnavailable, Vec::new())
}

impl<S: TestStore> History<S> {
    pub(super) fn on_lease(&mut self, step: &Step, at: usize) {
        let Known { handle, place, .. } = &self.leases[at];
        let (has_handle, place) = (handle.is_some(), *place);
        match step {
            Step::Finish(_, report, by) if has_handle || *by != By::Handle => self.finish_as(at, *report, *by),
            _ if !has_handle => {}
            Step::Settle(_, input, output) => {
                let usage = Usage::tokens(*input, *output);
                let ending = Ending::Settle(Box::new(usage.clone()));
                self.end(at, |this| Self::wait(this.handle(at).settle(usage)), ending);
            }
            Step::Cancel(_) => self.end(at, |this| Self::wait(this.handle(at).cancel()), Ending::Cancel),
            Step::Abandon(_, seen) => {
                let seen = seen.map(|output| Usage::tokens(0, output));
                let end = |this: &mut Self| Self::wait(this.handle(at).unresolved(Cause::NoUsage, seen));
                self.end(at, end, Ending::Abandon(Cause::NoUsage));
            }
            Step::Drop(_) => self.let_go(at),
            Step::Sent(_) => {
                let (real, wanted, fault) =
                    self.both(|this| Self::wait(this.handle(at).sent()), |model, _| model.sent(place));
                assert_eq!(real, wanted && fault == Fault::None);
            }
            Step::Renew(_) => {
                let (real, wanted, fault) =
                    self.both(|this| Self::wait(this.handle(at).renew()), |model, now| model.renew(place, now));
                assert_eq!(real, wanted && fault == Fault::None);
            }
            Step::Extend(_, output) => {
                let to = self.leases[at].covered + output;
                let (real, wanted, fault) = self
                    .both(|this| Self::wait(this.handle(at).extend(*output)), |model, now| model.cover(place, to, now));
                let wanted = if fault == Fault::None { wanted } else { Err(unavailable()) };
                assert_eq!(real.map_err(|refusal| told(&refusal)), wanted);
                if wanted.is_ok() {
                    self.covers(at, to);
                }
            }
            Step::Follow(_, output) => self.follow(at, *output),
            step => unreachable!("{step:?} is no lease's"),
        }
    }

    fn handle(&self, at: usize) -> &crate::gate::Lease<crate::testkit::Failing<S>> {
        self.leases[at].handle.as_ref().expect("a handle")
    }

    fn covers(&mut self, at: usize, output: u64) {
        let covered = &mut self.leases[at].covered;
        *covered = output.max(*covered);
    }

    /// Covers an answer and some ahead, or itself where there is no room for more: the second trip.
    fn follow(&mut self, at: usize, output: u64) {
        let (place, agreed) = (self.leases[at].place, self.handle(at).max_output_tokens());
        let mut ahead = output + (output / 10).clamp(64, 1024);
        if output <= agreed {
            ahead = ahead.min(agreed);
        }
        let (fault, is_second) = self.fault.unwrap_or((Fault::None, false));
        let (first, second) = if is_second { (Fault::None, fault) } else { (fault, Fault::None) };
        let follow = |model: &mut Model, now: Now| match model.cover(place, ahead, now) {
            Ok(()) => Ok(ahead),
            Err((reason, _)) if ahead > output && first == Fault::None && reason != Reason::RequestAlreadyEnded => {
                if second == Fault::Before {
                    return Err(unavailable());
                }
                let covered = model.cover(place, output, now).map(|()| output);
                if second == Fault::After { Err(unavailable()) } else { covered }
            }
            Err(short) => Err(short),
        };
        let (real, wanted, fault) = self.both(|this| Self::wait(this.handle(at).follow(output)), follow);
        self.lost |= second == Fault::After;
        let wanted = if fault == Fault::None { wanted } else { Err(unavailable()) };
        assert_eq!(real.map_err(|refusal| told(&refusal)), wanted);
        if let Ok(to) = wanted {
            self.covers(at, to);
        }
    }

    /// Ends a lease by what the upstream's answer came to.
    fn finish_as(&mut self, at: usize, report: Report, by: By) {
        let Known { lease, ask, .. } = &self.leases[at];
        let name = match (by, ask.id) {
            (By::Request, Some(id)) => Some(Name::Request(id_of(id))),
            (By::Request | By::Lease, _) => Some(Name::Lease(*lease)),
            (By::Handle, _) => None,
        };
        let not_run = || Ending::Settle(Box::new(Usage::not_run()));
        let (outcome, ending) = match report {
            Report::Used(input, output) => {
                let usage = Usage::tokens(input, output);
                (Outcome::Final(usage.clone()), Ending::Settle(Box::new(usage)))
            }
            Report::NotRun => (Outcome::NotRun, not_run()),
            Report::Failed => match self.policy.plan().upstream_failure {
                UpstreamFailure::Release => (Outcome::FailedWithoutUsage, not_run()),
                UpstreamFailure::Unresolved => (Outcome::FailedWithoutUsage, Ending::Abandon(Cause::UpstreamFailed)),
            },
            Report::Unknown => (Outcome::Unresolved(Unusable::Missing), Ending::Abandon(Cause::NoUsage)),
        };
        let end = |this: &mut Self| match name {
            Some(name) => Self::wait(this.gate.finalize(name, outcome)),
            None => Self::wait(this.handle(at).finish(outcome)),
        };
        self.end(at, end, ending);
    }

    fn end(&mut self, at: usize, end: impl FnOnce(&mut Self) -> Ended, ending: Ending) {
        let place = self.leases[at].place;
        let (real, wanted, fault) = self.both(end, |model, now| model.end(place, &ending, now));
        if fault != Fault::None {
            assert_eq!(real.map(ModelReceipt::from), Err(EndError::StoreUnavailable));
            return;
        }
        if real.is_ok() {
            self.model.heard(place);
        }
        assert_eq!(real.map(ModelReceipt::from).map_err(|error| error_of(&error)), wanted);
    }

    /// Drops a handle. A lease that has ended already stays as it is, and so does one that somebody else owns.
    fn let_go(&mut self, at: usize) {
        let Known { owner, place, .. } = self.leases[at];
        let handle = self.leases[at].handle.take();
        let dropped = |model: &mut Model, now: Now| model.end(place, &Ending::Abandon(Cause::Dropped), now).is_ok();
        let (_, ended, fault) =
            self.both(|_| drop(handle), |model, now| if owner { dropped(model, now) } else { false });
        if ended && fault == Fault::None {
            self.model.heard(place);
        }
    }
}
