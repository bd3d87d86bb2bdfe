//! Compiling: names looked up, layers merged, limits built, and the plan put together.
//!
//! Floor 1. Invariant: the work is linear in the document and in what the plan holds, and both are bounded.

use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::Arc;

use super::build::{Builder, MAX_COMPILED, Purpose};
use super::document::{Bundle, CeilingsDoc, Document, ModelDoc, Scope, TenantDoc, TenantModelDoc};
use super::error::{ErrorKind, Origin, Report};
use super::fields::Name;
use super::limits::merge;
use super::plan::{
    AgentRuns, Ceilings, Hold, LanePlan, Limit, ModelPlan, Plan, Priority, TenantKind, TenantModel, TenantPlan,
    TenantRules, Tenants,
};
use super::{acts, claims, keys};

/// The lane of a document without queues.
const LANE: &str = "interactive";
/// The longest wait of a lane that states none, in milliseconds.
const MAX_WAIT_MS: u64 = 10_000;
/// How long a lease lives without a heartbeat, in milliseconds, unless the settings say otherwise.
const LEASE_TTL_MS: u64 = 300_000;
/// After how long an unresolved lease is closed, in milliseconds, unless the settings say otherwise.
const UNRESOLVED_MS: u64 = 86_400_000;
const MILLI: u64 = 1_000_000;

/// Compiles a document. The plan means something only if nothing was reported.
pub(crate) fn compile(document: &Document, report: &mut Report) -> Plan {
    Compiler::new(document, report).plan()
}

/// A layer of a tenant's rules: defaults, a plan, or its own.
#[derive(Clone)]
struct Layer<'d> {
    bundle: &'d Bundle,
    models: HashMap<&'d str, &'d TenantModelDoc>,
}

impl<'d> Layer<'d> {
    fn new(bundle: &'d Bundle) -> Layer<'d> {
        Layer { bundle, models: bundle.models.iter().map(|(name, model)| (&*name.value, model)).collect() }
    }
}

/// The models that a tenant may use.
#[derive(Clone, Default)]
struct Allowed {
    named: HashMap<Arc<str>, Arc<TenantModel>>,
    any: Option<Arc<TenantModel>>,
}

pub(super) struct Compiler<'d, 'r> {
    document: &'d Document,
    pub(super) report: &'r mut Report,
    pub(super) builder: Builder,
    defaults: Layer<'d>,
    plans: HashMap<&'d str, Layer<'d>>,
    models: HashMap<&'d str, &'d ModelDoc>,
    lanes: HashSet<&'d str>,
    cost_centers: HashSet<&'d str>,
    /// Names of models where the document defines none.
    implied: BTreeSet<Arc<str>>,
    /// The rules of the tenants of each plan that say nothing of their own.
    of_plans: HashMap<Option<Arc<str>>, Arc<TenantRules>>,
    /// The tenants that have no keys and say nothing of their own, by label and cost centre.
    kinds: HashMap<[Option<Arc<str>>; 2], Arc<TenantKind>>,
    /// What plans allow in a zone, for their tenants that add nothing to it.
    shared: HashMap<(Option<Arc<str>>, Arc<str>), Allowed>,
    utc: Arc<str>,
}

impl<'d, 'r> Compiler<'d, 'r> {
    fn new(document: &'d Document, report: &'r mut Report) -> Compiler<'d, 'r> {
        let plans = document.plans.iter().flatten().map(|(name, bundle)| (&*name.value, Layer::new(bundle))).collect();
        let lanes: HashSet<&str> = match &document.queues {
            Some(queues) if !queues.is_empty() => queues.iter().map(|(name, _)| &*name.value).collect(),
            _ => HashSet::from([LANE]),
        };
        Compiler {
            document,
            report,
            builder: Builder::default(),
            defaults: Layer::new(&document.defaults),
            plans,
            models: document.models.iter().flatten().map(|(name, model)| (&*name.value, model)).collect(),
            lanes,
            cost_centers: document.cost_centers.iter().flatten().map(|(name, _)| &*name.value).collect(),
            implied: BTreeSet::new(),
            of_plans: HashMap::new(),
            kinds: HashMap::new(),
            shared: HashMap::new(),
            utc: "UTC".into(),
        }
    }

    fn plan(mut self) -> Plan {
        let document = self.document;
        let global = self.scope(&document.global);
        let centers = document.cost_centers.iter().flatten();
        let cost_centers = centers.map(|(name, scope)| (name.value.clone(), self.scope(scope))).collect();
        self.check_bundle(&document.defaults);
        self.check_layers(None);
        for (name, bundle) in document.plans.iter().flatten() {
            self.check_bundle(bundle);
            self.check_layers(Some(&name.value));
        }
        let mut tenants = Tenants::with_capacity(document.tenants.len());
        for (name, tenant) in &document.tenants {
            if self.builder.is_full() {
                break;
            }
            tenants.insert(self.tenant(name, tenant));
        }
        let keys = keys::by_digest(document, &tenants, self.report);
        let claims = document.claims.as_ref().map(|doc| claims::plan(doc, &tenants, &mut self));
        let degrade = acts::degrade(document, &mut self);
        // Whatever is changed for one tenant is copied for it: none is held here any more.
        self.of_plans.clear();
        self.kinds.clear();
        acts::overrides(document, &mut tenants, &mut self);
        if self.builder.is_full() {
            let message = format!("compiles into more than {MAX_COMPILED} tenants, limits and models of tenants");
            self.report.add(&Origin::default(), ErrorKind::TooLarge, message);
        }
        let (lanes, default_lane) = self.lanes();
        let settings = &document.settings;
        Plan {
            global,
            tenants,
            models: self.models(),
            cost_centers,
            keys,
            claims,
            lanes,
            default_lane,
            degrade,
            unknown_price: settings.unknown_price.unwrap_or_default(),
            upstream_failure: settings.upstream_failure.unwrap_or_default(),
            lease_ttl: settings.lease_ttl_ms.unwrap_or(LEASE_TTL_MS) * MILLI,
            unresolved_ttl: settings.unresolved_after_ms.unwrap_or(UNRESOLVED_MS) * MILLI,
            queue_mode: settings.queue_mode.unwrap_or_default(),
            stale_pools: settings.stale_pools.unwrap_or_default(),
        }
    }

    fn scope(&mut self, scope: &Scope) -> Vec<Limit> {
        let zone = scope.timezone.as_ref().map_or_else(|| self.utc.clone(), |zone| zone.value.clone());
        let mut limits = self.builder.limits(&scope.limits, &zone, Purpose::Run, self.report);
        // Tenants share these scopes: what one of them has taught of its answers must not let it take another's room.
        for limit in &mut limits {
            let stated = scope.limits.iter().any(|doc| doc.name == limit.name && doc.hold.is_some());
            if !stated {
                limit.hold = Hold::WorstCase;
            }
        }
        limits
    }

    /// Looks up the names that a bundle holds, whether or not a tenant uses it.
    fn check_bundle(&mut self, bundle: &'d Bundle) {
        for (name, _) in &bundle.models {
            self.model_name(name, true);
        }
        for name in bundle.allowed.iter().flatten() {
            self.model_name(name, true);
        }
        if let Some(lane) = &bundle.lane {
            self.lane_name(lane);
        }
        if let Some(priority) = &bundle.priority
            && Priority::of(&priority.value).is_none()
            && !self.lanes.contains(&*priority.value)
        {
            let words = Priority::WORDS.map(|(word, _)| word);
            let names = words.into_iter().chain(self.lanes.iter().copied());
            let message = format!("`{}` is neither high, medium or low nor a lane", priority.value);
            self.report.unknown(&priority.at, ErrorKind::UnknownName, &message, &priority.value, names);
        }
    }

    /// Builds what defaults and a plan say, so that a plan is checked before a tenant has it.
    fn check_layers(&mut self, plan: Option<&str>) {
        let layers: Vec<Layer<'d>> = self.layers(plan).cloned().collect();
        let layers: Vec<&Layer<'d>> = layers.iter().collect();
        let zone = self.zone(&layers);
        let allowed = self.allowed(&layers, &zone, Purpose::Check);
        self.rules(&layers, allowed, &zone, Purpose::Check);
    }

    fn layers(&self, plan: Option<&str>) -> impl Iterator<Item = &Layer<'d>> {
        std::iter::once(&self.defaults).chain(plan.and_then(|plan| self.plans.get(plan)))
    }

    fn zone(&self, layers: &[&Layer<'d>]) -> Arc<str> {
        let zone = layers.iter().rev().find_map(|layer| layer.bundle.timezone.as_ref());
        zone.map_or_else(|| self.utc.clone(), |zone| zone.value.clone())
    }

    /// What layers say, with the models that they allow.
    fn rules(&mut self, layers: &[&Layer<'d>], allowed: Allowed, zone: &Arc<str>, purpose: Purpose) -> TenantRules {
        let strongest = || layers.iter().rev().map(|layer| layer.bundle);
        let limits = merge(layers.iter().map(|layer| layer.bundle.limits.as_slice()));
        let users = merge(layers.iter().map(|layer| layer.bundle.users.as_slice()));
        let mut apps: HashMap<&Arc<str>, Vec<&[_]>> = HashMap::new();
        for (name, limits) in layers.iter().flat_map(|layer| &layer.bundle.apps) {
            apps.entry(&name.value).or_default().push(limits.as_slice());
        }
        let apps = apps
            .into_iter()
            .map(|(name, layers)| (name.clone(), self.builder.limits(&merge(layers), zone, purpose, self.report)));
        let apps = apps.collect();
        let priority = strongest().find_map(|bundle| Priority::of(&bundle.priority.as_ref()?.value));
        TenantRules {
            timezone: zone.clone(),
            weight: strongest().find_map(|bundle| bundle.weight).or(priority.map(weight)).unwrap_or(1),
            lane: self.lane(strongest()),
            priority,
            limits: self.builder.limits(&limits, zone, purpose, self.report),
            ceilings: ceilings(layers.iter().map(|layer| &layer.bundle.ceilings), self.report),
            models: allowed.named,
            any_model: allowed.any,
            users: self.builder.limits(&users, zone, purpose, self.report),
            apps,
            max_queue: strongest().find_map(|bundle| bundle.max_queue),
            agent_runs: strongest().fold(AgentRuns::default(), |stronger, bundle| stronger.over(bundle.agent_runs)),
        }
    }

    /// The strongest layer's lane: the one that it names, or the one that its priority names.
    fn lane<'b>(&self, strongest: impl Iterator<Item = &'b Bundle>) -> Option<Arc<str>> {
        let known = |name: &&Name| self.lanes.contains(&*name.value);
        let lane = |bundle: &'b Bundle| bundle.lane.as_ref().or(bundle.priority.as_ref().filter(known));
        strongest.into_iter().find_map(lane).map(|lane| lane.value.clone())
    }

    fn tenant(&mut self, name: &'d Name, tenant: &'d TenantDoc) -> TenantPlan {
        self.check_bundle(&tenant.own);
        let (label, plan) = self.plan_of(tenant);
        if let Some(center) = &tenant.cost_center
            && self.document.cost_centers.is_some()
            && !self.cost_centers.contains(&*center.value)
        {
            let message = format!("no cost centre `{}`", center.value);
            let names = self.cost_centers.iter().copied();
            self.report.unknown(&center.at, ErrorKind::UnknownName, &message, &center.value, names);
        }
        // The tenant itself.
        self.builder.charge(1);
        let cost_center = tenant.cost_center.as_ref().map(|center| center.value.clone());
        let of_kind =
            (tenant.own.says_nothing() && tenant.keys.is_empty()).then(|| [label.clone(), cost_center.clone()]);
        if let Some(kind) = of_kind.as_ref().and_then(|of_kind| self.kinds.get(of_kind)) {
            return TenantPlan { name: name.value.clone(), kind: kind.clone() };
        }
        let rules = match tenant.own.says_nothing() {
            true => self.rules_of(plan),
            false => self.own_rules(plan, &tenant.own),
        };
        let keys = keys::keys(&name.value, &tenant.keys, &rules.timezone, self);
        let kind = Arc::new(TenantKind { plan: label, cost_center, keys, rules });
        self.kinds.extend(of_kind.map(|of_kind| (of_kind, kind.clone())));
        TenantPlan { name: name.value.clone(), kind }
    }

    /// The rules of a plan's tenants that say nothing of their own; built once and shared by them.
    fn rules_of(&mut self, plan: Option<Arc<str>>) -> Arc<TenantRules> {
        if let Some(rules) = self.of_plans.get(&plan) {
            return rules.clone();
        }
        let layers: Vec<Layer<'d>> = self.layers(plan.as_deref()).cloned().collect();
        let layers: Vec<&Layer<'d>> = layers.iter().collect();
        let zone = self.zone(&layers);
        let allowed = self.shared(plan.clone(), &layers, &zone);
        let rules = Arc::new(self.rules(&layers, allowed, &zone, Purpose::Run));
        self.of_plans.insert(plan, rules.clone());
        rules
    }

    /// The rules of a tenant that says more than its plan does.
    fn own_rules(&mut self, plan: Option<Arc<str>>, bundle: &'d Bundle) -> Arc<TenantRules> {
        let own = Layer::new(bundle);
        let base: Vec<Layer<'d>> = self.layers(plan.as_deref()).cloned().collect();
        let layers: Vec<&Layer<'d>> = base.iter().chain([&own]).collect();
        let zone = self.zone(&layers);
        let allowed = match bundle.models.is_empty() && bundle.allowed.is_none() {
            true => self.shared(plan, &layers, &zone),
            false => self.allowed(&layers, &zone, Purpose::Run),
        };
        Arc::new(self.rules(&layers, allowed, &zone, Purpose::Run))
    }

    /// The rules of a tenant, to change them for it alone; `None` when the plan has become too large.
    pub(super) fn changed<'t>(&mut self, tenant: &'t mut TenantPlan) -> Option<&'t mut TenantRules> {
        let copied = Arc::strong_count(&tenant.kind) > 1 || Arc::strong_count(&tenant.rules) > 1;
        let entries = tenant.limits.len() + tenant.users.len() + tenant.models.len();
        let entries = entries + tenant.apps.values().map(|limits| 1 + limits.len()).sum::<usize>();
        (!copied || self.builder.charge(entries)).then(|| Arc::make_mut(&mut Arc::make_mut(&mut tenant.kind).rules))
    }

    /// A tenant's label, and the plan that it has: `plan`, or `tier` where a plan has its name.
    fn plan_of(&mut self, tenant: &TenantDoc) -> (Option<Arc<str>>, Option<Arc<str>>) {
        let label = tenant.plan.as_ref().or(tenant.tier.as_ref());
        let found = label.filter(|name| self.plans.contains_key(&*name.value));
        if let Some(plan) = &tenant.plan
            && found.is_none()
            && self.document.plans.is_some()
        {
            let message = format!("no plan `{}`", plan.value);
            self.report.unknown(&plan.at, ErrorKind::UnknownName, &message, &plan.value, self.plans.keys().copied());
        }
        (label.map(|name| name.value.clone()), found.map(|name| name.value.clone()))
    }

    /// What a plan allows in a zone; built once and shared by its tenants.
    fn shared(&mut self, plan: Option<Arc<str>>, layers: &[&Layer<'d>], zone: &Arc<str>) -> Allowed {
        let key = (plan, zone.clone());
        if let Some(allowed) = self.shared.get(&key) {
            let entries = allowed.named.len();
            return if self.builder.charge(entries) { allowed.clone() } else { Allowed::default() };
        }
        let allowed = self.allowed(layers, zone, Purpose::Run);
        self.shared.insert(key, allowed.clone());
        allowed
    }

    /// The models that layers allow, and what holds for each: in each layer `*`, then the model's own.
    fn allowed(&mut self, layers: &[&Layer<'d>], zone: &Arc<str>, purpose: Purpose) -> Allowed {
        let (mut names, mut any) = (Vec::new(), false);
        for layer in layers {
            if let Some(listed) = &layer.bundle.allowed {
                any = listed.iter().any(|name| &*name.value == "*");
                names = listed.iter().collect();
            } else {
                any |= layer.models.contains_key("*");
                names.extend(layer.bundle.models.iter().map(|(name, _)| name));
            }
        }
        let mut allowed = Allowed::default();
        for name in names {
            if &*name.value == "*" || allowed.named.contains_key(&name.value) || self.builder.is_full() {
                continue;
            }
            let model = self.tenant_model(layers, &name.value, zone, purpose);
            allowed.named.insert(name.value.clone(), Arc::new(model));
        }
        allowed.any = any.then(|| Arc::new(self.tenant_model(layers, "*", zone, purpose)));
        allowed
    }

    fn tenant_model(&mut self, layers: &[&Layer<'d>], name: &str, zone: &Arc<str>, purpose: Purpose) -> TenantModel {
        let own = Some(name).filter(|name| *name != "*");
        let docs: Vec<&TenantModelDoc> = layers
            .iter()
            .flat_map(|layer| [Some("*"), own].into_iter().flatten().filter_map(|name| layer.models.get(name)))
            .copied()
            .collect();
        let limits = merge(docs.iter().map(|doc| doc.limits.as_slice()));
        self.builder.charge(1);
        TenantModel {
            limits: self.builder.limits(&limits, zone, purpose, self.report),
            ceilings: ceilings(docs.iter().map(|doc| &doc.ceilings), self.report),
        }
    }

    /// Looks up a model, where the document defines models; elsewhere the name defines it.
    pub(super) fn model_name(&mut self, name: &Name, star: bool) {
        if star && &*name.value == "*" {
            return;
        }
        if self.document.models.is_none() {
            self.implied.insert(name.value.clone());
        } else if !self.models.contains_key(&*name.value) {
            let message = format!("no model `{}`", name.value);
            self.report.unknown(&name.at, ErrorKind::UnknownName, &message, &name.value, self.models.keys().copied());
        }
    }

    /// Looks up a lane.
    pub(super) fn lane_name(&mut self, name: &Name) {
        if !self.lanes.contains(&*name.value) {
            let message = format!("no lane `{}` in `queues`", name.value);
            self.report.unknown(&name.at, ErrorKind::UnknownName, &message, &name.value, self.lanes.iter().copied());
        }
    }

    fn models(&mut self) -> HashMap<Arc<str>, Arc<ModelPlan>> {
        let mut plans = HashMap::new();
        for (name, model) in self.document.models.iter().flatten() {
            let upstream = model.upstream.as_ref().and_then(|upstream| self.upstream(name, model, upstream));
            let ceilings = ceilings(upstream.iter().map(|up| &up.ceilings).chain([&model.ceilings]), self.report);
            let tokenizer = model.tokenizer.as_ref().or(upstream.and_then(|up| up.tokenizer.as_ref()));
            let plan = ModelPlan {
                name: name.value.clone(),
                upstream: model.upstream.as_ref().map(|upstream| upstream.value.clone()),
                tokenizer: tokenizer.map(|written| written.value).unwrap_or_default(),
                price: upstream.unwrap_or(model).price.as_ref().map(|price| price.value.clone()),
                ceilings,
                pool: model.pool.clone().or_else(|| upstream.and_then(|up| up.pool.clone())),
                work: model.work.or(upstream.and_then(|up| up.work)).unwrap_or_default(),
                limits: self.scope(&model.scope),
            };
            plans.insert(name.value.clone(), Arc::new(plan));
        }
        for name in std::mem::take(&mut self.implied) {
            plans.insert(name.clone(), Arc::new(ModelPlan::unknown(name)));
        }
        plans
    }

    /// The model that an alias stands for.
    fn upstream(&mut self, name: &Name, model: &ModelDoc, upstream: &Name) -> Option<&'d ModelDoc> {
        self.model_name(upstream, false);
        let found = *self.models.get(&*upstream.value)?;
        let mut no = |at: &Origin, kind, why: String| self.report.add(at, kind, why);
        if upstream.value == name.value {
            no(&upstream.at, ErrorKind::Cycle, format!("`{}` is an alias of itself", name.value));
        } else if let Some(further) = &found.upstream {
            let message = format!("`{}` is an alias of `{}`; name that one", upstream.value, further.value);
            no(&upstream.at, ErrorKind::Conflict, message);
        }
        if let Some(price) = &model.price {
            no(&price.at, ErrorKind::Conflict, format!("an alias has the price of `{}`", upstream.value));
        }
        Some(found)
    }

    fn lanes(&self) -> (HashMap<Arc<str>, Arc<LanePlan>>, Arc<str>) {
        let queues = self.document.queues.as_deref().unwrap_or_default();
        let usual = |name: &Arc<str>| LanePlan {
            name: name.clone(),
            weight: 1,
            max_wait_ms: MAX_WAIT_MS,
            max_queue: None,
            rank: 0,
            floor_percent: 0,
            age_after_ms: None,
        };
        let lanes = queues.iter().enumerate().map(|(rank, (name, queue))| LanePlan {
            weight: queue.weight.unwrap_or(1),
            max_wait_ms: queue.max_wait_ms.unwrap_or(MAX_WAIT_MS),
            max_queue: queue.max_queue,
            rank: rank.min(255) as u8,
            floor_percent: queue.floor_percent.as_ref().map_or(0, |percent| percent.value as u8),
            age_after_ms: queue.age_after_ms,
            ..usual(&name.value)
        });
        let mut lanes: Vec<LanePlan> = lanes.collect();
        if lanes.is_empty() {
            lanes.push(usual(&LANE.into()));
        }
        let default = lanes[0].name.clone();
        (lanes.into_iter().map(|lane| (lane.name.clone(), Arc::new(lane))).collect(), default)
    }
}

/// Ceilings merged from the weakest to the strongest; tells those that can't both hold.
fn ceilings<'c>(layers: impl IntoIterator<Item = &'c CeilingsDoc>, report: &mut Report) -> Ceilings {
    let merged = layers.into_iter().fold(CeilingsDoc::default(), |weaker, doc| doc.over(weaker));
    if let Some((at, message)) = merged.conflict() {
        report.add(at, ErrorKind::Conflict, message);
    }
    let value = |ceiling: Option<super::fields::Spanned<u64>>| ceiling.map(|ceiling| ceiling.value);
    Ceilings { context: value(merged.context), input: value(merged.input), output: value(merged.output) }
}

/// The weight that a priority stands for where no layer gives a number: each twice the one below it.
fn weight(priority: Priority) -> u32 {
    match priority {
        Priority::High => 4,
        Priority::Medium => 2,
        Priority::Low => 1,
    }
}
