//! Wiring: a plan bound to the accounts of a store.
//!
//! Floor 3. Invariant: the limits of one principal and model are found once and remembered; the same scope, meter and
//! window is the same account whatever plan is in force, so that a reload refills nothing.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::Range;
use std::sync::Arc;

use equivalent::Equivalent;

use super::Shared;
use super::pools::{Asked, Pools};
use super::tally::Tally;
use crate::account::{Bound, Column, Lineup};
use crate::meter::{Budget, Gauge, Rate, Rule, Span};
use crate::policy::plan::{
    AgentRuns, Ceilings, Hold, Limit, Mode, ModelPlan, OnExceed, Plan, TenantModel, TenantPlan, Window,
};
use crate::policy::price::Price;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::store::{AccountsFull, Store};
use crate::sync::ArcCell;
use crate::time::{Calendar, Now, Period, SECOND};
use crate::units::Meter;

/// The name of a model's group where the policy does not name the model.
pub(super) const ANY_MODEL: &str = "*";

/// Rosters remembered before the oldest revision of them all is forgotten at once.
const MAX_ROSTERS: usize = 1 << 16;

/// What is counted, for all plans alike.
#[derive(Default)]
pub(super) struct Tallies {
    /// By tenant and model group.
    pub(super) models: papaya::HashMap<(Arc<str>, Arc<str>), Arc<Tally>, ahash::RandomState>,
    /// By lane.
    pub(super) by_lane: papaya::HashMap<Arc<str>, Arc<Tally>, ahash::RandomState>,
    /// Refusals that belong to no tenant and model of the policy.
    pub(super) strangers: Arc<Tally>,
}

impl Tallies {
    pub(super) fn model(&self, tenant: &Arc<str>, group: &Arc<str>) -> Arc<Tally> {
        self.models.pin().get_or_insert_with((tenant.clone(), group.clone()), Arc::default).clone()
    }

    /// Counts in a lane's tally. Lanes are the policy's, so there are few.
    pub(super) fn in_lane(&self, lane: &Arc<str>, count: impl FnOnce(&Tally)) {
        count(self.by_lane.pin().get_or_insert_with(lane.clone(), Arc::default));
    }

    /// The tally of a lease's tenant and model, if there is one.
    pub(super) fn find(&self, tenant: &str, group: &str) -> Option<Arc<Tally>> {
        self.models.pin().get(&PairRef(tenant, group)).cloned()
    }
}

/// A pair of names, to look one up without making it.
#[derive(Hash)]
pub(super) struct PairRef<'a>(pub(super) &'a str, pub(super) &'a str);

impl Equivalent<(Arc<str>, Arc<str>)> for PairRef<'_> {
    fn equivalent(&self, key: &(Arc<str>, Arc<str>)) -> bool {
        *self.0 == *key.0 && *self.1 == *key.1
    }
}

/// What the gate knows of one limit beside its account.
pub(super) struct Term {
    pub(super) hold: Hold,
    pub(super) on_exceed: OnExceed,
    pub(super) soft: bool,
    /// Percentage of the hard amount whose crossing is told.
    pub(super) alert_percent: Option<u8>,
    /// For a budget; shared by the limits of the same calendar.
    calendar: Option<Arc<Dated>>,
    /// Whether the scope is wider than the tenant.
    pub(super) shared: bool,
    /// Window in nanoseconds where it has a fixed length.
    pub(super) window: Option<u64>,
}

/// All that applies to one principal and model.
pub(super) struct Roster {
    pub(super) tenant: Arc<TenantPlan>,
    /// The model as its policy names it; `None` for one that it does not name.
    pub(super) model: Option<Arc<ModelPlan>>,
    pub(super) group: Arc<str>,
    pub(super) price: Option<Arc<Price>>,
    /// Ceilings of one choice: the model's own.
    pub(super) model_ceilings: Ceilings,
    /// Ceilings of a request: the tenant's, and the tenant's for this model.
    pub(super) ceilings: [Ceilings; 2],
    pub(super) lineup: Arc<Lineup>,
    /// In the order of the lineup.
    pub(super) terms: Box<[Term]>,
    pub(super) has_money: bool,
    /// Whether a limit has a soft amount or a percentage to tell of.
    pub(super) alerts: bool,
    pub(super) tally: Arc<Tally>,
    /// Wall times between which no override starts or ends: outside, the roster has to be made anew.
    holds: Range<u64>,
}

/// Why there is no roster.
pub(super) enum NoRoster {
    TenantUnknown,
    ModelNotAllowed,
    AccountsFull,
    /// The key, or one of its parents, no longer stands.
    Key(Reason),
}

impl From<AccountsFull> for NoRoster {
    fn from(_: AccountsFull) -> NoRoster {
        NoRoster::AccountsFull
    }
}

#[derive(PartialEq, Eq, Hash)]
struct Key {
    tenant: Arc<str>,
    model: Arc<str>,
    app: Option<Arc<str>>,
    key: Option<Arc<str>>,
    user: Option<Arc<str>>,
    run: Option<Arc<str>>,
}

struct KeyRef<'a> {
    tenant: &'a str,
    model: &'a str,
    app: Option<&'a str>,
    key: Option<&'a str>,
    user: Option<&'a str>,
    run: Option<&'a str>,
}

impl Hash for KeyRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.tenant.hash(state);
        self.model.hash(state);
        self.app.hash(state);
        self.key.hash(state);
        self.user.hash(state);
        self.run.hash(state);
    }
}

impl Equivalent<Key> for KeyRef<'_> {
    fn equivalent(&self, key: &Key) -> bool {
        *self.tenant == *key.tenant
            && *self.model == *key.model
            && self.app == key.app.as_deref()
            && self.key == key.key.as_deref()
            && self.user == key.user.as_deref()
            && self.run == key.run.as_deref()
    }
}

/// A calendar with the period that it last gave.
pub(super) struct Dated {
    calendar: Arc<Calendar>,
    period: ArcCell<Period>,
}

impl Dated {
    fn new(calendar: &Arc<Calendar>) -> Dated {
        Dated { calendar: calendar.clone(), period: ArcCell::empty() }
    }
}

/// A plan and all that has been bound for it.
pub(super) struct Wiring {
    pub(super) plan: Arc<Plan>,
    pub(super) digest: Arc<str>,
    pub(super) pools: Pools,
    rosters: papaya::HashMap<Key, Arc<Roster>, ahash::RandomState>,
    calendars: Vec<Arc<Dated>>,
}

impl Wiring {
    pub(super) fn new(
        plan: Arc<Plan>,
        digest: Arc<str>,
        backends: &HashMap<Arc<str>, Asked>,
        before: Option<&Wiring>,
    ) -> Wiring {
        let mut calendars: Vec<Arc<Dated>> = Vec::new();
        for calendar in every_limit(&plan).filter_map(|limit| match &limit.window {
            Window::Fixed(calendar) => Some(calendar),
            Window::Rolling { .. } | Window::Held | Window::Run => None,
        }) {
            if !calendars.iter().any(|dated| dated.calendar == *calendar) {
                calendars.push(Arc::new(Dated::new(calendar)));
            }
        }
        let pools = Pools::of(&plan, backends, before.map(|before| &before.pools));
        Wiring { plan, digest, pools, rosters: papaya::HashMap::default(), calendars }
    }

    /// What applies to a principal, a model and a run; remembered from the first time on.
    pub(super) fn roster<S: Store>(
        &self,
        shared: &Shared<S>,
        who: &Principal,
        model: &str,
        run: Option<&str>,
        now: Now,
    ) -> Result<Arc<Roster>, NoRoster> {
        let tenant = self.plan.tenants.get(who.tenant()).ok_or(NoRoster::TenantUnknown)?;
        let key = match who.key() {
            Some(key) => shared.keyring.limited(tenant, key, model, now)?,
            None => None,
        };
        let (group, allowed) = match tenant.models.get_key_value(model) {
            Some((name, allowed)) => (name.clone(), allowed),
            None => {
                let any = tenant.any_model.as_ref().ok_or(NoRoster::ModelNotAllowed)?;
                let named = self.plan.models.get_key_value(model).map(|(name, _)| name.clone());
                (named.unwrap_or_else(|| ANY_MODEL.into()), any)
            }
        };
        // Apps and keys that the plan does not limit, and users of a tenant that limits none, need no roster of their own.
        let key = KeyRef {
            tenant: &tenant.name,
            model: &group,
            app: who.app().filter(|app| tenant.apps.contains_key(*app)),
            key,
            user: (!tenant.users.is_empty()).then(|| who.user().unwrap_or("")),
            run: run.filter(|_| tenant.agent_runs != AgentRuns::default()),
        };
        let rosters = self.rosters.pin();
        if let Some(roster) = rosters.get(&key).filter(|roster| roster.holds.contains(&now.wall)) {
            return Ok(roster.clone());
        }
        let roster = Arc::new(self.make(shared, tenant, group.clone(), allowed, &key, now)?);
        if rosters.len() >= MAX_ROSTERS {
            rosters.clear();
        }
        let key = Key {
            tenant: tenant.name.clone(),
            model: roster.group.clone(),
            app: key.app.map(Arc::from),
            key: key.key.map(Arc::from),
            user: key.user.map(Arc::from),
            run: key.run.map(Arc::from),
        };
        rosters.insert(key, roster.clone());
        Ok(roster)
    }

    fn make<S: Store>(
        &self,
        shared: &Shared<S>,
        tenant: &Arc<TenantPlan>,
        group: Arc<str>,
        allowed: &Arc<TenantModel>,
        key: &KeyRef<'_>,
        now: Now,
    ) -> Result<Roster, NoRoster> {
        let Shared { store, tallies, keyring, .. } = shared;
        let plan = &self.plan;
        let model = plan.models.get(&group).cloned();
        let upstream = model.as_ref().and_then(|m| plan.models.get(m.upstream.as_ref()?)).cloned();
        let name = &*part(&tenant.name);
        let mut build = Build { wiring: self, store, now, bounds: Vec::new(), terms: Vec::new(), holds: 0..u64::MAX };
        // The order of scopes, widest first, is the order in which every reservation takes them.
        build.scope("global".into(), &plan.global, Scope::Shared)?;
        for of in [&upstream, &model].into_iter().flatten() {
            build.scope(format!("model:{}", part(&of.name)), &of.limits, Scope::Shared)?;
        }
        if let Some(center) = &tenant.cost_center
            && let Some(limits) = plan.cost_centers.get(center)
        {
            build.scope(format!("cost_center:{}", part(center)), limits, Scope::Shared)?;
        }
        build.scope(format!("tenant:{name}"), &tenant.limits, Scope::Own)?;
        build.scope(format!("tenant:{name}/model:{}", part(&group)), &allowed.limits, Scope::Own)?;
        if let Some(app) = key.app {
            build.scope(format!("tenant:{name}/app:{}", part(app)), &tenant.apps[app], Scope::Own)?;
        }
        if let Some(key) = key.key {
            for key in keyring.line(tenant, key).iter().rev() {
                build.scope(format!("tenant:{name}/key:{}", part(&key.id)), &key.limits, Scope::Own)?;
            }
        }
        if let Some(user) = key.user {
            build.scope(format!("tenant:{name}/user:{}", part(user)), &tenant.users, Scope::Passing)?;
        }
        if let Some(run) = key.run {
            build.scope(format!("tenant:{name}/run:{}", part(run)), &tenant.agent_runs.limits(), Scope::Passing)?;
        }
        let Build { bounds, terms, holds, .. } = build;
        let source = upstream.as_ref().or(model.as_ref());
        let price = model.as_ref().and_then(|m| m.price.clone()).or_else(|| source.and_then(|m| m.price.clone()));
        Ok(Roster {
            alerts: terms.iter().any(|term| term.soft || term.alert_percent.is_some()),
            has_money: bounds.iter().any(|bound| bound.meter == Meter::Money),
            price,
            model_ceilings: merge(model.as_ref().map(|m| m.ceilings), upstream.as_ref().map(|m| m.ceilings)),
            ceilings: [tenant.ceilings, allowed.ceilings],
            lineup: Arc::new(Lineup::new(bounds)),
            terms: terms.into(),
            tally: tallies.model(&tenant.name, &group),
            tenant: tenant.clone(),
            model,
            group,
            holds,
        })
    }

    /// Forgets what is remembered of principals and models.
    pub(super) fn forget(&self) {
        self.rosters.pin().clear();
    }

    /// The present period of each limit's calendar.
    pub(super) fn period(&self, term: &Term, now: Now) -> Period {
        let Some(dated) = &term.calendar else { return Period::default() };
        let known = dated.period.with(|period| period.map(|period| **period));
        match known.filter(|period| (period.start..period.end).contains(&now.wall)) {
            Some(period) => period,
            None => {
                let period = dated.calendar.period(now.wall);
                dated.period.store(Some(Arc::new(period)));
                period
            }
        }
    }

    /// The price of the plan at which an ask is dearest, for models whose price is unknown; `None` in a plan without prices.
    pub(super) fn dearest(&self, ask: &crate::policy::price::Ask<'_>) -> Option<Arc<Price>> {
        let prices = self.plan.models.values().filter_map(|model| model.price.as_ref());
        prices.max_by_key(|price| price.worst_case(ask)).cloned()
    }
}

/// A name as a part of a scope's: with `/` escaped, so that no name can be taken for two.
fn part(name: &str) -> std::borrow::Cow<'_, str> {
    if name.contains(['/', '%']) { name.replace('%', "%25").replace('/', "%2F").into() } else { name.into() }
}

/// The smaller of each ceiling.
fn merge(a: Option<Ceilings>, b: Option<Ceilings>) -> Ceilings {
    let min = |x: Option<u64>, y: Option<u64>| match (x, y) {
        (Some(x), Some(y)) => Some(x.min(y)),
        (x, y) => x.or(y),
    };
    let (a, b) = (a.unwrap_or_default(), b.unwrap_or_default());
    Ceilings { context: min(a.context, b.context), input: min(a.input, b.input), output: min(a.output, b.output) }
}

/// Every limit of a plan, in no particular order.
fn every_limit(plan: &Plan) -> impl Iterator<Item = &Limit> {
    let tenants = plan.tenants.values().flat_map(|tenant| {
        let models = tenant.models.values().chain(&tenant.any_model).flat_map(|model| &model.limits);
        let keys = tenant.keys.values().flat_map(|key| &key.limits);
        let named = tenant.apps.values().flatten().chain(keys);
        tenant.limits.iter().chain(&tenant.users).chain(models).chain(named)
    });
    let centers = plan.cost_centers.values().flatten();
    plan.global.iter().chain(plan.models.values().flat_map(|model| &model.limits)).chain(centers).chain(tenants)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Wider than the tenant.
    Shared,
    Own,
    /// Comes and goes with the callers' names.
    Passing,
}

struct Build<'a, S> {
    wiring: &'a Wiring,
    store: &'a S,
    now: Now,
    bounds: Vec<Bound>,
    terms: Vec<Term>,
    holds: Range<u64>,
}

impl<S: Store> Build<'_, S> {
    fn scope(&mut self, name: String, limits: &[Limit], scope: Scope) -> Result<(), AccountsFull> {
        if limits.is_empty() {
            return Ok(());
        }
        let name: Arc<str> = name.into();
        let mut columns: Vec<Column> = Vec::with_capacity(limits.len());
        for limit in limits {
            let same = |c: &&Column| c.meter == limit.meter && c.window == limit.window;
            let nth = columns.iter().filter(same).count() as u8;
            columns.push(Column { meter: limit.meter, window: limit.window.clone(), nth });
        }
        let accounts = self.store.bind(&name, &columns, scope == Scope::Passing, self.now)?;
        let from = self.bounds.len();
        let mut made: Vec<(Bound, Term)> = Vec::with_capacity(limits.len());
        for ((limit, column), account) in limits.iter().zip(columns).zip(accounts) {
            let bound = Bound {
                account,
                scope: name.clone(),
                limit: limit.name.clone(),
                meter: limit.meter,
                column,
                rule: self.rule(limit),
                shadow: limit.mode == Mode::Shadow,
                soft: limit.soft,
                passing: scope == Scope::Passing,
            };
            made.push((bound, self.term(limit, scope)));
        }
        // Limits of one row have to stand together; a scope of more than one row has been bound in any order.
        made.sort_by_key(|(bound, _)| bound.account.row);
        let (bounds, terms): (Vec<_>, Vec<_>) = made.into_iter().unzip();
        self.bounds.extend(bounds);
        self.terms.extend(terms);
        debug_assert!(self.bounds.len() - from == limits.len());
        Ok(())
    }

    fn term(&self, limit: &Limit, scope: Scope) -> Term {
        let calendar = match &limit.window {
            Window::Fixed(calendar) => {
                let known = self.wiring.calendars.iter().find(|dated| dated.calendar == *calendar);
                // A key that was made at run time may have a calendar that the plan has not.
                Some(known.cloned().unwrap_or_else(|| Arc::new(Dated::new(calendar))))
            }
            Window::Rolling { .. } | Window::Held | Window::Run => None,
        };
        let window = match &limit.window {
            Window::Rolling { nanos } => Some(*nanos),
            Window::Fixed(calendar) => match calendar.unit() {
                crate::time::Unit::Seconds(seconds) => Some(seconds as u64 * SECOND),
                _ => None,
            },
            Window::Held | Window::Run => None,
        };
        Term {
            hold: limit.hold,
            on_exceed: limit.on_exceed,
            soft: limit.soft.is_some(),
            alert_percent: limit.alert_percent,
            calendar,
            shared: scope == Scope::Shared,
            window,
        }
    }

    /// The rule of a limit at this moment, with the last override in force.
    fn rule(&mut self, limit: &Limit) -> Rule {
        let (mut hard, mut burst) = (limit.hard, limit.burst);
        for over in &limit.overrides {
            let wall = self.now.wall;
            if (over.starts..over.expires).contains(&wall) {
                (hard, burst) = (over.hard, over.burst);
            }
            for edge in [over.starts, over.expires] {
                if edge <= wall {
                    self.holds.start = self.holds.start.max(edge);
                } else {
                    self.holds.end = self.holds.end.min(edge);
                }
            }
        }
        match &limit.window {
            Window::Rolling { nanos } => Rule::Rate(Rate::new(hard, *nanos, burst)),
            Window::Fixed(_) => Rule::Budget(Budget::new(hard, limit.window.amount_bits())),
            Window::Held => Rule::Gauge(Gauge::new(hard)),
            Window::Run if limit.meter == Meter::RunTime => Rule::Span(Span::new(hard.saturating_mul(SECOND))),
            Window::Run => Rule::Gauge(Gauge::lasting(hard)),
        }
    }
}

/// The names of tenants' models, sorted, that a hint may name.
pub(super) fn models_of(tenant: &TenantPlan) -> Vec<Arc<str>> {
    let mut names: Vec<Arc<str>> = tenant.models.keys().cloned().collect();
    names.sort_unstable();
    names
}
