//! Errors: what the core refuses or finds wrong, as the classes of `lib/errors.cjs`.
//!
//! Invariant: every error that is made here is a `QuotaError` and has a stable code.

use std::sync::Arc;

use napi::{Env, Error};
use quota_core as core;
use serde_json::{Value, json};

use crate::host::error;
use crate::refusal::Refusal;

/// What was given is no JSON, or nothing that can be read as such.
pub fn input(env: &Env, code: &'static str, message: String) -> Error {
    error(env, "InputError", message, &json!({ "code": code }), None)
}

/// A body that is no request of its kind.
pub fn request(env: &Env, wrong: &core::request::InvalidRequest) -> Error {
    let code = core::Reason::RequestInvalid.code();
    let fields = json!({ "code": code, "field": wrong.field, "found": wrong.found, "allowed": wrong.allowed });
    error(env, "RequestError", wrong.to_string(), &fields, None)
}

/// A report that can't be charged as it stands.
pub fn usage(env: &Env, wrong: &core::usage::Unusable) -> Error {
    error(env, "UsageError", wrong.to_string(), &json!({ "code": wrong.code() }), None)
}

/// A policy with everything that is wrong with it.
pub fn policy(env: &Env, wrong: &core::policy::PolicyErrors) -> Error {
    let fields = json!({
        "code": wrong.code(),
        "isRetryable": wrong.is_retryable(),
        "sourceName": wrong.source_name,
        "errors": wrong.errors.iter().map(fault).collect::<Vec<_>>(),
        "omitted": wrong.omitted,
    });
    error(env, "PolicyError", wrong.to_string(), &fields, None)
}

fn fault(fault: &core::policy::PolicyError) -> Value {
    json!({
        "path": fault.path,
        "line": fault.line,
        "column": fault.column,
        "code": fault.kind.code(),
        "message": fault.message,
    })
}

/// A request that was not admitted.
pub fn refused(env: &Env, refusal: &Arc<core::Refusal>) -> Error {
    let retryable = refusal.reason.retry() != core::reason::Retry::No;
    let fields = json!({ "code": refusal.reason.code(), "isRetryable": retryable });
    error(env, "Refused", refusal.message(), &fields, Some(Refusal::new(refusal.clone())))
}

/// An ending that changed nothing.
pub fn end(env: &Env, wrong: &core::EndError) -> Error {
    let mut fields = json!({ "code": wrong.code(), "isRetryable": wrong.is_retryable() });
    if let core::EndError::Conflict { field, first, second, .. } = wrong {
        fields["field"] = json!(field);
        fields["first"] = json!(first.to_string());
        fields["second"] = json!(second.to_string());
    }
    error(env, "EndError", wrong.to_string(), &fields, None)
}

/// A place in a scheduler's queue that is refused.
pub fn unqueued(env: &Env, refused: &core::scheduler::Refused) -> Error {
    use core::scheduler::Why;
    let code = match refused.why {
        Why::Full => core::Reason::QueueFull.code(),
        Why::Overloaded => core::Reason::ModelPoolOverloaded.code(),
        Why::TimedOut => core::Reason::QueueTimeout.code(),
        Why::UnknownLane => "unknown_lane",
        Why::Over => "over",
    };
    let wait = refused.retry_after.and_then(|wait| core::Wait::After(wait).millis());
    let fields = json!({
        "code": code,
        "isRetryable": matches!(refused.why, Why::Full | Why::Overloaded | Why::TimedOut),
        "retryAfterMs": wait,
    });
    error(env, "QueueRefused", refused.to_string(), &fields, None)
}

/// A key that was not made, rotated or revoked.
pub fn key(env: &Env, wrong: &core::gate::KeyError) -> Error {
    let fields = json!({ "code": wrong.code(), "isRetryable": wrong.is_retryable() });
    error(env, "KeyActError", wrong.to_string(), &fields, None)
}

/// What has no class of its own.
pub fn other(env: &Env, code: &'static str, message: String) -> Error {
    error(env, "QuotaError", message, &json!({ "code": code }), None)
}

/// A decision whose place was given up, or is another's.
pub fn left(env: &Env) -> Error {
    other(env, "place_left", "the place in the queue is gone".into())
}

/// A lease that is asked for by what is called, of the host's, in the middle of a call of its stream.
pub fn busy(env: &Env) -> Error {
    other(env, "lease_busy", "the lease is in the middle of a call of its stream".into())
}
