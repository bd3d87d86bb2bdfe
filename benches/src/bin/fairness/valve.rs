//! The static valve that all baselines stand behind: so many requests and so much memory.

use std::collections::HashMap;

use quota_core::gpu::simulated::Shape;

use crate::rule::Ask;

/// How much the pool may hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Width {
    /// Requests.
    pub requests: u64,
    /// Tokens of memory for keys and values.
    pub tokens: u64,
    /// How many places have to be free before a valve that was full opens again; 1 for at once.
    pub lump: u64,
}

impl Width {
    /// The design's: as many requests as can run, and 95 % of the memory.
    pub fn of(shape: &Shape) -> Width {
        let replicas = shape.replicas as u64;
        Width { requests: replicas * shape.max_running, tokens: replicas * shape.kv_tokens * 95 / 100, lump: 1 }
    }

    /// So many times as wide.
    pub fn times(self, factor: f64) -> Width {
        let times = |part: u64| (part as f64 * factor) as u64;
        Width { requests: times(self.requests), tokens: times(self.tokens), ..self }
    }
}

/// What is in the pool, as far as the gateway knows.
#[derive(Debug)]
pub struct Valve {
    width: Width,
    tokens: u64,
    /// Each request's estimated memory, and the part of it that is its prompt.
    inside: HashMap<u64, (u64, u64)>,
    /// Shut when it is full, open when a lump has left.
    open: bool,
}

impl Valve {
    /// A valve over an empty pool.
    pub fn new(width: Width) -> Valve {
        Valve { width, tokens: 0, inside: HashMap::new(), open: true }
    }

    fn estimate(ask: &Ask) -> u64 {
        ask.input + ask.expected / 2
    }

    /// Whether the request may go; one may always go into an empty pool.
    pub fn fits(&self, ask: &Ask) -> bool {
        self.inside.is_empty()
            || (self.open
                && (self.inside.len() as u64) < self.width.requests
                && self.tokens + Valve::estimate(ask) <= self.width.tokens)
    }

    /// It goes.
    pub fn enter(&mut self, ask: &Ask) {
        let estimate = Valve::estimate(ask);
        self.tokens += estimate;
        self.inside.insert(ask.id, (estimate, ask.input));
        self.open &= (self.inside.len() as u64) < self.width.requests;
    }

    /// Its answer is longer than was thought.
    pub fn grow(&mut self, id: u64, out: u64) {
        if let Some((estimate, input)) = self.inside.get_mut(&id) {
            let now = (*input + out).max(*estimate);
            self.tokens += now - *estimate;
            *estimate = now;
        }
    }

    /// It has left the pool.
    pub fn leave(&mut self, id: u64) {
        if let Some((estimate, _)) = self.inside.remove(&id) {
            self.tokens -= estimate;
            self.open |= self.inside.len() as u64 + self.width.lump <= self.width.requests;
        }
    }

    /// Requests that may be inside.
    pub fn width(&self) -> u64 {
        self.width.requests
    }
}
