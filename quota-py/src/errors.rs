//! Errors: what the core refuses or finds wrong, as the exceptions of `quota._errors`.
//!
//! Invariant: every exception that is raised here derives from `QuotaError` and has a stable code.

use std::sync::Arc;

use pyo3::prelude::*;
use pyo3::sync::PyOnceLock;
use pyo3::types::{PyDict, PyModule};
use quota_core as core;

use crate::refusal::Refusal;

static CLASSES: PyOnceLock<Py<PyModule>> = PyOnceLock::new();

/// Makes an exception of a class of `quota._errors`; what goes wrong with that is raised in its place.
fn make(
    py: Python<'_>,
    class: &str,
    message: String,
    fields: impl FnOnce(&Bound<'_, PyDict>) -> PyResult<()>,
) -> PyErr {
    let made = || {
        let classes = CLASSES.get_or_try_init(py, || py.import("quota._errors").map(Bound::unbind))?;
        let given = PyDict::new(py);
        fields(&given)?;
        classes.bind(py).getattr(class)?.call((message,), Some(&given))
    };
    match made() {
        Ok(error) => PyErr::from_value(error),
        Err(error) => error,
    }
}

/// What was given is no JSON, or nothing that can be read as such.
pub fn input(py: Python<'_>, code: &'static str, message: String) -> PyErr {
    make(py, "InputError", message, |fields| fields.set_item("code", code))
}

/// A body that is no request of its kind.
pub fn request(py: Python<'_>, error: &core::request::InvalidRequest) -> PyErr {
    make(py, "RequestError", error.to_string(), |fields| {
        fields.set_item("code", core::Reason::RequestInvalid.code())?;
        fields.set_item("field", &error.field)?;
        fields.set_item("found", &error.found)?;
        fields.set_item("allowed", &error.allowed)
    })
}

/// A report that can't be charged as it stands.
pub fn usage(py: Python<'_>, error: &core::usage::Unusable) -> PyErr {
    make(py, "UsageError", error.to_string(), |fields| fields.set_item("code", error.code()))
}

/// A policy with everything that is wrong with it.
pub fn policy(py: Python<'_>, errors: &core::policy::PolicyErrors) -> PyErr {
    make(py, "PolicyError", errors.to_string(), |fields| {
        let faults = crate::policy::faults(py, &errors.errors)?;
        fields.set_item("code", errors.code())?;
        fields.set_item("is_retryable", errors.is_retryable())?;
        fields.set_item("source_name", &errors.source_name)?;
        fields.set_item("errors", faults)?;
        fields.set_item("omitted", errors.omitted)
    })
}

/// A price list that is none.
pub fn price_list(py: Python<'_>, error: &core::policy::price_list::PriceListError) -> PyErr {
    input(py, "price_list_invalid", error.to_string())
}

/// A request that was not admitted.
pub fn refused(py: Python<'_>, refusal: &Arc<core::Refusal>) -> PyErr {
    make(py, "Refused", refusal.message(), |fields| {
        fields.set_item("code", refusal.reason.code())?;
        fields.set_item("is_retryable", refusal.reason.retry() != core::reason::Retry::No)?;
        fields.set_item("refusal", Refusal::new(refusal.clone()))
    })
}

/// An ending that changed nothing.
pub fn end(py: Python<'_>, error: &core::EndError) -> PyErr {
    make(py, "EndError", error.to_string(), |fields| {
        fields.set_item("code", error.code())?;
        fields.set_item("is_retryable", error.is_retryable())?;
        if let core::EndError::Conflict { field, first, second, .. } = error {
            fields.set_item("field", field)?;
            fields.set_item("first", first)?;
            fields.set_item("second", second)?;
        }
        Ok(())
    })
}

/// A place in a scheduler's queue that is refused.
pub fn unqueued(py: Python<'_>, refused: &core::scheduler::Refused) -> PyErr {
    use core::scheduler::Why;
    let code = match refused.why {
        Why::Full => core::Reason::QueueFull.code(),
        Why::Overloaded => core::Reason::ModelPoolOverloaded.code(),
        Why::TimedOut => core::Reason::QueueTimeout.code(),
        Why::UnknownLane => "unknown_lane",
        Why::Over => "over",
    };
    let retry_after_ms = core::refusal::Wait::After(refused.retry_after.unwrap_or_default()).millis();
    make(py, "QueueRefused", refused.to_string(), |fields| {
        fields.set_item("code", code)?;
        fields.set_item("is_retryable", matches!(refused.why, Why::Full | Why::Overloaded | Why::TimedOut))?;
        fields.set_item("retry_after_ms", refused.retry_after.and(retry_after_ms))
    })
}

/// A key that was not made, rotated or revoked.
pub fn key(py: Python<'_>, error: &core::gate::KeyError) -> PyErr {
    make(py, "KeyActError", error.to_string(), |fields| {
        fields.set_item("code", error.code())?;
        fields.set_item("is_retryable", error.is_retryable())
    })
}

/// A decision whose place was given up, or is another's.
pub fn left(py: Python<'_>) -> PyErr {
    make(py, "QuotaError", "the place in the queue is gone".into(), |fields| fields.set_item("code", "place_left"))
}

/// A gate that was made before the process was forked.
pub fn forked(py: Python<'_>) -> PyErr {
    let message = "this gate was made before the process was forked, and its accounts are not shared with the other \
                   process: make a gate in each";
    make(py, "ForkedError", message.into(), |fields| fields.set_item("code", "gate_forked"))
}
