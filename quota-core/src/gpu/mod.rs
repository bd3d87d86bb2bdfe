//! GPU backends: how full a pool of replicas is, and as of when.
//!
//! Floor 2. Invariant: nothing here waits, and what a server does not report is absent, never zero.

use crate::time::Now;

pub mod simulated;

/// How full a pool is; one of the five seams. The valve in front of the pool is its only reader.
pub trait GpuBackend: Send + Sync + 'static {
    /// The newest that is known. Returns at once: whatever has to be fetched is fetched elsewhere.
    fn load(&self, now: Now) -> Load;
}

/// What is known of a pool's replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// One for each replica that the backend knows of, in an order of its own.
    pub replicas: Vec<ReplicaLoad>,
}

/// What one replica reports. A field that its server does not report is `None`.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// Requests in the running batch.
    pub running: Option<u64>,
    /// Requests that wait inside the server.
    pub waiting: Option<u64>,
    /// The part of the memory for keys and values that is in use, in millionths (0 to 1 000 000); of several engines the fullest.
    pub kv_used_ppm: Option<u32>,
    /// How many tokens that memory holds.
    pub kv_tokens: Option<u64>,
    /// The most requests that run at once.
    pub max_running: Option<u64>,
    /// Requests thrown back for lack of memory since the server started.
    pub preemptions: Option<u64>,
    /// Nanoseconds of engine time (`Now::mono`) at which this was measured; `None` where it is declared, not measured.
    pub as_of: Option<u64>,
}
