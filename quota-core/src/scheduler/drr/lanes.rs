//! Lanes: the classes of queue that share a pool, and how much a round gives.
//!
//! Floor 2. Invariant: a quantum follows the mean cost of a request, between fixed bounds and by no more than twice a minute.

use super::deadlines::Deadlines;
use super::ring::{Node, Nodes, Ring};
use crate::time::SECOND;

/// The least and the most that a weight of 1 gains in a round, in milli-units of work.
const QUANTUM: (u64, u64) = (512_000, 16_384_000);

/// How a lane is run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LaneRule {
    /// Its share against the other lanes, 1 to [`MAX_WEIGHT`](super::MAX_WEIGHT); what is outside counts as the nearer end.
    pub weight: u32,
    /// Its place with [`Mode::PriorityWithFloor`](super::Mode::PriorityWithFloor): the lowest goes first.
    pub rank: u16,
    /// The longest that a request waits, in nanoseconds.
    pub max_wait: u64,
    /// With [`Mode::PriorityWithFloor`](super::Mode::PriorityWithFloor): the part of the work that it gets whatever waits
    /// above it, in millionths.
    pub floor_ppm: u32,
    /// The wait in nanoseconds after which a request goes before the others of its lane, unless its flow is in debt by more than a
    /// quantum. At most one in ten goes so, and it is charged like any other. `None`: no request does.
    pub age_after: Option<u64>,
    /// What a weight of 1 gains in a round, in milli-units of work (at most 16 384 000); `None`: one and a half times the mean cost of a
    /// request.
    pub quantum: Option<u64>,
}

impl Default for LaneRule {
    /// Weight 1, a wait of 30 seconds, no floor, no aging.
    fn default() -> LaneRule {
        LaneRule { weight: 1, rank: 0, max_wait: 30 * SECOND, floor_ppm: 0, age_after: None, quantum: None }
    }
}

#[derive(Debug, Default)]
pub(super) struct Lane {
    pub(super) node: Node,
    pub(super) rule: LaneRule,
    pub(super) flows: Ring,
    pub(super) quantum: Quantum,
    /// All that wait, by deadline.
    pub(super) waiting: Deadlines,
    /// How many wait.
    pub(super) queued: u32,
    /// How many of them could be served.
    pub(super) ready: u32,
    /// Dispatches since one went for its age.
    pub(super) since_aged: u32,
    /// What it may be served out of turn under a floor, in milli-units of work.
    pub(super) credit: i64,
    /// The largest charge of late, in milli-units: it fades by a 64th with each dispatch.
    pub(super) largest: i64,
    /// Work of what has ended, in milli-units.
    pub(super) served: u64,
}

/// The lanes in the order of the policy.
#[derive(Debug, Default)]
pub(super) struct Lanes(pub(super) Vec<Lane>);

impl Lanes {
    /// The sum of all weights.
    pub(super) fn weights(&self) -> i64 {
        self.0.iter().map(|lane| i64::from(lane.node.weight)).sum()
    }
}

impl std::ops::Index<u32> for Lanes {
    type Output = Lane;

    fn index(&self, at: u32) -> &Lane {
        &self.0[at as usize]
    }
}

impl std::ops::IndexMut<u32> for Lanes {
    fn index_mut(&mut self, at: u32) -> &mut Lane {
        &mut self.0[at as usize]
    }
}

impl Nodes for Lanes {
    fn node(&self, at: u32) -> &Node {
        &self[at].node
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self[at].node
    }

    fn is_empty(&self, at: u32) -> bool {
        self[at].ready == 0
    }

    fn rested(&mut self, _: u32) {}
}

/// What a round gives to a weight of 1: one and a half times the mean cost of a request.
#[derive(Debug, Default)]
pub(super) struct Quantum {
    /// The mean cost in milli-units of work, newer requests weighing more.
    mean: u64,
    current: u64,
    minute: u64,
    /// Its value when the minute began.
    base: u64,
}

impl Quantum {
    /// Takes the cost of a request into account.
    pub(super) fn observe(&mut self, cost: u64, now: u64) {
        let (least, most) = QUANTUM;
        let first = self.mean == 0;
        self.mean = if first { cost.max(1) } else { self.mean - self.mean / 64 + cost / 64 };
        let wanted = (self.mean / 2).saturating_mul(3).clamp(least, most);
        let minute = now / (60 * SECOND);
        if first {
            (self.base, self.current, self.minute) = (wanted, wanted, minute);
        }
        if minute != self.minute {
            (self.base, self.minute) = (self.current, minute);
        }
        self.current = wanted.clamp(self.base / 2, self.base * 2);
    }

    /// In milli-units of work.
    pub(super) fn get(&self) -> i64 {
        self.current.max(QUANTUM.0) as i64
    }
}

impl Lane {
    /// What a flow of weight 1 gains in a round.
    pub(super) fn flow_quantum(&self) -> i64 {
        match self.rule.quantum {
            Some(fixed) => fixed.clamp(1, QUANTUM.1) as i64,
            None => self.quantum.get(),
        }
    }
}
