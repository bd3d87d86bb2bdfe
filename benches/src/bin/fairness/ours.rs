//! The scheduler's rule behind the harness's static valve.

use std::collections::HashMap;

use quota_core::scheduler::drr::{Demand, Drr, End, FlowId, JobId, Judgment, LaneRule, Mode, Pick};
use quota_core::scheduler::work::{Tokens, WorkRates};

use crate::load::Load;
use crate::prices::Prices;
use crate::rule::{Ask, Bound, Refused, Rule, Verdict};
use crate::valve::{Valve, Width};
use crate::world::Setup;

/// Weights of the lanes: people who wait, and work that can wait.
pub const LANES: [u32; 2] = [8, 2];

/// A longest wait that no run is long enough for.
const FOR_EVER: u64 = u64::MAX / 2;

/// How it is set.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    /// The valve.
    pub width: Width,
    /// The longest wait in each lane.
    pub max_wait: Option<[u64; 2]>,
    /// Whether the valve follows what the pool reports.
    pub adaptive: bool,
    /// Whether requests that would wait too long are refused at once.
    pub early_refusal: bool,
}

/// The rates of a unit of work, in milli-units.
pub fn rates(prices: Prices) -> WorkRates {
    let milli = |price: u64| (price * 1000) as u32;
    WorkRates { input: milli(prices.input), cached: milli(prices.input) / 10, output: milli(prices.output), pairs: 0 }
}

/// The rule.
pub struct Ours {
    drr: Drr<u64>,
    flows: Vec<FlowId>,
    rates: WorkRates,
    settings: Settings,
    valve: Valve,
    waiting: HashMap<u64, (Ask, JobId)>,
    inside: HashMap<u64, (Ask, JobId)>,
    picks: u64,
    quantum: u64,
}

impl Ours {
    /// With a flow for each tenant of a load.
    pub fn new(load: &Load, setup: &Setup, settings: Settings) -> Ours {
        let mut drr = Drr::new(Mode::Weighted, load.tenants.len(), 1 << 20);
        for (lane, weight) in LANES.into_iter().enumerate() {
            let max_wait = settings.max_wait.map_or(FOR_EVER, |waits| waits[lane]);
            drr.add_lane(LaneRule { weight, max_wait, ..LaneRule::default() });
        }
        let flow = |tenant: &crate::load::Tenant| drr.add_flow(tenant.lane as u16, tenant.weight as u32, 0);
        let flows = load.tenants.iter().map(flow).collect::<Option<Vec<_>>>();
        Ours {
            flows: flows.unwrap_or_default(),
            drr,
            rates: rates(setup.prices),
            settings,
            valve: Valve::new(settings.width),
            waiting: HashMap::new(),
            inside: HashMap::new(),
            picks: 0,
            quantum: 0,
        }
    }

    fn end(&mut self, id: u64, end: impl Fn(&Ask) -> End, now: u64) {
        self.valve.leave(id);
        if let Some((ask, job)) = self.inside.remove(&id) {
            let ended = self.drr.end(job, end(&ask), now);
            assert!(ended.is_ok(), "a dispatched job is known");
        }
    }
}

impl Rule for Ours {
    fn arrive(&mut self, ask: &Ask, now: u64) -> Result<(), Refused> {
        let demand = Demand {
            tokens: Tokens::new(ask.input, 0, ask.expected),
            rates: self.rates,
            reports_progress: ask.reports_progress,
        };
        let flow = self.flows[ask.tenant];
        if let (true, Some(waits)) = (self.settings.early_refusal, self.settings.max_wait) {
            let wait = self.drr.predicted_wait(flow, &demand).unwrap_or(0);
            if wait > waits[ask.lane] {
                return Err(Refused { retry_after: Some(wait - waits[ask.lane]) });
            }
        }
        let job = self.drr.enqueue(flow, ask.id, demand, now).map_err(|_| Refused { retry_after: None })?;
        self.waiting.insert(ask.id, (*ask, job));
        Ok(())
    }

    fn decide(&mut self, now: u64, verdicts: &mut Vec<Verdict>) {
        let waiting = &mut self.waiting;
        self.drr.expire(now, |id| {
            waiting.remove(&id);
            verdicts.push(Verdict::Expired(id));
        });
        loop {
            let (mut sent, valve) = (None, &self.valve);
            let pick = self.drr.pick(now, |offer| match waiting.get(offer.item) {
                Some((ask, _)) if !valve.fits(ask) => Judgment::NoRoom,
                Some(_) => {
                    sent = Some(*offer.item);
                    Judgment::Take
                }
                None => Judgment::Gone,
            });
            let (Pick::Dispatched(_), Some(id)) = (pick, sent) else { break };
            let Some((ask, job)) = waiting.remove(&id) else { break };
            self.picks += 1;
            self.quantum = self.quantum.max(self.drr.quantum(ask.lane as u16).unwrap_or(0));
            self.valve.enter(&ask);
            self.inside.insert(id, (ask, job));
            verdicts.push(Verdict::Sent(id));
        }
    }

    fn first_token(&mut self, id: u64, now: u64) {
        if self.inside.get(&id).is_some_and(|(ask, _)| ask.reports_progress) {
            self.progress(id, 1, now);
        }
    }

    fn progress(&mut self, id: u64, out: u64, _now: u64) {
        self.valve.grow(id, out);
        if let Some((_, job)) = self.inside.get(&id) {
            assert!(self.drr.progress(*job, out).is_ok(), "a dispatched job is known");
        }
    }

    fn settle(&mut self, id: u64, out: u64, now: u64) {
        self.end(id, |ask| End::Served(Tokens::new(ask.input, 0, out)), now);
    }

    fn withdraw(&mut self, id: u64, _now: u64) {
        if let Some((_, job)) = self.waiting.remove(&id) {
            self.drr.withdraw(job);
        }
    }

    fn cancel(&mut self, id: u64, _out: u64, now: u64) {
        self.end(id, |_| End::Left, now);
    }

    fn due(&self) -> Option<u64> {
        self.drr.next_deadline()
    }

    fn visits(&self) -> (u64, u64) {
        (self.drr.visits(), self.picks)
    }

    fn width(&self) -> u64 {
        self.valve.width()
    }

    fn idles(&mut self, now: u64) -> bool {
        // What has just been decided is decided again, without effect.
        let (waiting, valve, mut fits) = (&self.waiting, &self.valve, false);
        self.drr.pick(now, |offer| {
            fits |= waiting.get(offer.item).is_some_and(|(ask, _)| valve.fits(ask));
            Judgment::NoRoom
        });
        fits
    }

    fn bound(&self) -> Option<Bound> {
        Some(Bound { quantum: self.quantum as f64 / 1000.0 })
    }
}
