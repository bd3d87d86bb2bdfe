//! A simulated pool, for tests: replicas with continuous batching on a clock that stands still.

use std::sync::Arc;

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::gpu::simulated::{self, Shape};
use quota_core::time::Clock;

use crate::convert::number;
use crate::count::{Count, Whole16, type_error};
use crate::errors;
use crate::testing::ManualClock;

/// The replicas of a simulated pool.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct ShapeOptions {
    pub replicas: Option<Whole16>,
    pub max_running: Option<Count>,
    pub kv_tokens: Option<Count>,
}

/// The tokens of a request.
#[napi(object, object_to_js = false)]
pub struct SubmitOptions {
    pub input_tokens: Count,
    pub output_tokens: Count,
}

/// A pool of replicas of a large model, without a GPU: 64 sequences and 160,000 tokens each if nothing else is said. It moves
/// on with the clock.
#[napi]
pub struct SimulatedPool {
    pub(crate) pool: Arc<simulated::SimulatedPool>,
    clock: Arc<core::ManualClock>,
}

#[napi]
impl SimulatedPool {
    #[napi(constructor)]
    pub fn new(env: Env, clock: &ManualClock, options: Option<ShapeOptions>) -> Result<SimulatedPool> {
        let options = options.unwrap_or_default();
        let (max_running, kv_tokens) =
            (options.max_running.unwrap_or(Count(64)).0, options.kv_tokens.unwrap_or(Count(160_000)).0);
        let largest = core::units::MAX_AMOUNT;
        if !(1..=largest).contains(&max_running) || !(1..=largest).contains(&kv_tokens) {
            return Err(type_error(env, format!("maxRunning and kvTokens are 1 to {largest}")));
        }
        let shape = Shape {
            replicas: options.replicas.map_or(4, |replicas| replicas.0).into(),
            max_running,
            kv_tokens,
            ..Shape::P4
        };
        Ok(SimulatedPool { pool: Arc::new(simulated::SimulatedPool::new(shape)), clock: clock.0.clone() })
    }

    /// Gives a request to the least loaded replica. Throws if it fits into none, or the id is in use.
    #[napi]
    pub fn submit(&self, env: Env, id: Count, tokens: SubmitOptions) -> Result<()> {
        let submitted = self.pool.submit(self.clock.now(), id.0, tokens.input_tokens.0, tokens.output_tokens.0);
        submitted.map_err(|error| errors::other(&env, "not_submitted", error.to_string()))
    }

    /// Lets a request go; how many tokens its answer had, or `null` where no such request is inside any more.
    #[napi]
    pub fn cancel(&self, id: Count) -> Option<f64> {
        self.pool.cancel(self.clock.now(), id.0).map(number)
    }

    /// What happened up to now and was not told yet, in its order.
    #[napi]
    pub fn advance(&self) -> Vec<SimulatedEvent> {
        let mut events = Vec::new();
        self.pool.advance(self.clock.now(), |event| events.push(SimulatedEvent::of(event)));
        events
    }

    /// The clock's `monoNs` at which there is something to be told next.
    #[napi(getter)]
    pub fn next_event_ns(&self) -> Option<f64> {
        self.pool.next_event().map(number)
    }

    /// Adds an empty replica.
    #[napi]
    pub fn add_replica(&self) {
        self.pool.add_replica(self.clock.now());
    }

    /// Takes the replica at this place away; its requests are lost.
    #[napi]
    pub fn remove_replica(&self, place: Count) {
        self.pool.remove_replica(self.clock.now(), usize::try_from(place.0).unwrap_or(usize::MAX));
    }
}

/// What happened in a simulated pool.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct SimulatedEvent {
    /// `prefilled`, `first_token`, `progress`, `preempted`, `finished` or `lost`.
    pub kind: &'static str,
    /// The request.
    pub id: f64,
    /// When, as the clock's `monoNs`.
    pub at_ns: f64,
    /// Prompt tokens worked through since the last time, or tokens of the answer so far.
    pub tokens: Option<f64>,
}

impl SimulatedEvent {
    fn of(event: simulated::Event) -> SimulatedEvent {
        use simulated::Event::*;
        let (kind, id, at, tokens) = match event {
            Prefilled { id, tokens, at } => ("prefilled", id, at, Some(tokens)),
            FirstToken { id, at } => ("first_token", id, at, None),
            Progress { id, out, at } => ("progress", id, at, Some(out)),
            Preempted { id, at } => ("preempted", id, at, None),
            Finished { id, out, at } => ("finished", id, at, Some(out)),
            Lost { id, out, at } => ("lost", id, at, Some(out)),
        };
        SimulatedEvent { kind, id: number(id), at_ns: number(at), tokens: tokens.map(number) }
    }
}
