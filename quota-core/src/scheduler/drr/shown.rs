//! What the rule shows of itself: waits that are to be expected, paces and figures.
//!
//! Floor 2. Invariant: nothing here changes anything.

use super::flows::FlowId;
use super::jobs::Demand;
use super::ring::{Standing, own_quantum};
use super::{Drr, Mode};

/// Figures of a flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FlowFigures {
    /// Jobs that wait.
    pub queued: u32,
    /// Jobs that are being served.
    pub in_flight: u32,
    /// What it may still spend, in milli-units of work; negative is debt.
    pub deficit: i64,
    /// Work of its jobs that have ended, in milli-units.
    pub served: u64,
    /// Whether it may not be served at present.
    pub blocked: bool,
}

impl<T> Drr<T> {
    /// How long a job enqueued now would wait, in nanoseconds: what waits before it in its flow at the pace at which the flow is
    /// served, or at its share of the pool's. 0 for a flow that would be sparse; `None` before the paces are known.
    pub fn predicted_wait(&self, flow: FlowId, demand: &Demand) -> Option<u64> {
        let at = self.flows.find(flow)?;
        let state = &self.flows[at];
        let lane = &self.lanes[u32::from(state.lane)];
        let own = own_quantum(state.node.weight, lane.flow_quantum());
        let idle = state.node.standing == Standing::Idle;
        if idle && lane.flows.debt(&state.node, lane.flow_quantum()) < own {
            return Some(0);
        }
        let busy = self.busy.passed();
        let pool = u128::from(self.pace.per_second(busy)?);
        let added =
            |active: u64, idle: bool, weight: u32| u128::from(active + if idle { u64::from(weight) } else { 0 });
        let lanes = match self.mode {
            Mode::Weighted => added(self.ring.active_weight, lane.node.standing == Standing::Idle, lane.node.weight),
            Mode::PriorityWithFloor => u128::from(lane.node.weight),
        };
        let flows = added(lane.flows.active_weight, idle, state.node.weight);
        let share = pool * u128::from(lane.node.weight) / lanes.max(1) * u128::from(state.node.weight) / flows.max(1);
        let measured = u128::from(state.pace.per_second(busy).unwrap_or(0));
        let work = u128::from(state.queued_work) + u128::from(demand.charge());
        let wait = work * u128::from(crate::time::SECOND) / share.max(measured).max(1);
        Some(u64::try_from(wait).unwrap_or(u64::MAX))
    }

    /// How much work is served a second while there is a backlog, in milli-units; `None` before a second of backlog.
    pub fn pace(&self) -> Option<u64> {
        self.pace.per_second(self.busy.passed())
    }

    /// How many jobs wait and could be served.
    pub fn ready(&self) -> u64 {
        self.ready
    }

    /// How many jobs wait in a lane, blocked and set aside ones too.
    pub fn queued(&self, lane: u16) -> u64 {
        self.lanes.0.get(lane as usize).map_or(0, |lane| u64::from(lane.queued))
    }

    /// A lane's deficit and the work of its jobs that have ended, in milli-units.
    pub fn lane_figures(&self, lane: u16) -> Option<(i64, u64)> {
        self.lanes.0.get(lane as usize).map(|lane| (lane.node.deficit, lane.served))
    }

    /// How many jobs are in a flow's line; those that are set aside are not.
    pub fn line_of(&self, flow: FlowId) -> u32 {
        self.flows.find(flow).map_or(0, |at| self.flows[at].queued)
    }

    /// Figures of a flow; `None` once it was collected.
    pub fn figures(&self, flow: FlowId) -> Option<FlowFigures> {
        let flow = &self.flows[self.flows.find(flow)?];
        Some(FlowFigures {
            queued: flow.queued + flow.aside,
            in_flight: flow.in_flight,
            deficit: flow.node.deficit,
            served: flow.served,
            blocked: flow.node.standing == Standing::Blocked,
        })
    }

    /// How many nodes were looked at to choose, over all choices and both levels.
    pub fn visits(&self) -> u64 {
        self.ring.visits + self.lanes.0.iter().map(|lane| lane.flows.visits).sum::<u64>()
    }

    /// What a flow of weight 1 gains in a round of its lane, in milli-units of work.
    pub fn quantum(&self, lane: u16) -> Option<u64> {
        self.lanes.0.get(lane as usize).map(|lane| lane.flow_quantum() as u64)
    }
}
