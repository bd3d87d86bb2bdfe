//! What an upstream tells beside its answer: rate-limit headers, waits and errors.

use std::time::Duration;

use pyo3::prelude::*;
use quota_core::time::{Clock, Now, SystemClock};
use quota_core::usage::upstream as core;

use crate::convert::{self, Small};
use crate::testing::ManualClock;

fn now(clock: Option<&Bound<'_, ManualClock>>) -> Now {
    clock.map_or_else(|| SystemClock::new().now(), |clock| clock.get().0.now())
}

fn millis(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

/// One limit that an upstream tells of.
#[pyclass(frozen, module = "quota")]
#[derive(Clone)]
pub struct UpstreamLimit(core::UpstreamLimit);

#[pymethods]
impl UpstreamLimit {
    /// Its amount.
    #[getter]
    fn limit(&self) -> Option<u64> {
        self.0.limit
    }

    /// What is left of it.
    #[getter]
    fn remaining(&self) -> Option<u64> {
        self.0.remaining
    }

    /// Until it is full again.
    #[getter]
    fn resets_in_ms(&self) -> Option<u64> {
        self.0.resets_in.map(millis)
    }

    fn __repr__(&self) -> String {
        let shown = |count: Option<u64>| count.map_or("None".into(), |count| count.to_string());
        format!("UpstreamLimit({} of {} left)", shown(self.0.remaining), shown(self.0.limit))
    }
}

/// What an upstream's headers tell of its limits.
#[pyclass(frozen, module = "quota")]
pub struct UpstreamLimits(core::UpstreamLimits);

#[pymethods]
impl UpstreamLimits {
    /// Reads pairs of names and values, in any case and order.
    #[staticmethod]
    #[pyo3(signature = (headers, *, clock=None))]
    fn read(headers: Vec<(String, String)>, clock: Option<&Bound<'_, ManualClock>>) -> UpstreamLimits {
        let pairs = headers.iter().map(|(name, value)| (name.as_str(), value.as_str()));
        UpstreamLimits(core::UpstreamLimits::read(pairs, now(clock)))
    }

    /// Of requests.
    #[getter]
    fn requests(&self) -> Option<UpstreamLimit> {
        self.0.requests.map(UpstreamLimit)
    }

    /// Of tokens altogether.
    #[getter]
    fn tokens(&self) -> Option<UpstreamLimit> {
        self.0.tokens.map(UpstreamLimit)
    }

    /// Of input tokens.
    #[getter]
    fn input_tokens(&self) -> Option<UpstreamLimit> {
        self.0.input_tokens.map(UpstreamLimit)
    }

    /// Of output tokens.
    #[getter]
    fn output_tokens(&self) -> Option<UpstreamLimit> {
        self.0.output_tokens.map(UpstreamLimit)
    }

    /// After how long to come back, where it says so.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        self.0.retry_after.map(millis)
    }

    /// Whether to come back, where it says so.
    #[getter]
    fn should_retry(&self) -> Option<bool> {
        self.0.should_retry
    }
}

/// What an upstream's error means.
#[pyclass(frozen, module = "quota")]
pub struct UpstreamError(core::UpstreamError);

#[pymethods]
impl UpstreamError {
    #[staticmethod]
    #[pyo3(signature = (status, body=None, *, clock=None))]
    fn read(
        status: Small<u16>,
        body: Option<&Bound<'_, PyAny>>,
        clock: Option<&Bound<'_, ManualClock>>,
    ) -> PyResult<UpstreamError> {
        let body = body.map(convert::document).transpose()?;
        Ok(UpstreamError(core::UpstreamError::read(status.0, body.as_ref(), now(clock))))
    }

    /// Whose fault it is, as a stable code.
    #[getter]
    fn fault(&self) -> &'static str {
        self.0.fault.name()
    }

    /// Whether sending the same again may help.
    #[getter]
    fn is_retryable(&self) -> bool {
        self.0.fault.is_retryable()
    }

    /// The provider's own code.
    #[getter]
    fn code(&self) -> Option<&str> {
        self.0.code.as_deref()
    }

    /// After how long, where it says so.
    #[getter]
    fn retry_after_ms(&self) -> Option<u64> {
        self.0.retry_after.map(millis)
    }
}

/// How long a header says that one should wait: seconds, a duration, or an HTTP date; `None` where it says nothing of the
/// kind.
#[pyfunction]
#[pyo3(signature = (value, *, clock=None))]
pub fn upstream_wait_ms(value: &str, clock: Option<&Bound<'_, ManualClock>>) -> Option<u64> {
    core::wait(value, now(clock)).map(millis)
}
