//! Wiring: a plan bound to the accounts of a store.
//!
//! Floor 3. Invariant: the limits of one principal and model are found once and remembered; the same scope, meter and
//! window is the same account whatever plan is in force, so that a reload refills nothing.

use std::collections::HashMap;
use std::hash::{Hash, Hasher};
use std::ops::{Deref, Range};
use std::sync::Arc;

use equivalent::Equivalent;

use super::Shared;
use super::common::Common;
use super::pools::{Asked, Pools};
use crate::account::{Account, Clause, Column, Lineup, Shape};
use crate::lease::Deal;
use crate::meter::{Budget, Gauge, Rate, Rule, Span};
use crate::policy::plan::{
    AgentRuns, Ceilings, Hold, Limit, Mode, ModelPlan, OnExceed, Plan, TenantModel, TenantPlan, Window,
};
use crate::policy::price::Price;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::store::{AccountsFull, Store};
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::tally::Tally;
use crate::time::{Now, Period, SECOND};
use crate::units::Meter;

/// The name of a model's group where the policy does not name the model.
pub(super) const ANY_MODEL: &str = "*";

/// Rosters remembered before the oldest revision of them all is forgotten at once.
const MAX_ROSTERS: usize = 1 << 16;

/// Routes remembered before all are forgotten at once.
const MAX_ROUTES: usize = 1 << 17;

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

    /// A lane's tally. Lanes are the policy's, so there are few.
    pub(super) fn lane(&self, lane: &Arc<str>) -> Arc<Tally> {
        self.by_lane.pin().get_or_insert_with(lane.clone(), Arc::default).clone()
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
#[derive(Clone, PartialEq, Eq)]
pub(super) struct Term {
    pub(super) on_exceed: OnExceed,
    pub(super) soft: bool,
    /// Percentage of the hard amount whose crossing is told.
    pub(super) alert_percent: Option<u8>,
    /// Whether the scope is wider than the tenant.
    pub(super) shared: bool,
    /// Window in nanoseconds where it has a fixed length.
    pub(super) window: Option<u64>,
}

/// All that applies to one principal and model: whose it is, and the rules that it has in common with others.
pub(super) struct Roster {
    rules: Arc<Rules>,
    pub(super) tenant: TenantPlan,
    pub(super) lineup: Arc<Lineup>,
    pub(super) tally: Arc<Tally>,
    /// 1 once one of its accounts was found to have been dropped at rest, and bound anew elsewhere: it has to be made
    /// again. Set by whoever finds that, read by all.
    moved: AtomicU32,
}

/// What rosters of equal limits have in common.
#[derive(Clone, PartialEq)]
pub(super) struct Rules {
    /// The model as its policy names it; `None` for one that it does not name.
    pub(super) model: Option<Arc<ModelPlan>>,
    pub(super) group: Arc<str>,
    pub(super) price: Option<Arc<Price>>,
    /// Whether the policy names the key, or one above it, with limits.
    key_is_limited: bool,
    /// Ceilings of one choice: the model's own.
    pub(super) model_ceilings: Ceilings,
    /// Ceilings of a request: the tenant's, and the tenant's for this model.
    pub(super) ceilings: [Ceilings; 2],
    shape: Arc<Shape>,
    /// In the order of the lineup.
    pub(super) terms: Box<[Term]>,
    pub(super) has_money: bool,
    /// Whether a limit holds money by the learned length of the output.
    pub(super) money_by_length: bool,
    /// Whether a limit has a soft amount or a percentage to tell of.
    pub(super) alerts: bool,
    /// Wall times between which no override starts or ends: outside, the roster has to be made anew.
    holds: Range<u64>,
    /// Wall times between which the periods of its limits are those of the lineup.
    periods: Range<u64>,
}

impl Eq for Rules {}

/// By what tells most of them apart.
impl Hash for Rules {
    fn hash<H: Hasher>(&self, state: &mut H) {
        (&self.group, self.key_is_limited, self.holds.start, &self.shape).hash(state);
    }
}

impl Deref for Roster {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        &self.rules
    }
}

/// The way of one principal's requests for one model in one lane.
pub(super) struct Route {
    pub(super) deal: Arc<Deal>,
    pub(super) roster: Arc<Roster>,
}

/// Why there is no roster.
pub(super) enum NoRoster {
    TenantUnknown,
    ModelNotAllowed,
    AccountsFull,
    /// The key, or one of its parents, no longer stands.
    Key(Reason),
}

/// Why there is no route.
pub(super) enum NoRoute {
    Roster(NoRoster),
    /// The lane that is asked for is none of the policy's.
    Lane,
}

impl From<NoRoster> for NoRoute {
    fn from(why: NoRoster) -> NoRoute {
        NoRoute::Roster(why)
    }
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

struct RouteKey {
    who: Principal,
    model: Arc<str>,
    lane: Option<Arc<str>>,
}

struct RouteRef<'a> {
    who: &'a Principal,
    model: &'a str,
    lane: Option<&'a str>,
}

impl Hash for RouteRef<'_> {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.who.quick_hash().hash(state);
        self.model.hash(state);
        self.lane.hash(state);
    }
}

impl RouteKey {
    fn by_ref(&self) -> RouteRef<'_> {
        RouteRef { who: &self.who, model: &self.model, lane: self.lane.as_deref() }
    }
}

impl Hash for RouteKey {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.by_ref().hash(state);
    }
}

impl PartialEq for RouteKey {
    fn eq(&self, other: &RouteKey) -> bool {
        self.by_ref().equivalent(other)
    }
}

impl Eq for RouteKey {}

impl Equivalent<RouteKey> for RouteRef<'_> {
    fn equivalent(&self, key: &RouteKey) -> bool {
        *self.who == key.who && *self.model == *key.model && self.lane == key.lane.as_deref()
    }
}

/// A plan and all that has been bound for it.
pub(super) struct Wiring {
    pub(super) plan: Arc<Plan>,
    pub(super) digest: Arc<str>,
    pub(super) pools: Pools,
    rosters: papaya::HashMap<Key, Arc<Roster>, ahash::RandomState>,
    rules: Common<Rules>,
    /// Of principals and the models that the policy names.
    routes: papaya::HashMap<RouteKey, Arc<Route>, ahash::RandomState>,
}

impl Wiring {
    pub(super) fn new(
        plan: Arc<Plan>,
        digest: Arc<str>,
        backends: &HashMap<Arc<str>, Asked>,
        before: Option<&Wiring>,
        held_in_pools: &Arc<AtomicU64>,
    ) -> Wiring {
        let pools = Pools::of(&plan, backends, before.map(|before| &before.pools), held_in_pools);
        Wiring {
            plan,
            digest,
            pools,
            rosters: papaya::HashMap::default(),
            rules: Common::default(),
            routes: papaya::HashMap::default(),
        }
    }

    /// The way of a principal's requests for a model, in the lane that is asked for or in its own; remembered from the
    /// first time on.
    pub(super) fn route<S: Store>(
        &self,
        shared: &Shared<S>,
        who: &Principal,
        model: &Arc<str>,
        lane: Option<&Arc<str>>,
        run: Option<&str>,
        now: Now,
    ) -> Result<Arc<Route>, NoRoute> {
        let lane_asked = lane.map(|lane| &**lane);
        let key = RouteRef { who, model, lane: lane_asked };
        let routes = self.routes.pin();
        if run.is_none()
            && let Some(route) = routes.get(&key).filter(|route| route.roster.is_of(now.wall))
            && self.stands(shared, who, model, &route.roster, now)?
        {
            return Ok(route.clone());
        }
        let roster = self.roster(shared, who, model, run, now)?;
        let lane = self.lane(who, &roster, lane)?;
        let tallies = [roster.tally.clone(), shared.tallies.lane(&lane)];
        let deal = Arc::new(Deal {
            principal: who.clone(),
            model: model.clone(),
            group: roster.group.clone(),
            lane,
            price: roster.price.clone(),
            ttl: self.plan.lease_ttl,
            unresolved_ttl: self.plan.unresolved_ttl,
            lineup: roster.lineup.clone(),
            tallies,
        });
        let route = Arc::new(Route { deal, roster });
        // Names that the policy does not have are the callers' to make up: they are not remembered.
        if run.is_none() && *route.roster.group != *ANY_MODEL {
            if routes.len() >= MAX_ROUTES {
                routes.clear();
            }
            let key = RouteKey { who: who.clone(), model: model.clone(), lane: lane_asked.map(Arc::from) };
            routes.insert(key, route.clone());
        }
        Ok(route)
    }

    /// Whether a remembered roster is still that of a key: what was done to keys at run time counts at once.
    fn stands<S: Store>(
        &self,
        shared: &Shared<S>,
        who: &Principal,
        model: &str,
        roster: &Roster,
        now: Now,
    ) -> Result<bool, NoRoster> {
        let Some(key) = who.key() else { return Ok(true) };
        Ok(shared.keyring.limited(&roster.tenant, key, model, now)?.is_some() == roster.key_is_limited)
    }

    /// The lane that is asked for, the principal's, its tenant's, or the policy's first.
    fn lane(&self, who: &Principal, roster: &Roster, asked: Option<&Arc<str>>) -> Result<Arc<str>, NoRoute> {
        let plan = &self.plan;
        if let Some(asked) = asked {
            return match plan.lanes.get_key_value(asked) {
                Some((name, _)) => Ok(name.clone()),
                None if plan.lanes.is_empty() && *asked == plan.default_lane => Ok(plan.default_lane.clone()),
                None => Err(NoRoute::Lane),
            };
        }
        let own = who.lane().and_then(|lane| plan.lanes.get_key_value(lane)).map(|(name, _)| name);
        Ok(own.or(roster.tenant.lane.as_ref()).unwrap_or(&plan.default_lane).clone())
    }

    /// Forgets a route whose accounts were found to have moved.
    pub(super) fn forget_route(&self, route: &Route) {
        let Route { deal, roster } = route;
        let lane = |lane| RouteRef { who: &deal.principal, model: &deal.model, lane };
        let routes = self.routes.pin();
        routes.remove(&lane(None));
        routes.remove(&lane(Some(&*deal.lane)));
        // ORDERING: relaxed; who still goes there finds the accounts gone and binds them anew for itself.
        roster.moved.store(1, Ordering::Relaxed);
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
        let known = rosters.get(&key).filter(|roster| roster.holds.contains(&now.wall) && !roster.has_moved());
        let roster = match known {
            Some(roster) if roster.periods.contains(&now.wall) => return Ok(roster.clone()),
            Some(roster) => Arc::new(self.in_period_of(roster, now)),
            None => Arc::new(self.make(shared, tenant, group.clone(), allowed, &key, now)?),
        };
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
        tenant: &TenantPlan,
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
        let mut build = Build { store, now, limits: Vec::new(), terms: Vec::new(), holds: 0..u64::MAX };
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
        let Build { limits, terms, holds, .. } = build;
        let source = upstream.as_ref().or(model.as_ref());
        let price = model.as_ref().and_then(|m| m.price.clone()).or_else(|| source.and_then(|m| m.price.clone()));
        let lineup = Lineup::new(limits);
        let clauses = || lineup.limits();
        let rules = self.rules.share(Rules {
            periods: periods(&lineup),
            key_is_limited: key.key.is_some(),
            alerts: terms.iter().any(|term| term.soft || term.alert_percent.is_some()),
            money_by_length: clauses().any(|limit| limit.meter == Meter::Money && limit.hold != Hold::WorstCase),
            has_money: clauses().any(|limit| limit.meter == Meter::Money),
            price,
            model_ceilings: merge(model.as_ref().map(|m| m.ceilings), upstream.as_ref().map(|m| m.ceilings)),
            ceilings: [tenant.ceilings, allowed.ceilings],
            shape: lineup.shape().clone(),
            terms: terms.into(),
            model,
            group,
            holds,
        });
        let tally = tallies.model(&tenant.name, &rules.group);
        Ok(Roster::of(rules, lineup, tenant.clone(), tally))
    }

    /// A roster in the periods of another moment. The accounts are known, so the store is not asked.
    fn in_period_of(&self, roster: &Roster, now: Now) -> Roster {
        let lineup = roster.lineup.in_periods_of(now.wall);
        let (periods, shape) = (periods(&lineup), lineup.shape().clone());
        let rules = self.rules.share(Rules { periods, shape, ..(*roster.rules).clone() });
        Roster::of(rules, lineup, roster.tenant.clone(), roster.tally.clone())
    }

    /// Forgets what is remembered of principals and models.
    pub(super) fn forget(&self) {
        self.routes.pin().clear();
        self.rosters.pin().clear();
    }

    /// The price of the plan at which an ask is dearest, for models whose price is unknown; `None` in a plan without prices.
    pub(super) fn dearest(&self, ask: &crate::policy::price::Ask<'_>) -> Option<Arc<Price>> {
        let prices = self.plan.models.values().filter_map(|model| model.price.as_ref());
        prices.max_by_key(|price| price.worst_case(ask)).cloned()
    }
}

/// The wall times in which the periods of all of a lineup's limits last.
fn periods(lineup: &Lineup) -> Range<u64> {
    let dated = lineup.limits().filter(|limit| matches!(limit.column.window, Window::Fixed(_)));
    dated.fold(0..u64::MAX, |all, limit| all.start.max(limit.period.start)..all.end.min(limit.period.end))
}

impl Roster {
    fn of(rules: Arc<Rules>, lineup: Lineup, tenant: TenantPlan, tally: Arc<Tally>) -> Roster {
        let lineup = Arc::new(lineup.with_shape(rules.shape.clone()));
        Roster { rules, tenant, lineup, tally, moved: AtomicU32::new(0) }
    }

    fn has_moved(&self) -> bool {
        // ORDERING: relaxed, see `forget_route`.
        self.moved.load(Ordering::Relaxed) != 0
    }

    fn is_of(&self, wall: u64) -> bool {
        !self.has_moved() && self.holds.contains(&wall) && self.periods.contains(&wall)
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

#[derive(Clone, Copy, PartialEq, Eq)]
enum Scope {
    /// Wider than the tenant.
    Shared,
    Own,
    /// Comes and goes with the callers' names.
    Passing,
}

struct Build<'a, S> {
    store: &'a S,
    now: Now,
    limits: Vec<(Account, Arc<str>, Clause)>,
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
        let from = self.limits.len();
        let mut made: Vec<(Account, Clause, Term)> = Vec::with_capacity(limits.len());
        for ((limit, column), account) in limits.iter().zip(columns).zip(accounts) {
            let clause = Clause {
                limit: limit.name.clone(),
                meter: limit.meter,
                column,
                rule: self.rule(limit),
                hold: limit.hold,
                period: match &limit.window {
                    Window::Fixed(calendar) => calendar.period(self.now.wall),
                    Window::Rolling { .. } | Window::Held | Window::Run => Period::default(),
                },
                shadow: limit.mode == Mode::Shadow,
                soft: limit.soft,
                passing: scope == Scope::Passing,
            };
            made.push((account, clause, self.term(limit, scope)));
        }
        // Limits of one row have to stand together; a scope of more than one row has been bound in any order.
        made.sort_by_key(|(account, ..)| account.row);
        for (account, clause, term) in made {
            self.limits.push((account, name.clone(), clause));
            self.terms.push(term);
        }
        debug_assert!(self.limits.len() - from == limits.len());
        Ok(())
    }

    fn term(&self, limit: &Limit, scope: Scope) -> Term {
        let window = match &limit.window {
            Window::Rolling { nanos } => Some(*nanos),
            Window::Fixed(calendar) => match calendar.unit() {
                crate::time::Unit::Seconds(seconds) => Some(seconds as u64 * SECOND),
                _ => None,
            },
            Window::Held | Window::Run => None,
        };
        Term {
            on_exceed: limit.on_exceed,
            soft: limit.soft.is_some(),
            alert_percent: limit.alert_percent,
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
