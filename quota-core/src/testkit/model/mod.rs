//! The reference model: the gate and its store once more, slow and obvious.
//!
//! Floor 5. Invariant: it shares the policy's plan, its prices and its calendars with the crate, and nothing that
//! counts, holds or decides.
//!
//! It decides about requests that state their largest output, under plans without degrade steps, ceilings, overrides
//! and learned holds. It is exact where a unit of every rate refills in a whole number of nanoseconds.

mod account;

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use self::account::{Account, Mark, hard};
use crate::lease::{Cause, EndError, Receipt};
use crate::policy::plan::{Limit, OnExceed, Plan, Window};
use crate::policy::price::{Ask, Price};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::request::{Input, Request};
use crate::time::{Now, Unit};
use crate::units::{Amounts, Meter, Pico};
use crate::usage::Usage;

/// An account's name: its scope and limit.
type Key = (Arc<str>, Arc<str>);

/// The gate and its store.
#[derive(Debug, Clone)]
pub struct Model {
    plan: Arc<Plan>,
    accounts: BTreeMap<Key, Account>,
    leases: Vec<ModelLease>,
    ids: HashMap<Arc<str>, usize>,
}

/// One lease.
#[derive(Debug, Clone)]
struct ModelLease {
    who: Principal,
    run: Option<Arc<str>>,
    /// Calls of tools that its input carries.
    calls: u64,
    price: Option<Arc<Price>>,
    input: u64,
    model: Arc<str>,
    /// Output over all choices that was agreed, and what it was extended to.
    agreed: u64,
    output: u64,
    choices: u64,
    stream: bool,
    worst: Pico,
    holds: Vec<ModelHold>,
    /// How many of the holds were taken at admission.
    first: usize,
    state: ModelState,
    sent: bool,
    deadline: u64,
    life: u64,
    age: u64,
}

impl ModelLease {
    /// What is charged while the usage is unknown: the worst case as agreed, or the money that an extension has raised it
    /// to.
    fn unknown_cost(&self) -> Pico {
        let money = self.holds.iter().filter(|hold| hold.meter == Meter::Money);
        let sums = money.clone().map(|hold| {
            let same = money.clone().filter(|other| other.key == hold.key);
            same.map(|other| other.amount).sum::<u64>()
        });
        let held = sums.max().unwrap_or(0);
        if held > self.worst.to_usd().units() { Pico(held as u128 * 10_000) } else { self.worst }
    }
}

#[derive(Debug, Clone)]
struct ModelHold {
    key: Key,
    meter: Meter,
    /// What was taken.
    amount: u64,
    /// What is left of it now.
    now: u64,
    mark: Mark,
}

#[derive(Debug, Clone, PartialEq)]
struct ModelSettled {
    usage: Option<Usage>,
    amounts: Amounts,
    cost: Pico,
    late: bool,
}

#[derive(Debug, Clone, PartialEq)]
enum ModelState {
    Held,
    Unresolved { since: u64, cause: Cause },
    Settled(Box<ModelSettled>),
    Cancelled,
}

/// One limit that had no room.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Short {
    /// The scope.
    pub scope: Arc<str>,
    /// The limit's name.
    pub limit: Arc<str>,
    /// What was in use.
    pub used: u64,
    /// What was asked.
    pub asked: u64,
    /// The wait in nanoseconds where a time is known.
    pub nanos: Option<u64>,
    /// Whether it can never fit.
    pub never: bool,
}

/// What the model says to a request.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Admitted: the lease's place in the model.
    Allow(usize),
    /// The same request's open lease.
    Open(usize),
    /// Told to wait.
    Queue(Reason, Vec<Short>),
    /// Refused.
    Reject(Reason, Vec<Short>),
    /// Refused: the id has ended.
    Ended(Box<ModelReceipt>),
}

/// What the model knows of a receipt.
#[derive(Debug, Clone, PartialEq)]
pub struct ModelReceipt {
    /// How it ended.
    pub outcome: &'static str,
    /// The exact cost.
    pub cost: Pico,
    /// The largest amount held per meter.
    pub held: Amounts,
    /// What is charged per meter.
    pub charged: Amounts,
    /// Whether it was unresolved before.
    pub late: bool,
    /// Whether it repeats an earlier ending.
    pub repeat: bool,
}

impl From<Receipt> for ModelReceipt {
    fn from(receipt: Receipt) -> ModelReceipt {
        ModelReceipt {
            outcome: receipt.outcome(),
            cost: receipt.cost(),
            held: receipt.held(),
            charged: receipt.charged(),
            late: receipt.is_late(),
            repeat: receipt.is_repeat(),
        }
    }
}

/// An ending that the model refuses: the code, and the field that differs.
pub type ModelError = (&'static str, Option<&'static str>);

/// The same of the crate's own error.
pub fn error_of(error: &EndError) -> ModelError {
    let field = match error {
        EndError::Conflict { field, .. } => Some(*field),
        _ => None,
    };
    (error.code(), field)
}

/// How a lease is to end.
#[derive(Debug, Clone)]
pub enum Ending {
    /// With these figures.
    Settle(Box<Usage>),
    /// Never sent.
    Cancel,
    /// Unknown usage.
    Abandon(Cause),
}

/// A limit with the name of its account.
struct Applied {
    key: Key,
    limit: Limit,
}

/// What a request asks of each meter.
fn amounts(input: u64, output: u64, stream: bool, calls: u64, cost: Pico) -> Amounts {
    Amounts::default()
        .with(Meter::Steps, 1)
        .with(Meter::ToolCalls, calls)
        .with(Meter::RunTime, 1)
        .with(Meter::Requests, 1)
        .with(Meter::InFlight, 1)
        .with(Meter::Streams, stream as u64)
        .with(Meter::Input, input)
        .with(Meter::Output, output)
        .with(Meter::Total, input + output)
        .with(Meter::Money, cost.to_usd().units())
}

fn worst_cost(price: &Option<Arc<Price>>, input: u64, output: u64) -> Pico {
    price.as_ref().map_or(Pico(0), |price| price.worst_case(&Ask { input, output, ..Ask::default() }))
}

fn rank(wait: Wait) -> (u8, u64) {
    match wait {
        Wait::Never => (2, 0),
        Wait::After(time) => (1, time.as_nanos() as u64),
        Wait::Unknown => (0, 0),
    }
}

fn reason(limit: &Limit, wait: Wait) -> Reason {
    let of_run = limit.window == Window::Run;
    if wait == Wait::Never && hard(limit) > 0 && !of_run {
        return Reason::RequestTooLarge;
    }
    let dated = matches!(&limit.window, Window::Fixed(calendar) if !matches!(calendar.unit(), Unit::Seconds(_)));
    match (limit.meter, dated) {
        (Meter::Total, _) if of_run => Reason::RunTokensExceeded,
        (Meter::Money, _) if of_run => Reason::RunBudgetExceeded,
        (Meter::Requests, true) => Reason::RequestQuotaExceeded,
        (Meter::Requests, false) => Reason::RequestRateExceeded,
        (Meter::Input | Meter::Output | Meter::Total, true) => Reason::TokenQuotaExceeded,
        (Meter::Input, false) => Reason::InputTokenRateExceeded,
        (Meter::Output, false) => Reason::OutputTokenRateExceeded,
        (Meter::Total, false) => Reason::TokenRateExceeded,
        (Meter::Money, _) => Reason::BudgetExceeded,
        (Meter::InFlight, _) => Reason::ConcurrencyExceeded,
        (Meter::Streams, _) => Reason::StreamsExceeded,
        (Meter::Steps, _) => Reason::RunStepsExceeded,
        (Meter::ToolCalls, _) => Reason::RunToolCallsExceeded,
        (Meter::RunTime, _) => Reason::RunTimeExceeded,
    }
}

impl Model {
    /// A gate on an empty store.
    pub fn new(plan: &Arc<Plan>) -> Model {
        Model { plan: plan.clone(), accounts: BTreeMap::new(), leases: Vec::new(), ids: HashMap::new() }
    }

    /// Puts another plan in force.
    pub fn reload(&mut self, plan: &Arc<Plan>) {
        self.plan = plan.clone();
    }

    /// Decides about a request, and takes what it may use. `preview` only decides.
    pub fn admit(&mut self, who: &Principal, request: &Request, now: Now, preview: bool) -> Verdict {
        let plan = self.plan.clone();
        let Some(tenant) = plan.tenants.get(who.tenant()) else {
            return Verdict::Reject(Reason::TenantUnknown, Vec::new());
        };
        if !tenant.models.contains_key(&request.model) {
            return Verdict::Reject(Reason::ModelNotAllowed, Vec::new());
        }
        if let Some(&place) = request.id.as_ref().filter(|_| !preview).and_then(|id| self.ids.get(id)) {
            return match &self.leases[place] {
                lease if lease.who != *who => Verdict::Reject(Reason::RequestIdConflict, Vec::new()),
                lease if lease.state == ModelState::Held && !self.covers(lease, request) => {
                    Verdict::Reject(Reason::RequestIdConflict, Vec::new())
                }
                lease if lease.state == ModelState::Held => Verdict::Open(place),
                lease => Verdict::Ended(Box::new(receipt(lease, true))),
            };
        }
        let Input::Counted(input) = request.input else { panic!("the model counts nothing") };
        let output = request.max_output_tokens.expect("a stated output") * request.choices;
        let price = plan.models[&request.model].price.clone();
        let worst = worst_cost(&price, input, output);
        let calls = request.run_id.as_ref().map_or(0, |_| request.tool_calls.unwrap_or(0));
        let asked = amounts(input, output, request.stream, calls, worst);
        let limits = applied(&plan, who, &request.model, request.run_id.as_deref());
        let mut short = self.short(&limits, &asked, now);
        if !short.is_empty() && !preview && !self.sweep(now).is_empty() {
            short = self.short(&limits, &asked, now);
        }
        if let Some((reason, shorts, queues)) = told(&short) {
            return if queues { Verdict::Queue(reason, shorts) } else { Verdict::Reject(reason, shorts) };
        }
        if preview {
            return Verdict::Allow(usize::MAX);
        }
        let holds = self.take(&limits, &asked, now);
        let (life, age) = (plan.lease_ttl, plan.unresolved_ttl);
        let (state, deadline) = (ModelState::Held, now.mono + life);
        let (choices, stream, first) = (request.choices, request.stream, holds.len());
        let lease = ModelLease {
            who: who.clone(),
            run: request.run_id.clone(),
            calls,
            price,
            input,
            model: request.model.clone(),
            agreed: output,
            output,
            choices,
            stream,
            worst,
            holds,
            first,
            state,
            sent: false,
            deadline,
            life,
            age,
        };
        self.leases.push(lease);
        let place = self.leases.len() - 1;
        if let Some(id) = &request.id {
            self.ids.insert(id.clone(), place);
        }
        Verdict::Allow(place)
    }

    fn account(&mut self, applied: &Applied, now: Now) -> &mut Account {
        self.accounts.entry(applied.key.clone()).or_insert_with(|| Account::new(&applied.limit, now))
    }

    /// The limits without room, each with when it has.
    fn short<'a>(&mut self, limits: &'a [Applied], asked: &Amounts, now: Now) -> Vec<(&'a Applied, u64, u64, Wait)> {
        let mut short = Vec::new();
        for applied in limits {
            let (limit, asked) = (&applied.limit, asked.get(applied.limit.meter));
            let account = self.account(applied, now);
            if let Some(wait) = account.lacks(limit, asked, now) {
                short.push((applied, account.used(limit, now), asked, wait));
            }
        }
        short
    }

    fn take(&mut self, limits: &[Applied], asked: &Amounts, now: Now) -> Vec<ModelHold> {
        let take = |applied: &Applied| {
            let (meter, key) = (applied.limit.meter, applied.key.clone());
            let amount = asked.get(meter);
            let mark = self.account(applied, now).take(&applied.limit, amount, now);
            ModelHold { key, meter, amount, now: amount, mark }
        };
        limits.iter().map(take).collect()
    }

    /// Holds so many output tokens more for a lease.
    ///
    /// # Errors
    /// The reason, with the limits that have no room.
    pub fn extend(
        &mut self,
        place: usize,
        model: &str,
        plan: &Plan,
        output: u64,
        now: Now,
    ) -> Result<(), (Reason, Vec<Short>)> {
        let lease = &self.leases[place];
        if lease.state != ModelState::Held {
            return Err((Reason::RequestAlreadyEnded, Vec::new()));
        }
        // What the lease is to hold in all, less what it holds.
        let covered = lease.output + output;
        let to = amounts(lease.input, covered, false, 0, worst_cost(&lease.price, lease.input, covered));
        let mut asked = Amounts::default();
        for meter in [Meter::Output, Meter::Total, Meter::Money] {
            let holds = lease.holds.iter().filter(|hold| hold.meter == meter);
            let held = holds.clone().map(|hold| {
                let same = holds.clone().filter(|other| other.key == hold.key);
                same.map(|other| other.amount).sum::<u64>()
            });
            asked.set(meter, to.get(meter).saturating_sub(held.max().unwrap_or(0)));
        }
        if asked == Amounts::default() {
            return Ok(());
        }
        // A lease is extended on the limits that it was admitted on.
        let mut limits = applied(plan, &lease.who, model, lease.run.as_deref());
        limits.retain(|applied| asked.get(applied.limit.meter) > 0);
        if let Some((reason, shorts, _)) = told(&self.short(&limits, &asked, now)) {
            return Err((reason, shorts));
        }
        let more = self.take(&limits, &asked, now);
        let lease = &mut self.leases[place];
        lease.output = covered;
        for hold in more.into_iter().filter(|hold| hold.amount > 0) {
            // Extensions of one limit in one period are one hold.
            let same = |before: &&mut ModelHold| before.key == hold.key && before.mark.joins(&hold.mark);
            match lease.holds[lease.first..].iter_mut().find(same) {
                Some(before) => {
                    before.amount += hold.amount;
                    before.now += hold.now;
                    before.mark = hold.mark;
                }
                None => lease.holds.push(hold),
            }
        }
        Ok(())
    }

    /// Whether an open lease holds enough for another request under its id.
    fn covers(&self, lease: &ModelLease, request: &Request) -> bool {
        let Input::Counted(input) = request.input else { panic!("the model counts nothing") };
        let output = request.max_output_tokens.expect("a stated output") * request.choices;
        let price = self.plan.models.get(&request.model).and_then(|model| model.price.clone());
        input <= lease.input
            && output * lease.choices <= lease.agreed * request.choices
            && (request.model == lease.model || worst_cost(&price, input, output) <= lease.worst)
            && request.choices <= lease.choices
            && (lease.stream || !request.stream)
    }

    /// Marks a lease as sent; whether it is open.
    pub fn sent(&mut self, place: usize) -> bool {
        let lease = &mut self.leases[place];
        lease.sent |= lease.state == ModelState::Held;
        lease.state == ModelState::Held
    }

    /// A heartbeat; whether the lease is open.
    pub fn renew(&mut self, place: usize, now: Now) -> bool {
        let lease = &mut self.leases[place];
        lease.deadline = lease.deadline.max(now.mono + lease.life);
        lease.state == ModelState::Held
    }

    /// Ends a lease.
    ///
    /// # Errors
    /// The ending does not go with how the lease stands.
    pub fn end(&mut self, place: usize, ending: &Ending, now: Now) -> Result<ModelReceipt, ModelError> {
        let lease = &self.leases[place];
        let conflict = |field| Err(("lease_conflict", Some(field)));
        let next = match (&lease.state, ending) {
            (ModelState::Held, Ending::Cancel) if lease.sent => return Err(("cancel_after_sent", None)),
            (ModelState::Held, Ending::Cancel) => ModelState::Cancelled,
            (ModelState::Held, Ending::Abandon(cause)) => ModelState::Unresolved { since: now.mono, cause: *cause },
            (ModelState::Held | ModelState::Unresolved { .. }, Ending::Settle(usage)) => {
                let cost = lease.price.as_ref().map_or(Pico(0), |price| price.exact(usage));
                let calls = if usage.requests > 0 { lease.calls } else { 0 };
                let amounts = usage.amounts(cost.to_usd()).with(Meter::ToolCalls, calls);
                let usage = usage.clone();
                let late = lease.state != ModelState::Held;
                ModelState::Settled(Box::new(ModelSettled { usage: Some(*usage), amounts, cost, late }))
            }
            (ModelState::Settled(first), Ending::Settle(usage)) => match &first.usage {
                None => return conflict("usage"),
                Some(first) if *first == **usage => return Ok(receipt(lease, true)),
                Some(first) if first.input_uncached != usage.input_uncached => return conflict("input_uncached"),
                Some(first) if first.output_text != usage.output_text => return conflict("output_text"),
                Some(_) => return conflict("requests"),
            },
            (ModelState::Cancelled, Ending::Cancel) | (_, Ending::Abandon(_)) => return Ok(receipt(lease, true)),
            (_, Ending::Cancel) | (ModelState::Cancelled, Ending::Settle(_)) => return conflict("outcome"),
        };
        self.step(place, next, now);
        Ok(receipt(&self.leases[place], false))
    }

    /// Puts a lease into its next state and corrects what that leaves at another amount.
    fn step(&mut self, place: usize, next: ModelState, now: Now) {
        let lease = &mut self.leases[place];
        lease.state = next;
        let mut spent: BTreeMap<Key, u64> = BTreeMap::new();
        for at in 0..lease.holds.len() {
            let hold = &lease.holds[at];
            let last = !lease.holds[at + 1..].iter().any(|later| later.key == hold.key);
            let to = match &lease.state {
                _ if hold.meter.is_held() => 0,
                ModelState::Cancelled => 0,
                ModelState::Settled(settled) if settled.usage.is_some() => {
                    let spent = spent.entry(hold.key.clone()).or_default();
                    let left = settled.amounts.get(hold.meter).saturating_sub(*spent);
                    let here = if last { left } else { left.min(hold.amount) };
                    *spent += here;
                    here
                }
                _ => hold.now,
            };
            let hold = &mut lease.holds[at];
            if to != hold.now {
                let account = self.accounts.get_mut(&hold.key).expect("a hold is on an account");
                account.correct(hold.mark, hold.now, to, now);
                hold.now = to;
            }
        }
    }

    /// Ends what has expired, and closes what has been unresolved for its age; gives their places.
    pub fn sweep(&mut self, now: Now) -> Vec<usize> {
        let mut swept = Vec::new();
        for place in 0..self.leases.len() {
            let lease = &self.leases[place];
            let next = match lease.state {
                ModelState::Held if lease.deadline <= now.mono => {
                    ModelState::Unresolved { since: now.mono, cause: Cause::Expired }
                }
                ModelState::Unresolved { since, .. } if since + lease.age <= now.mono => {
                    let amounts = held(lease).counted();
                    let (usage, cost, late) = (None, lease.unknown_cost(), true);
                    ModelState::Settled(Box::new(ModelSettled { usage, amounts, cost, late }))
                }
                _ => continue,
            };
            self.step(place, next, now);
            swept.push(place);
        }
        swept
    }

    /// Leases that are open: held or unresolved.
    pub fn open(&self) -> usize {
        let open = |lease: &&ModelLease| matches!(lease.state, ModelState::Held | ModelState::Unresolved { .. });
        self.leases.iter().filter(open).count()
    }

    /// How much of every limit of a principal is in use, over all models of its tenant, and of one of its runs: scope, limit,
    /// hard amount, used.
    pub fn balances(&mut self, who: &Principal, run: Option<&str>, now: Now) -> Vec<(Arc<str>, Arc<str>, u64, u64)> {
        let plan = self.plan.clone();
        let Some(tenant) = plan.tenants.get(who.tenant()) else { return Vec::new() };
        let mut balances = Vec::new();
        for model in tenant.models.keys() {
            for applied in applied(&plan, who, model, run) {
                let used = self.account(&applied, now).used(&applied.limit, now);
                balances.push((applied.key.0, applied.key.1, hard(&applied.limit), used));
            }
        }
        balances.sort();
        balances.dedup();
        balances
    }

    /// The sum of what all leases leave on an account in its latest period, from the leases alone; `None` for a rate
    /// and for a run's time.
    pub fn sum(&self, scope: &str, limit: &str) -> Option<u64> {
        let key = (Arc::from(scope), Arc::from(limit));
        let counts = |mark: Mark| match self.accounts.get(&key) {
            Some(Account::Periods { latest, .. }) => matches!(mark, Mark::Period(number) if Some(number) == *latest),
            Some(Account::Held(_)) => true,
            Some(Account::Bucket(_) | Account::Span(_)) | None => false,
        };
        let holds = self.leases.iter().flat_map(|lease| &lease.holds).filter(|hold| hold.key == key);
        match self.accounts.get(&key) {
            Some(Account::Bucket(_) | Account::Span(_)) | None => None,
            Some(_) => Some(holds.filter(|hold| counts(hold.mark)).map(|hold| hold.now).sum()),
        }
    }
}

/// The reason, the shortages and whether the request waits; `None` where nothing is short.
fn told(short: &[(&Applied, u64, u64, Wait)]) -> Option<(Reason, Vec<Short>, bool)> {
    let worst = short.iter().max_by_key(|(_, _, _, wait)| rank(*wait))?;
    let shorts = short.iter().map(|(applied, used, asked, wait)| Short {
        scope: applied.key.0.clone(),
        limit: applied.key.1.clone(),
        used: *used,
        asked: *asked,
        nanos: match wait {
            Wait::After(time) => Some(time.as_nanos() as u64),
            Wait::Unknown | Wait::Never => None,
        },
        never: *wait == Wait::Never,
    });
    let queues =
        short.iter().all(|(applied, _, _, wait)| applied.limit.on_exceed == OnExceed::Queue && *wait != Wait::Never);
    Some((reason(&worst.0.limit, worst.3), shorts.collect(), queues))
}

/// The limits of a principal, a model and a run, widest scope first.
fn applied(plan: &Plan, who: &Principal, model: &str, run: Option<&str>) -> Vec<Applied> {
    let tenant = &plan.tenants[who.tenant()];
    let (name, user) = (&tenant.name, who.user().unwrap_or(""));
    let of_runs = tenant.agent_runs.limits();
    let mut all: Vec<(String, &[Limit])> = vec![
        ("global".to_owned(), &plan.global),
        (format!("model:{model}"), plan.models.get(model).map_or(&[], |model| &model.limits)),
    ];
    if let Some(center) = &tenant.cost_center {
        all.push((format!("cost_center:{center}"), plan.cost_centers.get(center).map_or(&[], Vec::as_slice)));
    }
    all.push((format!("tenant:{name}"), &tenant.limits));
    all.push((format!("tenant:{name}/model:{model}"), tenant.models.get(model).map_or(&[], |model| &model.limits)));
    all.push((format!("tenant:{name}/user:{user}"), &tenant.users));
    if let Some(run) = run {
        all.push((format!("tenant:{name}/run:{run}"), &of_runs));
    }
    let of = |(scope, limits): (String, &[Limit])| {
        let scope: Arc<str> = scope.into();
        let apply = |limit: &Limit| Applied { key: (scope.clone(), limit.name.clone()), limit: limit.clone() };
        limits.iter().map(apply).collect::<Vec<_>>()
    };
    all.into_iter().flat_map(of).collect()
}

/// The largest amount held per meter.
fn held(lease: &ModelLease) -> Amounts {
    let mut sums: BTreeMap<(&Key, Meter), u64> = BTreeMap::new();
    for hold in &lease.holds {
        *sums.entry((&hold.key, hold.meter)).or_default() += hold.amount;
    }
    let mut amounts = Amounts::default();
    for ((_, meter), sum) in sums {
        amounts.set(meter, amounts.get(meter).max(sum));
    }
    amounts
}

fn receipt(lease: &ModelLease, repeat: bool) -> ModelReceipt {
    let held = held(lease);
    let (outcome, charged, cost, late) = match &lease.state {
        ModelState::Held => ("held", held, lease.unknown_cost(), false),
        ModelState::Unresolved { .. } => ("unresolved", held.counted(), lease.unknown_cost(), false),
        ModelState::Settled(settled) => ("settled", settled.amounts, settled.cost, settled.late),
        ModelState::Cancelled => ("cancelled", Amounts::default(), Pico(0), false),
    };
    ModelReceipt { outcome, cost, held, charged, late, repeat }
}
