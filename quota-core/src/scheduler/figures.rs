//! Figures: what a scheduler shows of itself.
//!
//! Floor 2. Invariant: counters only grow; everything is of one moment.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::drr::FlowFigures;
use super::valve::ValveFigures;

/// Upper bounds of the waits that are counted apart, in milliseconds; longer ones come last.
pub const WAIT_BOUNDS_MS: [u64; 10] = [1, 10, 50, 100, 500, 1000, 3000, 10_000, 30_000, 60_000];

/// What became of the requests of a lane or of a tenant in it, since the scheduler was made or the tenant was last forgotten.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Counts {
    /// Turns given, by how long was waited for them: up to each of [`WAIT_BOUNDS_MS`], then longer.
    pub waits: [u64; WAIT_BOUNDS_MS.len() + 1],
    /// The sum of these waits, in nanoseconds.
    pub waited: u64,
    /// The longest of them, in nanoseconds.
    pub longest_wait: u64,
    /// Turns given back because a limit had no room.
    pub put_back: u64,
    /// Turns that ended before the request started: its limits refused it, or whoever asked had left.
    pub unused: u64,
    /// Refused because a queue was full.
    pub full: u64,
    /// Refused because they would have waited too long.
    pub overloaded: u64,
    /// Refused because they had waited too long.
    pub timed_out: u64,
    /// Left while they waited.
    pub left: u64,
}

impl Counts {
    pub(super) fn dispatched(&mut self, waited: u64) {
        let at = WAIT_BOUNDS_MS.iter().position(|bound| waited <= bound * 1_000_000);
        self.waits[at.unwrap_or(WAIT_BOUNDS_MS.len())] += 1;
        self.waited = self.waited.saturating_add(waited);
        self.longest_wait = self.longest_wait.max(waited);
    }
}

/// A tenant in a lane.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TenantFigures {
    /// Its name.
    pub tenant: Arc<str>,
    /// What waits and runs for it, its deficit and what it was served.
    pub flow: FlowFigures,
    /// What became of its requests.
    pub counts: Counts,
}

/// A lane of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneFigures {
    /// Its name.
    pub lane: Arc<str>,
    /// Requests that wait in it.
    pub queued: u64,
    /// What it may still spend against the other lanes, in milli-units of work; negative is debt.
    pub deficit: i64,
    /// Work of its requests that have ended, in milli-units.
    pub served: u64,
    /// What a tenant of weight 1 gains in a round, in milli-units of work.
    pub quantum: u64,
    /// What became of its requests.
    pub counts: Counts,
    /// Its tenants by name: those that have something here, and those that had lately.
    pub tenants: Vec<TenantFigures>,
}

/// A scheduler at one moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Figures {
    /// Its lanes, in the order of the policy.
    pub lanes: Vec<LaneFigures>,
    /// What is in flight and what may be.
    pub valve: ValveFigures,
    /// The work served a second while there is a backlog, in milli-units; `None` before a second of backlog.
    pub pace: Option<u64>,
    /// How old the newest report of the pool is; `None` if there was none.
    pub staleness: Option<Duration>,
    /// How long after its turn a request's first token comes, newer ones weighing more.
    pub to_first_token: Duration,
    /// Lanes and flows looked at to choose, since the start.
    pub visits: u64,
}

impl Figures {
    /// All of it as JSON: times in nanoseconds, work in milli-units.
    pub fn to_json(&self) -> Value {
        let lanes = self.lanes.iter().map(|lane| {
            let tenants = lane.tenants.iter().map(|tenant| {
                json!({
                    "tenant": tenant.tenant,
                    "queued": tenant.flow.queued,
                    "in_flight": tenant.flow.in_flight,
                    "deficit": tenant.flow.deficit,
                    "served": tenant.flow.served,
                    "blocked": tenant.flow.blocked,
                    "counts": tenant.counts.to_json(),
                })
            });
            json!({
                "lane": lane.lane,
                "queued": lane.queued,
                "deficit": lane.deficit,
                "served": lane.served,
                "quantum": lane.quantum,
                "counts": lane.counts.to_json(),
                "tenants": tenants.collect::<Vec<_>>(),
            })
        });
        json!({
            "in_flight": self.valve.in_flight,
            "most": self.valve.most,
            "kept": self.valve.kept,
            "most_kept": self.valve.most_kept,
            "pace": self.pace,
            "staleness_ns": self.staleness.map(nanos),
            "to_first_token_ns": nanos(self.to_first_token),
            "lanes": lanes.collect::<Vec<_>>(),
        })
    }
}

impl Counts {
    fn to_json(&self) -> Value {
        json!({
            "turns": self.waits.iter().sum::<u64>(),
            "waited_ns": self.waited,
            "longest_wait_ns": self.longest_wait,
            "put_back": self.put_back,
            "unused": self.unused,
            "full": self.full,
            "overloaded": self.overloaded,
            "timed_out": self.timed_out,
            "left": self.left,
        })
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}
