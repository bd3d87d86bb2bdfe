//! Choosing: which flow's turn it is, by the mode of the lanes and by age.
//!
//! Floor 2. Invariant: asked again before anything is dispatched, the answer is the same and nobody gains by it.

use super::lanes::{Lane, Lanes};
use super::ring::{Standing, own_quantum};
use super::{Drr, Mode};

/// One request in so many may go for its age.
const AGED_ONE_IN: u32 = 10;

/// The oldest requests of a lane that are looked at for their age.
const AGED_LOOKS: usize = 8;

/// The quanta of a flow that all lanes gain together in a round: enough that a lane is seldom looked at in vain.
const LANE_QUANTA: i64 = 4;

/// A lane's floor is worked out in millionths.
const WHOLE_PPM: i64 = 1_000_000;

/// The most that a lane is owed under its floor, in quanta of the pool.
const MAX_CREDIT: i64 = 64;

impl<T> Drr<T> {
    /// What a lane of weight 1 gains in a round: its part of so many quanta of the pool.
    pub(super) fn lane_quantum(&self) -> i64 {
        (LANE_QUANTA * self.quantum.get() / self.lanes.weights().max(1)).max(1)
    }

    /// The flow whose head would go, and whether it would for its age.
    pub(super) fn next_flow(&mut self, now: u64) -> Option<(u32, bool)> {
        if self.ready == 0 {
            self.let_rest();
            return None;
        }
        let lane = match self.mode {
            Mode::Weighted => {
                let quantum = self.lane_quantum();
                self.ring.choose(&mut self.lanes, quantum)?
            }
            Mode::PriorityWithFloor => self.by_priority()?,
        };
        if let Some(flow) = self.aged(lane, now) {
            return Some((flow, true));
        }
        let lane = &mut self.lanes[lane];
        let quantum = lane.flow_quantum();
        lane.flows.choose(&mut self.flows, quantum).map(|flow| (flow, false))
    }

    /// Lets lanes and flows rest that have nothing left, which otherwise happens when their turn comes.
    fn let_rest(&mut self) {
        for lane in &mut self.lanes.0 {
            let quantum = lane.flow_quantum();
            lane.flows.choose(&mut self.flows, quantum);
        }
        let quantum = self.lane_quantum();
        self.ring.choose(&mut self.lanes, quantum);
    }

    /// The lowest lane that is owed something under its floor, or else the first that has something.
    fn by_priority(&self) -> Option<u32> {
        let waiting = || self.lanes.0.iter().enumerate().filter(|(_, lane)| lane.ready > 0);
        let rank = |(_, lane): &(usize, &Lane)| lane.rule.rank;
        let first = waiting().min_by_key(rank)?;
        let below = waiting().filter(|lane| rank(lane) > rank(&first) && lane.1.credit > 0);
        Some(below.max_by_key(rank).unwrap_or(first).0 as u32)
    }

    /// Under priorities: a lane that waits is owed its floor of the work of the others, and pays the rest of its own.
    ///
    /// It never owes more than a quantum and its largest request, so that what it took while nobody else asked is not held
    /// against it.
    pub(super) fn charge_floors(&mut self, lane: u32, amount: i64) {
        let quantum = self.quantum.get();
        let part = |floor_ppm: u32, of: i64| {
            let whole = i128::from(of) * i128::from(floor_ppm.min(WHOLE_PPM as u32));
            (whole / i128::from(WHOLE_PPM)) as i64
        };
        let Lanes(lanes) = &mut self.lanes;
        for (at, other) in lanes.iter_mut().enumerate() {
            let floor = other.rule.floor_ppm;
            let change = match at as u32 == lane {
                true => part(floor, amount) - amount,
                false if other.ready > 0 => part(floor, amount),
                false => continue,
            };
            other.credit = other.credit.saturating_add(change).clamp(-quantum - other.largest, MAX_CREDIT * quantum);
        }
    }

    /// The flow of the oldest request of the lane that may go for its age, if it is its turn to look for one.
    fn aged(&self, lane: u32, now: u64) -> Option<u32> {
        let lane = &self.lanes[lane];
        let age = lane.rule.age_after?;
        if lane.since_aged < AGED_ONE_IN - 1 {
            return None;
        }
        let old = |at: &u32| self.jobs[*at].arrived.saturating_add(age) <= now;
        let may_go = |at: &u32| {
            let flow = &self.flows[self.jobs[*at].flow];
            let own = own_quantum(flow.node.weight, lane.flow_quantum());
            let in_turn = matches!(flow.node.standing, Standing::Sparse | Standing::Busy);
            in_turn && flow.line.head == *at && flow.node.deficit > -own
        };
        let oldest = lane.waiting.oldest(&self.jobs).take(AGED_LOOKS);
        oldest.take_while(old).find(may_go).map(|at| self.jobs[at].flow)
    }
}
