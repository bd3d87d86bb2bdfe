//! The reference model: the gate and its store once more, slow and obvious.
//!
//! Floor 5. Invariant: it shares the policy's plan, its prices and its calendars with the crate, and nothing that
//! counts, holds or decides.
//!
//! It decides about requests that state their largest output, under plans without ceilings, overrides and guessed
//! prices, whose pools keep nobody out. It is exact where a unit of every rate refills in a whole number of nanoseconds.
//!
//! An answer can be lost on its way. What it told of was done all the same; what follows from hearing of it (an answer's
//! length is learned, a handle is owned) is done by whoever hears of it, see [`Model::heard`].

mod account;
mod forms;
mod lengths;
mod limits;
mod words;

use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::Arc;

use self::account::{Account, Mark, hard};
use self::forms::{Chosen, Form, amounts, calls_of, input_of, worst_cost};
use self::lengths::{Lengths, Speaker};
use self::limits::{Applied, Key, applied, told};
pub use self::words::{Agreed, Ending, ModelError, ModelReceipt, Short, Verdict, error_of};
use crate::gate::Degradation;
use crate::lease::Cause;
use crate::policy::plan::{Hold, Plan, Window};
use crate::policy::price::Price;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::request::Request;
use crate::time::Now;
use crate::units::{Amounts, Meter, Pico};
use crate::usage::Usage;

/// A limit's scope, name, hard amount and amount in use.
pub type Used = (Arc<str>, Arc<str>, u64, u64);

/// The gate and its store.
#[derive(Debug, Clone)]
pub struct Model {
    plan: Arc<Plan>,
    accounts: BTreeMap<Key, Account>,
    leases: Vec<ModelLease>,
    ids: HashMap<Arc<str>, usize>,
    lengths: HashMap<Speaker, Lengths>,
    /// How full each pool is said to be, in percent.
    pressure: HashMap<Arc<str>, u8>,
    /// Tenants and models that are frozen.
    frozen: HashSet<Arc<str>>,
}

/// One lease.
#[derive(Debug, Clone)]
struct ModelLease {
    who: Principal,
    /// The request as it was asked.
    asked: Asked,
    /// The form that it was admitted in.
    agreed: Agreed,
    /// The limit that the step names which led to it.
    named: Option<Arc<str>>,
    price: Option<Arc<Price>>,
    limits: Vec<Applied>,
    holds: Vec<ModelHold>,
    /// How many of the holds were taken at admission.
    first: usize,
    state: ModelState,
    sent: bool,
    deadline: u64,
    life: u64,
    age: u64,
    /// Whether its length has been learned.
    taught: bool,
}

/// What a repeat of a request is compared with, and what its lease is settled by.
#[derive(Debug, Clone)]
struct Asked {
    model: Arc<str>,
    input: u64,
    /// The largest output of one choice.
    output: u64,
    choices: u64,
    stream: bool,
    /// Calls of tools that its input carries.
    calls: u64,
    /// The worst case in money.
    worst: Pico,
}

impl ModelLease {
    /// What is charged while the usage is unknown: the worst case as agreed, or the money that an extension has raised it
    /// to.
    fn unknown_cost(&self) -> Pico {
        let money = self.holds.iter().filter(|hold| hold.meter == Meter::Money);
        let held = money.map(|hold| self.held_on(&hold.key)).max().unwrap_or(0);
        let agreed = self.agreed.worst;
        if held > agreed.to_usd().units() { Pico(held as u128 * 10_000) } else { agreed }
    }

    /// The form as a repeat is told of it, which does not learn what was short when it was admitted.
    fn again(&self) -> Agreed {
        let again = |lesser: Degradation| match lesser.reason {
            Reason::PoolPressure => lesser,
            _ => {
                let limit = self.named.clone().unwrap_or_default();
                Degradation { reason: Reason::SoftLimitPassed, limit, ..lesser }
            }
        };
        let agreed = self.agreed.clone();
        Agreed { lesser: agreed.lesser.map(again), ..agreed }
    }

    /// What is held on one account.
    fn held_on(&self, key: &Key) -> u64 {
        self.holds.iter().filter(|hold| hold.key == *key).map(|hold| hold.amount).sum()
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

/// A limit without room.
#[derive(Debug, Clone)]
struct Lack {
    /// Its place among the limits.
    place: usize,
    applied: Applied,
    used: u64,
    asked: u64,
    wait: Wait,
}

impl Model {
    /// A gate on an empty store.
    pub fn new(plan: &Arc<Plan>) -> Model {
        Model {
            plan: plan.clone(),
            accounts: BTreeMap::new(),
            leases: Vec::new(),
            ids: HashMap::new(),
            lengths: HashMap::new(),
            pressure: HashMap::new(),
            frozen: HashSet::new(),
        }
    }

    /// Puts another plan in force.
    pub fn reload(&mut self, plan: &Arc<Plan>) {
        self.plan = plan.clone();
    }

    /// States how full a pool is.
    pub fn press(&mut self, pool: &str, percent: u8) {
        self.pressure.insert(pool.into(), percent);
    }

    /// Freezes a tenant or a model.
    pub fn freeze(&mut self, name: &str) {
        self.frozen.insert(name.into());
    }

    /// Lets it go on; whether it was frozen.
    pub fn thaw(&mut self, name: &str) -> bool {
        self.frozen.remove(name)
    }

    /// Decides about a request, and takes what it may use. `preview` only decides.
    pub fn admit(&mut self, who: &Principal, request: &Request, now: Now, preview: bool) -> Verdict {
        let plan = self.plan.clone();
        if self.frozen.contains(who.tenant()) || self.frozen.contains(&request.model) {
            return Verdict::Reject(Reason::Frozen, Vec::new());
        }
        let Some(tenant) = plan.tenants.get(who.tenant()) else {
            return Verdict::Reject(Reason::TenantUnknown, Vec::new());
        };
        if !tenant.models.contains_key(&request.model) {
            return Verdict::Reject(Reason::ModelNotAllowed, Vec::new());
        }
        let asked = self.asked(request);
        if let Some(&place) = request.id.as_ref().filter(|_| !preview).and_then(|id| self.ids.get(id)) {
            return match &self.leases[place] {
                lease if lease.who != *who => Verdict::Reject(Reason::RequestIdConflict, Vec::new()),
                lease if lease.state == ModelState::Held && !covers(&lease.asked, &asked) => {
                    Verdict::Reject(Reason::RequestIdConflict, Vec::new())
                }
                lease if lease.state == ModelState::Held => Verdict::Open(place, Box::new(lease.again())),
                lease => Verdict::Ended(Box::new(receipt(lease, true))),
            };
        }
        let mut chosen = self.choose(who, request, now);
        if matches!(chosen, Chosen::Short(_)) && !preview && !self.sweep(now).is_empty() {
            chosen = self.choose(who, request, now);
        }
        let form = match chosen {
            Chosen::Form(form) => *form,
            Chosen::Short(lacks) => {
                let (reason, shorts, queues) = told(&lacks).expect("something is short");
                return if queues { Verdict::Queue(reason, shorts) } else { Verdict::Reject(reason, shorts) };
            }
        };
        if preview {
            return Verdict::Admit(None, Box::new(form.agreed));
        }
        let holds = self.take(&form, now);
        let Form { agreed, named, price, limits, .. } = form;
        let lease = ModelLease {
            who: who.clone(),
            asked,
            agreed: agreed.clone(),
            named,
            price,
            limits,
            first: holds.len(),
            holds,
            state: ModelState::Held,
            sent: false,
            deadline: now.mono + plan.lease_ttl,
            life: plan.lease_ttl,
            age: plan.unresolved_ttl,
            taught: false,
        };
        self.leases.push(lease);
        let place = self.leases.len() - 1;
        if let Some(id) = &request.id {
            self.ids.insert(id.clone(), place);
        }
        Verdict::Admit(Some(place), Box::new(agreed))
    }

    fn asked(&self, request: &Request) -> Asked {
        let (input, output) = (input_of(request), request.max_output_tokens.expect("a stated output"));
        let price = self.plan.models[&request.model].price.clone();
        Asked {
            model: request.model.clone(),
            input,
            output,
            choices: request.choices,
            stream: request.stream,
            calls: calls_of(request),
            worst: worst_cost(&price, input, output * request.choices),
        }
    }

    fn account(&mut self, applied: &Applied, now: Now) -> &mut Account {
        self.accounts.entry(applied.key.clone()).or_insert_with(|| Account::new(&applied.limit, now))
    }

    /// What a form asks of a limit: the worst case or the learned length, or where it is to adapt the worst case if there is not
    /// room for that and a quarter of the limit.
    fn amount(&mut self, form: &Form, applied: &Applied, now: Now) -> u64 {
        let limit = &applied.limit;
        let (worst, likely) = (form.worst.get(limit.meter), form.likely.get(limit.meter));
        match limit.hold {
            Hold::WorstCase => worst,
            Hold::P95 => likely,
            Hold::Adaptive => {
                let left = hard(limit).saturating_sub(self.account(applied, now).used(limit, now));
                if left < worst + hard(limit) / 4 { worst } else { likely }
            }
        }
    }

    /// The limits without room for a form, each with when it has.
    fn lacks(&mut self, form: &Form, now: Now) -> Vec<Lack> {
        let asked: Vec<u64> = form.limits.iter().map(|applied| self.amount(form, applied, now)).collect();
        self.short(&form.limits, &asked, now)
    }

    /// The limits without room for what is asked of each.
    fn short(&mut self, limits: &[Applied], asked: &[u64], now: Now) -> Vec<Lack> {
        let mut short = Vec::new();
        for (place, (applied, asked)) in limits.iter().zip(asked).enumerate() {
            let (limit, asked) = (&applied.limit, *asked);
            let account = self.account(applied, now);
            if let Some(wait) = account.lacks(limit, asked, now) {
                let used = account.used(limit, now);
                short.push(Lack { place, applied: applied.clone(), used, asked, wait });
            }
        }
        short
    }

    fn take(&mut self, form: &Form, now: Now) -> Vec<ModelHold> {
        let asked: Vec<u64> = form.limits.iter().map(|applied| self.amount(form, applied, now)).collect();
        form.limits.iter().zip(asked).map(|(applied, asked)| self.take_from(applied, asked, now)).collect()
    }

    fn take_from(&mut self, applied: &Applied, amount: u64, now: Now) -> ModelHold {
        let (meter, key) = (applied.limit.meter, applied.key.clone());
        let mark = self.account(applied, now).take(&applied.limit, amount, now);
        ModelHold { key, meter, amount, now: amount, mark }
    }

    /// Raises what a lease holds to so many output tokens in all.
    ///
    /// # Errors
    /// The reason, with the limits that have no room.
    pub fn cover(&mut self, place: usize, output: u64, now: Now) -> Result<(), (Reason, Vec<Short>)> {
        let lease = &self.leases[place];
        if lease.state != ModelState::Held {
            return Err((Reason::RequestAlreadyEnded, Vec::new()));
        }
        // What the lease is to hold in all, less what it holds: limit by limit.
        let to = amounts(lease.asked.input, output, false, 0, worst_cost(&lease.price, lease.asked.input, output));
        let counts_output = |meter| matches!(meter, Meter::Output | Meter::Total | Meter::Money);
        // A lease is extended on the limits that it was admitted on.
        let more = lease.limits.iter().filter(|applied| counts_output(applied.limit.meter)).map(|applied| {
            let held = lease.held_on(&applied.key);
            (applied.clone(), to.get(applied.limit.meter).saturating_sub(held))
        });
        let (limits, asked): (Vec<_>, Vec<_>) = more.filter(|(_, more)| *more > 0).unzip();
        if let Some((reason, shorts, _)) = told(&self.short(&limits, &asked, now)) {
            return Err((reason, shorts));
        }
        for (applied, asked) in limits.iter().zip(asked) {
            let hold = self.take_from(applied, asked, now);
            let lease = &mut self.leases[place];
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

    /// What somebody has heard of a lease: that it has ended, if it has. The length of its answer is learned once.
    pub fn heard(&mut self, place: usize) {
        let lease = &mut self.leases[place];
        let ModelState::Settled(settled) = &lease.state else { return };
        let Some(usage) = settled.usage.as_ref().filter(|usage| usage.requests > 0) else { return };
        if !std::mem::replace(&mut lease.taught, true) && lease.agreed.output > 0 {
            let length = (usage.output_text + usage.output_reasoning) / lease.asked.choices;
            let speaker = (lease.who.tenant().into(), lease.agreed.model.clone());
            self.lengths.entry(speaker).or_default().see(length);
        }
    }

    /// Whether a lease is held.
    pub fn is_held(&self, place: usize) -> bool {
        self.leases[place].state == ModelState::Held
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
                let calls = if usage.requests > 0 { lease.asked.calls } else { 0 };
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

    /// Leases whose usage is unknown.
    pub fn unresolved(&self) -> usize {
        self.leases.iter().filter(|lease| matches!(lease.state, ModelState::Unresolved { .. })).count()
    }

    /// How much of every limit of a principal is in use, over all models of its tenant: scope, limit, hard amount, used.
    pub fn balances(&mut self, who: &Principal, now: Now) -> Vec<Used> {
        let plan = self.plan.clone();
        let Some(tenant) = plan.tenants.get(who.tenant()) else { return Vec::new() };
        let mut all: Vec<Applied> = tenant.models.keys().flat_map(|model| applied(&plan, who, model, None)).collect();
        all.sort_by(|a, b| a.key.cmp(&b.key));
        all.dedup_by(|a, b| a.key == b.key);
        self.used(&all, now)
    }

    /// The same of one run of its tenant.
    pub fn run_balances(&mut self, who: &Principal, run: &str, now: Now) -> Vec<Used> {
        let plan = self.plan.clone();
        let Some(model) = plan.tenants.get(who.tenant()).and_then(|tenant| tenant.models.keys().next()) else {
            return Vec::new();
        };
        let mut all = applied(&plan, who, model, Some(run));
        all.retain(|applied| applied.limit.window == Window::Run);
        all.sort_by(|a, b| a.key.cmp(&b.key));
        self.used(&all, now)
    }

    fn used(&mut self, all: &[Applied], now: Now) -> Vec<Used> {
        let used = |applied: &Applied| {
            let used = self.account(applied, now).used(&applied.limit, now);
            (applied.key.0.clone(), applied.key.1.clone(), hard(&applied.limit), used)
        };
        all.iter().map(used).collect()
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

/// Whether a lease that was opened for one request has room for another: for no more than was asked, and at no higher price
/// where it is another model's.
fn covers(first: &Asked, again: &Asked) -> bool {
    again.input <= first.input
        && again.output <= first.output
        && (again.model == first.model || again.worst <= first.worst)
        && again.choices <= first.choices
        && (first.stream || !again.stream)
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
