//! The operator's routes: metrics, explanations, late settlements, reloading.
//!
//! Invariant: all need the admin key, since they show every tenant's figures.

use std::sync::Arc;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::{get, post};
use quota_core::key::Digest;
use quota_core::lease::Record;
use quota_core::respond::Headers;
use quota_core::usage::{Dialect, Outcome};
use quota_core::{EndError, Name, Usage, observe};
use serde_json::{Value, json};

use crate::answer::{Fault, Manner, json_response};
use crate::server::Gateway;

/// Unresolved leases that are listed.
const MAX_LISTED: usize = 1000;
/// The largest usage object, in bytes.
const MAX_USAGE: usize = 64 << 10;

type Shared = State<Arc<Gateway>>;

pub(crate) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/admin/reload", post(reload))
        .route("/admin/unresolved", get(unresolved))
        .route("/admin/requests/{id}", get(explain))
        .route("/admin/requests/{id}/usage", post(settle))
}

/// Lets the operator in.
pub(crate) fn admit(gateway: &Gateway, headers: &HeaderMap) -> Result<(), Box<Response>> {
    let given = headers.get(header::AUTHORIZATION).and_then(|value| value.to_str().ok());
    let key = given.and_then(|given| given.strip_prefix("Bearer ")).unwrap_or_default().trim();
    if !key.is_empty() && Digest::of(key) == gateway.admin_key {
        return Ok(());
    }
    let fault = Fault::new(401, "admin_key_needed", "This needs the admin key: `Authorization: Bearer …`.");
    Err(Box::new(Manner::of(headers).fault(&fault)))
}

fn fault(status: u16, code: &str, message: impl Into<String>) -> Response {
    Manner::OpenAi.fault(&Fault::new(status, code, message))
}

pub(crate) fn ok(body: Value) -> Response {
    json_response(200, &Headers::new(), &body)
}

async fn metrics(State(gateway): Shared, headers: HeaderMap) -> Response {
    if let Err(response) = admit(&gateway, &headers) {
        return *response;
    }
    let mut response = Response::new(Body::from(observe::prometheus(&gateway.gate)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static(observe::CONTENT_TYPE));
    response
}

async fn explain(State(gateway): Shared, Path(id): Path<String>, headers: HeaderMap) -> Response {
    if let Err(response) = admit(&gateway, &headers) {
        return *response;
    }
    let entries = gateway.gate.explain(&id);
    if entries.is_empty() {
        return fault(404, "request_unknown", "The journal has no entry of this request.");
    }
    ok(json!({ "request_id": id, "entries": entries.iter().map(|entry| entry.to_json()).collect::<Vec<_>>() }))
}

async fn unresolved(State(gateway): Shared, headers: HeaderMap) -> Response {
    if let Err(response) = admit(&gateway, &headers) {
        return *response;
    }
    let now = gateway.gate.now().mono;
    let line = |record: &Record| {
        let terms = &record.claim.terms;
        let Some(state) = record.unresolved() else { return Value::Null };
        json!({
            "request_id": terms.request_id, "lease": record.claim.id.to_string(),
            "tenant": terms.deal.principal.tenant(), "model": terms.deal.model,
            "cause": state.cause.name(), "age_ms": now.saturating_sub(state.since.mono) / 1_000_000,
            "charged_usd": terms.worst_cost.to_string(),
            "seen": state.seen.as_ref().map(|usage| json!({
                "input_tokens": usage.input_total(), "output_tokens": usage.output_total(),
            })),
        })
    };
    ok(json!({ "unresolved": gateway.gate.unresolved(MAX_LISTED).iter().map(line).collect::<Vec<_>>() }))
}

/// Settles a request late, with the provider's usage object as the body.
async fn settle(State(gateway): Shared, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Response {
    if let Err(response) = admit(&gateway, &headers) {
        return *response;
    }
    let body = to_bytes(body, MAX_USAGE).await.ok().and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
    let Some(body) = body else { return fault(400, "request_invalid", "The body is not a usage object.") };
    let usage = match Usage::read(Dialect::Auto, &body) {
        Ok(usage) => usage,
        Err(why) => return fault(400, why.code(), format!("{why}.")),
    };
    match gateway.gate.finalize(Name::Request(id.into()), Outcome::Final(usage)) {
        Ok(receipt) => ok(json!({
            "lease": receipt.lease().to_string(), "outcome": receipt.outcome(), "late": receipt.is_late(),
            "repeat": receipt.is_repeat(), "cost_usd": receipt.cost().to_string(),
        })),
        Err(why) => {
            let status = match why {
                EndError::Unknown(_) => 404,
                EndError::StoreUnavailable => 503,
                _ => 409,
            };
            fault(status, why.code(), format!("{why}."))
        }
    }
}

async fn reload(State(gateway): Shared, headers: HeaderMap) -> Response {
    if let Err(response) = admit(&gateway, &headers) {
        return *response;
    }
    // Files are read: not on a thread that others wait for.
    let loaded = tokio::task::spawn_blocking(move || gateway.reload()).await;
    match loaded {
        Ok(Ok(policy)) => {
            let warnings: Vec<String> = policy.warnings().iter().map(|warning| warning.to_string()).collect();
            ok(json!({ "digest": policy.digest(), "warnings": warnings }))
        }
        Ok(Err(why)) => fault(400, "policy_invalid", format!("The policy in force stays: {why}")),
        Err(_) => fault(500, "internal_error", "The gateway failed to read the policy; the one in force stays."),
    }
}
