//! Pools: the queue in front of each pool of the policy, and how full the pool is.
//!
//! Floor 3. Invariant: only pools of the policy and of the builder are kept, so that what is kept is bounded; setting and
//! reading the pressure take no lock.

use std::collections::HashMap;
use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use super::{Gate, Shared};
use crate::gpu::{GpuBackend, Load};
use crate::lease::{Record, State, Unresolved};
use crate::policy::plan::{LanePlan, Plan, QueueMode, StalePools};
use crate::scheduler::drr::{End, Mode};
use crate::scheduler::{Capacity, Figures, Lane, Scheduler, Settings, Turn};
use crate::store::Store;
use crate::sync::{AtomicU32, AtomicU64, Ordering};
use crate::time::Now;
use crate::usage::Usage;
use crate::work::Tokens;

/// Requests that a replica runs at once, where neither it nor the host says how many: vLLM's own default.
pub const DEFAULT_MAX_RUNNING: u64 = 128;

/// Backends by the pool that they tell of.
pub(super) type Backends = HashMap<Arc<str>, Arc<dyn GpuBackend>>;

/// A backend with what it says at one moment. Asked before a plan is wired: a backend may be the host's own, and nothing
/// is held while it answers.
pub(super) struct Asked {
    backend: Arc<dyn GpuBackend>,
    load: Load,
    reports: bool,
}

pub(super) fn ask(backends: &Backends, now: Now) -> HashMap<Arc<str>, Asked> {
    let ask = |backend: &Arc<dyn GpuBackend>| Asked {
        backend: backend.clone(),
        load: backend.load(now),
        reports: backend.reports(),
    };
    backends.iter().map(|(name, backend)| (name.clone(), ask(backend))).collect()
}

/// One pool, from the first policy that names it on.
pub(super) struct Pool {
    pub(super) name: Arc<str>,
    pub(super) scheduler: Scheduler,
    backend: Option<Arc<dyn GpuBackend>>,
    /// The pressure that the host stated, in percent. Written by it, read by all.
    stated: AtomicU32,
}

/// The pools of a plan.
pub(super) struct Pools {
    by_name: HashMap<Arc<str>, Arc<Pool>, ahash::RandomState>,
    /// Where requests for models wait that name no pool: nothing but their own limits keeps them out.
    none: Arc<Pool>,
    /// Pools of earlier plans in which something waits or runs.
    former: Vec<Arc<Pool>>,
}

impl Pool {
    fn new(name: Arc<str>, plan: &Plan, asked: Option<&Asked>, held_in_all: &Arc<AtomicU64>) -> Pool {
        let settings = Settings { adaptive: asked.is_some_and(|asked| asked.reports), ..settings(plan) };
        let of_load = |asked: &Asked| Capacity::of(&asked.load, DEFAULT_MAX_RUNNING);
        let capacity = asked.map_or_else(Capacity::unlimited, of_load);
        let scheduler = Scheduler::among(&settings, capacity, held_in_all.clone());
        Pool { name, scheduler, backend: asked.map(|asked| asked.backend.clone()), stated: AtomicU32::new(0) }
    }

    /// Whether a request needs a turn to enter: somebody says how much the pool takes.
    pub(super) fn is_gated(&self) -> bool {
        self.backend.is_some()
    }

    /// Whether a request for it would have to wait at this moment, as far as requests are counted.
    pub(super) fn is_full(&self) -> bool {
        let valve = self.scheduler.valve();
        self.is_gated() && (valve.in_flight >= valve.most || valve.kept >= valve.most_kept)
    }

    /// How full the pool is, in percent: what the host stated, or what the valve says, whichever is more.
    pub(super) fn percent(&self) -> u8 {
        // ORDERING: relaxed; the percentage is a figure by itself, and one of an instant ago decides as well.
        let stated = self.stated.load(Ordering::Relaxed);
        let part = |used: u64, most: u64| (used.saturating_mul(100) / most.max(1)).min(100) as u32;
        let valve = self.scheduler.valve();
        let counted = match self.is_gated() {
            true => part(valve.in_flight, valve.most).max(part(valve.kept, valve.most_kept)),
            false => 0,
        };
        stated.max(counted) as u8
    }

    fn tick(&self, now: Now) {
        if let Some(backend) = &self.backend {
            let load = backend.load(now);
            let capacity = Capacity::of(&load, DEFAULT_MAX_RUNNING);
            self.scheduler.report(load, Some(capacity), now.mono);
        }
        self.scheduler.tick(now.mono);
    }
}

impl Pools {
    /// The pools of a plan and of the builder; one that `before` has too goes on as it is, by the lanes of this plan.
    pub(super) fn of(
        plan: &Plan,
        backends: &HashMap<Arc<str>, Asked>,
        before: Option<&Pools>,
        held_in_all: &Arc<AtomicU64>,
    ) -> Pools {
        let named = plan.models.values().filter_map(|model| model.pool.as_ref());
        let kept = |pool: &Arc<Pool>| {
            pool.scheduler.configure(settings(plan));
            pool.clone()
        };
        let made = |name: &Arc<str>| {
            let known = before.and_then(|before| before.by_name.get(name)).map(kept);
            let new = || Arc::new(Pool::new(name.clone(), plan, backends.get(name), held_in_all));
            (name.clone(), known.unwrap_or_else(new))
        };
        let mut by_name = HashMap::default();
        for name in named.chain(backends.keys()) {
            if !by_name.contains_key(name) {
                let (name, pool) = made(name);
                by_name.insert(name, pool);
            }
        }
        let none = before.map(|before| kept(&before.none));
        let former = before.into_iter().flat_map(Pools::all).filter(|pool| {
            let goes_on = pool.name.is_empty() || by_name.get(&pool.name).is_some_and(|other| Arc::ptr_eq(other, pool));
            // One that somebody is about to line up in is in use too.
            !goes_on && (pool.scheduler.is_in_use() || Arc::strong_count(pool) > 1)
        });
        let former = former.cloned().collect();
        Pools { by_name, none: none.unwrap_or_else(|| Arc::new(Pool::new("".into(), plan, None, held_in_all))), former }
    }

    pub(super) fn get(&self, pool: Option<&Arc<str>>) -> &Arc<Pool> {
        pool.and_then(|name| self.by_name.get(name)).unwrap_or(&self.none)
    }

    /// The pressure in percent; `None` for a pool that there is not.
    pub(super) fn percent(&self, pool: &str) -> Option<u8> {
        self.by_name.get(pool).map(|pool| pool.percent())
    }

    fn all(&self) -> impl Iterator<Item = &Arc<Pool>> {
        self.by_name.values().chain([&self.none]).chain(&self.former)
    }
}

/// How queues are run by a plan.
fn settings(plan: &Plan) -> Settings {
    let mut lanes: Vec<&Arc<LanePlan>> = plan.lanes.values().collect();
    lanes.sort_by_key(|lane| lane.rank);
    let lane = |plan: &Arc<LanePlan>| Lane {
        weight: plan.weight,
        max_wait: Duration::from_millis(plan.max_wait_ms),
        max_queued: plan.max_queue,
        floor_percent: plan.floor_percent,
        age_after: plan.age_after_ms.map(Duration::from_millis),
        ..Lane::new(plan.name.clone())
    };
    let mode = match plan.queue_mode {
        QueueMode::Weighted => Mode::Weighted,
        QueueMode::PriorityWithFloor => Mode::PriorityWithFloor,
    };
    let close_when_stale = plan.stale_pools == StalePools::Close;
    Settings { lanes: lanes.into_iter().map(lane).collect(), mode, close_when_stale, ..Settings::default() }
}

/// What a turn's ending is by the ending of its lease.
pub(super) fn end_of(record: &Record) -> End {
    let served = |usage: &Usage| {
        let cached = usage.input_cache_read;
        End::Served(Tokens::new(usage.input_total().saturating_sub(cached), cached, usage.output_total()))
    };
    match &*record.state() {
        State::Settled(settled) => match &settled.usage() {
            Some(usage) if usage.requests == 0 => End::NeverStarted,
            Some(usage) => served(usage),
            None => End::Unknown,
        },
        State::Cancelled(_) => End::NeverStarted,
        // The input was sent, whether the provider has said so or not.
        State::Unresolved(Unresolved { seen: Some(seen), .. }) if seen.input_missing => {
            End::Served(Tokens::new(record.claim.terms.input.expected, 0, seen.output_total()))
        }
        State::Unresolved(Unresolved { seen: Some(seen), .. }) => served(seen),
        State::Held | State::Unresolved(_) => End::Unknown,
    }
}

impl<S: Store> Shared<S> {
    /// Ends the turn of a lease that has ended, and tells those that wait for its limits.
    pub(super) fn give_room_back(&self, record: &Record, now: Now) {
        if !self.turns.is_empty()
            && let Some(turn) = self.turns.pin().remove(&record.claim.id).and_then(|turn| turn.upgrade())
        {
            turn.end(end_of(record), now.mono);
        }
        // ORDERING: relaxed; a hint, as `Scheduler::is_holding`.
        if self.held_in_pools.load(Ordering::Relaxed) == 0 {
            return;
        }
        self.wired(|wiring| {
            for pool in wiring.pools.all().filter(|pool| pool.scheduler.is_holding()) {
                pool.scheduler.released(record.claim.terms.deal.lineup.scopes().iter().cloned(), now.mono);
            }
        });
    }

    pub(super) fn keep_turn(&self, record: &Record, turn: Turn) -> Arc<Turn> {
        turn.used();
        let turn = Arc::new(turn);
        self.turns.pin().insert(record.claim.id, Arc::downgrade(&turn));
        turn
    }

    pub(super) fn tick_pools(&self, now: Now) {
        let pools: Vec<Arc<Pool>> = self.wired(|wiring| wiring.pools.all().cloned().collect());
        pools.iter().for_each(|pool| pool.tick(now));
    }
}

/// The queue in front of a pool.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PoolFigures {
    /// The pool's name; empty for where requests wait for models that name none.
    pub pool: Arc<str>,
    /// How full it is, in percent: what the host stated, or what its valve says.
    pub percent: u8,
    /// Whether the valve keeps requests out: a backend was given for it.
    pub gated: bool,
    /// Its queue.
    pub queue: Figures,
}

impl<S: Store> Gate<S> {
    /// States how full a pool is, in percent (more than 100 is 100), for steps of degrading with `pool_above`. It holds
    /// until it is stated again, over reloads too; where the pool has a backend, what its valve says counts if it is more.
    ///
    /// `false`, and nothing is kept, for a pool that no model of the policy in force names.
    pub fn set_pressure(&self, pool: &str, percent: u8) -> bool {
        self.shared().wired(|wiring| match wiring.pools.by_name.get(pool) {
            Some(kept) => {
                // ORDERING: relaxed, as in `percent`.
                kept.stated.store(percent.min(100) as u32, Ordering::Relaxed);
                true
            }
            None => false,
        })
    }

    /// How full a pool is, in percent; `None` for one that no model of the policy in force names.
    pub fn pressure(&self, pool: &str) -> Option<u8> {
        self.shared().wired(|wiring| wiring.pools.percent(pool))
    }

    /// The queues in front of all pools, by name. Cost: linear in the tenants; for people and their instruments.
    pub fn pools(&self) -> Vec<PoolFigures> {
        let mut pools: Vec<Arc<Pool>> = self.shared().wired(|wiring| wiring.pools.all().cloned().collect());
        pools.sort_by(|a, b| a.name.cmp(&b.name));
        let figures = |pool: Arc<Pool>| {
            let (percent, gated) = (pool.percent(), pool.is_gated());
            Some(PoolFigures { pool: pool.name.clone(), percent, gated, queue: pool.scheduler.figures()? })
        };
        pools.into_iter().filter_map(figures).collect()
    }

    /// The scheduler of a pool; `None` for a pool that there is not.
    pub fn scheduler(&self, pool: &str) -> Option<Scheduler> {
        self.shared().wired(|wiring| wiring.pools.by_name.get(pool).map(|pool| pool.scheduler.clone()))
    }

    /// When [`sweep`](Gate::sweep) has something to do in the queues before its next second, in nanoseconds of engine time: somebody will have waited
    /// as long as may be, or tries again. `None`: nothing of the kind.
    pub fn next_due(&self) -> Option<u64> {
        self.shared().wired(|wiring| wiring.pools.all().filter_map(|pool| pool.scheduler.next_due()).min())
    }

    /// Has a waker called whenever [`next_due`](Gate::next_due) becomes earlier, also for pools that a later policy brings; in
    /// place of an earlier one.
    pub fn alarm(&self, waker: &Waker) {
        self.shared().alarm.store(Some(Arc::new(waker.clone())));
        self.shared().wired(|wiring| wiring.pools.all().for_each(|pool| pool.scheduler.alarm(waker)));
    }
}
