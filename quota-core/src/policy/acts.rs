//! What a policy does beside limiting: steps of degrading, and overrides.
//!
//! Floor 1. Invariant: degrading never comes back to the model that it began with; an override names limits that exist.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::build::override_limit;
use super::compile::Compiler;
use super::document::{Document, OverrideDoc};
use super::error::ErrorKind;
use super::fields::Name;
use super::limits::{LimitDoc, canonical, names};
use super::plan::{DegradeStep, Limit, TenantPlan};
use super::tenants::Tenants;

/// The steps of degrading, their names looked up.
pub(super) fn degrade(document: &Document, compiler: &mut Compiler<'_, '_>) -> Vec<DegradeStep> {
    let free = free_windows(document);
    let mut steps = Vec::with_capacity(document.degrade.len());
    for step in &document.degrade {
        for model in [&step.from, &step.model].into_iter().flatten() {
            compiler.model_name(model, false);
        }
        if let Some(lane) = &step.lane {
            compiler.lane_name(lane);
        }
        steps.push(DegradeStep {
            when_soft: step.soft.as_ref().and_then(|soft| limit_name(soft, &free, compiler)),
            when_model: step.from.as_ref().map(|model| model.value.clone()),
            when_pool_above: step.pool_above.as_ref().map(|percent| percent.value as u8),
            when_priority: step.priority,
            model: step.model.as_ref().map(|model| model.value.clone()),
            max_output_tokens: step.max_output_tokens,
            disable_tools: step.disable_tools.clone(),
            lane: step.lane.as_ref().map(|lane| lane.value.clone()),
        });
    }
    let explicit = document.degrade.iter().filter_map(|step| Some((step.from.as_ref()?, step.model.as_ref()?)));
    // A step for every model leads back from wherever its own model is degraded to. Of two such steps the second is an
    // alternative to the first and no way back.
    let mut back: HashMap<&str, &Name> = HashMap::new();
    for model in document.degrade.iter().filter(|step| step.from.is_none()).filter_map(|step| step.model.as_ref()) {
        back.entry(&model.value).or_insert(model);
    }
    let returns = explicit.clone().filter_map(|(from, to)| Some((to, *back.get(&*from.value)?)));
    if let Some((at, path)) = cycle(explicit.clone().chain(returns).collect()) {
        let message = format!("degrading goes in a circle: {path}");
        compiler.report.add(&at.at, ErrorKind::Cycle, message);
    }
    steps
}

/// The canonical name of a limit: the catalogue's, or a free window's.
fn limit_name(name: &Name, free: &HashSet<&Arc<str>>, compiler: &mut Compiler<'_, '_>) -> Option<Arc<str>> {
    if free.contains(&name.value) {
        return Some(name.value.clone());
    }
    if let Some(known) = canonical(&name.value) {
        return Some(known.into());
    }
    let all = free.iter().map(|name| &***name).chain(names());
    compiler.report.unknown(&name.at, ErrorKind::UnknownName, &format!("no limit `{}`", name.value), &name.value, all);
    None
}

/// The names of free windows anywhere in the document.
fn free_windows(document: &Document) -> HashSet<&Arc<str>> {
    let bundles = std::iter::once(&document.defaults)
        .chain(document.plans.iter().flatten().map(|(_, bundle)| bundle))
        .chain(document.tenants.iter().map(|(_, tenant)| &tenant.own));
    let bundled = bundles.flat_map(|bundle| {
        let models = bundle.models.iter().flat_map(|(_, model)| &model.limits);
        let apps = bundle.apps.iter().flat_map(|(_, limits)| limits);
        bundle.limits.iter().chain(models).chain(&bundle.users).chain(apps)
    });
    let keys = document.tenants.iter().flat_map(|(_, tenant)| &tenant.keys).flat_map(|key| &key.limits);
    let scopes = std::iter::once(&document.global)
        .chain(document.cost_centers.iter().flatten().map(|(_, scope)| scope))
        .chain(document.models.iter().flatten().map(|(_, model)| &model.scope));
    let limits = bundled.chain(keys).chain(scopes.flat_map(|scope| &scope.limits));
    limits.map(|limit| &limit.name).filter(|name| canonical(name).is_none()).collect()
}

/// A circle in a graph of models: the target of the edge that closes it, and its models as text.
///
/// Cost: linear. Models from which no edge leaves are taken away until none is left; whoever stays leads to a circle.
fn cycle<'n>(edges: Vec<(&'n Name, &'n Name)>) -> Option<(&'n Name, String)> {
    let mut out: HashMap<&str, usize> = HashMap::new();
    let mut into: HashMap<&str, Vec<&str>> = HashMap::new();
    for (from, to) in &edges {
        *out.entry(&from.value).or_default() += 1;
        out.entry(&to.value).or_default();
        into.entry(&to.value).or_default().push(&from.value);
    }
    let mut ends: Vec<&str> = out.iter().filter(|(_, n)| **n == 0).map(|(name, _)| *name).collect();
    while let Some(end) = ends.pop() {
        for from in into.remove(end).unwrap_or_default() {
            let left = out.entry(from).or_default();
            *left -= 1;
            if *left == 0 {
                ends.push(from);
            }
        }
    }
    let stays = |name: &Name| out.get(&*name.value).is_some_and(|n| *n > 0);
    let mut next: HashMap<&str, &'n Name> = HashMap::new();
    for (from, to) in edges.iter().filter(|(from, to)| stays(from) && stays(to)) {
        next.entry(&from.value).or_insert(to);
    }
    let first = edges.iter().find(|(from, to)| stays(from) && stays(to))?.1;
    // Every model that stays has an edge to one that stays, so walking ends only at a model seen before.
    let (mut path, mut seen) = (vec![first], HashSet::from([&*first.value]));
    let mut at = *next.get(&*first.value)?;
    while seen.insert(&at.value) {
        path.push(at);
        at = next.get(&*at.value)?;
    }
    let start = path.iter().position(|name| name.value == at.value).unwrap_or(0);
    let mut shown: Vec<String> = path[start..].iter().take(8).map(|name| format!("`{}`", name.value)).collect();
    if path.len() - start > 8 {
        shown.push("…".to_owned());
    }
    shown.push(format!("`{}`", at.value));
    Some((at, shown.join(" to ")))
}

/// Puts overrides on the limits that they name.
pub(super) fn overrides(document: &Document, tenants: &mut Tenants, compiler: &mut Compiler<'_, '_>) {
    for doc in &document.overrides {
        if let Some(model) = &doc.model {
            compiler.model_name(model, true);
        }
        let (Some(name), Some(starts), Some(expires)) = (&doc.tenant, &doc.starts, &doc.expires) else { continue };
        let Some(tenant) = tenants.get_mut(&name.value) else {
            let message = format!("no tenant `{}`", name.value);
            let known = document.tenants.iter().map(|(name, _)| &*name.value);
            compiler.report.unknown(&name.at, ErrorKind::UnknownName, &message, &name.value, known);
            continue;
        };
        let when = (starts.value, expires.value);
        match &doc.model {
            None => match compiler.changed(tenant) {
                Some(rules) => apply(doc, when, &mut rules.limits, compiler),
                None => break,
            },
            Some(model) => model_override(doc, when, model, tenant, compiler),
        }
    }
}

fn model_override(
    doc: &OverrideDoc,
    when: (u64, u64),
    model: &Name,
    tenant: &mut TenantPlan,
    compiler: &mut Compiler<'_, '_>,
) {
    if !tenant.models.contains_key(&model.value) && tenant.any_model.is_none() {
        let message = format!("`{}` may not use the model `{}`", tenant.name, model.value);
        let known = tenant.models.keys().map(|name| &**name);
        compiler.report.unknown(&model.at, ErrorKind::UnknownName, &message, &model.value, known);
        return;
    }
    let Some(rules) = compiler.changed(tenant) else { return };
    let target = match (rules.models.get_mut(&model.value), &mut rules.any_model) {
        (Some(named), _) => named,
        (None, Some(any)) if &*model.value == "*" => any,
        // A model that `*` allows gets a row of its own, for the override is for it alone.
        (None, Some(any)) => {
            let own = any.clone();
            rules.models.entry(model.value.clone()).or_insert(own)
        }
        (None, None) => return,
    };
    apply(doc, when, &mut Arc::make_mut(target).limits, compiler);
}

fn apply(doc: &OverrideDoc, when: (u64, u64), limits: &mut [Limit], compiler: &mut Compiler<'_, '_>) {
    for amount in &doc.limits {
        let LimitDoc { name, at, .. } = amount;
        match limits.iter_mut().find(|limit| limit.name == *name) {
            Some(limit) => override_limit(limit, amount, when, compiler.report),
            None => {
                let message = format!("there is no limit `{name}` to override here");
                let known: Vec<Arc<str>> = limits.iter().map(|limit| limit.name.clone()).collect();
                let known = known.iter().map(|name| &**name);
                compiler.report.unknown(at, ErrorKind::UnknownName, &message, name, known);
            }
        }
    }
}
