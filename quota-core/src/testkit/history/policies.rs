//! The policies of histories: every kind of limit in every scope, and steps of degrading that differ.
//!
//! Floor 5. Invariant: every rate's unit refills in whole nanoseconds, every model that a tenant may use has a price, and a
//! scope has at most as many limits as a row of the memory store, so that their order is the document's.

use std::collections::HashMap;
use std::sync::{Arc, LazyLock};

use super::POLICIES;
use crate::policy::Policy;
use crate::policy::plan::{Limit, Plan, Window};
use crate::time::Calendar;

/// The pool of model `a`.
pub(super) const POOL: &str = "p";

/// The amounts in which the policies differ, and their steps of degrading.
struct Amounts {
    rpm: u64,
    tpm: u64,
    tokens: u64,
    cents: u64,
    slots: u64,
    failure: &'static str,
    degrade: &'static str,
}

fn policy(amounts: &Amounts) -> Policy {
    let Amounts { rpm, tpm, tokens, cents, slots, failure, degrade } = amounts;
    let (low_tpm, low_tokens) = (tpm / 3, tokens / 3 * 2);
    let text = format!(
        "
settings: {{lease_ttl_ms: 30000, unresolved_after_ms: 120000, upstream_failure: {failure}}}
queues: {{interactive: {{max_wait_ms: 15000}}, batch: {{max_wait_ms: 60000}}}}
global: {{rps: 20, max_inflight: 6, tpd: {{hard: 400000, hold: worst_case}}}}
cost_centers: {{lab: {{daily_budget_usd: 0.{cents:02}, timezone: Asia/Shanghai}}}}
models:
  a: {{pool: {POOL}, price: {{input: 1, output: 2}}, limits: {{output_tpm: {{hard: 12000, hold: worst_case}}}}}}
  b: {{price: {{input: 0.5, output: 1}}}}
tenants:
  one:
    cost_center: lab
    rpm: {{hard: {rpm}, burst: 5}}
    tpm: {{soft: {low_tpm}, hard: {tpm}, hold: worst_case}}
    output_tpd: {{hard: {tpm}, on_exceed: degrade}}
    monthly_budget_usd: {{soft: 0.1, hard: 0.5}}
    max_inflight: {{hard: {slots}, on_exceed: queue}}
    max_streams: 2
    users: {{rpm: 12, input_tpd: 20000}}
    agent_runs: {{max_steps: {slots}, max_tokens: {tokens}, max_tool_calls: 7, max_usd: 0.{cents:02}, max_seconds: {rpm}}}
    models: {{a: {{tpd: {{soft: {low_tokens}, hard: {tokens}, hold: adaptive, on_exceed: degrade}}}}, b: {{rpd: 20}}}}
  two:
    cost_center: lab
    priority: low
    rpm: {{hard: 2, mode: shadow}}
    rpd: {{hard: 5, mode: shadow}}
    windows: [{{name: tens, meter: requests, seconds: 10, hard: 4, window: fixed, on_exceed: queue}}]
    models: {{a: {{max_inflight: {{hard: 2, on_exceed: degrade}}}}, b: {{daily_budget_usd: {{hard: 0.02, hold: p95}}}}}}
degrade: [{degrade}]
"
    );
    Policy::from_yaml(&text).unwrap_or_else(|errors| panic!("{errors}"))
}

/// The policies of all histories; the first is in force at the beginning.
pub(super) static READ: LazyLock<[Policy; POLICIES]> = LazyLock::new(|| {
    let amounts = [
        Amounts {
            rpm: 60,
            tpm: 60_000,
            tokens: 30_000,
            cents: 20,
            slots: 3,
            failure: "unresolved",
            degrade: "
                {when: {pool_above: 70}, max_output_tokens: 500, disable_tools: [search], lane: batch},
                {when: {soft: tpm, model: a}, max_output_tokens: 100},
                {when: {soft: monthly_budget_usd}, disable_tools: [browse]},
                {when: {model: a}, model: b, lane: batch},
                {max_output_tokens: 50}",
        },
        Amounts {
            rpm: 30,
            tpm: 12_000,
            tokens: 60_000,
            cents: 90,
            slots: 5,
            failure: "release",
            degrade: "
                {when: {soft: tpm, pool_above: 20, priority: medium}, max_output_tokens: 10, disable_tools: [browse]},
                {when: {pool_above: 90, priority: low}, max_output_tokens: 1},
                {when: {model: a}, lane: interactive},
                {when: {model: b}, model: a}",
        },
        Amounts { rpm: 120, tpm: 6_000, tokens: 5_000, cents: 3, slots: 1, failure: "unresolved", degrade: "" },
    ];
    amounts.map(|amounts| policy(&amounts))
});

/// Under which nothing is limited: answers are learned from without an account being touched.
pub(super) static SCHOOL: LazyLock<Policy> = LazyLock::new(|| {
    let text = format!(
        "
models: {{a: {{pool: {POOL}, price: {{input: 1, output: 2}}}}, b: {{price: {{input: 0.5, output: 1}}}}}}
tenants: {{one: {{models: [a, b]}}, two: {{models: [a, b]}}}}"
    );
    Policy::from_yaml(&text).unwrap_or_else(|errors| panic!("{errors}"))
});

pub(super) type Calendars = HashMap<(Arc<str>, Arc<str>), Option<Arc<Calendar>>>;

/// The calendar of each limit of each scope, the same in every policy.
pub(super) fn calendars(plan: &Plan) -> Calendars {
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

    /// What no policy has, no history tries.
    #[test]
    fn every_kind_of_step_is_in_a_policy() {
        let steps: Vec<_> = READ.iter().flat_map(|policy| policy.plan().degrade.clone()).collect();
        let has = |kind: fn(&crate::policy::plan::DegradeStep) -> bool| assert!(steps.iter().any(kind));
        has(|step| step.is_by_pressure());
        has(|step| step.when_soft.is_some() && step.when_pool_above.is_some());
        has(|step| step.when_soft.is_none() && step.when_pool_above.is_none());
        has(|step| step.when_model.is_some() && step.model.is_some());
        has(|step| step.when_priority.is_some());
        has(|step| step.lane.is_some());
        has(|step| step.max_output_tokens.is_some());
        has(|step| !step.disable_tools.is_empty());
        assert!(READ.iter().any(|policy| policy.plan().degrade.is_empty()), "what degrades goes as asked again");
    }
}
