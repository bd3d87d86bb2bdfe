//! Histories: the same steps on a gate and on the reference model, which must give the same decisions, balances and receipts.
//!
//! Floor 5. Invariant: a step decides nothing by itself: whatever it names, there is, or it does nothing.
//!
//! Not in them, and tested elsewhere: pools that keep requests out and who goes first where several wait (the simulation and
//! the scheduler's own tests), keys and claims (`tests/keys.rs`), retry storms (`gate/storm`), and meters of streams, which
//! call `renew`, `follow` and `finish` (`gate/stream`).

mod asking;
mod compare;
mod ending;
mod policies;

use std::collections::BTreeSet;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use self::policies::{Calendars, POOL, READ, calendars};
use super::model::{Model, Short};
use super::{Failing, Fault, TestStore};
use crate::gate::{Gate, Lease, Target};
use crate::lease::LeaseId;
use crate::policy::Policy;
use crate::principal::Principal;
use crate::refusal::{Refusal, Shortage, Wait};
use crate::request::Request;
use crate::store::Store;
use crate::store::memory::Bounds;
use crate::time::{Clock, ManualClock, Now};

/// How many principals a step can name: of two tenants, with and without users, and of one that no policy has.
pub const PRINCIPALS: usize = 7;

/// How many models a step can name; the last is in no policy.
pub const MODELS: usize = 3;

/// How many policies a step can put in force; the first is at the beginning.
pub const POLICIES: usize = 3;

/// How many runs a request can belong to, of whichever tenant asks.
pub const RUNS: usize = 3;

/// How many tenants and models a step can freeze.
pub const FREEZABLE: usize = 4;

/// A request.
#[derive(Debug, Clone)]
pub struct Ask {
    /// Which of the principals.
    pub who: usize,
    /// Which of the models.
    pub model: usize,
    /// Input tokens.
    pub input: u64,
    /// The largest output.
    pub output: u64,
    /// How many answers it asks for.
    pub choices: u64,
    /// Whether it streams.
    pub stream: bool,
    /// The number in its request id, if it has one.
    pub id: Option<usize>,
    /// Which run it is a step of, and how many calls of tools it carries.
    pub run: Option<(usize, u64)>,
}

/// What an upstream's answer came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Report {
    /// So much input and output.
    Used(u64, u64),
    /// It did not run.
    NotRun,
    /// It failed, and nobody knows what it used.
    Failed,
    /// It ran, and nobody knows what it used.
    Unknown,
}

/// Who can ask. Only the first have accounts of their own.
static PEOPLE: LazyLock<[Principal; PRINCIPALS]> = LazyLock::new(|| {
    let people = [("one", ""), ("one", "u"), ("one", "v"), ("two", ""), ("two", "u"), ("two", ""), ("nobody", "")];
    people.map(|(tenant, user)| match user {
        "" => Principal::builder(tenant).build(),
        user => Principal::builder(tenant).user(user).build(),
    })
});

const ACCOUNTED: usize = 5;

/// How a lease is named that is to end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum By {
    /// Through its handle.
    Handle,
    /// By its own id.
    Lease,
    /// By its request's id, or its own where it has none.
    Request,
}

/// One step. Places of leases count from the first admission, and begin again after the last.
#[derive(Debug, Clone)]
pub enum Step {
    /// A principal asks for a model.
    Admit(Ask),
    /// The request of a lease is made once more.
    Again(usize),
    /// The same without taking anything.
    Preview(Ask),
    /// The same, and where it is told to wait it waits: until a lease has been settled with nothing and a second has passed,
    /// or as long as it was told.
    Wait(Ask, Option<usize>),
    /// A lease is marked as sent.
    Sent(usize),
    /// A lease's heartbeat.
    Renew(usize),
    /// More output for a lease.
    Extend(usize, u64),
    /// So much output for a lease in all, and some ahead.
    Follow(usize, u64),
    /// A lease is settled through its handle with so much input and output.
    Settle(usize, u64, u64),
    /// A lease ends as the upstream's answer says.
    Finish(usize, Report, By),
    /// A lease is cancelled.
    Cancel(usize),
    /// A lease ends without usage, with so much output seen.
    Abandon(usize, Option<u64>),
    /// A lease's handle is dropped.
    Drop(usize),
    /// So many nanoseconds pass.
    Pass(u64),
    /// The wall clock is moved by so many nanoseconds; time does not pass.
    Wall(i64),
    /// What has expired is ended.
    Sweep,
    /// A policy is put in force.
    Reload(usize),
    /// A pool is said to be so full, in percent.
    Press(u8),
    /// A tenant or a model is frozen.
    Freeze(usize),
    /// It goes on.
    Thaw(usize),
    /// A principal's answers by a model are of this length for a while, outside all limits.
    Teach(usize, usize, u64),
    /// The next step that goes to the store fails there: its first trip, or its second.
    Fail(Fault, bool),
}

/// Runs the steps on a new gate over a new store and on the model, compares everybody's balances after each, ends what
/// is open, and compares the journal and the sum over all leases.
///
/// # Panics
/// They differ.
pub fn run<S: TestStore>(steps: &[Step]) {
    let mut history = History::<S>::new();
    for step in steps {
        history.run(step);
        history.compare();
    }
    if !history.lost {
        history.compare_journal();
    }
    history.finish();
}

/// A handle on a lease of a history, as the gate and the model know it.
struct Known<S: Store> {
    handle: Option<Lease<S>>,
    /// Whether its drop ends the lease.
    owner: bool,
    /// Output tokens that were agreed or that it has raised the hold to.
    covered: u64,
    lease: LeaseId,
    /// What it was opened for.
    ask: Ask,
    place: usize,
}

struct History<S: TestStore> {
    gate: Gate<Failing<S>>,
    clock: Arc<ManualClock>,
    model: Model,
    /// Runs that there have been: a principal of the tenant, and which one.
    runs: BTreeSet<(usize, usize)>,
    calendars: Calendars,
    policy: &'static Policy,
    leases: Vec<Known<Failing<S>>>,
    reloaded: bool,
    /// How the next step fails that goes to the store.
    fault: Option<(Fault, bool)>,
    /// Whether the answer to something that was done has been lost.
    lost: bool,
    lessons: usize,
}

fn shorts(refusal: &Refusal) -> Vec<Short> {
    let short = |shortage: &Shortage| Short {
        scope: shortage.scope.clone(),
        limit: shortage.limit.clone(),
        used: shortage.used,
        asked: shortage.asked,
        nanos: match shortage.wait {
            Wait::After(time) => Some(time.as_nanos() as u64),
            Wait::Unknown | Wait::Never => None,
        },
        never: shortage.wait == Wait::Never,
    };
    refusal.shortages.iter().map(short).collect()
}

fn run_name(run: usize) -> String {
    format!("run{run}")
}

fn id_of(id: usize) -> Arc<str> {
    format!("r{id}").into()
}

/// What can be frozen, and its name in the model.
fn freezable(nth: usize) -> (Target, &'static str) {
    match nth {
        0 => (Target::Tenant("one".into()), "one"),
        1 => (Target::Tenant("two".into()), "two"),
        2 => (Target::Model("a".into()), "a"),
        _ => (Target::Model("b".into()), "b"),
    }
}

impl<S: TestStore> History<S> {
    fn new() -> History<S> {
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T15:59:00Z").unwrap());
        // More leases than a history of some sixty steps can have: none is forgotten, and no tenant has too many of them
        // unresolved.
        let store = Failing::new(S::fresh(Bounds { rows: 128, open_leases: 512 }), []);
        let policy = &READ[0];
        let gate = Gate::builder(policy.clone()).store(store).clock(clock.clone()).build();
        let model = Model::new(policy.plan());
        let (calendars, leases, runs) = (calendars(policy.plan()), Vec::new(), BTreeSet::new());
        let (reloaded, fault, lost, lessons) = (false, None, false, 0);
        History { gate, clock, model, runs, calendars, policy, leases, reloaded, fault, lost, lessons }
    }

    fn wait<'a, T: Send + 'a>(answer: <Failing<S> as Store>::Answer<'a, T>) -> T {
        Failing::<S>::wait(answer)
    }

    fn now(&self) -> Now {
        self.clock.now()
    }

    fn run(&mut self, step: &Step) {
        match step {
            Step::Admit(ask) => self.admit(ask),
            Step::Again(at) => {
                if let Some(known) = self.leases.get(at % self.leases.len().max(1)) {
                    self.admit(&known.ask.clone());
                }
            }
            Step::Preview(ask) => self.preview(ask),
            Step::Wait(ask, end) => self.wait_for(ask, *end),
            Step::Teach(who, model, output) => self.teach(*who, *model, *output),
            Step::Pass(nanos) => self.clock.advance(Duration::from_nanos(*nanos)),
            Step::Wall(by) => self.clock.set_wall(self.now().wall.saturating_add_signed(*by)),
            Step::Sweep => self.sweep(),
            Step::Reload(nth) => {
                self.reloaded = true;
                self.put_in_force(&READ[*nth]);
            }
            Step::Press(percent) => {
                assert!(self.gate.set_pressure(POOL, *percent));
                self.model.press(POOL, *percent);
                assert_eq!(self.gate.pressure(POOL), Some((*percent).min(100)));
            }
            Step::Freeze(nth) => {
                let (target, name) = freezable(*nth);
                self.gate.freeze(target, "an incident", "an operator");
                self.model.freeze(name);
            }
            Step::Thaw(nth) => {
                let (target, name) = freezable(*nth);
                assert_eq!(self.gate.thaw(&target, "an operator"), self.model.thaw(name));
            }
            Step::Fail(fault, second) => self.fault = Some((*fault, *second)),
            Step::Sent(at)
            | Step::Renew(at)
            | Step::Extend(at, _)
            | Step::Follow(at, _)
            | Step::Settle(at, ..)
            | Step::Finish(at, ..)
            | Step::Cancel(at)
            | Step::Abandon(at, _)
            | Step::Drop(at) => {
                if !self.leases.is_empty() {
                    self.on_lease(step, at % self.leases.len());
                }
            }
        }
    }

    fn put_in_force(&mut self, policy: &'static Policy) {
        self.policy = policy;
        self.gate.reload(policy);
        self.model.reload(policy.plan());
    }

    /// Does something that goes to the store on the gate, which fails there as was said, and on the model, which has done it
    /// only if the gate's store has. Gives both answers, and how the first trip failed.
    fn both<T, U>(
        &mut self,
        real: impl FnOnce(&mut Self) -> T,
        wanted: impl FnOnce(&mut Model, Now) -> U,
    ) -> (T, U, Fault) {
        let (fault, second) = self.fault.take().unwrap_or((Fault::None, false));
        let first = if second { Fault::None } else { fault };
        let faults = if second { vec![Fault::None, fault] } else { vec![fault] };
        let now = self.now();
        self.gate.store().fail(faults);
        let real = real(self);
        self.gate.store().heal();
        let before = (first == Fault::Before).then(|| self.model.clone());
        let wanted = wanted(&mut self.model, now);
        self.lost |= first == Fault::After;
        if let Some(before) = before {
            self.model = before;
        }
        (real, wanted, first)
    }

    fn sweep(&mut self) {
        let (real, wanted, fault) =
            self.both(|this| Self::wait(this.gate.sweep(usize::MAX)), |model, now| model.sweep(now).len());
        assert_eq!(real, if fault == Fault::None { wanted } else { 0 });
        assert_eq!(Self::wait(self.gate.unresolved(usize::MAX)).len(), self.model.unresolved());
    }

    fn request(&mut self, ask: &Ask) -> Request {
        if let Some((run, _)) = ask.run {
            self.runs.insert((if PEOPLE[ask.who].tenant() == "one" { 0 } else { 3 }, run));
        }
        let request = Request::chat(["a", "b", "c"][ask.model]).input_tokens(ask.input).max_output_tokens(ask.output);
        let mut request = request.choices(ask.choices).stream(ask.stream);
        request.id = ask.id.map(id_of);
        match ask.run {
            Some((run, calls)) => request.run_id(run_name(run)).tool_calls(calls),
            None => request,
        }
    }
}
