//! Doubts: what a policy allows and probably does not mean.
//!
//! Floor 1. Invariant: a doubt never changes what is compiled.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use super::document::Document;
use super::error::{ErrorKind, MAX_ERRORS, Origin, PolicyError};
use super::plan::{Limit, OnExceed, Plan, TenantPlan, TenantRules, UnknownPrice};
use crate::units::Meter;

/// The warnings of a policy, in the order of the text, at most [`MAX_ERRORS`]; `unlisted` says that the price list has
/// not been read.
pub(crate) fn warnings(document: &Document, plan: &Plan, unlisted: bool) -> Vec<PolicyError> {
    let mut doubts = Vec::new();
    if let Some(file) = document.price_list.as_ref().filter(|_| unlisted) {
        let message = format!("`{}` is not read, for the policy came as a text; hand over its prices", file.value);
        doubts.push(file.at.error(ErrorKind::NoEffect, message));
    }
    tokenizers(document, &mut doubts);
    tenants(document, plan, &mut doubts);
    unpriced(document, plan, &mut doubts);
    ceilings(document, plan, &mut doubts);
    labels(document, &mut doubts);
    degrading(document, plan, &mut doubts);
    for doc in &document.overrides {
        if let (Some(operator), Some(approver)) = (&doc.operator, &doc.approver)
            && operator.value == approver.value
        {
            doubts.push(approver.at.error(ErrorKind::NoEffect, "the approver is the operator"));
        }
    }
    if document.tenants.is_empty() {
        doubts.push(Origin::default().error(ErrorKind::Missing, "no tenants: every request is refused"));
    }
    doubts.sort_by_key(|doubt| (doubt.line, doubt.column));
    doubts.truncate(MAX_ERRORS);
    doubts
}

/// Tokenizers that this build does not have, so that the heuristic counts in their place.
fn tokenizers(document: &Document, doubts: &mut Vec<PolicyError>) {
    let named = document.models.iter().flatten().filter_map(|(_, model)| model.tokenizer.as_ref());
    for tokenizer in named.filter(|tokenizer| !tokenizer.value.is_built_in()) {
        let name = tokenizer.value.name();
        let message = format!("this build has no `{name}`, so the heuristic counts; the feature `tiktoken` has it");
        doubts.push(tokenizer.at.error(ErrorKind::NoEffect, message));
    }
}

/// Limits that hold for a tenant whatever the model: everybody's, its own, its users', its cost centre's.
fn across_models<'p>(plan: &'p Plan, tenant: &'p TenantPlan) -> impl Iterator<Item = &'p Limit> {
    let center = tenant.cost_center.as_ref().and_then(|center| plan.cost_centers.get(center));
    plan.global.iter().chain(&tenant.limits).chain(&tenant.users).chain(center.into_iter().flatten())
}

/// Limits of a model over all tenants: its own, and for an alias its upstream's too.
fn of_model<'p>(plan: &'p Plan, name: &str) -> impl Iterator<Item = &'p Limit> + use<'p> {
    let model = plan.models.get(name);
    let upstream = model.and_then(|model| plan.models.get(model.upstream.as_ref()?));
    model.into_iter().chain(upstream).flat_map(|model| &model.limits)
}

fn tenants(document: &Document, plan: &Plan, doubts: &mut Vec<PolicyError>) {
    // Tenants that share their rules lack the same: it is looked for once.
    let mut unlimited: HashMap<*const TenantRules, Option<&str>> = HashMap::new();
    for (name, _) in &document.tenants {
        let Some(tenant) = plan.tenants.get(&name.value) else { continue };
        if tenant.models.is_empty() && tenant.any_model.is_none() {
            doubts.push(
                name.at.error(ErrorKind::NoEffect, "the tenant may use no model; `models: {\"*\": {}}` allows all"),
            );
            continue;
        }
        if across_models(plan, tenant).next().is_some() {
            continue;
        }
        let rules: &TenantRules = tenant;
        let model = *unlimited.entry(Arc::as_ptr(&tenant.rules)).or_insert_with(|| {
            let any = rules.any_model.iter().filter(|model| model.limits.is_empty()).map(|_| "*");
            let named = rules
                .models
                .iter()
                .filter(|(name, model)| model.limits.is_empty() && of_model(plan, name).next().is_none());
            named.map(|(name, _)| &**name).chain(any).min()
        });
        if let Some(model) = model {
            doubts
                .push(name.at.error(ErrorKind::Unlimited, format!("nothing limits the tenant on the model `{model}`")));
        }
    }
}

/// Ceilings of tenants that a model's own make meaningless.
fn ceilings(document: &Document, plan: &Plan, doubts: &mut Vec<PolicyError>) {
    for (name, tenant) in &document.tenants {
        for (model, own) in &tenant.own.models {
            let Some(of_model) = plan.models.get(&model.value).map(|model| model.ceilings) else { continue };
            let pairs = [
                (&own.ceilings.context, of_model.context),
                (&own.ceilings.input, of_model.input.or(of_model.context)),
                (&own.ceilings.output, of_model.output.or(of_model.context)),
            ];
            for (written, of_model) in pairs {
                if let (Some(written), Some(of_model)) = (written, of_model)
                    && written.value > of_model
                {
                    let message = format!(
                        "{} is above the model's own {of_model}, which holds for `{}`",
                        written.value, name.value
                    );
                    doubts.push(written.at.error(ErrorKind::NoEffect, message));
                }
            }
        }
    }
}

/// Models without a price that a money limit holds for, each told once.
fn unpriced(document: &Document, plan: &Plan, doubts: &mut Vec<PolicyError>) {
    let effect = match plan.unknown_price {
        UnknownPrice::Deny => "its requests are refused",
        UnknownPrice::Ceiling => "the dearest price of the policy is reckoned with",
        UnknownPrice::Shadow => "it counts as nothing",
    };
    let money = |limit: &Limit| limit.meter == Meter::Money;
    let mut told: HashSet<Arc<str>> = HashSet::new();
    // Rules that were gone through, with and without a money limit that a tenant has beside them.
    let mut seen: HashSet<(*const TenantRules, bool)> = HashSet::new();
    for (name, _) in &document.tenants {
        let Some(tenant) = plan.tenants.get(&name.value) else { continue };
        let center = tenant.cost_center.as_ref().and_then(|center| plan.cost_centers.get(center));
        let keys = tenant.keys.values().flat_map(|key| &key.limits);
        let beside = center.into_iter().flatten().chain(keys).any(money);
        if !seen.insert((Arc::as_ptr(&tenant.rules), beside)) {
            continue;
        }
        let everywhere = plan.global.iter().chain(&tenant.limits).chain(&tenant.users);
        let everywhere = everywhere.chain(tenant.apps.values().flatten()).any(money);
        let everywhere = beside || everywhere || tenant.agent_runs.max_usd.is_some();
        let mut models: Vec<_> = tenant.models.iter().collect();
        models.sort_by_key(|(name, _)| *name);
        for (model, own) in models {
            let priced = plan.models.get(model).is_none_or(|model| model.price.is_some());
            let limited = everywhere || own.limits.iter().chain(of_model(plan, model)).any(money);
            if !priced && limited && told.insert(model.clone()) {
                let message = format!("a money limit holds for the model `{model}`, which has no price: {effect}");
                doubts.push(name.at.error(ErrorKind::NoPrice, message));
            }
        }
    }
}

/// Tiers that are only labels although the document has plans.
fn labels(document: &Document, doubts: &mut Vec<PolicyError>) {
    let plans: HashSet<&str> = document.plans.iter().flatten().map(|(name, _)| &*name.value).collect();
    if document.plans.is_some() {
        let planless = document.tenants.iter().filter(|(_, tenant)| tenant.plan.is_none());
        for tier in planless.filter_map(|(_, tenant)| tenant.tier.as_ref()) {
            if !plans.contains(&*tier.value) {
                let message = format!("no plan `{}`, so the tier is only a label", tier.value);
                doubts.push(tier.at.error(ErrorKind::NoEffect, message));
            }
        }
    }
}

/// Limits that degrade where there are no steps, and steps that no limit calls for.
fn degrading(document: &Document, plan: &Plan, doubts: &mut Vec<PolicyError>) {
    let mut soft: HashSet<&str> = HashSet::new();
    let mut degrades: HashMap<&str, bool> = HashMap::new();
    for limit in all_limits(plan) {
        if limit.soft.is_some() {
            soft.insert(&limit.name);
        }
        *degrades.entry(&limit.name).or_default() |= limit.on_exceed == OnExceed::Degrade;
    }
    if plan.degrade.is_empty()
        && let Some(limit) = degrades.iter().filter(|(_, degrades)| **degrades).map(|(name, _)| *name).min()
    {
        let message = format!("`{limit}` degrades, but `degrade` has no steps, so it refuses");
        doubts.push(Origin::default().error(ErrorKind::NoEffect, message));
    }
    let pools = plan.models.values().any(|model| model.pool.is_some());
    for (doc, step) in document.degrade.iter().zip(&plan.degrade) {
        if let Some(percent) = doc.pool_above.as_ref().filter(|_| !pools) {
            doubts.push(percent.at.error(ErrorKind::NoEffect, "no model has a pool"));
        }
        if let Some(name) = step.when_soft.as_ref().filter(|name| !soft.contains(&***name)) {
            let at = doc.soft.as_ref().map_or(&doc.at, |soft| &soft.at);
            doubts.push(at.error(ErrorKind::NoEffect, format!("no limit `{name}` has a soft amount")));
        }
    }
}

fn all_limits(plan: &Plan) -> impl Iterator<Item = &Limit> {
    let mut seen: HashSet<*const TenantRules> = HashSet::new();
    let rules = plan.tenants.values().map(|tenant| &tenant.rules);
    let rules = rules.filter(move |rules| seen.insert(Arc::as_ptr(rules)));
    let tenants = rules.flat_map(|rules| {
        let models = rules.models.values().chain(&rules.any_model).flat_map(|model| &model.limits);
        rules.limits.iter().chain(&rules.users).chain(models).chain(rules.apps.values().flatten())
    });
    let keys = plan.tenants.values().flat_map(|tenant| tenant.keys.values()).flat_map(|key| &key.limits);
    let models = plan.models.values().flat_map(|model| &model.limits);
    plan.global.iter().chain(plan.cost_centers.values().flatten()).chain(models).chain(tenants).chain(keys)
}
