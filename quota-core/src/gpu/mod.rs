//! GPU backends: how full a pool of replicas is, and as of when.
//!
//! Floor 2. Invariant: nothing here waits, and what a server does not report is absent, never zero.
//!
//! | to | use |
//! |---|---|
//! | declare what a pool holds | [`FixedPool`] |
//! | read what an engine's server tells | [`Dialect::read`] |
//! | keep the newest of each replica | [`Reported`], a backend that pollers and hosts write to |
//! | try something without a GPU | [`SimulatedPool`](simulated::SimulatedPool), or its model alone: [`simulated::Simulator`] |
//! | tell an engine whose turn it is | [`Dialect::priority`] |
//!
//! ```
//! use std::time::Duration;
//!
//! use quota_core::gpu::{Dialect, GpuBackend, Reported};
//! use quota_core::time::Now;
//!
//! let pool = Reported::new(2, Duration::from_secs(5)).declaring(Some(256), None);
//! let text = r#"vllm:num_requests_running{engine="0",model_name="small"} 12"#;
//! let now = Now::at(1_000_000_000);
//! pool.report(0, Dialect::Vllm.read(text, Some("small"))?.load, now);
//! let load = pool.load(now);
//! assert_eq!((load.replicas[0].running, load.replicas[0].max_running), (Some(12), Some(256)));
//! assert!(load.replicas[1].stale); // it has never reported, which is not the same as being idle
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod dialect;
pub mod exposition;
mod figures;
mod fixed;
mod hint;
mod reported;
pub mod simulated;

pub use dialect::{Dialect, Read, Unreadable};
pub use fixed::FixedPool;
pub use hint::PriorityHint;
pub use reported::Reported;

use crate::time::Now;

/// How full a pool is; one of the five seams. The valve in front of the pool is its only reader.
pub trait GpuBackend: Send + Sync + 'static {
    /// The newest that is known. Returns at once: whatever has to be fetched is fetched elsewhere.
    fn load(&self, now: Now) -> Load;

    /// Whether replicas are measured, so that the valve can follow them; `false` where only their capacity is declared.
    fn reports(&self) -> bool {
        true
    }
}

impl<B: GpuBackend + ?Sized> GpuBackend for std::sync::Arc<B> {
    fn load(&self, now: Now) -> Load {
        (**self).load(now)
    }

    fn reports(&self) -> bool {
        (**self).reports()
    }
}

/// What is known of a pool's replicas.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Load {
    /// One for each replica that the backend knows of, in an order of its own.
    pub replicas: Vec<ReplicaLoad>,
}

impl Load {
    /// The replicas whose figures hold: those that are not stale.
    pub fn fresh(&self) -> impl Iterator<Item = &ReplicaLoad> {
        self.replicas.iter().filter(|replica| !replica.stale)
    }

    /// Whether there is no replica whose figures hold. A valve then keeps its last value or closes; the pool is not idle.
    pub fn is_stale(&self) -> bool {
        self.fresh().next().is_none()
    }
}

/// What one replica reports. A field that its server does not report is `None`; counts are below 2^52.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ReplicaLoad {
    /// Requests in the running batch, over all engines of the replica.
    pub running: Option<u64>,
    /// Requests that wait inside the server, over all engines of the replica.
    pub waiting: Option<u64>,
    /// The part of the memory for keys and values that is in use, in millionths (0 to 1 000 000); of several engines the fullest.
    pub kv_used_ppm: Option<u32>,
    /// How many tokens that memory holds (at least 1), over all engines of the replica.
    pub kv_tokens: Option<u64>,
    /// The most requests that run at once (at least 1), over all engines of the replica.
    pub max_running: Option<u64>,
    /// Requests thrown back for lack of memory since the server started.
    pub preemptions: Option<u64>,
    /// Nanoseconds of engine time (`Now::mono`) at which this was measured; `None` where it is declared, not measured.
    /// An engine that rests may not refresh its figures, so they can be older.
    pub as_of: Option<u64>,
    /// Whether the figures no longer hold: they are the last that are known, and older than they may be, or there never
    /// were any. `false` where they are declared.
    pub stale: bool,
}

impl ReplicaLoad {
    /// Whether there is no figure at all, whatever the age says.
    pub fn is_empty(&self) -> bool {
        let counts = [self.running, self.waiting, self.kv_tokens, self.max_running, self.preemptions];
        self.kv_used_ppm.is_none() && counts.iter().all(Option::is_none)
    }
}
