//! The jobs: requests from their arrival to their end, and the course that each will take.
//!
//! Floor 5. Invariant: what becomes of a job is drawn when it arrives, so that a change in the gate moves no dice.

use std::sync::Arc;
use std::task::{Wake as Waking, Waker};

use parking_lot::Mutex;

use super::dice::Dice;
use super::ledger::{Ending, Place, Used};
use super::load::Shape;
use crate::gate::{Lease, Queued};
use crate::request::Request;
use crate::store::Memory;
use crate::testkit::Failing;

/// The lease of a simulated gate.
pub(super) type Handle = Lease<Failing<Memory>>;

/// How the host of a request treats it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Course {
    /// As it should.
    Plain,
    /// Settles it twice.
    Twice,
    /// Settles it again with other figures.
    Differently,
    /// Loses the settlement: the handle is dropped, nothing comes later.
    Lost,
    /// The same, and the settlement arrives late, by the lease's id or the request's.
    Late,
    /// Two settlements are on their way and change places.
    Reordered,
    /// Keeps it past its deadline without a heartbeat, then settles.
    Overdue,
    /// Cancels it before it is sent.
    Cancel,
    /// Tries to cancel it when it has been sent.
    CancelLate,
    /// The upstream refuses it.
    NotRun,
    /// The upstream fails without usage.
    Fails,
    /// Whoever asked leaves while it waits.
    LeavesWaiting,
    /// Whoever asked leaves in the middle of the answer.
    LeavesStreaming,
    /// The answer is longer than was agreed, and what is held is raised.
    Overlong,
    /// The same request is sent again while it runs.
    SentTwice,
}

impl Course {
    const ODD: [Course; 14] = [
        Course::Twice,
        Course::Differently,
        Course::Lost,
        Course::Late,
        Course::Reordered,
        Course::Overdue,
        Course::Cancel,
        Course::CancelLate,
        Course::NotRun,
        Course::Fails,
        Course::LeavesWaiting,
        Course::LeavesStreaming,
        Course::Overlong,
        Course::SentTwice,
    ];
}

/// A request on its way.
pub(super) struct Job {
    /// Counts up with each job that was in this slot.
    pub(super) usage: u32,
    pub(super) live: bool,
    pub(super) tenant: usize,
    pub(super) user: usize,
    pub(super) request: Request,
    pub(super) course: Course,
    /// What the answer will come to, and how long it takes where no pool says so.
    pub(super) input: u64,
    pub(super) output: u64,
    pub(super) service: u64,
    pub(super) tries: u32,
    pub(super) lease: Option<Handle>,
    pub(super) place: Place,
    pub(super) queued: Option<Queued>,
    /// Since when it waits.
    pub(super) since: u64,
    pub(super) in_pool: bool,
    /// How it is to end, from the moment that this is known.
    pub(super) ending: Option<Ending>,
}

impl Job {
    pub(super) fn empty() -> Job {
        Job {
            usage: 0,
            live: false,
            tenant: 0,
            user: 0,
            request: Request::chat(""),
            course: Course::Plain,
            input: 0,
            output: 0,
            service: 0,
            tries: 0,
            lease: None,
            place: 0,
            queued: None,
            since: 0,
            in_pool: false,
            ending: None,
        }
    }

    /// Draws a job of a load.
    pub(super) fn draw(
        &mut self,
        nth: u64,
        tenant: usize,
        models: &[Arc<str>; 2],
        oddity: u64,
        shape: &Shape,
        dice: &mut Dice,
    ) {
        let odd = oddity > 0 && dice.one_in(oddity);
        let course = if odd { dice.one_of(&Course::ODD) } else { Course::Plain };
        let pooled = dice.below(100) < shape.pooled;
        let (input, most) = (dice.skewed(shape.input), dice.skewed(shape.output));
        let mut request = Request::chat(models[usize::from(pooled)].clone());
        request.stream = dice.below(100) < shape.streamed;
        let by_id = matches!(course, Course::SentTwice | Course::Late | Course::Reordered) || dice.one_in(4);
        if by_id {
            request.id = Some(format!("r{nth}").into());
        }
        if shape.retries > 1 && dice.one_in(2) {
            request.fingerprint = Some(nth);
        }
        self.output = dice.within((1, most));
        self.request = request.input_tokens(input).max_output_tokens(most);
        (self.live, self.tenant, self.course) = (true, tenant, course);
        self.user = dice.below(3) as usize;
        self.input = if dice.one_in(3) { dice.within((0, input)) } else { input };
        self.service = 20_000_000 + self.output * 10_000_000 / 4;
        (self.tries, self.in_pool, self.ending) = (0, false, None);
    }

    pub(super) fn used(&self) -> Used {
        Used::tokens(self.input, self.output)
    }
}

/// An ending on its way apart from its request.
#[derive(Debug, Clone)]
pub(super) struct Letter {
    pub(super) place: Place,
    pub(super) name: crate::store::Name,
    pub(super) used: Used,
}

/// Whose turns may have come, by slot: rung by the gate.
#[derive(Debug, Clone, Default)]
pub(super) struct Bells(Arc<Mutex<Vec<u32>>>);

struct Bell {
    bells: Bells,
    slot: u32,
}

impl Waking for Bell {
    fn wake(self: Arc<Self>) {
        self.bells.0.lock().push(self.slot);
    }
}

impl Bells {
    pub(super) fn waker(&self, slot: u32) -> Waker {
        Waker::from(Arc::new(Bell { bells: self.clone(), slot }))
    }

    /// Those that were rung since the last time, by slot.
    pub(super) fn rung(&self, slots: &mut Vec<u32>) {
        slots.clear();
        let mut rung = self.0.lock();
        if !rung.is_empty() {
            std::mem::swap(&mut *rung, slots);
            slots.sort_unstable();
        }
    }
}
