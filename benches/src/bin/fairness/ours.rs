//! The scheduler itself, driven through its public calls with a virtual clock.

use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Wake, Waker};
use std::time::Duration;

use quota_core::gpu;
use quota_core::scheduler::drr::End;
use quota_core::scheduler::{self, Arrival, Capacity, Lane, Place, Scheduler, Turn};
use quota_core::work::{Tokens, WorkRates};

use crate::load::Load;
use crate::prices::Prices;
use crate::rule::{Ask, Bound, Refused, Rule, Verdict};
use crate::valve::Width;
use crate::world::Setup;

/// Weights of the lanes: people who wait, and work that can wait.
pub const LANES: [u32; 2] = [8, 2];

/// Their names.
const NAMES: [&str; 2] = ["interactive", "batch"];

/// A longest wait that no run is long enough for.
const FOR_EVER: Duration = Duration::from_secs(1_000_000);

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

/// Requests that were woken, in that order.
type Woken = Arc<Mutex<Vec<u64>>>;

/// Notes a request in the list of those that have to be looked at.
struct Note {
    id: u64,
    woken: Woken,
}

impl Wake for Note {
    fn wake(self: Arc<Self>) {
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
    }
}

/// The scheduler with what the harness holds of it.
pub struct Ours {
    scheduler: Scheduler,
    tenants: Vec<Arc<str>>,
    lanes: [Arc<str>; 2],
    rates: WorkRates,
    capacity: Capacity,
    /// The part of the valve that is not kept for tenants that come back.
    open_percent: u64,
    waiting: HashMap<u64, (Place, u64)>,
    /// How many wait with each estimate of memory.
    estimates: BTreeMap<u64, u64>,
    inside: HashMap<u64, Turn>,
    woken: Woken,
    picks: u64,
    quantum: u64,
}

impl Ours {
    /// In front of a pool of this shape.
    pub fn new(load: &Load, setup: &Setup, settings: Settings) -> Ours {
        let lane = |number: usize| Lane {
            weight: LANES[number],
            max_wait: settings.max_wait.map_or(FOR_EVER, |waits| Duration::from_nanos(waits[number])),
            ..Lane::new(NAMES[number])
        };
        let set = scheduler::Settings {
            lanes: vec![lane(0), lane(1)],
            adaptive: settings.adaptive,
            early_refusal: settings.early_refusal,
            prefill: Duration::from_nanos(setup.shape.per_prefill_token),
            max_requests: 1 << 20,
            ..scheduler::Settings::default()
        };
        let capacity = Capacity {
            requests: settings.width.requests,
            kept: Some(settings.width.tokens),
            replicas: setup.shape.replicas as u64,
        };
        Ours {
            open_percent: 100 - u64::from(set.sparse_percent),
            scheduler: Scheduler::new(&set, capacity),
            tenants: load.tenants.iter().map(|tenant| Arc::from(tenant.name.as_str())).collect(),
            lanes: NAMES.map(Arc::from),
            rates: rates(setup.prices),
            capacity,
            waiting: HashMap::new(),
            estimates: BTreeMap::new(),
            inside: HashMap::new(),
            woken: Woken::default(),
            picks: 0,
            quantum: 0,
        }
    }

    /// Lets go of a place that is used up or given up.
    fn leaves(&mut self, id: u64) -> Option<Place> {
        let (place, estimate) = self.waiting.remove(&id)?;
        if let Some(count) = self.estimates.get_mut(&estimate) {
            *count -= 1;
            if *count == 0 {
                self.estimates.remove(&estimate);
            }
        }
        Some(place)
    }

    fn look_at_quanta(&mut self) {
        let lanes = self.scheduler.figures().map(|figures| figures.lanes).unwrap_or_default();
        self.quantum = lanes.iter().map(|lane| lane.quantum).fold(self.quantum, u64::max);
    }
}

impl Rule for Ours {
    fn arrive(&mut self, ask: &Ask, now: u64) -> Result<(), Refused> {
        let tokens = Tokens::new(ask.input, 0, ask.expected);
        let arrival = Arrival {
            weight: ask.weight as u32,
            rates: self.rates,
            reports_progress: ask.reports_progress,
            ..Arrival::new(self.tenants[ask.tenant].clone(), self.lanes[ask.lane].clone(), tokens)
        };
        let nanos = |wait: Duration| wait.as_nanos() as u64;
        let place = self.scheduler.arrive(arrival, now);
        let place = place.map_err(|refused| Refused { retry_after: refused.retry_after.map(nanos) })?;
        let note = Arc::new(Note { id: ask.id, woken: self.woken.clone() });
        place.wake_by(&Waker::from(note));
        // Its turn may have come before it could be woken.
        self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(ask.id);
        let estimate = ask.input + ask.expected / 2;
        *self.estimates.entry(estimate).or_default() += 1;
        self.waiting.insert(ask.id, (place, estimate));
        Ok(())
    }

    fn decide(&mut self, now: u64, verdicts: &mut Vec<Verdict>) {
        if self.scheduler.next_due().is_some_and(|due| due <= now) {
            self.scheduler.tick(now);
        }
        loop {
            let woken = std::mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
            if woken.is_empty() {
                return;
            }
            for id in woken {
                let Some((place, _)) = self.waiting.get_mut(&id) else { continue };
                let Some(turn) = place.try_turn() else { continue };
                self.leaves(id);
                match turn {
                    Ok(turn) => {
                        self.picks += 1;
                        verdicts.push(Verdict::Sent(id));
                        self.inside.insert(id, turn);
                    }
                    Err(_) => verdicts.push(Verdict::Expired(id)),
                }
            }
        }
    }

    fn first_token(&mut self, id: u64, now: u64) {
        if let Some(turn) = self.inside.get(&id) {
            turn.first_token(now);
            if turn.arrival().reports_progress {
                turn.progress(1);
            }
        }
    }

    fn progress(&mut self, id: u64, out: u64, _now: u64) {
        if let Some(turn) = self.inside.get(&id) {
            turn.progress(out);
        }
    }

    fn settle(&mut self, id: u64, out: u64, now: u64) {
        if let Some(turn) = self.inside.remove(&id) {
            let input = u64::from(turn.arrival().tokens.input);
            assert!(turn.end(End::Served(Tokens::new(input, 0, out)), now), "a turn ends once");
        }
    }

    fn withdraw(&mut self, id: u64, _now: u64) {
        drop(self.leaves(id));
    }

    fn cancel(&mut self, id: u64, out: u64, now: u64) {
        if let Some(turn) = self.inside.remove(&id) {
            turn.progress(out);
            assert!(turn.end(End::Left, now), "a turn ends once");
        }
    }

    fn due(&self) -> Option<u64> {
        self.scheduler.next_due()
    }

    fn report(&mut self, load: &gpu::Load, now: u64) {
        let replicas = load.replicas.len() as u64;
        let changed = (replicas != self.capacity.replicas).then(|| {
            let scaled = |whole: u64| whole * replicas / self.capacity.replicas.max(1);
            let kept = self.capacity.kept.map(scaled);
            Capacity { requests: scaled(self.capacity.requests), kept, replicas }
        });
        self.capacity = changed.unwrap_or(self.capacity);
        self.scheduler.report(load.clone(), changed, now);
        self.look_at_quanta();
    }

    fn visits(&self) -> (u64, u64) {
        (self.scheduler.figures().map_or(0, |figures| figures.visits), self.picks)
    }

    fn width(&self) -> u64 {
        self.scheduler.valve().most
    }

    fn idles(&mut self, _now: u64) -> bool {
        // From outside: where even the largest of those that wait would fit beside what is in flight, the one whose turn
        // it is would have too.
        let Some((largest, _)) = self.estimates.last_key_value() else { return false };
        let valve = self.scheduler.valve();
        let open = |most: u64| most - most * (100 - self.open_percent) / 100;
        valve.in_flight < open(valve.most) && valve.kept + largest <= open(valve.most_kept)
    }

    fn bound(&self) -> Option<Bound> {
        Some(Bound { quantum: self.quantum as f64 / 1000.0 })
    }
}
