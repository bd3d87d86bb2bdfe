//! The parts of the printed bound that come from the requests: what a tenant is charged ahead of what it is served.

use crate::prices::Prices;

/// One request in the pool.
#[derive(Debug, Clone, Copy, Default)]
struct Open {
    charged: u64,
    served: u64,
}

/// Charges and service of what is in the pool, by tenant.
#[derive(Debug)]
pub struct Charges {
    prices: Prices,
    weights: Vec<u64>,
    charged: Vec<u64>,
    behind: Vec<u64>,
    open: std::collections::HashMap<u64, Open>,
    /// The largest charge at dispatch, by weight.
    pub dispatch: f64,
    /// The most that was charged for a tenant's requests in the pool, by weight.
    pub ahead: f64,
    /// The most that a tenant's requests had been served beyond their charge, by weight.
    pub under: f64,
}

impl Charges {
    /// Nothing is in the pool.
    pub fn new(prices: Prices, weights: Vec<u64>) -> Charges {
        let none = vec![0; weights.len()];
        Charges {
            prices,
            charged: none.clone(),
            behind: none,
            weights,
            open: std::collections::HashMap::new(),
            dispatch: 0.0,
            ahead: 0.0,
            under: 0.0,
        }
    }

    /// The charge at dispatch: half the expected answer where its growth will be told, all of it otherwise.
    pub fn sent(&mut self, id: u64, tenant: usize, input: u64, expected: u64, told: bool) {
        let charged = self.prices.work(input, if told { expected / 2 } else { expected });
        self.open.insert(id, Open { charged, served: 0 });
        self.charged[tenant] += charged;
        self.dispatch = self.dispatch.max(charged as f64 / self.weights[tenant] as f64);
        self.look(tenant);
    }

    /// The pool has served so much of a request by now.
    pub fn served(&mut self, id: u64, tenant: usize, work: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let before = open.served.saturating_sub(open.charged);
        open.served = open.served.max(work);
        self.behind[tenant] += open.served.saturating_sub(open.charged) - before;
        self.look(tenant);
    }

    /// The rule was told so much of a request.
    pub fn told(&mut self, id: u64, tenant: usize, work: u64) {
        let Some(open) = self.open.get_mut(&id) else { return };
        let before = open.served.saturating_sub(open.charged);
        let charged = open.charged.max(work);
        self.charged[tenant] += charged - open.charged;
        open.charged = charged;
        self.behind[tenant] -= before - open.served.saturating_sub(open.charged);
        self.look(tenant);
    }

    /// A request has left the pool.
    pub fn left(&mut self, id: u64, tenant: usize) {
        if let Some(open) = self.open.remove(&id) {
            self.charged[tenant] -= open.charged;
            self.behind[tenant] -= open.served.saturating_sub(open.charged);
        }
    }

    fn look(&mut self, tenant: usize) {
        let weight = self.weights[tenant] as f64;
        self.ahead = self.ahead.max(self.charged[tenant] as f64 / weight);
        self.under = self.under.max(self.behind[tenant] as f64 / weight);
    }
}
