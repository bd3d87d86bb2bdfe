//! Flows: each tenant's line in a lane, in one arena, and the line of those at rest.
//!
//! Floor 2. Invariant: only a flow with nothing queued, set aside or in flight is at rest, since the moment at which the last of these ended.

use super::jobs::Ends;
use super::ring::{Line, NONE, Node, Nodes, Standing};
use crate::scheduler::pace::Pace;

/// A tenant's line in a lane. An id whose flow was collected finds nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct FlowId {
    pub(super) at: u32,
    pub(super) generation: u32,
}

/// What every decision about a flow needs comes first, so that it is in one cache line.
#[derive(Debug, Default)]
#[repr(C, align(64))]
pub(super) struct Flow {
    pub(super) node: Node,
    pub(super) line: Ends,
    /// Jobs in its line.
    pub(super) queued: u32,
    pub(super) in_flight: u32,
    /// Work of the queued jobs, set aside or not, in milli-units.
    pub(super) queued_work: u64,
    generation: u32,
    pub(super) lane: u16,
    /// Whether it is in the line of those at rest.
    resting: bool,
    free: bool,
    /// Jobs that wait outside of its line.
    pub(super) aside: u32,
    /// How many more may go before it is blocked again; 0: any number.
    pub(super) tries: u32,
    /// Work of what has ended, in milli-units.
    pub(super) served: u64,
    pub(super) pace: Pace,
    /// Nanoseconds of engine time.
    idle_since: u64,
}

#[derive(Debug)]
pub(super) struct Flows {
    slots: Vec<Flow>,
    free: u32,
    most: usize,
    resting: Line,
    /// The time of the act that is under way.
    pub(super) now: u64,
}

impl std::ops::Index<u32> for Flows {
    type Output = Flow;

    fn index(&self, at: u32) -> &Flow {
        &self.slots[at as usize]
    }
}

impl std::ops::IndexMut<u32> for Flows {
    fn index_mut(&mut self, at: u32) -> &mut Flow {
        &mut self.slots[at as usize]
    }
}

impl Nodes for Flows {
    fn node(&self, at: u32) -> &Node {
        &self[at].node
    }

    fn node_mut(&mut self, at: u32) -> &mut Node {
        &mut self[at].node
    }

    fn is_empty(&self, at: u32) -> bool {
        self[at].queued == 0
    }

    fn rested(&mut self, at: u32) {
        self.rest(at);
    }
}

impl Flows {
    pub(super) fn new(most: usize) -> Flows {
        Flows { slots: Vec::new(), free: NONE, most: most.min(NONE as usize), resting: Line::default(), now: 0 }
    }

    /// A new flow, at rest; `None` at the bound.
    pub(super) fn insert(&mut self, lane: u16, weight: u32) -> Option<u32> {
        let at = match self.free {
            NONE if self.slots.len() >= self.most => return None,
            NONE => {
                self.slots.push(Flow::default());
                self.slots.len() as u32 - 1
            }
            free => {
                self.free = self[free].node.next;
                free
            }
        };
        let generation = self[at].generation;
        self[at] = Flow { lane, generation, ..Flow::default() };
        self[at].node.weight = weight;
        self.rest(at);
        Some(at)
    }

    pub(super) fn id(&self, at: u32) -> FlowId {
        FlowId { at, generation: self[at].generation }
    }

    pub(super) fn find(&self, id: FlowId) -> Option<u32> {
        let flow = self.slots.get(id.at as usize)?;
        (flow.generation == id.generation && !flow.free).then_some(id.at)
    }

    /// Puts a flow into the line of those at rest if it has nothing left.
    pub(super) fn rest(&mut self, at: u32) {
        let flow = &self[at];
        let left = flow.queued + flow.aside + flow.in_flight;
        if left > 0 || flow.resting || flow.node.standing != Standing::Idle {
            return;
        }
        let now = self.now;
        self[at].resting = true;
        self[at].idle_since = now;
        self.relink(|line, flows| line.push_back(flows, at));
    }

    /// Takes a flow out of that line, because something has come for it.
    pub(super) fn rouse(&mut self, at: u32) {
        if self[at].resting {
            self[at].resting = false;
            self.relink(|line, flows| line.remove(flows, at));
        }
    }

    fn relink(&mut self, change: impl FnOnce(&mut Line, &mut Flows)) {
        let mut line = std::mem::take(&mut self.resting);
        change(&mut line, self);
        self.resting = line;
    }

    /// The flow that has been at rest longest, and since when.
    pub(super) fn longest_at_rest(&self) -> Option<(u32, u64)> {
        self.resting.head().map(|at| (at, self[at].idle_since))
    }

    /// Lets a flow begin its rest again.
    pub(super) fn rest_again(&mut self, at: u32) {
        self.rouse(at);
        self.rest(at);
    }

    /// Forgets a flow at rest.
    pub(super) fn remove(&mut self, at: u32) {
        self.rouse(at);
        let free = self.free;
        let flow = &mut self[at];
        flow.generation = flow.generation.wrapping_add(1);
        flow.free = true;
        flow.node.next = free;
        self.free = at;
    }

    /// How many are at rest.
    pub(super) fn at_rest(&self) -> u32 {
        self.resting.len()
    }
}
