//! The published orders, each a choice of the next tenant, behind one queue per tenant and the static valve.

mod counter;
mod drr;
mod simple;

use std::collections::{HashMap, VecDeque};

pub use counter::{Las, Vtc};
pub use drr::Drr;
pub use simple::{Fcfs, Rpm, Wrr};

use crate::prices::Prices;
use crate::rule::{Ask, Refused, Rule, Verdict};
use crate::valve::{Valve, Width};

/// Who goes next.
pub trait Order {
    /// A request arrives; `queues` are as before. False refuses it.
    fn arrive(&mut self, ask: &Ask, queues: &Queues) -> bool;

    /// The tenant that goes next, of those that have a request waiting. Asked again it gives the same answer, if nothing has
    /// happened.
    fn choose(&mut self, queues: &Queues) -> Option<usize>;

    /// The chosen tenant's first request goes to the pool; `queues` are as after.
    fn sent(&mut self, ask: &Ask, queues: &Queues);

    /// An answer has grown to `out` tokens, from `before`.
    fn progress(&mut self, ask: &Ask, before: u64, out: u64);

    /// A request has left the pool after `out` tokens, `told` of which came by [`progress`](Order::progress).
    fn done(&mut self, ask: &Ask, told: u64, out: u64);

    /// Tenants looked at by all choices.
    fn visits(&self) -> u64;
}

/// What waits.
#[derive(Debug, Default)]
pub struct Queues {
    /// By tenant, in the order of arrival.
    pub waiting: Vec<VecDeque<Ask>>,
    /// Requests of all tenants.
    pub len: usize,
}

impl Queues {
    /// Tenants that have a request waiting.
    pub fn busy(&self) -> impl Iterator<Item = usize> {
        (0..self.waiting.len()).filter(|tenant| !self.waiting[*tenant].is_empty())
    }

    fn push(&mut self, ask: &Ask) {
        if self.waiting.len() <= ask.tenant {
            self.waiting.resize_with(ask.tenant + 1, VecDeque::new);
        }
        self.waiting[ask.tenant].push_back(*ask);
        self.len += 1;
    }

    fn pop(&mut self, tenant: usize) -> Option<Ask> {
        let ask = self.waiting[tenant].pop_front()?;
        self.len -= 1;
        Some(ask)
    }

    fn remove(&mut self, tenant: usize, id: u64) {
        // By id in the order of arrival, so it can be searched by halving.
        if let Ok(place) = self.waiting[tenant].binary_search_by_key(&id, |ask| ask.id) {
            self.waiting[tenant].remove(place);
            self.len -= 1;
        }
    }
}

/// An order behind queues and a valve.
pub struct Behind<O> {
    order: O,
    queues: Queues,
    valve: Valve,
    /// The longest wait in each lane.
    max_wait: Option<[u64; 2]>,
    /// What is in the pool, and the length of the answer that the order was told of.
    inside: HashMap<u64, (Ask, u64)>,
    /// Tenants of waiting requests, for those that withdraw.
    tenants: HashMap<u64, usize>,
    chosen: u64,
}

impl<O: Order> Behind<O> {
    /// An order behind a valve of this width.
    pub fn new(order: O, width: Width, max_wait: Option<[u64; 2]>) -> Behind<O> {
        let valve = Valve::new(width);
        Behind {
            order,
            queues: Queues::default(),
            valve,
            max_wait,
            inside: HashMap::new(),
            tenants: HashMap::new(),
            chosen: 0,
        }
    }

    /// When the first of a tenant's queue has waited too long.
    fn deadline(&self, tenant: usize) -> Option<u64> {
        let first = self.queues.waiting[tenant].front()?;
        Some(first.at.saturating_add(self.max_wait?[first.lane]))
    }
}

impl<O: Order> Rule for Behind<O> {
    fn arrive(&mut self, ask: &Ask, _now: u64) -> Result<(), Refused> {
        if !self.order.arrive(ask, &self.queues) {
            return Err(Refused { retry_after: None });
        }
        self.queues.push(ask);
        self.tenants.insert(ask.id, ask.tenant);
        Ok(())
    }

    fn decide(&mut self, now: u64, verdicts: &mut Vec<Verdict>) {
        if self.max_wait.is_some() {
            for tenant in 0..self.queues.waiting.len() {
                while self.deadline(tenant).is_some_and(|deadline| deadline <= now) {
                    let Some(late) = self.queues.pop(tenant) else { break };
                    self.tenants.remove(&late.id);
                    verdicts.push(Verdict::Expired(late.id));
                }
            }
        }
        while let Some(tenant) = self.order.choose(&self.queues) {
            let Some(first) = self.queues.waiting[tenant].front() else { break };
            if !self.valve.fits(first) {
                break;
            }
            let Some(ask) = self.queues.pop(tenant) else { break };
            self.chosen += 1;
            self.tenants.remove(&ask.id);
            self.order.sent(&ask, &self.queues);
            self.valve.enter(&ask);
            self.inside.insert(ask.id, (ask, 0));
            verdicts.push(Verdict::Sent(ask.id));
        }
    }

    fn first_token(&mut self, id: u64, now: u64) {
        self.progress(id, 1, now);
    }

    fn progress(&mut self, id: u64, out: u64, _now: u64) {
        self.valve.grow(id, out);
        let Some((ask, told)) = self.inside.get_mut(&id) else { return };
        if ask.reports_progress && out > *told {
            self.order.progress(ask, *told, out);
            *told = out;
        }
    }

    fn settle(&mut self, id: u64, out: u64, _now: u64) {
        self.valve.leave(id);
        if let Some((ask, told)) = self.inside.remove(&id) {
            self.order.done(&ask, told, out.max(told));
        }
    }

    fn withdraw(&mut self, id: u64, _now: u64) {
        if let Some(tenant) = self.tenants.remove(&id) {
            self.queues.remove(tenant, id);
        }
    }

    fn cancel(&mut self, id: u64, out: u64, now: u64) {
        self.settle(id, out, now);
    }

    fn due(&self) -> Option<u64> {
        (0..self.queues.waiting.len()).filter_map(|tenant| self.deadline(tenant)).min()
    }

    fn visits(&self) -> (u64, u64) {
        (self.order.visits(), self.chosen)
    }

    fn width(&self) -> u64 {
        self.valve.width()
    }

    fn idles(&mut self, _now: u64) -> bool {
        let next = self.order.choose(&self.queues);
        next.and_then(|tenant| self.queues.waiting[tenant].front()).is_some_and(|first| self.valve.fits(first))
    }
}

/// A baseline by its name in the design's table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Baseline {
    /// First come, first served.
    Fcfs,
    /// The same with so many requests a minute for each tenant.
    Rpm(u64),
    /// One request of each tenant in turn.
    Wrr,
    /// Deficit round robin on the prompt alone (Dynamo's rule).
    DrrInput,
    /// Deficit round robin on the estimate, never corrected.
    DrrUnsettled,
    /// The same on the 95th percentile of a tenant's answers, corrected at completion.
    DrrPercentile,
    /// The least attained service, charged at completion (llm-d's rule).
    Las,
    /// Virtual token counter, with lift.
    Vtc,
    /// The same without lift: who was idle keeps his low counter.
    VtcUnlifted,
}

impl Baseline {
    /// All of them.
    pub const ALL: [Baseline; 10] = [
        Baseline::Fcfs,
        Baseline::Rpm(60),
        Baseline::Rpm(180),
        Baseline::Wrr,
        Baseline::DrrInput,
        Baseline::DrrUnsettled,
        Baseline::DrrPercentile,
        Baseline::Las,
        Baseline::Vtc,
        Baseline::VtcUnlifted,
    ];

    /// Its name.
    pub fn name(self) -> String {
        match self {
            Baseline::Fcfs => "FCFS".into(),
            Baseline::Rpm(n) => format!("RPM {n}"),
            Baseline::Wrr => "WRR by request".into(),
            Baseline::DrrInput => "DRR input only".into(),
            Baseline::DrrUnsettled => "DRR unsettled".into(),
            Baseline::DrrPercentile => "DRR on 95th percentile".into(),
            Baseline::Las => "LAS at completion".into(),
            Baseline::Vtc => "VTC".into(),
            Baseline::VtcUnlifted => "VTC without lift".into(),
        }
    }

    /// The rule behind a valve.
    pub fn rule(self, prices: Prices, width: Width, max_wait: Option<[u64; 2]>) -> Box<dyn Rule> {
        fn behind<O: Order + 'static>(order: O, width: Width, max_wait: Option<[u64; 2]>) -> Box<dyn Rule> {
            Box::new(Behind::new(order, width, max_wait))
        }
        match self {
            Baseline::Fcfs => behind(Fcfs::default(), width, max_wait),
            Baseline::Rpm(n) => behind(Rpm::new(n), width, max_wait),
            Baseline::Wrr => behind(Wrr::default(), width, max_wait),
            Baseline::DrrInput => behind(Drr::on_input(), width, max_wait),
            Baseline::DrrUnsettled => behind(Drr::on_estimates(prices), width, max_wait),
            Baseline::DrrPercentile => behind(Drr::on_percentile(prices), width, max_wait),
            Baseline::Las => behind(Las::new(prices), width, max_wait),
            Baseline::Vtc => behind(Vtc::new(prices, true), width, max_wait),
            Baseline::VtcUnlifted => behind(Vtc::new(prices, false), width, max_wait),
        }
    }
}
