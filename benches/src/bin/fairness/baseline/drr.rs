//! Deficit round robin as it is published: a turn earns a quantum, what is sent is paid from it, and that is all.

use super::{Order, Queues};
use crate::prices::Prices;
use crate::rule::Ask;

/// Deficit round robin with a charge at dispatch that is never corrected.
#[derive(Debug)]
pub struct Drr {
    /// What a request is charged; without prices its prompt alone.
    prices: Option<Prices>,
    /// The mean charge, from which the quantum is taken.
    mean: f64,
    deficits: Vec<i64>,
    at: usize,
    /// Whether the tenant in turn has earned its quantum.
    granted: bool,
    visits: u64,
}

impl Drr {
    /// Charges the prompt.
    pub fn on_input() -> Drr {
        Drr { prices: None, mean: 1000.0, deficits: vec![], at: 0, granted: false, visits: 0 }
    }

    /// Charges the estimate.
    pub fn on_estimates(prices: Prices) -> Drr {
        Drr { prices: Some(prices), ..Drr::on_input() }
    }

    fn charge(&self, ask: &Ask) -> u64 {
        self.prices.map_or(ask.input, |prices| prices.work(ask.input, ask.expected))
    }
}

impl Order for Drr {
    fn arrive(&mut self, ask: &Ask, _queues: &Queues) -> bool {
        if self.deficits.len() <= ask.tenant {
            self.deficits.resize(ask.tenant + 1, 0);
        }
        true
    }

    fn choose(&mut self, queues: &Queues) -> Option<usize> {
        if queues.len == 0 {
            return None;
        }
        let quantum = (1.5 * self.mean) as i64 + 1;
        self.at %= queues.waiting.len();
        self.visits += 1;
        loop {
            let first = queues.waiting[self.at].front();
            if let Some(first) = first {
                if self.deficits[self.at] > 0 {
                    return Some(self.at);
                }
                if !self.granted {
                    self.deficits[self.at] += quantum * first.weight as i64;
                    self.granted = true;
                    continue;
                }
            } else {
                self.deficits[self.at] = 0;
            }
            self.at = (self.at + 1) % queues.waiting.len();
            self.granted = false;
            self.visits += u64::from(first.is_some());
        }
    }

    fn sent(&mut self, ask: &Ask, _queues: &Queues) {
        let charge = self.charge(ask);
        self.deficits[ask.tenant] -= charge as i64;
        self.mean += 0.01 * (charge as f64 - self.mean);
    }

    fn progress(&mut self, _ask: &Ask, _before: u64, _out: u64) {}

    fn done(&mut self, _ask: &Ask, _told: u64, _out: u64) {}

    fn visits(&self) -> u64 {
        self.visits
    }
}
