//! The model's limits: which apply to a request, and why one keeps it out.
//!
//! Floor 5. Invariant: pure; the widest scope stands first.

use std::sync::Arc;

use super::Lack;
use super::account::hard;
use super::words::Short;
use crate::policy::plan::{Limit, OnExceed, Plan, Window};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::time::Unit;
use crate::units::Meter;

/// An account's name: its scope and limit.
pub(super) type Key = (Arc<str>, Arc<str>);

/// A limit with the name of its account.
#[derive(Debug, Clone)]
pub(super) struct Applied {
    pub(super) key: Key,
    pub(super) limit: Limit,
}

/// The limits of a principal, a model and a run, widest scope first.
pub(super) fn applied(plan: &Plan, who: &Principal, model: &str, run: Option<&str>) -> Vec<Applied> {
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

/// The reason, the shortages and whether the request waits; `None` where nothing is short.
pub(super) fn told(lacks: &[Lack]) -> Option<(Reason, Vec<Short>, bool)> {
    let worst = lacks.iter().max_by_key(|lack| rank(lack.wait))?;
    let shorts = lacks.iter().map(|lack| Short {
        scope: lack.applied.key.0.clone(),
        limit: lack.applied.key.1.clone(),
        used: lack.used,
        asked: lack.asked,
        nanos: match lack.wait {
            Wait::After(time) => Some(time.as_nanos() as u64),
            Wait::Unknown | Wait::Never => None,
        },
        never: lack.wait == Wait::Never,
    });
    let queues = lacks.iter().all(|lack| lack.applied.limit.on_exceed == OnExceed::Queue && lack.wait != Wait::Never);
    Some((reason(&worst.applied.limit, worst.wait), shorts.collect(), queues))
}

fn rank(wait: Wait) -> (u8, u64) {
    match wait {
        Wait::Never => (2, 0),
        Wait::After(time) => (1, time.as_nanos() as u64),
        Wait::Unknown => (0, 0),
    }
}

/// Why a limit keeps a request out.
pub(super) fn reason(limit: &Limit, wait: Wait) -> Reason {
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
