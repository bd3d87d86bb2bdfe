//! The scheduler by itself, for hosts that queue in front of a pool without a gate.

use std::sync::Arc;
use std::task::Waker;
use std::time::Duration;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyDict;
use quota_core as core;
use quota_core::scheduler::drr::{End, Mode};
use quota_core::scheduler::{Arrival, Capacity, Settings};
use quota_core::work::{Tokens, WorkRates};

use crate::convert::{Count, Small};
use crate::errors;
use crate::wake::{self, LoopWaker};

/// A lane of a pool.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct Lane(core::scheduler::Lane);

#[pymethods]
impl Lane {
    #[new]
    #[pyo3(signature = (
        name, *, weight=Small(1), max_wait_ms=Count(30_000), max_queued=None, floor_percent=Small(0), age_after_ms=None, quantum=None
    ))]
    fn new(
        name: &str,
        weight: Small<u32>,
        max_wait_ms: Count,
        max_queued: Option<Count>,
        floor_percent: Small<u8>,
        age_after_ms: Option<Count>,
        quantum: Option<Count>,
    ) -> Lane {
        let mut lane = core::scheduler::Lane::new(name);
        lane.weight = weight.0;
        lane.max_wait = Duration::from_millis(max_wait_ms.0);
        lane.max_queued = max_queued.map(|count| count.0);
        lane.floor_percent = floor_percent.0;
        lane.age_after = age_after_ms.map(|time| Duration::from_millis(time.0));
        lane.quantum = quantum.map(|count| count.0);
        Lane(lane)
    }

    /// Its name.
    #[getter]
    fn name(&self) -> &str {
        &self.0.name
    }

    fn __repr__(&self) -> String {
        format!("Lane({:?}, weight={})", &*self.0.name, self.0.weight)
    }
}

/// Who goes next into a pool. Times are nanoseconds of a clock of the host's that never steps back.
#[pyclass(frozen, module = "quota")]
pub struct Scheduler(core::scheduler::Scheduler);

#[pymethods]
impl Scheduler {
    /// A scheduler in front of a pool that runs so many requests at once.
    #[new]
    #[pyo3(signature = (*, capacity, lanes=None, mode="weighted", idle_ttl_ms=None, early_refusal=true))]
    fn new(
        capacity: Count,
        lanes: Option<Vec<Py<Lane>>>,
        mode: &str,
        idle_ttl_ms: Option<Count>,
        early_refusal: bool,
    ) -> PyResult<Scheduler> {
        let usual = Settings::default();
        let mode = match mode {
            "weighted" => Mode::Weighted,
            "priority_with_floor" => Mode::PriorityWithFloor,
            other => {
                return Err(PyValueError::new_err(format!(
                    "mode is 'weighted' or 'priority_with_floor', not {other:?}"
                )));
            }
        };
        let settings = Settings {
            lanes: lanes.map_or(usual.lanes, |lanes| lanes.iter().map(|lane| lane.get().0.clone()).collect()),
            mode,
            idle_ttl: idle_ttl_ms.map_or(usual.idle_ttl, |time| Duration::from_millis(time.0)),
            early_refusal,
            ..Settings::default()
        };
        Ok(Scheduler(core::scheduler::Scheduler::new(&settings, Capacity::requests(capacity.0))))
    }

    /// Takes a place in the queue; its turn may have come when this returns. Raises `QueueRefused`. Rates are milli-units of
    /// work for a token: input, cached input, output, and a million pairs of input and output.
    #[pyo3(signature = (
        *, tenant, now_ns, lane="default", weight=Small(1), input_tokens=Count(0), cached_tokens=Count(0), output_tokens=Count(0),
        rates=(Small(1000), Small(100), Small(4000), Small(0)), reports_progress=false, max_queued=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn arrive(
        &self,
        py: Python<'_>,
        tenant: &str,
        now_ns: Count,
        lane: &str,
        weight: Small<u32>,
        input_tokens: Count,
        cached_tokens: Count,
        output_tokens: Count,
        rates: (Small<u32>, Small<u32>, Small<u32>, Small<u32>),
        reports_progress: bool,
        max_queued: Option<Count>,
    ) -> PyResult<Place> {
        let tokens = Tokens::new(input_tokens.0, cached_tokens.0, output_tokens.0);
        let arrival = Arrival {
            weight: weight.0,
            rates: WorkRates { input: rates.0.0, cached: rates.1.0, output: rates.2.0, pairs: rates.3.0 },
            reports_progress,
            max_queued: max_queued.map(|count| count.0),
            ..Arrival::new(tenant, lane, tokens)
        };
        let place = self.0.arrive(arrival, now_ns.0).map_err(|refused| errors::unqueued(py, &refused))?;
        Ok(Place(Some(place)))
    }

    /// Changes how many requests the pool takes.
    fn set_capacity(&self, requests: Count, now_ns: Count) {
        self.0.report(core::gpu::Load::default(), Some(Capacity::requests(requests.0)), now_ns.0);
    }

    /// Tells that something was given back in a scope for which turns were put back.
    fn released(&self, scope: &str, now_ns: Count) {
        self.0.released([Arc::<str>::from(scope)], now_ns.0);
    }

    /// Refuses whoever has waited too long, and lets those that are held try again whose time has come.
    fn tick(&self, now_ns: Count) {
        self.0.tick(now_ns.0);
    }

    /// When something is due that no call would bring about.
    #[getter]
    fn next_due_ns(&self) -> Option<u64> {
        self.0.next_due()
    }

    /// All figures of one moment, for people and their instruments.
    fn figures<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        // It waits for the thread that decides, which may be asking for the interpreter to wake somebody.
        let figures = py.detach(|| self.0.figures());
        let told = PyDict::new(py);
        let Some(figures) = figures else { return Ok(told) };
        told.set_item("in_flight", figures.valve.in_flight)?;
        told.set_item("most", figures.valve.most)?;
        let lanes = PyDict::new(py);
        for lane in &figures.lanes {
            let tenants = PyDict::new(py);
            for tenant in &lane.tenants {
                let flow = PyDict::new(py);
                flow.set_item("queued", tenant.flow.queued)?;
                flow.set_item("in_flight", tenant.flow.in_flight)?;
                flow.set_item("deficit", tenant.flow.deficit)?;
                flow.set_item("served", tenant.flow.served)?;
                tenants.set_item(&*tenant.tenant, flow)?;
            }
            let shown = PyDict::new(py);
            shown.set_item("queued", lane.queued)?;
            shown.set_item("served", lane.served)?;
            shown.set_item("tenants", tenants)?;
            lanes.set_item(&*lane.lane, shown)?;
        }
        told.set_item("lanes", lanes)?;
        Ok(told)
    }

    fn __repr__(&self) -> String {
        let valve = self.0.valve();
        format!("Scheduler({} of {} in flight)", valve.in_flight, valve.most)
    }
}

/// A place in a pool's queue: to be awaited, or asked for its `result()` in a thread. Both give the turn or raise
/// `QueueRefused`, and whoever stops waiting gives the place up.
#[pyclass(module = "quota")]
pub struct Place(Option<core::scheduler::Place>);

#[pymethods]
impl Place {
    /// The turn if it has come; `None` while it waits, and once the turn was given or the place left. Raises
    /// `QueueRefused`.
    fn try_turn(&mut self, py: Python<'_>) -> PyResult<Option<Turn>> {
        match self.0.as_mut().and_then(core::scheduler::Place::try_turn) {
            None => Ok(None),
            Some(Ok(turn)) => Ok(Some(Turn(Some(turn)))),
            Some(Err(refused)) => Err(errors::unqueued(py, &refused)),
        }
    }

    /// Whether there is something to pick up, or it was.
    #[getter]
    fn is_due(&self) -> bool {
        self.0.as_ref().is_none_or(core::scheduler::Place::is_due)
    }

    /// Gives the place up, and a turn that has come and was not picked up.
    fn leave(slf: &Bound<'_, Self>) -> PyResult<()> {
        let place = slf.try_borrow_mut()?.0.take();
        // After the borrow: it may wake another.
        drop(place);
        Ok(())
    }

    fn __await__<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        waiting(slf.py())?.getattr("turn_of")?.call1((slf,))?.call_method0("__await__")
    }

    /// Waits for the turn in this thread, which lets others run meanwhile. Raises `TimeoutError`, with the place given up.
    #[pyo3(signature = (timeout_ms=None))]
    fn result<'py>(slf: &Bound<'py, Self>, timeout_ms: Option<u64>) -> PyResult<Bound<'py, PyAny>> {
        waiting(slf.py())?.getattr("turn_in_thread")?.call1((slf, timeout_ms))
    }

    /// Has a loop call `set(future)` when there is something to pick up; `True`, and it may not be called, if there is
    /// already.
    fn _wake_by(&self, call_soon_threadsafe: Py<PyAny>, set: Py<PyAny>, future: Py<PyAny>) -> bool {
        let waker = Waker::from(Arc::new(LoopWaker { call_soon_threadsafe, set, future }));
        self.is_due_or_wakes(&waker)
    }

    /// Sleeps until there is something to pick up; `False` if the time was over before.
    #[pyo3(signature = (timeout_ms=None))]
    fn _sleep(slf: &Bound<'_, Self>, timeout_ms: Option<Count>) -> PyResult<bool> {
        wake::sleep(slf.py(), timeout_ms, |waking| Ok(slf.try_borrow()?.is_due_or_wakes(waking.waker())))
    }

    fn __repr__(&self) -> &'static str {
        match self.0.as_ref().map(core::scheduler::Place::is_due) {
            None => "Place(left)",
            Some(true) => "Place(due)",
            Some(false) => "Place(waits)",
        }
    }
}

impl Place {
    /// What comes between the registration and the look is seen by the look.
    fn is_due_or_wakes(&self, waker: &Waker) -> bool {
        self.0.as_ref().is_none_or(|place| {
            place.wake_by(waker);
            place.is_due()
        })
    }
}

fn waiting(py: Python<'_>) -> PyResult<Bound<'_, PyModule>> {
    py.import("quota._acquire")
}

/// A turn: it holds its room until it ends.
#[pyclass(module = "quota")]
pub struct Turn(Option<core::scheduler::Turn>);

fn over() -> PyErr {
    PyValueError::new_err("the turn was put back")
}

#[pymethods]
impl Turn {
    /// The request took these tokens. `False`, and nothing changes, if the turn has ended.
    #[pyo3(signature = (*, now_ns, input_tokens=Count(0), cached_tokens=Count(0), output_tokens=Count(0)))]
    fn served(&self, now_ns: Count, input_tokens: Count, cached_tokens: Count, output_tokens: Count) -> PyResult<bool> {
        let tokens = Tokens::new(input_tokens.0, cached_tokens.0, output_tokens.0);
        self.0.as_ref().map(|turn| turn.end(End::Served(tokens), now_ns.0)).ok_or_else(over)
    }

    /// The request took what was expected of it. `False`, and nothing changes, if the turn has ended.
    #[pyo3(signature = (*, now_ns))]
    fn served_as_asked(&self, now_ns: Count) -> PyResult<bool> {
        self.0.as_ref().map(|turn| turn.end(End::Served(turn.arrival().tokens), now_ns.0)).ok_or_else(over)
    }

    /// The request never reached the pool: nothing is charged.
    #[pyo3(signature = (*, now_ns))]
    fn never_started(&self, now_ns: Count) -> PyResult<bool> {
        self.0.as_ref().map(|turn| turn.end(End::NeverStarted, now_ns.0)).ok_or_else(over)
    }

    /// Nobody knows what it took: what was charged stays charged.
    #[pyo3(signature = (*, now_ns))]
    fn unknown(&self, now_ns: Count) -> PyResult<bool> {
        self.0.as_ref().map(|turn| turn.end(End::Unknown, now_ns.0)).ok_or_else(over)
    }

    /// The output so far.
    fn progress(&self, output_tokens: Count) -> PyResult<()> {
        self.0.as_ref().map(|turn| turn.progress(output_tokens.0)).ok_or_else(over)
    }

    /// Gives the turn back unused because a limit in `scope` has no room: it waits again in its old place. Raises
    /// `QueueRefused`.
    #[pyo3(signature = (scope, *, now_ns, whole_flow=true, due_ns=None))]
    fn put_back(
        &mut self,
        py: Python<'_>,
        scope: &str,
        now_ns: Count,
        whole_flow: bool,
        due_ns: Option<Count>,
    ) -> PyResult<Place> {
        let turn = self.0.take().ok_or_else(over)?;
        let due = due_ns.map_or(u64::MAX, |due| due.0);
        let place = turn.put_back(scope.into(), whole_flow, due, now_ns.0);
        place.map(|place| Place(Some(place))).map_err(|refused| errors::unqueued(py, &refused))
    }
    fn __repr__(&self) -> &'static str {
        if self.0.is_some() { "Turn()" } else { "Turn(put back)" }
    }
}
