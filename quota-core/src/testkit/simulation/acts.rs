//! The acts: each call of the gate, with what has to come of it by the books.
//!
//! Floor 5. Invariant: every answer is checked, and a refusal has to be right as much as an admission.

use std::sync::Arc;

use super::agenda::{Step, Wake};
use super::job::{Course, Handle, Letter};
use super::ledger::{Act, Asked, Check, Ending, Outcome, Place, Used};
use super::scene::MODELS;
use super::world::{NOBODY, SECOND, World};
use crate::gate::{Decision, Queued};
use crate::lease::{Cause, EndError, Receipt};
use crate::reason::Reason;
use crate::refusal::{Refusal, Wait};
use crate::store::{Name, Store};
use crate::testkit::Fault;
use crate::usage::Outcome as Upstream;

/// How long an ending waits before it is tried again with a store that did not answer.
const TRY_AGAIN: u64 = SECOND;
/// A heartbeat comes so often.
const BEAT: u64 = SECOND;

impl World<'_> {
    /// Calls something, and counts the time if somebody measures it.
    pub(super) fn timed<R>(&mut self, call: impl FnOnce(&mut Self) -> R) -> R {
        let Some(stopwatch) = self.setup.stopwatch.clone() else { return call(self) };
        let start = stopwatch.now().mono;
        let result = call(self);
        self.summary.in_gate += stopwatch.now().mono - start;
        self.summary.calls += 1;
        result
    }

    fn asked(&self, slot: u32) -> Asked {
        let job = &self.jobs[slot as usize];
        let crate::request::Input::Counted(input) = job.request.input else { unreachable!("input is counted") };
        let output = job.request.max_output_tokens.unwrap_or(0);
        Asked { tenant: job.tenant, input, output, stream: job.request.stream }
    }

    /// Lets the next trip to the store fail now and then; whether it will, and whether its work is done all the same.
    fn next_fault(&mut self) -> Fault {
        if !self.scene.faults || self.outage || !self.dice.one_in(24) {
            return Fault::None;
        }
        let fault = match self.dice.one_of(&[Fault::Before, Fault::After]) {
            // What a reservation sweeps and forgets is told with its answer, and goes with it: nobody would write it down.
            Fault::After if self.ledger.has_due(self.now) || self.ledger.has_unseen() => Fault::Before,
            fault => fault,
        };
        self.gate.store().fail([fault]);
        self.summary.faults += 1;
        fault
    }

    /// A request, for the first time or after a refusal.
    pub(super) fn ask(&mut self, slot: u32) -> Check {
        let asked = self.asked(slot);
        // What became of a request without an id whose answer was lost could not be found out.
        let fault = match self.jobs[slot as usize].request.id {
            Some(_) => self.next_fault(),
            None => Fault::None,
        };
        let decision = self.timed(|world| {
            let job = &world.jobs[slot as usize];
            world.gate.admit(&world.scene.people[job.tenant][job.user], &job.request)
        });
        self.summary.asked += 1;
        self.gate.store().heal();
        self.decided(slot, decision, asked, fault != Fault::None, false)
    }

    /// A request whose turn may have come.
    pub(super) fn ask_again(&mut self, slot: u32) -> Check {
        let asked = self.asked(slot);
        let Some(queued) = self.jobs[slot as usize].queued.take() else { return Ok(()) };
        let decision = self.timed(|world| {
            let job = &world.jobs[slot as usize];
            world.gate.admit_again(queued, &world.scene.people[job.tenant][job.user], &job.request)
        });
        self.decided(slot, decision, asked, false, true)
    }

    fn decided(&mut self, slot: u32, decision: Decision<Handle>, asked: Asked, fault: bool, again: bool) -> Check {
        let written = self.read_tape(Act::Ask(asked))?;
        let (refused, queued) = (written.refused, written.queued);
        match decision {
            Decision::Allow(lease) | Decision::Degrade(lease, _) => {
                let place = self.ledger.place(lease.id()).ok_or("an admission that is not in the journal")?;
                if lease.is_repeat() {
                    return Err(format!("lease {place} has an owner already"));
                }
                self.summary.admitted += 1;
                self.note("is admitted", slot, place as u64);
                self.waited(slot, lease.lane(), again)?;
                let job = &mut self.jobs[slot as usize];
                (job.lease, job.place) = (Some(lease), place);
                self.run_job(slot)
            }
            Decision::Queue(waits) => {
                if queued != u64::from(!again) || refused != 0 {
                    return Err(format!("{queued} entries of a request that is told to wait"));
                }
                self.wait(slot, waits, again)
            }
            Decision::Reject(refusal) => {
                if refused != 1 || queued != 0 {
                    return Err(format!("{refused} entries of the refusal {}", refusal.reason));
                }
                self.refused(slot, &refusal, asked, fault, again)
            }
        }
    }

    /// That a request has not waited longer than its lane lets it.
    fn waited(&mut self, slot: u32, lane: &str, again: bool) -> Check {
        if !again {
            return Ok(());
        }
        let (waited, most) = (self.now.mono - self.jobs[slot as usize].since, self.patience(lane));
        self.summary.longest_wait = self.summary.longest_wait.max(waited);
        // Its bell rings at the moment itself, but a sweep may have to come first.
        if waited > most + SECOND { Err(format!("request {slot} waited {waited} ns in lane {lane}")) } else { Ok(()) }
    }

    fn wait(&mut self, slot: u32, queued: Queued, again: bool) -> Check {
        if !queued.refusal.shortages.is_empty() && !again {
            self.ledger.check_shortages(&queued.refusal, self.now)?;
        }
        self.note("waits", slot, queued.refusal.reason as u64);
        let waker = self.bell(slot);
        let due = queued.poll_due(&mut std::task::Context::from_waker(&waker)).is_ready();
        let lane = queued.lane.clone();
        let job = &mut self.jobs[slot as usize];
        job.queued = Some(queued);
        if again {
            return self.waited(slot, &lane, true);
        }
        self.summary.queued += 1;
        job.since = self.now.mono;
        if job.course == Course::LeavesWaiting {
            let after = self.dice.below(2 * SECOND);
            self.later(slot, after, Step::Leave);
        }
        if due {
            self.later(slot, 0, Step::Again);
        }
        Ok(())
    }

    fn refused(&mut self, slot: u32, refusal: &Refusal, asked: Asked, fault: bool, again: bool) -> Check {
        self.summary.refused += 1;
        self.note("is refused", slot, refusal.reason as u64);
        if again {
            let lane = self.gate_lane(slot);
            self.waited(slot, lane, true)?;
        }
        let known = self.jobs[slot as usize].request.id.is_some() && self.jobs[slot as usize].tries > 0;
        match refusal.reason {
            Reason::StoreUnavailable if fault || self.outage => self.find_unseen(slot, asked)?,
            Reason::QueueFull | Reason::QueuedBehind | Reason::QueueTimeout | Reason::ModelPoolOverloaded => {}
            Reason::LeasesExhausted if self.ledger.open() >= self.scene.bounds.open_leases as usize => {}
            Reason::RetryStorm if self.jobs[slot as usize].tries > 0 => {}
            Reason::RequestAlreadyEnded if known => {}
            reason if is_of_limits(reason) => self.ledger.check_shortages(refusal, self.now)?,
            reason => return Err(format!("request {slot} was refused: {reason}")),
        }
        let job = &mut self.jobs[slot as usize];
        if job.tries >= self.shape.retries || refusal.wait == Wait::Never {
            self.done(slot);
            return Ok(());
        }
        job.tries += 1;
        let after = match refusal.wait {
            Wait::After(wait) if self.dice.one_in(2) => (wait.as_nanos() as u64).min(10 * SECOND),
            _ => self.dice.below(2 * self.shape.patience),
        };
        self.later(slot, after, Step::Retry);
        Ok(())
    }

    /// The lane of a request's tenant.
    fn gate_lane(&self, slot: u32) -> &'static str {
        if self.jobs[slot as usize].tenant.is_multiple_of(2) { "interactive" } else { "batch" }
    }

    /// A reservation whose answer was lost: the store has it, and nobody was told.
    fn find_unseen(&mut self, slot: u32, asked: Asked) -> Check {
        let Some(id) = self.jobs[slot as usize].request.id.clone().filter(|_| !self.outage) else { return Ok(()) };
        let record = self.gate.store().find(Name::Request(id), |record| record);
        if let Some(record) = record.filter(|record| self.ledger.place(record.claim.id).is_none()) {
            let place = self.ledger.admitted_unseen(&record, asked, self.now)?;
            self.summary.lost += 1;
            self.note("is admitted unseen", slot, place as u64);
        }
        Ok(())
    }

    /// What is done with a request that was admitted.
    fn run_job(&mut self, slot: u32) -> Check {
        let job = &self.jobs[slot as usize];
        let (course, place, service) = (job.course, job.place, job.service);
        if course == Course::Cancel {
            return self.ends(slot, Ending::Cancel);
        }
        let wanted = !self.outage && self.ledger.sent(place);
        let job = &self.jobs[slot as usize];
        let Some(lease) = &job.lease else { return Ok(()) };
        let on_pool = lease.model() == MODELS[1];
        if lease.sent() != wanted {
            return Err(format!("lease {place}: sent is {}", !wanted));
        }
        if !wanted {
            return self.drop_lease(slot);
        }
        let (input, output) = (job.input, job.output);
        if course == Course::SentTwice {
            self.sent_twice(slot)?;
        }
        if on_pool && course != Course::NotRun {
            match self.pool.submit(self.now, u64::from(slot), input, output) {
                Ok(()) => self.jobs[slot as usize].in_pool = true,
                // No replica is there.
                Err(_) => return self.ends(slot, Ending::Settle(Used::NOTHING)),
            }
        } else {
            if self.jobs[slot as usize].request.stream {
                self.later(slot, service / 2, Step::Progress);
            }
            self.later(slot, service, Step::Answer);
        }
        if course != Course::Overdue {
            self.later(slot, BEAT, Step::Beat);
        }
        Ok(())
    }

    /// The same request once more, while the first runs: it finds the lease and owns nothing.
    fn sent_twice(&mut self, slot: u32) -> Check {
        let job = &self.jobs[slot as usize];
        let place = job.place;
        let who = &self.scene.people[job.tenant][job.user];
        let decision = self.gate.admit(who, &job.request);
        let written = self.read_tape(Act::Wait)?;
        match decision {
            Decision::Allow(lease) | Decision::Degrade(lease, _) => {
                let same = self.ledger.place(lease.id()) == Some(place) && lease.is_repeat();
                if same && written.admitted == 0 { Ok(()) } else { Err(format!("lease {place} was given away twice")) }
            }
            Decision::Reject(refusal) if refusal.reason == Reason::RetryStorm => Ok(()),
            other => Err(format!("a repeat of lease {place}: {} {:?}", other.action(), other.reason())),
        }
    }

    /// Whoever asked leaves while its request waits.
    pub(super) fn leave(&mut self, slot: u32) -> Check {
        if self.jobs[slot as usize].queued.take().is_some() {
            self.summary.left += 1;
            self.note("leaves its place", slot, 0);
            self.done(slot);
            self.read_tape(Act::Wait)?;
            return self.check_queues();
        }
        Ok(())
    }

    /// An answer grows.
    pub(super) fn progress(&mut self, slot: u32, out: u64) -> Check {
        let job = &self.jobs[slot as usize];
        let (place, course) = (job.place, job.course);
        let Some(lease) = &job.lease else { return Ok(()) };
        lease.progress(out);
        if course == Course::LeavesStreaming {
            self.let_go(slot);
            self.summary.left += 1;
            self.jobs[slot as usize].output = out.max(1);
            let ending =
                if self.dice.one_in(2) { Ending::Abandon } else { Ending::Settle(self.jobs[slot as usize].used()) };
            return self.ends(slot, ending);
        }
        if course == Course::Overlong {
            let more = self.dice.below(64);
            return self.cover(slot, place, more);
        }
        if self.jobs[slot as usize].request.stream {
            let Some(lease) = &self.jobs[slot as usize].lease else { return Ok(()) };
            // A limit without room for more is no fault; what the refusal says is checked with the others.
            let followed = lease.follow(out).map(drop);
            return self.covered(slot, place, followed);
        }
        Ok(())
    }

    fn cover(&mut self, slot: u32, place: Place, more: u64) -> Check {
        let Some(lease) = &self.jobs[slot as usize].lease else { return Ok(()) };
        let extended = lease.extend(more);
        self.covered(slot, place, extended)
    }

    fn covered(&mut self, slot: u32, place: Place, extended: Result<(), Arc<Refusal>>) -> Check {
        let written = self.read_tape(Act::Cover(place))?;
        self.summary.extended += written.extended;
        let Err(refusal) = extended else { return Ok(()) };
        self.note("is not extended", slot, refusal.reason as u64);
        match refusal.reason {
            Reason::RequestAlreadyEnded if !self.ledger.is_held(place) => Ok(()),
            Reason::StoreUnavailable if self.outage => Ok(()),
            reason if is_of_limits(reason) => Ok(()),
            reason => Err(format!("lease {place} was not extended: {reason}")),
        }
    }

    pub(super) fn beat(&mut self, slot: u32) -> Check {
        let place = self.jobs[slot as usize].place;
        let Some(lease) = &self.jobs[slot as usize].lease else { return Ok(()) };
        let renewed = lease.renew();
        let wanted = !self.outage && self.ledger.renewed(place, self.now);
        if renewed != wanted {
            return Err(format!("lease {place}: renewed is {renewed}"));
        }
        self.later(slot, BEAT, Step::Beat);
        Ok(())
    }

    /// The pool has nothing to do with it any more.
    fn let_go(&mut self, slot: u32) {
        if std::mem::take(&mut self.jobs[slot as usize].in_pool) {
            self.pool.cancel(self.now, u64::from(slot));
        }
    }

    /// A replica went with it.
    pub(super) fn lost(&mut self, slot: u32) -> Check {
        self.jobs[slot as usize].in_pool = false;
        self.ends(slot, Ending::Abandon)
    }

    /// An answer is complete: what its course makes of that.
    pub(super) fn answered(&mut self, slot: u32) -> Check {
        self.jobs[slot as usize].in_pool = false;
        let used = self.jobs[slot as usize].used();
        let other = Used::tokens(self.jobs[slot as usize].input, self.jobs[slot as usize].output + 1);
        match self.jobs[slot as usize].course {
            Course::NotRun => self.ends(slot, Ending::Settle(Used::NOTHING)),
            Course::Fails => self.ends(slot, Ending::Abandon),
            Course::Lost => self.drop_lease(slot),
            Course::Late => {
                let after = self.dice.below(30 * SECOND);
                self.post(slot, used, after);
                self.drop_lease(slot)
            }
            Course::Reordered => {
                let after = self.dice.below(8 * SECOND);
                self.post(slot, other, after / 2);
                self.post(slot, used, after);
                self.drop_lease(slot)
            }
            Course::Overdue if self.jobs[slot as usize].ending.is_none() => {
                self.jobs[slot as usize].ending = Some(Ending::Settle(used));
                let after = self.dice.below(9 * SECOND);
                self.later(slot, after, Step::End);
                Ok(())
            }
            Course::CancelLate => {
                self.try_ending(slot, Ending::Cancel)?;
                self.ends(slot, Ending::Settle(used))
            }
            Course::Overlong => self.ends(slot, Ending::Settle(other)),
            _ => self.ends(slot, Ending::Settle(used)),
        }
    }

    /// Has an ending arrive later, under the lease's name or the request's.
    fn post(&mut self, slot: u32, used: Used, after: u64) {
        let job = &self.jobs[slot as usize];
        let Some(lease) = &job.lease else { return };
        let name = match &job.request.id {
            Some(id) if after.is_multiple_of(2) => Name::Request(id.clone()),
            _ => Name::Lease(lease.id()),
        };
        let letter = Letter { place: job.place, name, used };
        self.letters.push(letter);
        self.agenda.at(self.now.mono + after, Wake::Letter(self.letters.len() as u32 - 1));
    }

    pub(super) fn deliver(&mut self, letter: u32) -> Check {
        let Letter { place, name, used } = self.letters[letter as usize].clone();
        let fault = self.next_fault();
        let ending = Ending::Settle(used);
        let wanted = self.ledger.outcome(place, ending);
        let result = self.gate.finalize(name, Upstream::Final(used.usage()));
        self.gate.store().heal();
        let first = self.came_to(NOBODY, place, ending, wanted, fault, result)?;
        if first.is_none() {
            self.agenda.at(self.now.mono + TRY_AGAIN, Wake::Letter(letter));
        } else {
            self.summary.letters += 1;
        }
        Ok(())
    }

    /// Drops the handle: the settlement is lost.
    fn drop_lease(&mut self, slot: u32) -> Check {
        let place = self.jobs[slot as usize].place;
        self.let_go(slot);
        self.note("drops its lease", slot, place as u64);
        let lease = self.jobs[slot as usize].lease.take();
        self.timed(|_| drop(lease));
        self.summary.dropped += 1;
        self.read_tape(Act::End(place, Ending::Abandon))?;
        if !self.outage && self.ledger.is_held(place) {
            return Err(format!("lease {place} was dropped and is held"));
        }
        self.done(slot);
        Ok(())
    }

    /// Ends a job's lease, now or as soon as the store answers.
    fn ends(&mut self, slot: u32, ending: Ending) -> Check {
        self.let_go(slot);
        self.jobs[slot as usize].ending = Some(ending);
        self.end(slot)
    }

    /// Ends a job's lease as it is to end, and looks at what its course does about that afterwards.
    pub(super) fn end(&mut self, slot: u32) -> Check {
        let Some(ending) = self.jobs[slot as usize].ending else { return Ok(()) };
        let Some(first) = self.try_ending(slot, ending)? else {
            self.later(slot, TRY_AGAIN, Step::End);
            return Ok(());
        };
        let job = &self.jobs[slot as usize];
        match (job.course, ending) {
            (Course::Twice, _) => {
                let second = self.try_ending(slot, ending)?;
                let same = match (&first, second.as_ref()) {
                    (Some(first), Some(Some(second))) => {
                        second.is_repeat() && second.clone().first() == first.clone().first()
                    }
                    (_, None) => true,
                    (first, Some(second)) => first.is_none() == second.is_none(),
                };
                if !same {
                    return Err(format!("lease {}: {first:?}, and then {second:?}", job_place(self, slot)));
                }
            }
            (Course::Differently, Ending::Settle(_)) => {
                let other = Used::tokens(job.input + 1, job.output);
                self.try_ending(slot, Ending::Settle(other))?;
            }
            _ => {}
        }
        let place = self.jobs[slot as usize].place;
        self.jobs[slot as usize].lease = None;
        self.read_tape(Act::End(place, Ending::Abandon))?;
        self.done(slot);
        Ok(())
    }

    /// Tries to end a job's lease: `None` if the store did not answer, the receipt if there is one.
    fn try_ending(&mut self, slot: u32, ending: Ending) -> Check<Option<Option<Receipt>>> {
        let fault = self.next_fault();
        let place = self.jobs[slot as usize].place;
        let wanted = self.ledger.outcome(place, ending);
        let result = self.timed(|world| {
            let Some(lease) = &world.jobs[slot as usize].lease else { unreachable!("a lease that is to end is there") };
            match ending {
                Ending::Settle(used) => lease.settle(used.usage()),
                Ending::Cancel => lease.cancel(),
                Ending::Abandon => lease.unresolved(Cause::UpstreamFailed, None),
            }
        });
        self.gate.store().heal();
        self.came_to(slot, place, ending, wanted, fault, result)
    }

    /// That an ending came to what it has to.
    fn came_to(
        &mut self,
        slot: u32,
        place: Place,
        ending: Ending,
        wanted: Outcome,
        fault: Fault,
        result: Result<Receipt, EndError>,
    ) -> Check<Option<Option<Receipt>>> {
        self.read_tape(Act::End(place, ending))?;
        self.note("ends", slot, place as u64);
        let unanswered = self.outage || fault != Fault::None;
        match result {
            Err(EndError::StoreUnavailable) if unanswered => {
                if fault == Fault::After {
                    self.ledger.ended_unseen(place, ending, self.now)?;
                }
                Ok(None)
            }
            Err(EndError::Unknown(_)) if self.ledger.may_be_forgotten(place) => Ok(Some(None)),
            Ok(receipt) if !unanswered => {
                let told = if receipt.is_repeat() { Outcome::Repeat } else { Outcome::Fresh };
                if told != wanted {
                    return Err(format!("lease {place}: {ending:?} is told as {told:?}, not {wanted:?}"));
                }
                self.ledger.check_receipt(place, &receipt)?;
                let counter = if receipt.is_repeat() { &mut self.summary.repeats } else { &mut self.summary.ended };
                *counter += 1;
                Ok(Some(Some(receipt)))
            }
            Err(EndError::Conflict { .. }) if wanted == Outcome::Conflict => {
                self.summary.conflicts += 1;
                Ok(Some(None))
            }
            Err(EndError::CancelAfterSent(_)) if wanted == Outcome::CancelAfterSent => Ok(Some(None)),
            other => Err(format!("lease {place}: {ending:?} came to {other:?}, not {wanted:?}")),
        }
    }
}

fn job_place(world: &World<'_>, slot: u32) -> Place {
    world.jobs[slot as usize].place
}

/// Whether a refusal of this reason names limits that have no room.
fn is_of_limits(reason: Reason) -> bool {
    matches!(
        reason,
        Reason::RequestRateExceeded
            | Reason::InputTokenRateExceeded
            | Reason::OutputTokenRateExceeded
            | Reason::TokenRateExceeded
            | Reason::RequestQuotaExceeded
            | Reason::TokenQuotaExceeded
            | Reason::BudgetExceeded
            | Reason::ConcurrencyExceeded
            | Reason::StreamsExceeded
            | Reason::RequestTooLarge
    )
}
