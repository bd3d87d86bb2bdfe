//! Pressure: how full the host says each pool is.
//!
//! Floor 3. Invariant: only the policy's pools are kept, so that what is kept is bounded; setting and reading take no lock.

use std::collections::HashMap;
use std::sync::Arc;

use super::Gate;
use crate::policy::plan::Plan;
use crate::store::Store;
use crate::sync::{AtomicU32, Ordering};

/// The pressure on each pool of a plan.
pub(super) struct Pools(HashMap<Arc<str>, Arc<AtomicU32>>);

impl Pools {
    /// The pools of a plan; one that `before` has too goes on with its pressure.
    pub(super) fn of(plan: &Plan, before: Option<&Pools>) -> Pools {
        let names = plan.models.values().filter_map(|model| model.pool.clone());
        let known = |name: &Arc<str>| before.and_then(|before| before.0.get(name)).cloned();
        Pools(names.map(|name| (name.clone(), known(&name).unwrap_or_default())).collect())
    }

    /// The pressure in percent; `None` for a pool that the plan does not name.
    pub(super) fn percent(&self, pool: &str) -> Option<u8> {
        // ORDERING: relaxed; the percentage is a figure by itself, and one of an instant ago decides as well.
        self.0.get(pool).map(|percent| percent.load(Ordering::Relaxed) as u8)
    }
}

impl<S: Store> Gate<S> {
    /// States how full a pool is, in percent (more than 100 is 100), for steps of degrading with `pool_above`. It holds
    /// until it is stated again, over reloads too; a pool of which nothing was stated is at 0.
    ///
    /// `false`, and nothing is kept, for a pool that no model of the policy in force names.
    pub fn set_pressure(&self, pool: &str, percent: u8) -> bool {
        self.shared().wired(|wiring| match wiring.pools.0.get(pool) {
            Some(kept) => {
                // ORDERING: relaxed, as in `percent`.
                kept.store(percent.min(100) as u32, Ordering::Relaxed);
                true
            }
            None => false,
        })
    }

    /// How full a pool was stated to be, in percent; `None` for one that no model of the policy in force names.
    pub fn pressure(&self, pool: &str) -> Option<u8> {
        self.shared().wired(|wiring| wiring.pools.percent(pool))
    }
}
