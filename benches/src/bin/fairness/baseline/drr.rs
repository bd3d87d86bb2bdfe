//! Deficit round robin as it is published: a turn earns a quantum, what is sent is paid from it, and mostly that is all.

use std::collections::{HashMap, VecDeque};

use super::{Order, Queues};
use crate::prices::Prices;
use crate::rule::Ask;

/// Answers of a tenant that a percentile is taken of.
const RECENT: usize = 100;

/// Deficit round robin with a charge at dispatch.
#[derive(Debug)]
pub struct Drr {
    /// What a request is charged; without prices its prompt alone.
    prices: Option<Prices>,
    /// Where the charge is on the 95th percentile of what a tenant's answers were, and corrected when an answer is complete: the
    /// lengths of the last ones, by tenant.
    recent: Option<Vec<VecDeque<u64>>>,
    /// The mean charge, from which the quantum is taken.
    mean: f64,
    deficits: Vec<i64>,
    /// What is in the pool was charged, where it will be corrected.
    charged: HashMap<u64, u64>,
    at: usize,
    /// Whether the tenant in turn has earned its quantum.
    granted: bool,
    visits: u64,
}

impl Drr {
    /// Charges the prompt.
    pub fn on_input() -> Drr {
        Drr {
            prices: None,
            recent: None,
            mean: 1000.0,
            deficits: vec![],
            charged: HashMap::new(),
            at: 0,
            granted: false,
            visits: 0,
        }
    }

    /// Charges the estimate.
    pub fn on_estimates(prices: Prices) -> Drr {
        Drr { prices: Some(prices), ..Drr::on_input() }
    }

    /// Charges the 95th percentile, and settles at completion.
    pub fn on_percentile(prices: Prices) -> Drr {
        Drr { recent: Some(vec![]), ..Drr::on_estimates(prices) }
    }

    fn charge(&self, ask: &Ask) -> u64 {
        let recent = self.recent.as_ref().and_then(|recent| recent.get(ask.tenant)).filter(|recent| !recent.is_empty());
        let output = recent.map_or(ask.expected, |recent| {
            let mut lengths: Vec<u64> = recent.iter().copied().collect();
            lengths.sort_unstable();
            lengths[(lengths.len() * 95 / 100).min(lengths.len() - 1)]
        });
        self.prices.map_or(ask.input, |prices| prices.work(ask.input, output))
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
                // As published, leaving forgets; where debts are settled it forgets credit only.
                self.deficits[self.at] = if self.recent.is_some() { self.deficits[self.at].min(0) } else { 0 };
            }
            self.at = (self.at + 1) % queues.waiting.len();
            self.granted = false;
            self.visits += u64::from(first.is_some());
        }
    }

    fn sent(&mut self, ask: &Ask, _queues: &Queues) {
        let charge = self.charge(ask);
        if self.recent.is_some() {
            self.charged.insert(ask.id, charge);
        }
        self.deficits[ask.tenant] -= charge as i64;
        self.mean += 0.01 * (charge as f64 - self.mean);
    }

    fn progress(&mut self, _ask: &Ask, _before: u64, _out: u64) {}

    fn done(&mut self, ask: &Ask, _told: u64, out: u64) {
        let (Some(recent), Some(prices)) = (&mut self.recent, self.prices) else { return };
        if recent.len() <= ask.tenant {
            recent.resize_with(ask.tenant + 1, VecDeque::new);
        }
        let lengths = &mut recent[ask.tenant];
        lengths.push_back(out);
        if lengths.len() > RECENT {
            lengths.pop_front();
        }
        if let Some(charged) = self.charged.remove(&ask.id) {
            self.deficits[ask.tenant] += charged as i64 - prices.work(ask.input, out) as i64;
        }
    }

    fn visits(&self) -> u64 {
        self.visits
    }
}
