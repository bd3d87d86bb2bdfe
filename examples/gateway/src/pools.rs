//! What stands behind the policy's pools: the simulated one, or servers that are asked how full they are.
//!
//! Invariant: the gate, the replicas and whoever asks them go by one clock.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use quota_core::gpu::Reported;
use quota_core::poller::{PollPlan, Poller};
use quota_core::time::SystemClock;
use quota_core::{Gate, Policy};

use crate::upstream::Upstream;

/// Samples that may be missing before a replica counts as silent.
const MISSED: u32 = 3;

/// Servers that tell how full a pool is.
#[derive(Debug, Clone)]
pub struct Metrics {
    /// Which pool of the policy; its only one if `None`.
    pub pool: Option<String>,
    /// What is asked, and how often.
    pub plan: PollPlan,
    /// The most requests that run on a replica at once, where it does not tell.
    pub max_running: Option<u64>,
    /// Whether bodies tell the servers whose turn it is.
    pub priority_hints: bool,
}

/// Servers that are being asked.
pub(crate) struct Watch {
    pool: Arc<str>,
    replicas: usize,
    poller: Poller,
}

impl Watch {
    /// Why replicas of a pool are not heard of, by their place; empty where all are.
    pub(crate) fn faults(&self, pool: &str) -> Vec<String> {
        let watched = (0..self.replicas).filter(|_| *self.pool == *pool);
        let fault = |replica| Some(format!("replica {replica}: {}", self.poller.state(replica)?.fault?));
        watched.filter_map(fault).collect()
    }
}

/// A gate with what is known of its pools, and who asks for it.
pub(crate) fn gate(
    policy: Policy,
    upstream: &Upstream,
    metrics: Option<&Metrics>,
) -> Result<(Gate, Option<Watch>), String> {
    let named: BTreeSet<Arc<str>> = policy.plan().models.values().filter_map(|model| model.pool.clone()).collect();
    let builder = Gate::builder(policy);
    if let Upstream::Simulated(simulation) = upstream
        && let Some((replicas, clock)) = simulation.replicas()
    {
        let builder = builder.clock(clock);
        let gate = named.into_iter().fold(builder, |builder, pool| builder.pool(pool, replicas.clone())).build();
        return Ok((gate, None));
    }
    let Some(metrics) = metrics else { return Ok((builder.build(), None)) };
    let pool = find(&named, metrics.pool.as_deref())?;
    let told = |why: String| format!("--metrics: {why}");
    let replicas = u16::try_from(metrics.plan.urls.len()).map_err(|_| told("too many addresses".into()))?;
    let plan = metrics.plan.clone();
    let holds: Duration = plan.interval * MISSED + plan.timeout;
    let reported = Arc::new(Reported::new(replicas, holds).declaring(metrics.max_running, None));
    let clock = Arc::new(SystemClock::new());
    let poller = Poller::start(plan, reported.clone(), clock.clone()).map_err(|why| told(why.to_string()))?;
    let gate = builder.clock(clock).pool(pool.clone(), reported).build();
    Ok((gate, Some(Watch { pool, replicas: replicas.into(), poller })))
}

/// The pool that is meant, of those that the policy names.
fn find(named: &BTreeSet<Arc<str>>, wanted: Option<&str>) -> Result<Arc<str>, String> {
    let all = || named.iter().map(|pool| &**pool).collect::<Vec<_>>().join(", ");
    match (wanted, named.first()) {
        (_, None) => Err("--metrics: no model of the policy names a pool".into()),
        (None, Some(only)) if named.len() == 1 => Ok(only.clone()),
        (None, _) => Err(format!("--pool: which one; the policy names {}", all())),
        (Some(wanted), _) => {
            named.get(wanted).cloned().ok_or_else(|| format!("--pool {wanted}: the policy names {}", all()))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_that_is_meant() {
        let named = |names: &[&str]| names.iter().map(|name| Arc::from(*name)).collect::<BTreeSet<Arc<str>>>();
        for (names, wanted, found) in [
            (&["a"][..], None, Ok("a")),
            (&["a", "b"], Some("b"), Ok("b")),
            (&["a", "b"], None, Err("--pool: which one; the policy names a, b")),
            (&["a", "b"], Some("c"), Err("--pool c: the policy names a, b")),
            (&[], Some("a"), Err("--metrics: no model of the policy names a pool")),
        ] {
            let pool = find(&named(names), wanted);
            assert_eq!(pool.as_deref().map_err(String::as_str), found, "{names:?} {wanted:?}");
        }
    }
}
