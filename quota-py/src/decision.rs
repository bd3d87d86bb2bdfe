//! Decisions: the gate's answer, and the place in the queue that one of them holds.

use std::sync::Arc;
use std::task::{Context, Waker};

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use quota_core as core;
use quota_core::gate::Queued;

use crate::convert::{Count, millis};
use crate::errors;
use crate::gate::Gate;
use crate::lease::Lease;
use crate::principal::Principal;
use crate::refusal::{Degradation, Offer, Refusal};
use crate::request::Request;
use crate::wake::{self, LoopWaker};

/// The gate's answer.
#[pyclass(module = "quota")]
pub struct Decision {
    action: &'static str,
    reason: Option<&'static str>,
    lease: Option<Py<Lease>>,
    refusal: Option<Py<Refusal>>,
    degradation: Option<Py<Degradation>>,
    queued: Option<Box<Waits>>,
}

/// A request that waits.
struct Waits {
    lane: Arc<str>,
    pool: Arc<str>,
    max_wait_ms: u64,
    /// `None` once it has left.
    place: Option<Queued>,
    gate: Py<Gate>,
    who: Py<Principal>,
    request: Py<Request>,
}

impl Decision {
    pub fn of(
        py: Python<'_>,
        decision: core::Decision<core::Lease>,
        gate: &Bound<'_, Gate>,
        who: &Bound<'_, Principal>,
        request: &Bound<'_, Request>,
    ) -> PyResult<Decision> {
        let (action, reason) = (decision.action(), decision.reason().map(core::Reason::code));
        let mut made = Decision { action, reason, lease: None, refusal: None, degradation: None, queued: None };
        match decision {
            core::Decision::Allow(lease) => made.lease = Some(Py::new(py, Lease::new(lease, gate))?),
            core::Decision::Degrade(lease, degradation) => {
                made.lease = Some(Py::new(py, Lease::new(lease, gate))?);
                made.degradation = Some(Py::new(py, Degradation(degradation))?);
            }
            core::Decision::Queue(queued) => {
                made.refusal = Some(Py::new(py, Refusal::new(queued.refusal.clone()))?);
                made.queued = Some(Box::new(Waits {
                    lane: queued.lane.clone(),
                    pool: queued.pool.clone(),
                    max_wait_ms: millis(queued.max_wait.as_nanos()),
                    place: Some(queued),
                    gate: gate.clone().unbind(),
                    who: who.clone().unbind(),
                    request: request.clone().unbind(),
                }));
            }
            core::Decision::Reject(refusal) => made.refusal = Some(Py::new(py, Refusal::new(refusal))?),
        }
        Ok(made)
    }

    fn place(&self) -> Option<&Queued> {
        self.queued.as_ref()?.place.as_ref()
    }
}

#[pymethods]
impl Decision {
    /// `allow`, `degrade`, `queue` or `reject`.
    #[getter]
    fn action(&self) -> &'static str {
        self.action
    }

    /// The stable code of why it is no plain allow.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// After how long the limits have room, where that is known.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        self.refusal.as_ref()?.get().retry_after_ms()
    }

    /// The lease of an admitted request, degraded or not.
    #[getter]
    fn lease(&self, py: Python<'_>) -> Option<Py<Lease>> {
        self.lease.as_ref().map(|lease| lease.clone_ref(py))
    }

    /// The refusal of a request that was not admitted, or has to wait.
    #[getter]
    fn refusal(&self, py: Python<'_>) -> Option<Py<Refusal>> {
        self.refusal.as_ref().map(|refusal| refusal.clone_ref(py))
    }

    /// In which lesser form it was admitted.
    #[getter]
    fn degradation(&self, py: Python<'_>) -> Option<Py<Degradation>> {
        self.degradation.as_ref().map(|degradation| degradation.clone_ref(py))
    }

    /// The lane to wait in.
    #[getter]
    fn lane(&self) -> Option<&str> {
        self.queued.as_ref().map(|queued| &*queued.lane)
    }

    /// The pool that it waits for; empty where nothing but its own limits keeps it out.
    #[getter]
    fn pool(&self) -> Option<&str> {
        self.queued.as_ref().map(|queued| &*queued.pool)
    }

    /// The longest that the lane lets it wait.
    #[getter]
    fn max_wait_ms(&self) -> Option<u64> {
        self.queued.as_ref().map(|queued| queued.max_wait_ms)
    }

    /// Whether asking again may bring something else; also for what does not wait.
    #[getter]
    fn is_due(&self) -> bool {
        self.place().is_none_or(Queued::is_due)
    }

    /// Decides again about a request that waits: as long as its turn has not come it waits on, in its place, which this
    /// decision has no longer. Of one that does not wait it is itself. Raises `QuotaError` where the place is gone.
    fn again(slf: &Bound<'_, Self>) -> PyResult<Py<Decision>> {
        let py = slf.py();
        let taken = {
            let mut decision = slf.try_borrow_mut()?;
            let Some(waits) = &mut decision.queued else { return Ok(slf.clone().unbind()) };
            let place = waits.place.take().ok_or_else(|| errors::left(py))?;
            (place, waits.gate.clone_ref(py), waits.who.clone_ref(py), waits.request.clone_ref(py))
        };
        let (place, gate, who, request) = taken;
        let (gate, who, request) = (gate.bind(py), who.bind(py), request.bind(py));
        let (core, asker, asked) = (gate.get().core(py)?, &who.get().0, request.get());
        let decision = match asked.is_long() {
            true => py.detach(|| core.admit_again(place, asker, &asked.inner)),
            false => core.admit_again(place, asker, &asked.inner),
        };
        Py::new(py, Decision::of(py, decision, gate, who, request)?)
    }

    /// Gives up the place of a request that waits.
    fn leave(slf: &Bound<'_, Self>) -> PyResult<()> {
        let place = slf.try_borrow_mut()?.queued.as_mut().and_then(|waits| waits.place.take());
        // After the borrow: it may wake another.
        drop(place);
        Ok(())
    }

    /// Waits for the turn, from the place that it has: to be awaited, entered (`with`, `async with`) or asked for its
    /// `result()`.
    fn wait<'py>(slf: &Bound<'py, Self>) -> PyResult<Bound<'py, PyAny>> {
        acquiring(slf.py())?.call1((slf,))
    }

    /// The lease.
    fn granted(&self, py: Python<'_>) -> PyResult<Py<Lease>> {
        match (&self.lease, &self.refusal) {
            (Some(lease), _) => Ok(lease.clone_ref(py)),
            (None, Some(refusal)) => Err(errors::refused(py, refusal.get().get())),
            (None, None) => unreachable!("a decision has a lease or a refusal"),
        }
    }

    /// Has a loop call `set(future)` when asking again may bring something else; `True`, and it may not be called, if that
    /// is so already.
    fn _wake_by(&self, call_soon_threadsafe: Py<PyAny>, set: Py<PyAny>, future: Py<PyAny>) -> bool {
        let waker = Waker::from(Arc::new(LoopWaker { call_soon_threadsafe, set, future }));
        self.place().is_none_or(|place| place.poll_due(&mut Context::from_waker(&waker)).is_ready())
    }

    /// Sleeps until asking again may bring something else; `False` if the time was over before.
    #[pyo3(signature = (timeout_ms=None))]
    fn _sleep(slf: &Bound<'_, Self>, timeout_ms: Option<Count>) -> PyResult<bool> {
        wake::sleep(slf.py(), timeout_ms, |waking| {
            Ok(slf.try_borrow()?.place().is_none_or(|place| place.poll_due(waking).is_ready()))
        })
    }

    fn __repr__(&self) -> String {
        match self.reason {
            None => format!("Decision({})", self.action),
            Some(reason) => format!("Decision({}, {reason})", self.action),
        }
    }
}

/// The class of what waits, which is written in Python.
pub fn acquiring(py: Python<'_>) -> PyResult<&Bound<'_, PyAny>> {
    static CLASS: PyOnceLock<Py<PyAny>> = PyOnceLock::new();
    let class = || Ok::<_, PyErr>(py.import("quota._acquire")?.getattr("Acquiring")?.unbind());
    Ok(CLASS.get_or_try_init(py, class)?.bind(py))
}

/// The answer that `admit` would give, without anything taken.
#[pyclass(frozen, module = "quota")]
pub struct Preview {
    action: &'static str,
    reason: Option<&'static str>,
    offer: Option<Py<Offer>>,
    degradation: Option<Py<Degradation>>,
    refusal: Option<Py<Refusal>>,
    queue: Option<(Arc<str>, u64)>,
}

impl Preview {
    pub fn of(py: Python<'_>, decision: core::Decision<core::gate::Offer>) -> PyResult<Preview> {
        let (action, reason) = (decision.action(), decision.reason().map(core::Reason::code));
        let mut made = Preview { action, reason, offer: None, degradation: None, refusal: None, queue: None };
        match decision {
            core::Decision::Allow(offer) => made.offer = Some(Py::new(py, Offer(offer))?),
            core::Decision::Degrade(offer, degradation) => {
                made.offer = Some(Py::new(py, Offer(offer))?);
                made.degradation = Some(Py::new(py, Degradation(degradation))?);
            }
            core::Decision::Queue(queued) => {
                made.queue = Some((queued.lane.clone(), millis(queued.max_wait.as_nanos())));
                made.refusal = Some(Py::new(py, Refusal::new(queued.refusal))?);
            }
            core::Decision::Reject(refusal) => made.refusal = Some(Py::new(py, Refusal::new(refusal))?),
        }
        Ok(made)
    }
}

#[pymethods]
impl Preview {
    /// `allow`, `degrade`, `queue` or `reject`.
    #[getter]
    fn action(&self) -> &'static str {
        self.action
    }

    /// The stable code of why it would be no plain allow.
    #[getter]
    fn reason(&self) -> Option<&'static str> {
        self.reason
    }

    /// After how long the limits have room, where that is known.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        self.refusal.as_ref()?.get().retry_after_ms()
    }

    /// What would be held.
    #[getter]
    fn offer(&self, py: Python<'_>) -> Option<Py<Offer>> {
        self.offer.as_ref().map(|offer| offer.clone_ref(py))
    }

    /// The refusal, where it would not be admitted at once.
    #[getter]
    fn refusal(&self, py: Python<'_>) -> Option<Py<Refusal>> {
        self.refusal.as_ref().map(|refusal| refusal.clone_ref(py))
    }

    /// In which lesser form it would be admitted.
    #[getter]
    fn degradation(&self, py: Python<'_>) -> Option<Py<Degradation>> {
        self.degradation.as_ref().map(|degradation| degradation.clone_ref(py))
    }

    /// The lane that it would wait in.
    #[getter]
    fn lane(&self) -> Option<&str> {
        self.queue.as_ref().map(|(lane, _)| &**lane)
    }

    /// The longest that the lane would let it wait.
    #[getter]
    fn max_wait_ms(&self) -> Option<u64> {
        self.queue.as_ref().map(|(_, wait)| *wait)
    }

    fn __repr__(&self) -> String {
        match self.reason {
            None => format!("Preview({})", self.action),
            Some(reason) => format!("Preview({}, {reason})", self.action),
        }
    }
}
