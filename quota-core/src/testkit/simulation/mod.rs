//! The simulation: whole gates in virtual time under load and faults, thousands of runs that can be repeated.
//!
//! Floor 5. Invariant: one thread, one seed, one run: nothing of the machine, its clock or its hash maps decides what
//! happens.
//!
//! A run has the gate with its memory store behind [`Failing`](super::Failing), a simulated pool, a
//! [`ManualClock`](crate::ManualClock) and a few thousand requests of one of six [`Load`]s. Beside it the ledger keeps the
//! books once more. Each answer and each entry of the journal is held against it as it comes; at the end everything is
//! resolved, and balances, journal, queues and pools are compared.
//!
//! ```
//! use quota_core::testkit::simulation::{Setup, Trace, run};
//!
//! let mut trace = Trace::default();
//! let summary = run(&Setup { requests: 200, ..Setup::new(7) }, &mut trace)?;
//! assert!(summary.admitted > 0);
//! # Ok::<(), quota_core::testkit::simulation::Broken>(())
//! ```

mod acts;
mod agenda;
mod dice;
mod faults;
mod finish;
mod job;
mod ledger;
mod load;
mod scene;
mod tape;
mod trace;
mod world;

use std::fmt;
use std::sync::Arc;

pub use self::load::Load;
pub use self::trace::Trace;
use self::world::World;
use crate::time::Clock;

/// Which run it is.
#[derive(Clone)]
pub struct Setup {
    /// Everything that looks random follows from it.
    pub seed: u64,
    /// Requests that arrive, retries not counted.
    pub requests: u64,
    /// The clock by which the time within the gate is measured, if it is.
    pub stopwatch: Option<Arc<dyn Clock>>,
}

impl Setup {
    /// A run of 2,000 requests.
    pub fn new(seed: u64) -> Setup {
        Setup { seed, requests: 2000, stopwatch: None }
    }
}

/// What happened in a run, by numbers.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Summary {
    /// The load.
    pub load: Option<Load>,
    /// Requests made of the gate, retries included.
    pub asked: u64,
    /// Leases given out.
    pub admitted: u64,
    /// Refusals.
    pub refused: u64,
    /// Requests that waited.
    pub queued: u64,
    /// Those whose asker left, waiting or in the middle of the answer.
    pub left: u64,
    /// Endings that were the first.
    pub ended: u64,
    /// Endings that repeated the first.
    pub repeats: u64,
    /// Endings with other figures than the first.
    pub conflicts: u64,
    /// Leases that were dropped.
    pub dropped: u64,
    /// Leases that expired, or were closed after they had been unresolved for long enough.
    pub expired: u64,
    /// Holds that were raised.
    pub extended: u64,
    /// Late settlements that arrived.
    pub letters: u64,
    /// Trips to the store that failed alone, and reservations among them that nobody was told of.
    pub faults: u64,
    /// Those reservations.
    pub lost: u64,
    /// How often the store was gone for a while.
    pub outages: u64,
    /// Policies that came into force in the middle.
    pub reloads: u64,
    /// Corrections of the wall clock.
    pub corrections: u64,
    /// Balances that were compared.
    pub balances: u64,
    /// Accounts that were compared with the journal's replay.
    pub replayed: u64,
    /// The longest wait, in nanoseconds of the engine.
    pub longest_wait: u64,
    /// How long it took in virtual time, in nanoseconds.
    pub simulated: u64,
    /// Nanoseconds within the gate, and its calls, where there is a [`Setup::stopwatch`].
    pub in_gate: u64,
    /// Those calls.
    pub calls: u64,
}

/// A run in which something was wrong: what, and with which request or lease.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub struct Broken {
    /// The run.
    pub seed: u64,
    /// What was found.
    pub found: String,
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "seed {}: {}", self.seed, self.found)
    }
}

/// Makes a run. `trace` has the last things that happened, also where the run ends by a panic.
///
/// # Errors
/// [`Broken`] at the first thing that is not as the ledger has it.
pub fn run(setup: &Setup, trace: &mut Trace) -> Result<Summary, Broken> {
    World::new(setup, trace).run().map_err(|found| Broken { seed: setup.seed, found })
}
