//! Histories: the same steps on a gate and on the reference model, which must give the same decisions, balances and receipts.
//!
//! Floor 5. Invariant: a step decides nothing by itself: whatever it names, there is, or it does nothing.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use super::TestStore;
use super::model::{Ending, Model, ModelReceipt, Short, Verdict, error_of};
use crate::gate::{Decision, Gate, Lease};
use crate::journal::{Event, replay};
use crate::lease::{Cause, LeaseId};
use crate::policy::Policy;
use crate::policy::plan::{Limit, Plan, Window};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::{Refusal, Shortage, Wait};
use crate::request::Request;
use crate::store::memory::Bounds;
use crate::store::{Name, Store};
use crate::time::{Calendar, Clock, ManualClock, Period};
use crate::usage::{Outcome, Usage};

/// How many principals a step can name: of two tenants, with and without users, and of one that no policy has.
pub const PRINCIPALS: usize = 7;

/// How many models a step can name; the last is in no policy.
pub const MODELS: usize = 3;

/// How many policies a step can put in force; the first is at the beginning.
pub const POLICIES: usize = 3;

/// How many runs a request can belong to, of whichever tenant asks.
pub const RUNS: usize = 3;

/// A policy with every kind of limit in every scope. Every rate's unit refills in whole nanoseconds.
fn policy(rpm: u64, tpm: u64, tokens: u64, cents: u64, slots: u64) -> Policy {
    let text = format!(
        "
settings: {{lease_ttl_ms: 30000, unresolved_after_ms: 120000}}
queues: {{interactive: {{max_wait_ms: 1000}}}}
global: {{rps: 20, max_inflight: 6, tpd: {{hard: 400000, hold: worst_case}}}}
cost_centers: {{lab: {{daily_budget_usd: 0.{cents:02}, timezone: Asia/Shanghai}}}}
models:
  a: {{price: {{input: 1, output: 2}}, limits: {{output_tpm: {{hard: 12000, hold: worst_case}}}}}}
  b: {{price: {{input: 3, output: 5}}}}
tenants:
  one:
    cost_center: lab
    rpm: {{hard: {rpm}, burst: 5}}
    tpm: {{hard: {tpm}, hold: worst_case}}
    monthly_budget_usd: 0.5
    max_inflight: {{hard: {slots}, on_exceed: queue}}
    max_streams: 2
    users: {{rpm: 12, input_tpd: 20000}}
    agent_runs: {{max_steps: {slots}, max_tool_calls: 7, max_usd: 0.{cents:02}, max_seconds: {rpm}}}
    models: {{a: {{tpd: {{hard: {tokens}, hold: worst_case}}}}, b: {{rpd: 20}}}}
  two:
    cost_center: lab
    rpm: {{hard: 2, mode: shadow}}
    rpd: {{hard: 5, mode: shadow}}
    windows: [{{name: tens, meter: requests, seconds: 10, hard: 4, window: fixed, on_exceed: queue}}]
    models: {{a: {{max_inflight: 2}}, b: {{daily_budget_usd: 0.1}}}}
"
    );
    Policy::from_yaml(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The policies of all histories; the first is in force at the beginning.
static READ: LazyLock<[Policy; POLICIES]> = LazyLock::new(|| {
    [policy(60, 60_000, 30_000, 20, 3), policy(30, 12_000, 60_000, 90, 5), policy(120, 6_000, 5_000, 3, 1)]
});

/// One step. Places of leases count from the first admission, and begin again after the last.
#[derive(Debug, Clone)]
pub enum Step {
    /// A principal asks for a model.
    Admit {
        /// Which of the principals.
        who: usize,
        /// Which of the models.
        model: usize,
        /// Input tokens.
        input: u64,
        /// The largest output.
        output: u64,
        /// How many answers it asks for.
        choices: u64,
        /// Whether it streams.
        stream: bool,
        /// The number in its request id, if it has one.
        id: Option<usize>,
        /// Which run it is a step of, and how many calls of tools it carries.
        run: Option<(usize, u64)>,
    },
    /// The same without taking anything.
    Preview {
        /// Which of the principals.
        who: usize,
        /// Which of the models.
        model: usize,
        /// Input tokens.
        input: u64,
        /// The largest output.
        output: u64,
    },
    /// A lease is marked as sent.
    Sent(usize),
    /// A lease's heartbeat.
    Renew(usize),
    /// More output for a lease.
    Extend(usize, u64),
    /// A lease is settled through its handle with so much input and output.
    Settle(usize, u64, u64),
    /// A lease is settled from elsewhere, by its request id if `true`.
    SettleLate(usize, u64, u64, bool),
    /// A lease is cancelled.
    Cancel(usize),
    /// A lease ends as a request that did not run.
    NotRun(usize),
    /// A lease ends without usage.
    Abandon(usize),
    /// A lease's upstream has failed; told by its request id if `true`, of a lease whose handle is gone too.
    Failed(usize, bool),
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
    history.compare_journal();
    history.finish();
}

/// A lease of a history, as the gate and the model know it.
struct Known<S: Store> {
    handle: Option<Lease<S>>,
    lease: LeaseId,
    request: Option<Arc<str>>,
    place: usize,
    model: String,
    plan: Arc<Plan>,
}

struct History<S: TestStore> {
    gate: Gate<S>,
    clock: Arc<ManualClock>,
    model: Model,
    people: Vec<Principal>,
    calendars: Calendars,
    plan: Arc<Plan>,
    leases: Vec<Known<S>>,
    reloaded: bool,
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

impl<S: TestStore> History<S> {
    fn new() -> History<S> {
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T15:59:00Z").unwrap());
        let store = S::fresh(Bounds { rows: 128, open_leases: 256 });
        let gate = Gate::builder(READ[0].clone()).store(store).clock(clock.clone()).build();
        let plan = READ[0].plan().clone();
        let person = |tenant: &str, user: &str| match user {
            "" => Principal::builder(tenant).build(),
            user => Principal::builder(tenant).user(user).build(),
        };
        let people = [("one", ""), ("one", "u"), ("one", "v"), ("two", ""), ("two", "u"), ("two", ""), ("nobody", "")];
        let people = people.map(|(tenant, user)| person(tenant, user)).to_vec();
        let model = Model::new(&plan);
        let calendars = calendars(&plan);
        History { gate, clock, model, people, calendars, plan, leases: Vec::new(), reloaded: false }
    }

    fn request(&self, model: usize, input: u64, output: u64) -> Request {
        Request::chat(["a", "b", "c"][model]).input_tokens(input).max_output_tokens(output)
    }

    fn run(&mut self, step: &Step) {
        let now = self.clock.now();
        match step {
            Step::Admit { who, model, input, output, choices, stream, id, run } => {
                let mut request = self.request(*model, *input, *output).choices(*choices).stream(*stream);
                request.id = id.map(|id| format!("r{id}").into());
                if let Some((run, calls)) = run {
                    request = request.run_id(run_name(*run)).tool_calls(*calls);
                }
                self.admit(self.people[*who].clone(), request);
            }
            Step::Preview { who, model, input, output } => {
                let request = self.request(*model, *input, *output);
                let who = &self.people[*who];
                let verdict = self.model.admit(who, &request, now, true);
                match (S::wait(self.gate.preview(who, &request)), verdict) {
                    (Decision::Allow(_), Verdict::Allow(_)) => {}
                    (Decision::Queue(queued), Verdict::Queue(reason, short)) => {
                        assert_eq!((queued.refusal.reason, shorts(&queued.refusal)), (reason, short));
                    }
                    (Decision::Reject(refusal), Verdict::Reject(reason, short)) => {
                        assert_eq!((refusal.reason, shorts(&refusal)), (reason, short));
                    }
                    (decision, verdict) => panic!("{decision:?} but {verdict:?}"),
                }
            }
            Step::Pass(nanos) => self.clock.advance(Duration::from_nanos(*nanos)),
            Step::Wall(by) => self.clock.set_wall(now.wall.saturating_add_signed(*by)),
            Step::Sweep => {
                let swept = S::wait(self.gate.sweep(usize::MAX));
                assert_eq!(swept, self.model.sweep(now).len());
            }
            Step::Reload(nth) => {
                self.reloaded = true;
                self.plan = READ[*nth].plan().clone();
                self.gate.reload(&READ[*nth]);
                self.model.reload(&self.plan);
            }
            Step::Sent(at)
            | Step::Renew(at)
            | Step::Extend(at, _)
            | Step::Settle(at, ..)
            | Step::SettleLate(at, ..)
            | Step::Cancel(at)
            | Step::NotRun(at)
            | Step::Abandon(at)
            | Step::Failed(at, _)
            | Step::Drop(at) => {
                if !self.leases.is_empty() {
                    self.on_lease(step, at % self.leases.len());
                }
            }
        }
    }

    fn admit(&mut self, who: Principal, request: Request) {
        let now = self.clock.now();
        let verdict = self.model.admit(&who, &request, now, false);
        match (S::wait(self.gate.admit(&who, &request)), verdict) {
            (Decision::Allow(lease), Verdict::Allow(place)) => {
                assert!(!lease.is_repeat());
                self.leases.push(Known {
                    lease: lease.id(),
                    handle: Some(lease),
                    request: request.id.clone(),
                    place,
                    model: request.model.to_string(),
                    plan: self.plan.clone(),
                });
            }
            (Decision::Allow(lease), Verdict::Open(place)) => {
                assert!(lease.is_repeat());
                let first = self.leases.iter().find(|known| known.place == place).unwrap();
                assert_eq!(lease.id(), first.lease);
            }
            (Decision::Queue(queued), Verdict::Queue(reason, short)) => {
                assert_eq!((queued.refusal.reason, shorts(&queued.refusal)), (reason, short));
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
    }

    fn on_lease(&mut self, step: &Step, at: usize) {
        let now = self.clock.now();
        let Known { handle, lease, request, place, model, plan } = &mut self.leases[at];
        let ended = |ending: Ending, model: &mut Model| model.end(*place, &ending, now);
        let request = request.clone();
        let name = |by_id: bool| match &request {
            Some(id) if by_id => Name::Request(id.clone()),
            _ => Name::Lease(*lease),
        };
        let (real, wanted) = match (step, handle.as_ref()) {
            (Step::SettleLate(_, input, output, by_id), _) => {
                let usage = Usage::tokens(*input, *output);
                let real = S::wait(self.gate.finalize(name(*by_id), Outcome::Final(usage.clone())));
                (real, ended(Ending::Settle(Box::new(usage)), &mut self.model))
            }
            (Step::Settle(_, input, output), Some(lease)) => {
                let usage = Usage::tokens(*input, *output);
                (S::wait(lease.settle(usage.clone())), ended(Ending::Settle(Box::new(usage)), &mut self.model))
            }
            // By the policy's default a failed upstream leaves the usage unknown.
            (Step::Failed(_, by_id), _) => {
                let real = S::wait(self.gate.finalize(name(*by_id), Outcome::FailedWithoutUsage));
                (real, ended(Ending::Abandon(Cause::UpstreamFailed), &mut self.model))
            }
            (Step::NotRun(_), Some(lease)) => {
                let usage = Box::new(Usage::not_run());
                (S::wait(lease.finish(Outcome::NotRun)), ended(Ending::Settle(usage), &mut self.model))
            }
            (Step::Cancel(_), Some(lease)) => (S::wait(lease.cancel()), ended(Ending::Cancel, &mut self.model)),
            (Step::Abandon(_), Some(lease)) => {
                let real = S::wait(lease.unresolved(Cause::NoUsage, None));
                (real, ended(Ending::Abandon(Cause::NoUsage), &mut self.model))
            }
            (Step::Drop(_), Some(_)) => {
                *handle = None;
                // A handle whose lease has ended already changes nothing.
                let _ = ended(Ending::Abandon(Cause::Dropped), &mut self.model);
                return;
            }
            (Step::Sent(_), Some(lease)) => {
                assert_eq!(S::wait(lease.sent()), self.model.sent(*place));
                return;
            }
            (Step::Renew(_), Some(lease)) => {
                assert_eq!(S::wait(lease.renew()), self.model.renew(*place, now));
                return;
            }
            (Step::Extend(_, output), Some(lease)) => {
                let wanted = self.model.extend(*place, model, plan, *output, now);
                let real = S::wait(lease.extend(*output)).map_err(|refusal| (refusal.reason, shorts(&refusal)));
                assert_eq!(real, wanted);
                return;
            }
            _ => return,
        };
        assert_eq!(real.map(ModelReceipt::from).map_err(|error| error_of(&error)), wanted);
    }

    /// The balances of everybody are the model's.
    fn compare(&mut self) {
        let now = self.clock.now();
        for who in &self.people {
            let mut real: Vec<_> = S::wait(self.gate.balances(who, true))
                .into_iter()
                .map(|balance| {
                    assert_eq!(balance.remaining, balance.hard.saturating_sub(balance.used), "{balance:?}");
                    (balance.scope, balance.limit, balance.hard, balance.used)
                })
                .collect();
            real.sort();
            assert_eq!(real, self.model.balances(who, None, now));
        }
        for (who, run) in self.runs() {
            assert_eq!(self.run_balances(&who, &run), self.model_of_run(&who, &run));
        }
        let open = S::wait(self.gate.store().open(usize::MAX, |open| open.len()));
        assert_eq!(open, self.model.open());
    }

    /// Every run of every tenant, by one of its principals.
    fn runs(&self) -> Vec<(Principal, String)> {
        let tenants = [&self.people[0], &self.people[3]];
        tenants.iter().flat_map(|who| (0..RUNS).map(|run| ((*who).clone(), run_name(run)))).collect()
    }

    /// What a run has used: scope, limit, hard amount, used.
    fn run_balances(&self, who: &Principal, run: &str) -> Vec<(Arc<str>, Arc<str>, u64, u64)> {
        let balances = S::wait(self.gate.run_balances(who, run)).into_iter();
        let of_run = balances.filter(|balance| balance.scope.contains("/run:"));
        let mut real: Vec<_> =
            of_run.map(|balance| (balance.scope, balance.limit, balance.hard, balance.used)).collect();
        real.sort();
        real
    }

    /// The same by the model.
    fn model_of_run(&mut self, who: &Principal, run: &str) -> Vec<(Arc<str>, Arc<str>, u64, u64)> {
        let mut balances = self.model.balances(who, Some(run), self.clock.now());
        balances.retain(|(scope, ..)| scope.contains("/run:"));
        balances
    }

    /// Replaying the journal gives the live balances, and every admission and ending is in it once.
    fn compare_journal(&mut self) {
        let now = self.clock.now();
        let replayed = replay(self.gate.journal());
        assert_eq!(replayed.missing, 0);
        for who in self.people.clone() {
            for (scope, limit, _, used) in self.model.balances(&who, None, now) {
                let window = &self.calendars[&(scope.clone(), limit.clone())];
                let period = match window {
                    Some(calendar) => calendar.period(now.wall),
                    // A rate's word is read with the amount of the entry that named it last.
                    None if self.reloaded && (limit.ends_with("pm") || limit.ends_with("ps")) => continue,
                    None => Period::default(),
                };
                let replayed = replayed.used(&scope, &limit, now, period).unwrap_or(0);
                assert_eq!(replayed, used, "{scope} {limit}");
            }
        }
        for (who, run) in self.runs() {
            for (scope, limit, _, used) in self.model_of_run(&who, &run) {
                // A time is read with the amount of the entry that named it last.
                if !(self.reloaded && &*limit == "max_seconds") {
                    let replayed = replayed.used(&scope, &limit, now, Period::default()).unwrap_or(0);
                    assert_eq!(replayed, used, "{scope} {limit}");
                }
            }
        }
        let mut entries: HashMap<(LeaseId, &str), usize> = HashMap::new();
        self.gate.journal().scan(&mut |entry| {
            use Event::{Admitted, Ended};
            if let Admitted(record) | Ended(record) = &entry.event {
                *entries.entry((record.claim.id, entry.event.name())).or_default() += 1;
            }
            true
        });
        for known in &self.leases {
            assert_eq!(entries.get(&(known.lease, "admitted")), Some(&1), "{}", known.lease);
        }
        assert!(entries.values().all(|count| *count == 1), "{entries:?}");
    }

    /// Ends everything and lets it be resolved.
    fn finish(&mut self) {
        for at in 0..self.leases.len() {
            self.on_lease(&Step::Drop(at), at);
        }
        for _ in 0..2 {
            self.clock.advance(Duration::from_secs(121));
            self.run(&Step::Sweep);
        }
        self.compare();
        assert_eq!(self.model.open(), 0);
        let now = self.clock.now();
        for who in self.people.clone() {
            for (scope, limit, _, used) in self.model.balances(&who, None, now) {
                let sum = self.model.sum(&scope, &limit);
                let window = &self.calendars[&(scope.clone(), limit.clone())];
                // A budget whose latest period is over reads zero.
                let over = window.is_some() && used == 0;
                assert!(over || sum.is_none_or(|sum| sum == used), "{scope} {limit}: {used} used, sum {sum:?}");
            }
        }
        for (who, run) in self.runs() {
            for (scope, limit, _, used) in self.model_of_run(&who, &run) {
                let sum = self.model.sum(&scope, &limit);
                assert!(sum.is_none_or(|sum| sum == used), "{scope} {limit}: {used} used, sum {sum:?}");
            }
        }
        self.compare_journal();
    }
}

fn run_name(run: usize) -> String {
    format!("run{run}")
}

type Calendars = HashMap<(Arc<str>, Arc<str>), Option<Arc<Calendar>>>;

/// The calendar of each limit of each scope, the same in every policy.
fn calendars(plan: &Plan) -> Calendars {
    let mut found = HashMap::new();
    let mut add = |scope: String, limits: &[Limit]| {
        for limit in limits {
            let calendar = match &limit.window {
                Window::Fixed(calendar) => Some(calendar.clone()),
                Window::Rolling { .. } | Window::Held | Window::Run => None,
            };
            found.insert((scope.clone().into(), limit.name.clone()), calendar);
        }
    };
    add("global".into(), &plan.global);
    plan.models.values().for_each(|model| add(format!("model:{}", model.name), &model.limits));
    plan.cost_centers.iter().for_each(|(name, limits)| add(format!("cost_center:{name}"), limits));
    for (name, tenant) in &plan.tenants {
        add(format!("tenant:{name}"), &tenant.limits);
        tenant.models.iter().for_each(|(model, of)| add(format!("tenant:{name}/model:{model}"), &of.limits));
        ["", "u", "v"].iter().for_each(|user| add(format!("tenant:{name}/user:{user}"), &tenant.users));
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::policy::plan::Hold;
    use crate::units::Meter;

    /// The learned length is not in the model, so nothing that it decides about may hold it.
    #[test]
    fn the_policies_hold_the_worst_case() {
        for policy in &*READ {
            let plan = policy.plan();
            let tenants = plan.tenants.values().flat_map(|tenant| {
                tenant.models.values().flat_map(|model| &model.limits).chain(&tenant.limits).chain(&tenant.users)
            });
            let models = plan.models.values().flat_map(|model| &model.limits);
            for limit in plan.global.iter().chain(models).chain(tenants) {
                let counts_output = matches!(limit.meter, Meter::Output | Meter::Total | Meter::Money);
                assert!(!counts_output || limit.hold == Hold::WorstCase, "{}", limit.name);
            }
        }
    }
}
