//! The scheduler by itself, for hosts that queue in front of a pool without a gate.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use napi::bindgen_prelude::Object;
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::scheduler::drr::{End, Mode};
use quota_core::scheduler::{Arrival, Capacity, Settings};
use quota_core::work::{Tokens, WorkRates};
use serde_json::Value;

use crate::convert::number;
use crate::count::{Count, Whole8, Whole32, plain, type_error};
use crate::errors;
use crate::wake::Waiting;

/// A lane of a pool.
#[napi(object, object_to_js = false)]
pub struct Lane {
    pub name: String,
    pub weight: Option<Whole32>,
    pub max_wait_ms: Option<Count>,
    pub max_queued: Option<Count>,
    pub floor_percent: Option<Whole8>,
    pub age_after_ms: Option<Count>,
    pub quantum: Option<Count>,
}

impl Lane {
    fn core(self) -> core::scheduler::Lane {
        let mut lane = core::scheduler::Lane::new(self.name);
        lane.weight = self.weight.map_or(lane.weight, |weight| weight.0);
        lane.max_wait = self.max_wait_ms.map_or(lane.max_wait, |time| Duration::from_millis(time.0));
        lane.max_queued = plain(self.max_queued);
        lane.floor_percent = self.floor_percent.map_or(0, |percent| percent.0);
        lane.age_after = self.age_after_ms.map(|time| Duration::from_millis(time.0));
        lane.quantum = plain(self.quantum);
        lane
    }
}

/// How a scheduler works.
#[napi(object, object_to_js = false)]
pub struct SchedulerOptions {
    pub capacity: Count,
    pub lanes: Option<Vec<Lane>>,
    pub mode: Option<String>,
    pub idle_ttl_ms: Option<Count>,
    pub early_refusal: Option<bool>,
}

/// Milli-units of work for a token, and for a million pairs of input and output.
#[napi(object, object_to_js = false)]
pub struct Rates {
    pub input: Option<Whole32>,
    pub cached: Option<Whole32>,
    pub output: Option<Whole32>,
    pub pairs: Option<Whole32>,
}

/// Who wants a turn.
#[napi(object, object_to_js = false)]
pub struct ArrivalOptions {
    pub tenant: String,
    pub now_ns: Count,
    pub lane: Option<String>,
    pub weight: Option<Whole32>,
    pub input_tokens: Option<Count>,
    pub cached_tokens: Option<Count>,
    pub output_tokens: Option<Count>,
    pub rates: Option<Rates>,
    pub reports_progress: Option<bool>,
    pub max_queued: Option<Count>,
}

/// What a request took.
#[napi(object, object_to_js = false)]
pub struct ServedOptions {
    pub now_ns: Count,
    pub input_tokens: Option<Count>,
    pub cached_tokens: Option<Count>,
    pub output_tokens: Option<Count>,
}

/// The time of an act.
#[napi(object, object_to_js = false)]
pub struct At {
    pub now_ns: Count,
}

/// Why a turn is given back.
#[napi(object, object_to_js = false)]
pub struct PutBackOptions {
    pub now_ns: Count,
    pub whole_flow: Option<bool>,
    pub due_ns: Option<Count>,
}

fn tokens(input: Option<Count>, cached: Option<Count>, output: Option<Count>) -> Tokens {
    let count = |count| plain(count).unwrap_or(0);
    Tokens::new(count(input), count(cached), count(output))
}

/// Who goes next into a pool. Times are nanoseconds of a clock of the host's that never steps back.
#[napi]
pub struct Scheduler(core::scheduler::Scheduler);

#[napi]
impl Scheduler {
    /// A scheduler in front of a pool that runs so many requests at once.
    #[napi(constructor)]
    pub fn new(env: Env, options: SchedulerOptions) -> Result<Scheduler> {
        let usual = Settings::default();
        let mode = match options.mode.as_deref() {
            None | Some("weighted") => Mode::Weighted,
            Some("priority_with_floor") => Mode::PriorityWithFloor,
            Some(other) => {
                return Err(type_error(env, format!("mode is 'weighted' or 'priority_with_floor', not {other:?}")));
            }
        };
        let lanes = options.lanes.map(|lanes| lanes.into_iter().map(Lane::core).collect());
        let settings = Settings {
            lanes: lanes.unwrap_or(usual.lanes),
            mode,
            idle_ttl: options.idle_ttl_ms.map_or(usual.idle_ttl, |time| Duration::from_millis(time.0)),
            early_refusal: options.early_refusal.unwrap_or(true),
            ..Settings::default()
        };
        Ok(Scheduler(core::scheduler::Scheduler::new(&settings, Capacity::requests(options.capacity.0))))
    }

    /// Takes a place in the queue; its turn may have come when this returns. Throws `QueueRefused`.
    #[napi]
    pub fn arrive(&self, env: Env, options: ArrivalOptions) -> Result<Place> {
        let asked = tokens(options.input_tokens, options.cached_tokens, options.output_tokens);
        let mut arrival = Arrival::new(options.tenant, options.lane.unwrap_or_else(|| "default".into()), asked);
        arrival.weight = options.weight.map_or(1, |weight| weight.0);
        let rates = options.rates;
        let rate = |of: fn(&Rates) -> Option<Whole32>, usual| rates.as_ref().and_then(of).map_or(usual, |rate| rate.0);
        arrival.rates = WorkRates {
            input: rate(|rates| rates.input, 1000),
            cached: rate(|rates| rates.cached, 100),
            output: rate(|rates| rates.output, 4000),
            pairs: rate(|rates| rates.pairs, 0),
        };
        arrival.reports_progress = options.reports_progress.unwrap_or(false);
        arrival.max_queued = plain(options.max_queued);
        let place = self.0.arrive(arrival, options.now_ns.0);
        place.map(Place::new).map_err(|refused| errors::unqueued(&env, &refused))
    }

    /// Changes how many requests the pool takes.
    #[napi]
    pub fn set_capacity(&self, requests: Count, at: At) {
        self.0.report(core::gpu::Load::default(), Some(Capacity::requests(requests.0)), at.now_ns.0);
    }

    /// Tells that something was given back in a scope for which turns were put back.
    #[napi]
    pub fn released(&self, scope: String, at: At) {
        self.0.released([Arc::<str>::from(scope)], at.now_ns.0);
    }

    /// Refuses whoever has waited too long, and lets those that are held try again whose time has come.
    #[napi]
    pub fn tick(&self, at: At) {
        self.0.tick(at.now_ns.0);
    }

    /// When something is due that no call would bring about.
    #[napi(getter)]
    pub fn next_due_ns(&self) -> Option<f64> {
        self.0.next_due().map(number)
    }

    #[napi(js_name = "_figures")]
    pub fn figures(&self) -> String {
        self.0.figures().map_or(Value::Null, |figures| figures.to_json()).to_string()
    }
}

/// A place in a pool's queue.
#[napi]
pub struct Place {
    place: Option<core::scheduler::Place>,
    waiting: Waiting,
}

impl Place {
    fn new(place: core::scheduler::Place) -> Place {
        Place { place: Some(place), waiting: Waiting::default() }
    }
}

#[napi]
impl Place {
    /// The turn if it has come; `null` while it waits, and once the turn was given or the place left. Throws
    /// `QueueRefused`.
    #[napi]
    pub fn try_turn(&mut self, env: Env) -> Result<Option<Turn>> {
        match self.place.as_mut().and_then(core::scheduler::Place::try_turn) {
            None => Ok(None),
            Some(Ok(turn)) => Ok(Some(Turn(Some(turn)))),
            Some(Err(refused)) => Err(errors::unqueued(&env, &refused)),
        }
    }

    /// Whether there is something to pick up, or it was.
    #[napi(getter)]
    pub fn is_due(&self) -> bool {
        self.place.as_ref().is_none_or(core::scheduler::Place::is_due)
    }

    /// A promise of the moment when there is something to pick up; nothing if there is already.
    #[napi(js_name = "_due")]
    pub fn due<'env>(&mut self, env: &'env Env) -> Result<Option<Object<'env>>> {
        let Some(place) = self.place.as_ref().filter(|place| !place.is_due()) else { return Ok(None) };
        let is_due = |waker: &Waker| {
            place.wake_by(waker);
            // What came between the look and the registration is seen by this one.
            place.is_due()
        };
        self.waiting.due(env, is_due).map(Some)
    }

    /// Gives the place up, and a turn that has come and was not picked up.
    #[napi]
    pub fn leave(&mut self) {
        self.place = None;
        self.waiting.ring();
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.waiting.ring();
    }
}

/// A turn: it holds its room until it ends.
#[napi]
pub struct Turn(Option<core::scheduler::Turn>);

impl Turn {
    fn get(&self, env: &Env) -> Result<&core::scheduler::Turn> {
        self.0.as_ref().ok_or_else(|| over(env))
    }
}

fn over(env: &Env) -> napi::Error {
    type_error(*env, "the turn was put back")
}

#[napi]
impl Turn {
    /// The request took these tokens. `false`, and nothing changes, if the turn has ended.
    #[napi]
    pub fn served(&self, env: Env, options: ServedOptions) -> Result<bool> {
        let took = tokens(options.input_tokens, options.cached_tokens, options.output_tokens);
        Ok(self.get(&env)?.end(End::Served(took), options.now_ns.0))
    }

    /// The request took what was expected of it. `false`, and nothing changes, if the turn has ended.
    #[napi]
    pub fn served_as_asked(&self, env: Env, at: At) -> Result<bool> {
        let turn = self.get(&env)?;
        Ok(turn.end(End::Served(turn.arrival().tokens), at.now_ns.0))
    }

    /// The request never reached the pool: nothing is charged.
    #[napi]
    pub fn never_started(&self, env: Env, at: At) -> Result<bool> {
        Ok(self.get(&env)?.end(End::NeverStarted, at.now_ns.0))
    }

    /// Nobody knows what it took: what was charged stays charged.
    #[napi]
    pub fn unknown(&self, env: Env, at: At) -> Result<bool> {
        Ok(self.get(&env)?.end(End::Unknown, at.now_ns.0))
    }

    /// The output so far.
    #[napi]
    pub fn progress(&self, env: Env, output_tokens: Count) -> Result<()> {
        self.get(&env)?.progress(output_tokens.0);
        Ok(())
    }

    /// Gives the turn back unused because a limit in `scope` has no room: it waits again in its old place. Throws
    /// `QueueRefused`.
    #[napi]
    pub fn put_back(&mut self, env: Env, scope: String, options: PutBackOptions) -> Result<Place> {
        let turn = self.0.take().ok_or_else(|| over(&env))?;
        let due = plain(options.due_ns).unwrap_or(u64::MAX);
        let place = turn.put_back(scope.into(), options.whole_flow.unwrap_or(true), due, options.now_ns.0);
        place.map(Place::new).map_err(|refused| errors::unqueued(&env, &refused))
    }
}
