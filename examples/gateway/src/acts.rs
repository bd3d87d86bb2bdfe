//! The operator's acts: keys are made, rotated and revoked, and what must stop at once is frozen.
//!
//! Invariant: all need the admin key; a secret is shown once, in the answer to the act that made it.

use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, to_bytes};
use axum::extract::{Path, State};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::Response;
use axum::routing::{get, post};
use quota_core::gate::{Freeze, Issued, KeyError, KeySpec, KeyState, KeyView, Target};
use quota_core::time::{parse_instant, show_instant};
use serde_json::{Map, Value, json};

use crate::answer::{Fault, Manner};
use crate::operator::{admit, ok};
use crate::server::Gateway;

/// The largest body, in bytes.
const MAX_ACT: usize = 64 << 10;
/// The longest name, reason or author, in bytes.
const MAX_TEXT: usize = 256;

type Shared = State<Arc<Gateway>>;

pub(crate) fn routes() -> Router<Arc<Gateway>> {
    Router::new()
        .route("/admin/keys", post(issue))
        .route("/admin/keys/{id}/rotate", post(rotate))
        .route("/admin/keys/{id}/revoke", post(revoke))
        .route("/admin/tenants/{tenant}/keys", get(keys))
        .route("/admin/frozen", get(frozen))
        .route("/admin/freeze", post(freeze))
        .route("/admin/thaw", post(thaw))
}

async fn issue(State(gateway): Shared, headers: HeaderMap, body: Body) -> Response {
    act(&gateway, &headers, body, |gateway, fields, author| {
        let spec = KeySpec {
            tenant: fields.text("tenant")?,
            id: fields.maybe_text("id")?,
            parent: fields.maybe_text("parent")?,
            app: fields.maybe_text("app")?,
            env: fields.maybe_text("env")?,
            user: fields.maybe_text("user")?,
            lane: fields.maybe_text("lane")?,
            names_users: fields.flag("names_users")?,
            expires: fields.instant("expires")?,
            models: fields.models()?,
            limits: fields.limits()?,
        };
        fields.end()?;
        gateway.gate.issue_key(spec, author).map(issued).map_err(refused)
    })
    .await
}

async fn rotate(State(gateway): Shared, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Response {
    act(&gateway, &headers, body, |gateway, fields, author| {
        let (tenant, overlap) = (fields.text("tenant")?, fields.seconds("overlap_s")?);
        fields.end()?;
        gateway.gate.rotate_key(&tenant, &id, overlap, author).map(issued).map_err(refused)
    })
    .await
}

async fn revoke(State(gateway): Shared, Path(id): Path<String>, headers: HeaderMap, body: Body) -> Response {
    act(&gateway, &headers, body, |gateway, fields, author| {
        let tenant = fields.text("tenant")?;
        fields.end()?;
        let changed = gateway.gate.revoke_key(&tenant, &id, author).map_err(refused)?;
        Ok(json!({ "tenant": *tenant, "id": id, "state": "revoked", "changed": changed }))
    })
    .await
}

async fn keys(State(gateway): Shared, Path(tenant): Path<String>, headers: HeaderMap) -> Response {
    match admit(&gateway, &headers) {
        Ok(()) => ok(json!({ "keys": gateway.gate.keys(&tenant).iter().map(key).collect::<Vec<_>>() })),
        Err(response) => *response,
    }
}

async fn freeze(State(gateway): Shared, headers: HeaderMap, body: Body) -> Response {
    act(&gateway, &headers, body, |gateway, fields, author| {
        let (target, reason) = (fields.target()?, fields.text("reason")?);
        fields.end()?;
        gateway.gate.freeze(target.clone(), reason, author);
        Ok(json!({ "target": shown(&target), "frozen": true }))
    })
    .await
}

async fn thaw(State(gateway): Shared, headers: HeaderMap, body: Body) -> Response {
    act(&gateway, &headers, body, |gateway, fields, author| {
        let target = fields.target()?;
        fields.end()?;
        let changed = gateway.gate.thaw(&target, author);
        Ok(json!({ "target": shown(&target), "frozen": false, "changed": changed }))
    })
    .await
}

async fn frozen(State(gateway): Shared, headers: HeaderMap) -> Response {
    let line = |freeze: &Arc<Freeze>| {
        let since = show_instant(freeze.since.wall);
        json!({ "target": shown(&freeze.target), "reason": *freeze.reason, "author": *freeze.author, "since": since })
    };
    match admit(&gateway, &headers) {
        Ok(()) => ok(json!({ "frozen": gateway.gate.frozen().iter().map(line).collect::<Vec<_>>() })),
        Err(response) => *response,
    }
}

/// Reads what an act is told and does it; `author` is who did it, for the journal.
async fn act(
    gateway: &Gateway,
    headers: &HeaderMap,
    body: Body,
    act: impl FnOnce(&Gateway, &mut Fields, Arc<str>) -> Result<Value, Fault>,
) -> Response {
    if let Err(response) = admit(gateway, headers) {
        return *response;
    }
    let bytes = to_bytes(body, MAX_ACT).await.unwrap_or_default();
    let done = match serde_json::from_slice::<Map<String, Value>>(&bytes) {
        Ok(fields) => {
            let mut fields = Fields(fields);
            let author = fields.maybe_text("author");
            author.and_then(|author| act(gateway, &mut fields, author.unwrap_or_else(|| "operator".into())))
        }
        Err(_) => Err(Fault::new(400, "request_invalid", format!("The body; allowed: an object of {MAX_ACT} bytes."))),
    };
    let mut response = match done {
        Ok(body) => ok(body),
        Err(fault) => Manner::OpenAi.fault(&fault),
    };
    // It may hold a secret.
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

fn issued(issued: Issued) -> Value {
    json!({ "id": *issued.id, "secret": issued.secret.expose(), "expires": issued.expires.map(show_instant) })
}

fn key(view: &KeyView) -> Value {
    let state = match view.state {
        KeyState::Active => "active",
        KeyState::Expired => "expired",
        KeyState::Revoked => "revoked",
    };
    let plan = &view.plan;
    let models = plan.models.as_ref().map(|models| models.iter().map(|model| &**model).collect::<BTreeSet<&str>>());
    json!({
        "id": *plan.id, "state": state, "in_policy": view.in_policy, "secrets": view.secrets,
        "parent": plan.parent.as_deref(), "app": plan.app.as_deref(), "env": plan.env.as_deref(),
        "user": plan.user.as_deref(), "lane": plan.lane.as_deref(), "names_users": plan.names_users,
        "expires": plan.expires.map(show_instant), "models": models,
    })
}

fn shown(target: &Target) -> Value {
    match target {
        Target::Tenant(tenant) => json!({ "tenant": **tenant }),
        Target::Key { tenant, key } => json!({ "tenant": **tenant, "key": **key }),
        Target::Model(model) => json!({ "model": **model }),
    }
}

fn refused(why: KeyError) -> Fault {
    let status = match why {
        KeyError::TenantUnknown(_) | KeyError::KeyUnknown(_) => 404,
        KeyError::IdTaken(_) | KeyError::Ended(_) | KeyError::SecretsFull(_) => 409,
        KeyError::KeysFull | KeyError::NoRandom => 503,
        _ => 400,
    };
    Fault::new(status, why.code(), format!("{why}."))
}

/// The members of a body that have not been read yet.
struct Fields(Map<String, Value>);

impl Fields {
    fn take(&mut self, name: &str) -> Option<Value> {
        self.0.remove(name).filter(|value| !value.is_null())
    }

    fn maybe_text(&mut self, name: &str) -> Result<Option<Arc<str>>, Fault> {
        match self.take(name) {
            None => Ok(None),
            Some(Value::String(text)) if (1..=MAX_TEXT).contains(&text.len()) => Ok(Some(text.into())),
            Some(_) => Err(invalid(name, &format!("a text of 1 to {MAX_TEXT} bytes"))),
        }
    }

    fn text(&mut self, name: &str) -> Result<Arc<str>, Fault> {
        self.maybe_text(name)?.ok_or_else(|| invalid(name, "it has to be there"))
    }

    fn flag(&mut self, name: &str) -> Result<bool, Fault> {
        match self.take(name) {
            None => Ok(false),
            Some(Value::Bool(flag)) => Ok(flag),
            Some(_) => Err(invalid(name, "true or false")),
        }
    }

    fn seconds(&mut self, name: &str) -> Result<Duration, Fault> {
        match self.take(name) {
            None => Ok(Duration::ZERO),
            Some(value) => value.as_u64().map(Duration::from_secs).ok_or_else(|| invalid(name, "a number of seconds")),
        }
    }

    fn instant(&mut self, name: &str) -> Result<Option<u64>, Fault> {
        let Some(text) = self.maybe_text(name)? else { return Ok(None) };
        parse_instant(&text).map(Some).map_err(|_| invalid(name, "an instant of RFC 3339, as 2027-01-01T00:00:00Z"))
    }

    fn models(&mut self) -> Result<Option<HashSet<Arc<str>>>, Fault> {
        let no = || invalid("models", "a list of names");
        match self.take("models") {
            None => Ok(None),
            Some(Value::Array(names)) => {
                names.iter().map(|name| name.as_str().map(Arc::from).ok_or_else(no)).collect::<Result<_, _>>().map(Some)
            }
            Some(_) => Err(no()),
        }
    }

    /// The limits as the policy would state them; JSON is YAML.
    fn limits(&mut self) -> Result<String, Fault> {
        match self.take("limits") {
            None => Ok(String::new()),
            Some(limits @ Value::Object(_)) => Ok(limits.to_string()),
            Some(_) => Err(invalid("limits", "a mapping in the words of the policy, as {\"rpm\": 5}")),
        }
    }

    fn target(&mut self) -> Result<Target, Fault> {
        match (self.maybe_text("tenant")?, self.maybe_text("key")?, self.maybe_text("model")?) {
            (Some(tenant), None, None) => Ok(Target::Tenant(tenant)),
            (Some(tenant), Some(key), None) => Ok(Target::Key { tenant, key }),
            (None, None, Some(model)) => Ok(Target::Model(model)),
            _ => Err(invalid("target", "`tenant`, `tenant` and `key`, or `model`")),
        }
    }

    /// What is left is a mistake.
    fn end(&self) -> Result<(), Fault> {
        match self.0.keys().next() {
            None => Ok(()),
            Some(name) => Err(invalid(&name.chars().take(64).collect::<String>(), "not here")),
        }
    }
}

fn invalid(field: &str, allowed: &str) -> Fault {
    Fault::new(400, "request_invalid", format!("{field}; allowed: {allowed}.")).param(field)
}
