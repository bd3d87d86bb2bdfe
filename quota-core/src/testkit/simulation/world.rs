//! The world of a seed: a gate, its clock, its store and its pool, and all that happens to them, in one thread.
//!
//! Floor 5. Invariant: what happens next is the earliest of what is due; nothing waits, and nothing asks the machine for
//! the time.

use std::sync::Arc;
use std::time::Duration;

use super::agenda::{Agenda, Step, Wake};
use super::dice::Dice;
use super::job::{Bells, Course, Job, Letter};
use super::ledger::{Act, Check, Ledger, Written};
use super::load::Shape;
use super::scene::{LANES, MODELS, POOL, Scene, USERS};
use super::tape::Tape;
use super::trace::Trace;
use super::{Setup, Summary};
use crate::gate::Gate;
use crate::gpu::simulated::{Event, SimulatedPool};
use crate::journal::Entry;
use crate::store::Memory;
use crate::testkit::Failing;
use crate::time::{Clock, ManualClock, Now};

pub(super) const SECOND: u64 = 1_000_000_000;
/// The slot of the keeper's alarm among the bells.
const KEEPER: u32 = u32::MAX;
/// The job of what belongs to none.
pub(super) const NOBODY: u32 = u32::MAX;

/// All of it.
pub(super) struct World<'a> {
    pub(super) scene: Scene,
    pub(super) setup: &'a Setup,
    pub(super) shape: Shape,
    pub(super) gate: Gate<Failing<Memory>>,
    pub(super) clock: Arc<ManualClock>,
    pub(super) now: Now,
    pub(super) pool: Arc<SimulatedPool>,
    pub(super) tape: Tape,
    pub(super) ledger: Ledger,
    pub(super) dice: Dice,
    pub(super) agenda: Agenda,
    pub(super) jobs: Vec<Job>,
    free: Vec<u32>,
    pub(super) letters: Vec<Letter>,
    pub(super) models: [Arc<str>; 2],
    bells: Bells,
    rung: Vec<u32>,
    entries: Vec<Entry>,
    events: Vec<Event>,
    arrived: u64,
    /// Whether the store is gone.
    pub(super) outage: bool,
    /// The next thing in a queue that is on the agenda.
    due: u64,
    pub(super) summary: Summary,
    pub(super) trace: &'a mut Trace,
}

impl<'a> World<'a> {
    pub(super) fn new(setup: &'a Setup, trace: &'a mut Trace) -> World<'a> {
        let mut dice = Dice::new(setup.seed);
        let scene = Scene::of(setup.seed, setup.requests, &mut dice);
        let clock = Arc::new(ManualClock::at(scene.start));
        let pool = Arc::new(SimulatedPool::new(scene.pool));
        let tape = Tape::new(scene.replays);
        let gate = Gate::builder(scene.policies[0].clone())
            .store(Failing::new(Memory::new(scene.bounds), []))
            .journal(tape.clone())
            .clock(clock.clone())
            .pool(POOL, pool.clone())
            .build();
        let ledger = Ledger::new(&scene.policies, &USERS, Scene::prices(), scene.terms());
        trace.begin(scene.start);
        let summary = Summary { load: Some(scene.load), ..Summary::default() };
        World {
            shape: scene.load.shape(),
            setup,
            gate,
            now: clock.now(),
            clock,
            pool,
            tape,
            ledger,
            dice,
            agenda: Agenda::default(),
            jobs: Vec::new(),
            free: Vec::new(),
            letters: Vec::new(),
            models: MODELS.map(Arc::from),
            bells: Bells::default(),
            rung: Vec::new(),
            entries: Vec::new(),
            events: Vec::new(),
            arrived: 0,
            outage: false,
            due: u64::MAX,
            summary,
            trace,
            scene,
        }
    }

    /// Lets everything happen, and looks at what is left.
    pub(super) fn run(mut self) -> Check<Summary> {
        self.gate.alarm(&self.bells.waker(KEEPER));
        self.plan();
        while let Some(at) = self.next() {
            self.pass_to(at);
            self.pool_events()?;
            while self.agenda.next().is_some_and(|at| at <= self.now.mono) {
                let Some(wake) = self.agenda.take() else { break };
                self.wake(wake)?;
                self.answer_bells();
            }
        }
        self.finish()?;
        self.summary.simulated = self.now.mono - self.scene.start;
        Ok(self.summary)
    }

    /// When something happens next.
    fn next(&self) -> Option<u64> {
        // The keeper's second alone goes on for ever: a world in which nothing else is left is at its end.
        let pool = self.pool.next_event();
        let agenda = self.agenda.next().filter(|_| !self.is_over() || pool.is_some());
        agenda.into_iter().chain(pool).min()
    }

    fn is_over(&self) -> bool {
        self.arrived >= self.setup.requests && self.free.len() == self.jobs.len() && self.letters_left() == 0
    }

    fn letters_left(&self) -> u64 {
        self.letters.len() as u64 - self.summary.letters
    }

    pub(super) fn pass_to(&mut self, at: u64) {
        if at > self.now.mono {
            self.clock.advance(Duration::from_nanos(at - self.now.mono));
            self.now = self.clock.now();
        }
    }

    /// What happens by itself.
    fn plan(&mut self) {
        let (start, length) = (self.scene.start, self.setup.requests * self.shape.gap);
        self.agenda.at(start, Wake::Arrival);
        self.agenda.at(start + SECOND, Wake::Second);
        for _ in 0..3 {
            let at = start + self.dice.below(length);
            self.agenda.at(at, Wake::Look);
        }
        if !self.scene.faults {
            return;
        }
        for _ in 0..self.dice.below(4) {
            let at = start + self.dice.below(length);
            self.agenda.at(at, Wake::Wall);
        }
        for _ in 0..self.dice.below(4) {
            let at = start + self.dice.below(length);
            self.agenda.at(at, Wake::Reload);
        }
        if self.dice.one_in(2) {
            let at = start + self.dice.below(length);
            self.agenda.at(at, Wake::Outage(true));
            let back = at + self.dice.below(8 * SECOND);
            self.agenda.at(back, Wake::Outage(false));
        }
        if self.dice.one_in(2) {
            let at = start + self.dice.below(length);
            self.agenda.at(at, Wake::Replica(false));
            let back = at + self.dice.below(20 * SECOND);
            self.agenda.at(back, Wake::Replica(true));
        }
    }

    fn wake(&mut self, wake: Wake) -> Check {
        match wake {
            Wake::Arrival => self.arrival(),
            Wake::Job(slot, usage, step) => {
                let job = &self.jobs[slot as usize];
                if job.usage != usage || !job.live {
                    return Ok(());
                }
                match step {
                    Step::Retry => self.ask(slot),
                    Step::Again => self.ask_again(slot),
                    Step::Leave => self.leave(slot),
                    Step::Progress => self.progress(slot, self.jobs[slot as usize].output / 2),
                    Step::Beat => self.beat(slot),
                    Step::Answer => self.answered(slot),
                    Step::End => self.end(slot),
                }
            }
            Wake::Letter(letter) => self.deliver(letter),
            Wake::Second => {
                self.sweep()?;
                self.agenda.at(self.now.mono + SECOND, Wake::Second);
                Ok(())
            }
            Wake::Due => {
                self.due = u64::MAX;
                self.sweep()?;
                self.look_when_due();
                Ok(())
            }
            Wake::Wall => self.correct_wall(),
            Wake::Reload => self.reload(),
            Wake::Outage(gone) => self.store_goes(gone),
            Wake::Replica(comes) => self.replica(comes),
            Wake::Look => self.look(),
        }
    }

    /// A request arrives, and the next is put on the agenda.
    fn arrival(&mut self) -> Check {
        let part = self.arrived * 1_000_000 / self.setup.requests;
        let (sooner, tenant) = self.scene.load.whose(part, self.scene.people.len(), &mut self.dice);
        let slot = self.free.pop().unwrap_or_else(|| {
            self.jobs.push(Job::empty());
            self.jobs.len() as u32 - 1
        });
        let (nth, oddity) = (self.arrived, self.scene.oddity);
        self.jobs[slot as usize].draw(nth, tenant, &self.models, oddity, &self.shape, &mut self.dice);
        self.arrived += 1;
        if self.arrived < self.setup.requests {
            let gap = self.dice.below(2 * self.shape.gap / sooner);
            self.agenda.at(self.now.mono + gap, Wake::Arrival);
        }
        self.ask(slot)
    }

    /// A job is over; its slot is free.
    pub(super) fn done(&mut self, slot: u32) {
        let job = &mut self.jobs[slot as usize];
        (job.live, job.usage, job.lease, job.queued) = (false, job.usage + 1, None, None);
        self.free.push(slot);
    }

    pub(super) fn later(&mut self, slot: u32, after: u64, step: Step) {
        let usage = self.jobs[slot as usize].usage;
        self.agenda.at(self.now.mono + after, Wake::Job(slot, usage, step));
    }

    pub(super) fn note(&mut self, what: &'static str, slot: u32, figure: u64) {
        self.trace.note(self.now.mono, what, slot, figure);
    }

    /// What the call of the gate that was just made has written, taken into the books.
    pub(super) fn read_tape(&mut self, act: Act) -> Check<Written> {
        let mut entries = std::mem::take(&mut self.entries);
        self.tape.read(&mut entries);
        let written = self.ledger.read(&entries, act, self.now);
        self.entries = entries;
        let written = written?;
        self.summary.expired += written.expired;
        Ok(written)
    }

    /// Has the waiting of a slot end when its bell rings.
    pub(super) fn bell(&self, slot: u32) -> std::task::Waker {
        self.bells.waker(slot)
    }

    /// Puts those on the agenda whose bells were rung.
    fn answer_bells(&mut self) {
        let mut rung = std::mem::take(&mut self.rung);
        self.bells.rung(&mut rung);
        for slot in rung.drain(..) {
            match slot {
                KEEPER => self.look_when_due(),
                slot if self.jobs[slot as usize].queued.is_some() => {
                    // Some leave at the very moment at which their turn comes.
                    let leaves = self.jobs[slot as usize].course == Course::LeavesWaiting && self.dice.one_in(2);
                    self.later(slot, 0, if leaves { Step::Leave } else { Step::Again });
                }
                _ => {}
            }
        }
        self.rung = rung;
    }

    fn look_when_due(&mut self) {
        if let Some(due) = self.gate.next_due().filter(|due| *due < self.due) {
            self.due = due;
            self.agenda.at(due.max(self.now.mono + 1), Wake::Due);
        }
    }

    fn pool_events(&mut self) -> Check {
        if self.pool.next_event().is_none_or(|at| at > self.now.mono) {
            return Ok(());
        }
        let mut events = std::mem::take(&mut self.events);
        self.pool.advance(self.now, |event| events.push(event));
        for event in events.drain(..) {
            let (Event::Progress { id, .. } | Event::Finished { id, .. } | Event::Lost { id, .. }) = event else {
                continue;
            };
            let slot = id as u32;
            // One that was let go of between two looks has nothing to hear any more.
            if self.jobs[slot as usize].in_pool {
                match event {
                    Event::Progress { out, .. } => self.progress(slot, out)?,
                    Event::Lost { .. } => self.lost(slot)?,
                    _ => self.answered(slot)?,
                }
                self.answer_bells();
            }
        }
        self.events = events;
        Ok(())
    }

    /// The longest that a request of a tenant waits in its lane.
    pub(super) fn patience(&self, lane: &str) -> u64 {
        LANES.iter().find(|(name, _)| *name == lane).map_or(0, |(_, wait)| *wait)
    }
}
