//! Orders by what a tenant has received so far: the virtual token counter, and least attained service at completion.

use super::{Order, Queues};
use crate::prices::Prices;
use crate::rule::Ask;

/// Work is counted in so many parts, so that a weight divides it well.
const PARTS: u64 = 1000;

/// A counter of each tenant.
#[derive(Debug)]
struct Counters {
    prices: Prices,
    /// Work received, in parts, by weight.
    received: Vec<u64>,
    visits: u64,
}

impl Counters {
    fn new(prices: Prices) -> Counters {
        Counters { prices, received: vec![], visits: 0 }
    }

    fn make_room(&mut self, tenant: usize) {
        if self.received.len() <= tenant {
            self.received.resize(tenant + 1, 0);
        }
    }

    fn add(&mut self, ask: &Ask, input: u64, output: u64) {
        self.received[ask.tenant] += self.prices.work(input, output) * PARTS / ask.weight.max(1);
    }

    fn least(&mut self, queues: &Queues) -> Option<usize> {
        let mut least = None;
        for tenant in queues.busy() {
            self.visits += 1;
            if least.is_none_or(|least| self.received[tenant] < self.received[least]) {
                least = Some(tenant);
            }
        }
        least
    }
}

/// The virtual token counter: input at dispatch, output as it grows; the least goes first.
#[derive(Debug)]
pub struct Vtc {
    counters: Counters,
    /// Whether one who was idle is lifted to the least of those who wait.
    lifts: bool,
    /// Who left the queue last.
    left: Option<usize>,
}

impl Vtc {
    /// With or without lift.
    pub fn new(prices: Prices, lifts: bool) -> Vtc {
        Vtc { counters: Counters::new(prices), lifts, left: None }
    }
}

impl Order for Vtc {
    fn arrive(&mut self, ask: &Ask, queues: &Queues) -> bool {
        self.counters.make_room(ask.tenant);
        let idle = queues.waiting.get(ask.tenant).is_none_or(|queue| queue.is_empty());
        if self.lifts && idle {
            let received = &self.counters.received;
            // Where nobody waits it is lifted to who left last.
            let level = queues.busy().map(|tenant| received[tenant]).min();
            let level = level.or(self.left.map(|left| received[left])).unwrap_or(0);
            self.counters.received[ask.tenant] = received[ask.tenant].max(level);
        }
        true
    }

    fn choose(&mut self, queues: &Queues) -> Option<usize> {
        self.counters.least(queues)
    }

    fn sent(&mut self, ask: &Ask, queues: &Queues) {
        self.counters.add(ask, ask.input, 0);
        if queues.waiting[ask.tenant].is_empty() {
            self.left = Some(ask.tenant);
        }
    }

    fn progress(&mut self, ask: &Ask, before: u64, out: u64) {
        self.counters.add(ask, 0, out - before);
    }

    fn done(&mut self, ask: &Ask, told: u64, out: u64) {
        self.counters.add(ask, 0, out - told);
    }

    fn visits(&self) -> u64 {
        self.counters.visits
    }
}

/// The least attained service goes first, and service counts when a request is complete.
#[derive(Debug)]
pub struct Las {
    counters: Counters,
}

impl Las {
    /// All counters at nothing.
    pub fn new(prices: Prices) -> Las {
        Las { counters: Counters::new(prices) }
    }
}

impl Order for Las {
    fn arrive(&mut self, ask: &Ask, _queues: &Queues) -> bool {
        self.counters.make_room(ask.tenant);
        true
    }

    fn choose(&mut self, queues: &Queues) -> Option<usize> {
        self.counters.least(queues)
    }

    fn sent(&mut self, _ask: &Ask, _queues: &Queues) {}

    fn progress(&mut self, _ask: &Ask, _before: u64, _out: u64) {}

    fn done(&mut self, ask: &Ask, _told: u64, out: u64) {
        self.counters.add(ask, ask.input, out);
    }

    fn visits(&self) -> u64 {
        self.counters.visits
    }
}
