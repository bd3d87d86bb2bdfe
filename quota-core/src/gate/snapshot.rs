//! The snapshot: everything that a gate has counted, at one moment.
//!
//! Floor 3. Invariant: reading it changes nothing; a name in it is one of the policy, a lane or a code, never a user or a key.

use std::collections::BTreeMap;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Gate, PoolFigures};
use crate::reason::Reason;
use crate::store::Store;
use crate::tally::{Counter, Tally};
use crate::units::Meter;

/// Everything that a gate has counted.
pub struct Snapshot {
    /// By tenant and model.
    pub models: BTreeMap<(Arc<str>, Arc<str>), Arc<Tally>>,
    /// By lane; refusals before a lane was found are not among them.
    pub lanes: BTreeMap<Arc<str>, Arc<Tally>>,
    /// Refusals that belong to no tenant and model of the policy.
    pub strangers: Arc<Tally>,
    /// The queues in front of the pools, by name.
    pub pools: Vec<PoolFigures>,
}

impl Snapshot {
    /// Requests waiting, by tenant; those with none are left out.
    pub fn waiting_tenants(&self) -> BTreeMap<Arc<str>, u64> {
        let mut waiting = BTreeMap::new();
        let lanes = self.pools.iter().flat_map(|pool| &pool.queue.lanes);
        for tenant in lanes.flat_map(|lane| &lane.tenants).filter(|tenant| tenant.flow.queued > 0) {
            *waiting.entry(tenant.tenant.clone()).or_default() += u64::from(tenant.flow.queued);
        }
        waiting
    }

    /// Requests waiting, by lane.
    pub fn waiting_lanes(&self) -> BTreeMap<Arc<str>, u64> {
        let mut waiting = BTreeMap::new();
        for lane in self.pools.iter().flat_map(|pool| &pool.queue.lanes) {
            *waiting.entry(lane.lane.clone()).or_default() += lane.queued;
        }
        waiting
    }

    /// All of it as JSON, with the names of [`Counter`]; money is decimal text, times are nanoseconds.
    pub fn to_json(&self) -> Value {
        let models = self.models.iter().map(|((tenant, model), tally)| {
            let mut line = counted(tally);
            line["tenant"] = json!(tenant);
            line["model"] = json!(model);
            line["output_p95"] = json!(tally.p95());
            line
        });
        let lanes = self.lanes.iter().map(|(lane, tally)| {
            let mut line = counted(tally);
            line["lane"] = json!(lane);
            line
        });
        let pools = self.pools.iter().map(|pool| {
            let mut line = pool.queue.to_json();
            line["pool"] = json!(pool.pool);
            line["percent"] = json!(pool.percent);
            line["gated"] = json!(pool.gated);
            line
        });
        json!({
            "models": models.collect::<Vec<_>>(),
            "lanes": lanes.collect::<Vec<_>>(),
            "strangers": counted(&self.strangers),
            "pools": pools.collect::<Vec<_>>(),
        })
    }
}

fn counted(tally: &Tally) -> Value {
    let mut line: Value = Counter::ALL
        .into_iter()
        .map(|counter| {
            let count = tally.get(counter);
            let shown = if counter.is_money() { json!(Meter::Money.show(count)) } else { json!(count) };
            (counter.name().to_owned(), shown)
        })
        .collect();
    let reasons = Reason::ALL.iter().map(|reason| (reason.code(), tally.reason(*reason)));
    line["reasons"] = reasons.filter(|(_, count)| *count > 0).map(|(code, n)| (code.to_owned(), json!(n))).collect();
    line
}

impl<S: Store> Gate<S> {
    /// What has been counted since the gate was built.
    pub fn snapshot(&self) -> Snapshot {
        let tallies = &self.shared().tallies;
        Snapshot {
            models: tallies.models.pin().iter().map(|(key, tally)| (key.clone(), tally.clone())).collect(),
            lanes: tallies.by_lane.pin().iter().map(|(key, tally)| (key.clone(), tally.clone())).collect(),
            strangers: tallies.strangers.clone(),
            pools: self.pools(),
        }
    }
}
