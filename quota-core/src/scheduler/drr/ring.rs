//! The ring: surplus deficit round robin over the nodes of one level, with a line for nodes that come back from rest.
//!
//! Floor 2. Invariant: a node is linked in at most one line, and in a turn of the ring each node that has something to
//! serve gains its quantum once.

/// No node.
pub(super) const NONE: u32 = u32::MAX;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum Standing {
    /// Has nothing to serve and is in no line. Its credit is gone, its debt is kept.
    #[default]
    Idle,
    /// Came back from rest without debt: served before the others, until its first quantum is spent.
    Sparse,
    /// In turn with the others.
    Busy,
    /// May not be served at present: keeps its deficit and earns nothing.
    Blocked,
}

/// What the ring keeps of a lane or of a flow.
#[derive(Debug, Default)]
pub(super) struct Node {
    /// What it may still spend, in milli-units of work; negative is debt.
    pub(super) deficit: i64,
    /// Its share against the other nodes; at least 1.
    pub(super) weight: u32,
    pub(super) standing: Standing,
    /// Whether it has had its quantum on this visit.
    granted: bool,
    /// The ring's round when it came to rest.
    left: u64,
    pub(super) next: u32,
    pub(super) prev: u32,
}

/// The nodes that a ring runs over.
pub(super) trait Nodes {
    fn node(&self, at: u32) -> &Node;
    fn node_mut(&mut self, at: u32) -> &mut Node;
    /// Whether the node has nothing to serve.
    fn is_empty(&self, at: u32) -> bool;
    /// Told that the node has come to rest.
    fn rested(&mut self, at: u32);
}

/// A doubly linked line through the nodes.
#[derive(Debug)]
pub(super) struct Line {
    head: u32,
    tail: u32,
    len: u32,
}

impl Default for Line {
    fn default() -> Line {
        Line { head: NONE, tail: NONE, len: 0 }
    }
}

impl Line {
    pub(super) fn head(&self) -> Option<u32> {
        (self.head != NONE).then_some(self.head)
    }

    pub(super) fn len(&self) -> u32 {
        self.len
    }

    pub(super) fn push_back(&mut self, nodes: &mut impl Nodes, at: u32) {
        let node = nodes.node_mut(at);
        (node.prev, node.next) = (self.tail, NONE);
        match self.tail {
            NONE => self.head = at,
            tail => nodes.node_mut(tail).next = at,
        }
        self.tail = at;
        self.len += 1;
    }

    fn push_front(&mut self, nodes: &mut impl Nodes, at: u32) {
        let node = nodes.node_mut(at);
        (node.prev, node.next) = (NONE, self.head);
        match self.head {
            NONE => self.tail = at,
            head => nodes.node_mut(head).prev = at,
        }
        self.head = at;
        self.len += 1;
    }

    pub(super) fn remove(&mut self, nodes: &mut impl Nodes, at: u32) {
        let (prev, next) = (nodes.node(at).prev, nodes.node(at).next);
        match prev {
            NONE => self.head = next,
            prev => nodes.node_mut(prev).next = next,
        }
        match next {
            NONE => self.tail = prev,
            next => nodes.node_mut(next).prev = prev,
        }
        self.len -= 1;
    }
}

/// One level of the round robin.
#[derive(Debug, Default)]
pub(super) struct Ring {
    sparse: Line,
    busy: Line,
    /// How many turns the ring has made.
    round: u64,
    /// Visits until the next turn begins.
    left_in_round: u32,
    /// What a weight of 1 gains in this round: all nodes gain by the same quantum, whatever was served meanwhile.
    quantum: i64,
    /// Visits in a row at which nobody could be served.
    fruitless: u32,
    /// The sum of the weights of the nodes that may be served.
    pub(super) active_weight: u64,
    /// How many nodes were looked at, over all choices.
    pub(super) visits: u64,
}

impl Ring {
    /// Lets a node in that has something to serve again. `quantum` is what a weight of 1 would gain in a round that began now.
    ///
    /// Positive credit was dropped when it left; of its debt it has worked off a quantum for every round since.
    pub(super) fn enter(&mut self, nodes: &mut impl Nodes, at: u32, quantum: i64) {
        if self.sparse.len + self.busy.len == 0 {
            self.quantum = quantum;
        }
        let round = self.round;
        let node = nodes.node_mut(at);
        let own = own_quantum(node.weight, self.quantum);
        node.deficit = worked_off(node.deficit, round - node.left, own);
        node.granted = false;
        self.active_weight += u64::from(node.weight);
        if node.deficit > -own {
            node.deficit += own;
            node.standing = Standing::Sparse;
            self.sparse.push_back(nodes, at);
        } else {
            node.standing = Standing::Busy;
            self.busy.push_back(nodes, at);
        }
    }

    /// The debt that a node at rest would still have if it came back now; 0 without debt.
    pub(super) fn debt(&self, node: &Node, quantum: i64) -> i64 {
        match node.standing {
            Standing::Idle => -worked_off(node.deficit, self.round - node.left, own_quantum(node.weight, quantum)),
            _ => (-node.deficit).max(0),
        }
    }

    /// Takes a node out of its turn until [`unblock`](Ring::unblock).
    pub(super) fn block(&mut self, nodes: &mut impl Nodes, at: u32) {
        self.unlink(nodes, at);
        let node = nodes.node_mut(at);
        node.standing = Standing::Blocked;
        self.active_weight -= u64::from(node.weight);
    }

    /// Puts a blocked node back at the head of its line: its turn had come when it was blocked.
    pub(super) fn unblock(&mut self, nodes: &mut impl Nodes, at: u32) {
        let node = nodes.node_mut(at);
        node.standing = Standing::Busy;
        self.active_weight += u64::from(node.weight);
        self.busy.push_front(nodes, at);
        self.fruitless = 0;
    }

    /// Lets a node wait in turn with the others, though it had come back from rest: its turn was of no use to it.
    pub(super) fn no_longer_sparse(&mut self, nodes: &mut impl Nodes, at: u32) {
        if nodes.node(at).standing == Standing::Sparse {
            self.sparse.remove(nodes, at);
            nodes.node_mut(at).standing = Standing::Busy;
            self.busy.push_back(nodes, at);
        }
    }

    /// Brings a node at rest up to the present, so that what it is charged now is not worked off by rounds of before.
    pub(super) fn bring_up(&self, node: &mut Node, quantum: i64) {
        if node.standing == Standing::Idle {
            node.deficit = -self.debt(node, quantum);
            node.left = self.round;
        }
    }

    /// Lets a node rest: credit is dropped, debt is kept.
    pub(super) fn leave(&mut self, nodes: &mut impl Nodes, at: u32) {
        self.unlink(nodes, at);
        let round = self.round;
        let node = nodes.node_mut(at);
        if node.standing != Standing::Blocked {
            self.active_weight -= u64::from(node.weight);
        }
        node.deficit = node.deficit.min(0);
        node.left = round;
        node.standing = Standing::Idle;
        nodes.rested(at);
    }

    /// Changes the weight of a node, wherever it stands.
    pub(super) fn set_weight(&mut self, node: &mut Node, weight: u32) {
        if matches!(node.standing, Standing::Sparse | Standing::Busy) {
            self.active_weight = self.active_weight - u64::from(node.weight) + u64::from(weight);
        }
        node.weight = weight;
    }

    fn unlink(&mut self, nodes: &mut impl Nodes, at: u32) {
        match nodes.node(at).standing {
            Standing::Sparse => self.sparse.remove(nodes, at),
            Standing::Busy => self.busy.remove(nodes, at),
            Standing::Idle | Standing::Blocked => {}
        }
    }

    /// The node whose turn it is; asked again before anything is served, the same one, and nobody gains. Nodes that turn
    /// out to have nothing to serve come to rest on the way, and `rested` is told of them.
    ///
    /// Amortised constant: besides the visits that its grants pay for, a turn in which nobody could be served ends in
    /// one pass over the nodes that gives all of them the rounds they lack.
    pub(super) fn choose(&mut self, nodes: &mut impl Nodes, quantum: i64) -> Option<u32> {
        loop {
            self.visits += 1;
            if let Some(at) = self.sparse.head() {
                if !nodes.is_empty(at) && nodes.node(at).deficit > 0 {
                    return Some(at);
                }
                // Never straight out: who comes back after one request waits a turn before it is sparse again.
                self.sparse.remove(nodes, at);
                nodes.node_mut(at).standing = Standing::Busy;
                self.busy.push_back(nodes, at);
                continue;
            }
            let at = self.busy.head()?;
            if nodes.is_empty(at) {
                // One that was alone and has not spent its quantum used no round that others' debt could be worked off by.
                let used = nodes.node(at).deficit <= 0 || self.busy.len > 1;
                self.leave(nodes, at);
                if used {
                    self.visited(quantum);
                }
                continue;
            }
            let node = nodes.node_mut(at);
            if node.deficit <= 0 && !node.granted {
                node.deficit += own_quantum(node.weight, self.quantum);
                node.granted = true;
            }
            if node.deficit > 0 {
                self.fruitless = 0;
                return Some(at);
            }
            node.granted = false;
            self.busy.remove(nodes, at);
            self.busy.push_back(nodes, at);
            self.visited(quantum);
            self.fruitless += 1;
            if self.fruitless >= self.busy.len {
                self.skip_rounds(nodes);
            }
        }
    }

    /// Ends the visit of a node that has been served and has nothing more to spend, which saves looking at it once more.
    pub(super) fn served(&mut self, nodes: &mut impl Nodes, at: u32, quantum: i64) {
        let node = nodes.node_mut(at);
        if node.deficit > 0 {
            return;
        }
        match node.standing {
            Standing::Sparse => {
                node.standing = Standing::Busy;
                self.sparse.remove(nodes, at);
                self.busy.push_back(nodes, at);
            }
            // One that was served for its age is not at the head: its turn is still to come.
            Standing::Busy if node.granted && self.busy.head == at => {
                node.granted = false;
                self.busy.remove(nodes, at);
                self.busy.push_back(nodes, at);
                self.visited(quantum);
            }
            Standing::Busy | Standing::Idle | Standing::Blocked => {}
        }
    }

    fn visited(&mut self, quantum: i64) {
        self.left_in_round = self.left_in_round.saturating_sub(1);
        if self.left_in_round == 0 {
            self.round += 1;
            self.left_in_round = self.busy.len;
            self.quantum = quantum;
        }
    }

    /// After a turn that served nobody: all rounds but the last of those that the first node to come out of debt needs.
    fn skip_rounds(&mut self, nodes: &mut impl Nodes) {
        self.fruitless = 0;
        let mut least = i64::MAX;
        let mut at = self.busy.head;
        while at != NONE {
            let node = nodes.node(at);
            if !nodes.is_empty(at) {
                least = least.min(rounds_to_credit(node.deficit, own_quantum(node.weight, self.quantum)));
            }
            at = node.next;
        }
        let skipped = least - 1;
        if least == i64::MAX || skipped <= 0 {
            return;
        }
        let mut at = self.busy.head;
        while at != NONE {
            let node = nodes.node_mut(at);
            let gain = own_quantum(node.weight, self.quantum).saturating_mul(skipped);
            node.deficit = node.deficit.saturating_add(gain);
            at = node.next;
        }
        self.round += skipped as u64;
    }
}

/// What a node gains in a round. Weights and quanta are bounded (`MAX_WEIGHT`, `MAX_QUANTUM`) so that this can't overflow.
pub(super) fn own_quantum(weight: u32, quantum: i64) -> i64 {
    i64::from(weight) * quantum
}

/// Rounds until a deficit is above zero; at least 1 for one that is not.
fn rounds_to_credit(deficit: i64, own: i64) -> i64 {
    -deficit / own + 1
}

/// What is left of a debt after so many rounds at rest.
fn worked_off(deficit: i64, rounds: u64, own: i64) -> i64 {
    match deficit {
        0.. => 0,
        debt if rounds >= rounds_to_credit(debt, own) as u64 => 0,
        debt => (debt + rounds as i64 * own).min(0),
    }
}
