//! The lease, the meter of a stream that it may pay for, and the receipt of its ending.

use std::sync::atomic::{AtomicBool, Ordering};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};
use quota_core as core;
use quota_core::lease::{Cause, Record};
use quota_core::units::{Amounts as CoreAmounts, Meter};

use crate::convert::{Amounts, Count, decimal, millis};
use crate::gate::Gate;
use crate::principal::Principal;
use crate::refusal::Degradation;
use crate::{errors, usage};

/// A lease as it came, or inside the meter of its stream.
enum Inner {
    Lease(core::Lease),
    Stream(Box<core::StreamMeter>),
}

/// An admitted request.
#[pyclass(module = "quota")]
pub struct Lease {
    /// `None` only while it moves into its meter.
    inner: Option<Inner>,
    /// Whether it is known to have ended through this object: the end of a `with` has then nothing to do. Written by
    /// endings, read by the end of a `with`.
    ended: AtomicBool,
    /// Goes after the lease, and is not shown to the collector of cycles: what the gate was handed is told of the ending.
    _gate: Py<Gate>,
}

impl Lease {
    pub fn new(lease: core::Lease, gate: &Bound<'_, Gate>) -> Lease {
        Lease { inner: Some(Inner::Lease(lease)), ended: AtomicBool::new(false), _gate: gate.clone().unbind() }
    }

    fn core(&self) -> &core::Lease {
        match &self.inner {
            Some(Inner::Lease(lease)) => lease,
            Some(Inner::Stream(meter)) => meter.lease(),
            None => unreachable!("a lease moves into its meter under an exclusive borrow"),
        }
    }

    fn over(&self, py: Python<'_>, ended: Result<core::Receipt, core::EndError>) -> PyResult<Receipt> {
        let receipt = ended.map_err(|error| errors::end(py, &error))?;
        // ORDERING: relaxed; a flag by itself, read by its own thread or a later one.
        self.ended.store(true, Ordering::Relaxed);
        Ok(Receipt(receipt))
    }

    /// Whether there is nothing for the end of a scope to do: it has ended, or its owner is another.
    fn is_over(&self) -> bool {
        // ORDERING: relaxed, see `over`.
        self.ended.load(Ordering::Relaxed) || self.core().is_repeat()
    }
}

/// Ends a lease as unresolved if it has not ended, as dropping it does; by its stream where it has one.
fn close(lease: &Bound<'_, Lease>) -> PyResult<()> {
    {
        let lease = lease.try_borrow()?;
        if lease.is_over() {
            return Ok(());
        }
        if let Some(Inner::Lease(core)) = &lease.inner {
            // What does not succeed has ended otherwise, and dropping it would come to the same.
            let _ = core.unresolved(Cause::Dropped, None);
            return Ok(());
        }
    }
    if let Some(Inner::Stream(meter)) = &mut lease.try_borrow_mut()?.inner {
        let _ = meter.finish(|_| {});
    }
    Ok(())
}

fn cause(name: &str) -> PyResult<Cause> {
    let causes = [Cause::Dropped, Cause::Expired, Cause::NoUsage, Cause::UpstreamFailed];
    causes.into_iter().find(|cause| cause.name() == name).ok_or_else(|| {
        PyValueError::new_err(format!("cause is 'dropped', 'expired', 'no_usage' or 'upstream_failed', not {name:?}"))
    })
}

#[pymethods]
impl Lease {
    /// Its id.
    #[getter]
    fn id(&self) -> String {
        self.core().id().to_string()
    }

    /// The id of its request.
    #[getter]
    fn request_id(&self) -> Option<&str> {
        self.core().request_id()
    }

    /// Who asked.
    #[getter]
    fn principal(&self) -> Principal {
        Principal(self.core().claim().terms.deal.principal.clone())
    }

    /// The model to run on.
    #[getter]
    fn model(&self) -> &str {
        self.core().model()
    }

    /// The model to name to the upstream: the policy's `upstream` of it, else its own name.
    #[getter]
    fn upstream_model<'py>(&self, py: Python<'py>) -> Bound<'py, PyString> {
        PyString::new(py, &self.core().upstream_model())
    }

    /// In which lesser form it must run.
    #[getter]
    fn degradation(&self) -> Option<Degradation> {
        self.core().degradation().cloned().map(Degradation)
    }

    /// The lane to run in.
    #[getter]
    fn lane(&self) -> &str {
        self.core().lane()
    }

    /// The largest output over all choices that was agreed: what to tell the upstream.
    #[getter]
    fn max_output_tokens(&self) -> u64 {
        self.core().max_output_tokens()
    }

    /// The input that was reserved.
    #[getter]
    fn input_tokens(&self) -> u64 {
        self.core().input_tokens()
    }

    /// The output that limits hold which hold the learned length.
    #[getter]
    fn expected_output_tokens(&self) -> u64 {
        self.core().claim().terms.output_expected
    }

    /// The worst case in money.
    #[getter]
    fn worst_usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decimal(py, &self.core().claim().terms.worst_cost)
    }

    /// Whether another request under the same id has this lease already: its holder runs it.
    #[getter]
    fn is_repeat(&self) -> bool {
        self.core().is_repeat()
    }

    /// The place of its lane among the policy's, 0 the first.
    #[getter]
    fn rank(&self) -> u8 {
        self.core().rank()
    }

    /// Whether it has not ended.
    #[getter]
    fn is_open(&self) -> bool {
        self.core().is_open()
    }

    /// How long it lives without a heartbeat.
    #[getter]
    fn ttl_ms(&self) -> u64 {
        millis(self.core().ttl().as_nanos())
    }

    /// How long it waited for its turn.
    #[getter]
    fn waited_ms(&self) -> u64 {
        millis(self.core().waited().as_nanos())
    }

    /// Limits whose soft amount is passed with this request: scope and name.
    #[getter]
    fn soft_passed(&self) -> Vec<(&str, &str)> {
        self.core().soft_passed().collect()
    }

    /// Marks that bytes are about to leave; `False` if the lease has ended meanwhile, and the request must not be sent.
    fn sent(&self) -> bool {
        self.core().sent()
    }

    /// A heartbeat; `False` if the lease has ended meanwhile.
    fn renew(&self) -> bool {
        self.core().renew()
    }

    /// Raises the hold by so many output tokens, on every limit or on none: raises `Refused` where one has no room.
    fn extend(&self, py: Python<'_>, output_tokens: Count) -> PyResult<()> {
        self.core().extend(output_tokens.0).map_err(|refusal| errors::refused(py, &refusal))
    }

    /// Tells the queue how far the answer is.
    fn progress(&self, output_tokens: Count) {
        self.core().progress(output_tokens.0);
    }

    /// Tells that the pool itself refused the request for lack of room. The lease has still to be ended.
    fn pool_refused(&self) {
        self.core().pool_refused();
    }

    /// Charges what was used and gives back the rest of what was held, once. The usage is a `Usage`, or the provider's own
    /// report: JSON text, a dictionary, or the SDK's object.
    #[pyo3(signature = (usage, *, dialect="auto"))]
    fn settle(&self, usage: &Bound<'_, PyAny>, dialect: &str) -> PyResult<Receipt> {
        let read = usage::read(usage, dialect)?;
        self.over(usage.py(), self.core().settle(read))
    }

    /// Gives everything back: the request never left.
    fn cancel(&self, py: Python<'_>) -> PyResult<Receipt> {
        self.over(py, self.core().cancel())
    }

    /// Ends it as unresolved, with the best-known figures.
    #[pyo3(signature = (cause="no_usage", *, seen=None, dialect="auto"))]
    fn unresolved(
        &self,
        py: Python<'_>,
        cause: &str,
        seen: Option<&Bound<'_, PyAny>>,
        dialect: &str,
    ) -> PyResult<Receipt> {
        let (cause, seen) = (self::cause(cause)?, seen.map(|seen| usage::read(seen, dialect)).transpose()?);
        self.over(py, self.core().unresolved(cause, seen))
    }

    /// Ends it as the upstream's answer says: an `Outcome`, or a usage.
    #[pyo3(signature = (outcome, *, dialect="auto"))]
    fn finish(&self, outcome: &Bound<'_, PyAny>, dialect: &str) -> PyResult<Receipt> {
        let read = usage::outcome(outcome, dialect)?;
        self.over(outcome.py(), self.core().finish(read))
    }

    /// A meter for a streamed answer in this dialect. A lease has one at most.
    #[pyo3(signature = (dialect="auto", *, strip_usage=false))]
    fn stream(slf: &Bound<'_, Self>, dialect: &str, strip_usage: bool) -> PyResult<Stream> {
        let dialect = usage::dialect(dialect)?;
        let mut lease = slf.try_borrow_mut()?;
        match lease.inner.take() {
            Some(Inner::Lease(core)) => {
                lease.inner = Some(Inner::Stream(Box::new(core.stream(dialect).strip_usage(strip_usage))));
                Ok(Stream { lease: slf.clone().unbind(), tail: Vec::new(), receipt: None })
            }
            other => {
                lease.inner = other;
                Err(PyValueError::new_err("the lease has a stream already"))
            }
        }
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Leaves the lease as dropping it would: where it has not ended, it is unresolved and stays charged as reserved.
    #[pyo3(signature = (*_exc))]
    fn __exit__(slf: &Bound<'_, Self>, _exc: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<bool> {
        close(slf)?;
        Ok(false)
    }

    fn __repr__(&self) -> String {
        let lease = self.core();
        format!(
            "Lease({}, model={:?}, tenant={:?})",
            lease.id(),
            lease.model(),
            lease.claim().terms.deal.principal.tenant()
        )
    }
}

/// The meter of a streamed answer.
#[pyclass(module = "quota")]
pub struct Stream {
    lease: Py<Lease>,
    tail: Vec<u8>,
    receipt: Option<Py<Receipt>>,
}

impl Stream {
    fn meter<R>(&self, py: Python<'_>, act: impl FnOnce(&mut core::StreamMeter) -> R) -> PyResult<R> {
        let mut lease = self.lease.bind(py).try_borrow_mut()?;
        match &mut lease.inner {
            Some(Inner::Stream(meter)) => Ok(act(meter)),
            _ => unreachable!("a stream is made by moving its lease into its meter"),
        }
    }
}

#[pymethods]
impl Stream {
    /// The lease that pays for it.
    #[getter]
    fn lease(&self, py: Python<'_>) -> Py<Lease> {
        self.lease.clone_ref(py)
    }

    /// Takes the next bytes of the upstream and gives those that go on to the asker.
    fn feed<'py>(&self, py: Python<'py>, chunk: &Bound<'py, PyBytes>) -> PyResult<Bound<'py, PyBytes>> {
        let mut passed = Vec::with_capacity(chunk.as_bytes().len());
        self.meter(py, |meter| meter.feed(chunk.as_bytes(), |bytes| passed.extend_from_slice(bytes)))?;
        // Mostly all of it passes, unchanged.
        Ok(if passed == chunk.as_bytes() { chunk.clone() } else { PyBytes::new(py, &passed) })
    }

    /// Sends the heartbeat and raises the hold, where either is due. Raises `Refused` where the answer has to end here.
    fn keep(&self, py: Python<'_>) -> PyResult<()> {
        self.meter(py, |meter| meter.keep())?.map_err(|refusal| errors::refused(py, &refusal))
    }

    /// Whether it said that it is at its end (`[DONE]`, `message_stop`, the last event of a response), or is finished. Streams
    /// of other dialects end with their bytes.
    #[getter]
    fn is_done(&self, py: Python<'_>) -> PyResult<bool> {
        self.meter(py, |meter| meter.is_done())
    }

    /// Output tokens so far.
    #[getter]
    fn output_so_far(&self, py: Python<'_>) -> PyResult<u64> {
        self.meter(py, |meter| meter.output_so_far())
    }

    /// Ends the stream, also one that broke off, and settles by the provider's own figures, or leaves the lease unresolved
    /// with what is known. The second time it gives the first receipt. What was held back is in `tail`.
    fn finish(&mut self, py: Python<'_>) -> PyResult<Py<Receipt>> {
        if let Some(receipt) = &self.receipt {
            return Ok(receipt.clone_ref(py));
        }
        let mut tail = Vec::new();
        let ended = self.meter(py, |meter| meter.finish(|bytes| tail.extend_from_slice(bytes)))?;
        self.tail.append(&mut tail);
        let receipt = Py::new(py, self.lease.bind(py).try_borrow()?.over(py, ended)?)?;
        self.receipt = Some(receipt.clone_ref(py));
        Ok(receipt)
    }

    /// Bytes that go on to the asker after `finish`.
    #[getter]
    fn tail<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.tail)
    }

    /// The receipt, once it is finished.
    #[getter]
    fn receipt(&self, py: Python<'_>) -> Option<Py<Receipt>> {
        self.receipt.as_ref().map(|receipt| receipt.clone_ref(py))
    }

    fn __enter__(slf: Py<Self>) -> Py<Self> {
        slf
    }

    /// Finishes what is not finished.
    #[pyo3(signature = (*_exc))]
    fn __exit__(&self, py: Python<'_>, _exc: &Bound<'_, pyo3::types::PyTuple>) -> PyResult<bool> {
        close(self.lease.bind(py))?;
        Ok(false)
    }
}

/// What finalizing did; the same on every repeat but for `repeat`.
#[pyclass(frozen, module = "quota", eq)]
#[derive(Clone, PartialEq)]
pub struct Receipt(pub core::Receipt);

impl Receipt {
    fn each(&self, of: impl Fn(Meter) -> u64) -> Amounts {
        Amounts(Meter::ALL.into_iter().fold(CoreAmounts::default(), |amounts, meter| amounts.with(meter, of(meter))))
    }
}

#[pymethods]
impl Receipt {
    /// The lease.
    #[getter]
    fn lease_id(&self) -> String {
        self.0.lease().to_string()
    }

    /// The id of its request.
    #[getter]
    fn request_id(&self) -> Option<&str> {
        self.0.request_id()
    }

    /// `settled`, `cancelled` or `unresolved`.
    #[getter]
    fn outcome(&self) -> &'static str {
        self.0.outcome()
    }

    /// The figures that it was settled with.
    #[getter]
    fn usage(&self) -> Option<usage::Usage> {
        self.0.usage().map(usage::Usage)
    }

    /// The exact cost.
    #[getter]
    fn cost_usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decimal(py, &self.0.cost())
    }

    /// The largest amount held per meter.
    #[getter]
    fn held(&self) -> Amounts {
        Amounts(self.0.held())
    }

    /// What is charged per meter.
    #[getter]
    fn charged(&self) -> Amounts {
        Amounts(self.0.charged())
    }

    /// What came back of the holds.
    #[getter]
    fn returned(&self) -> Amounts {
        self.each(|meter| self.0.returned(meter))
    }

    /// What was charged beyond the holds.
    #[getter]
    fn overrun(&self) -> Amounts {
        self.each(|meter| self.0.overrun(meter))
    }

    /// Whether it was unresolved before.
    #[getter]
    fn late(&self) -> bool {
        self.0.is_late()
    }

    /// Whether this ending repeats an earlier one.
    #[getter]
    fn repeat(&self) -> bool {
        self.0.is_repeat()
    }

    fn __repr__(&self) -> String {
        format!("Receipt({}, cost_usd={}, repeat={})", self.0.outcome(), self.0.cost(), self.0.is_repeat())
    }
}

/// A lease whose usage is unknown.
#[pyclass(frozen, module = "quota")]
pub struct Unresolved(pub Record);

#[pymethods]
impl Unresolved {
    /// The lease.
    #[getter]
    fn lease_id(&self) -> String {
        self.0.claim.id.to_string()
    }

    /// The id of its request.
    #[getter]
    fn request_id(&self) -> Option<&str> {
        self.0.claim.terms.request_id.as_deref()
    }

    /// The tenant that it is charged to.
    #[getter]
    fn tenant(&self) -> &str {
        self.0.claim.terms.deal.principal.tenant()
    }

    /// The model that was used.
    #[getter]
    fn model(&self) -> &str {
        &self.0.claim.terms.deal.model
    }

    /// Why: `dropped`, `expired`, `no_usage` or `upstream_failed`.
    #[getter]
    fn cause(&self) -> Option<&'static str> {
        self.0.unresolved().map(|unresolved| unresolved.cause.name())
    }

    /// The best-known figures.
    #[getter]
    fn seen(&self) -> Option<usage::Usage> {
        self.0.unresolved()?.seen.as_ref().map(|seen| usage::Usage((**seen).clone()))
    }

    /// What is charged as held.
    #[getter]
    fn held(&self) -> Amounts {
        Amounts(self.0.held_amounts())
    }

    /// The worst case in money.
    #[getter]
    fn worst_usd<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyAny>> {
        decimal(py, &self.0.claim.terms.worst_cost)
    }

    fn __repr__(&self) -> String {
        format!("Unresolved({}, {})", self.0.claim.id, self.cause().unwrap_or_default())
    }
}
