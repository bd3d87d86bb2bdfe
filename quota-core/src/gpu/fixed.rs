//! A pool whose capacity is declared: it needs no telemetry.
//!
//! Floor 2. Invariant: what is declared has no age, and how much of it is in use is unknown.

use super::{GpuBackend, Load, ReplicaLoad};
use crate::time::Now;

/// Replicas that are all alike, of which only the capacity is known; what is in flight is counted by whoever sends it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FixedPool {
    replicas: u16,
    each: ReplicaLoad,
}

impl FixedPool {
    /// A pool of `replicas`, each of which runs at most `max_running` requests at once and holds `kv_tokens` tokens of
    /// keys and values, where that is known. With 0 replicas, or 0 requests, there is no room.
    pub fn new(replicas: u16, max_running: u64, kv_tokens: Option<u64>) -> FixedPool {
        let each = ReplicaLoad { max_running: Some(max_running), kv_tokens, ..ReplicaLoad::default() };
        FixedPool { replicas, each }
    }
}

impl GpuBackend for FixedPool {
    fn load(&self, _now: Now) -> Load {
        Load { replicas: vec![self.each.clone(); self.replicas as usize] }
    }

    fn reports(&self) -> bool {
        false
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_declared_never_ages() {
        let pool = FixedPool::new(2, 64, Some(400_000));
        for at in [0, u64::MAX] {
            let load = pool.load(Now::at(at));
            assert!(!load.is_stale());
            assert_eq!(load.replicas.len(), 2);
            let replica = &load.replicas[1];
            assert_eq!((replica.max_running, replica.kv_tokens), (Some(64), Some(400_000)));
            assert_eq!((replica.running, replica.waiting, replica.kv_used_ppm), (None, None, None));
            assert_eq!((replica.as_of, replica.stale), (None, false));
        }
        assert!(FixedPool::new(0, 1, None).load(Now::at(0)).is_stale());
    }
}
