//! A simulated pool, for tests: replicas with continuous batching on a clock that stands still.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use quota_core as core;
use quota_core::gpu::simulated::{self, Shape};
use quota_core::time::Clock;

use crate::convert::{Count, Small};
use crate::testing::ManualClock;

/// A pool of replicas of a large model, without a GPU: 64 sequences and 160,000 tokens each if nothing else is said. It moves on
/// with the clock.
#[pyclass(frozen, module = "quota.testing")]
pub struct SimulatedPool {
    pub pool: Arc<simulated::SimulatedPool>,
    clock: Arc<core::ManualClock>,
}

#[pymethods]
impl SimulatedPool {
    #[new]
    #[pyo3(signature = (clock, *, replicas=Small(4), max_running=Count(64), kv_tokens=Count(160_000)))]
    fn new(clock: &ManualClock, replicas: Small<u16>, max_running: Count, kv_tokens: Count) -> PyResult<SimulatedPool> {
        let largest = core::units::MAX_AMOUNT;
        if !(1..=largest).contains(&max_running.0) || !(1..=largest).contains(&kv_tokens.0) {
            return Err(PyValueError::new_err(format!("max_running and kv_tokens are 1 to {largest}")));
        }
        let shape =
            Shape { replicas: replicas.0.into(), max_running: max_running.0, kv_tokens: kv_tokens.0, ..Shape::P4 };
        Ok(SimulatedPool { pool: Arc::new(simulated::SimulatedPool::new(shape)), clock: clock.0.clone() })
    }

    /// Gives a request to the least loaded replica. Raises `ValueError` if it fits into none, or the id is in use.
    #[pyo3(signature = (id, *, input_tokens, output_tokens))]
    fn submit(&self, py: Python<'_>, id: Count, input_tokens: Count, output_tokens: Count) -> PyResult<()> {
        let now = self.clock.now();
        py.detach(|| self.pool.submit(now, id.0, input_tokens.0, output_tokens.0))
            .map_err(|error| PyValueError::new_err(error.to_string()))
    }

    /// Lets a request go; how many tokens its answer had, or `None` where no such request is inside any more.
    fn cancel(&self, py: Python<'_>, id: Count) -> Option<u64> {
        let now = self.clock.now();
        py.detach(|| self.pool.cancel(now, id.0))
    }

    /// What happened up to now and was not told yet, in its order.
    fn advance(&self, py: Python<'_>) -> Vec<SimulatedEvent> {
        let now = self.clock.now();
        let mut events = Vec::new();
        py.detach(|| self.pool.advance(now, |event| events.push(SimulatedEvent(event))));
        events
    }

    /// The clock's `mono_ns` at which there is something to be told next.
    #[getter]
    fn next_event_ns(&self) -> Option<u64> {
        self.pool.next_event()
    }

    /// Adds an empty replica.
    fn add_replica(&self, py: Python<'_>) {
        let now = self.clock.now();
        py.detach(|| self.pool.add_replica(now));
    }

    /// Takes the replica at this place away; its requests are lost.
    fn remove_replica(&self, py: Python<'_>, place: Small<usize>) {
        let now = self.clock.now();
        py.detach(|| self.pool.remove_replica(now, place.0));
    }
}

/// What happened in a simulated pool.
#[pyclass(frozen, module = "quota.testing", eq)]
#[derive(PartialEq)]
pub struct SimulatedEvent(simulated::Event);

impl SimulatedEvent {
    fn parts(&self) -> (&'static str, u64, u64, Option<u64>) {
        use simulated::Event::*;
        match self.0 {
            Prefilled { id, tokens, at } => ("prefilled", id, at, Some(tokens)),
            FirstToken { id, at } => ("first_token", id, at, None),
            Progress { id, out, at } => ("progress", id, at, Some(out)),
            Preempted { id, at } => ("preempted", id, at, None),
            Finished { id, out, at } => ("finished", id, at, Some(out)),
            Lost { id, out, at } => ("lost", id, at, Some(out)),
        }
    }
}

#[pymethods]
impl SimulatedEvent {
    /// `prefilled`, `first_token`, `progress`, `preempted`, `finished` or `lost`.
    #[getter]
    fn kind(&self) -> &'static str {
        self.parts().0
    }

    /// The request.
    #[getter]
    fn id(&self) -> u64 {
        self.parts().1
    }

    /// When, as the clock's `mono_ns`.
    #[getter]
    fn at_ns(&self) -> u64 {
        self.parts().2
    }

    /// Prompt tokens worked through since the last time, or tokens of the answer so far.
    #[getter]
    fn tokens(&self) -> Option<u64> {
        self.parts().3
    }

    fn __repr__(&self) -> String {
        let (kind, id, _, tokens) = self.parts();
        format!("SimulatedEvent({kind}, id={id}, tokens={})", tokens.map_or("None".into(), |tokens| tokens.to_string()))
    }
}
