//! Routes, keys and bodies: what stands between a connection and the gate.
//!
//! Invariant: the tenant comes from the key alone; no header and no member of a body names another one, or another
//! upstream.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::State;
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::Response;
use axum::routing::{get, post};
use quota_core::estimate::body as bodies;
use quota_core::gate::Degradation;
use quota_core::policy::plan::Plan;
use quota_core::request::{InvalidRequest, Kind};
use quota_core::respond::{Headers, headers as balance_headers};
use quota_core::usage::Dialect;
use quota_core::{Balance, Gate, Lease, Policy, Principal, Request};
use serde_json::{Value, json};
use tokio::sync::oneshot;
use tokio_stream::StreamExt;

use crate::admit::admit;
use crate::answer::{Fault, Manner, add_headers, json_response};
use crate::call::{Call, Patience};
use crate::dashboard::{self, Dashboard};
use crate::operator;
use crate::rewrite::{Agreed, rewrite};
use crate::source::Source;
use crate::upstream::Upstream;

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);
/// How many times too large a body may be and still be read to its end.
const MAX_EXCESS: usize = 4;
/// The longest idempotency key, in bytes.
const MAX_IDEMPOTENCY_KEY: usize = 64;

/// How a gateway is set up.
pub struct Config {
    /// Where its policy comes from.
    pub source: Source,
    /// Where requests go.
    pub upstream: Upstream,
    /// The key of `/admin` and `/metrics`.
    pub admin_key: String,
    /// The largest body in bytes.
    pub max_body: usize,
    /// How long it waits for others.
    pub patience: Patience,
}

/// A gateway without its socket.
pub struct Gateway {
    /// The gate.
    pub gate: Gate,
    pub(crate) admin_key: String,
    source: Source,
    pub(crate) plan: RwLock<Arc<Plan>>,
    /// Who watches the dashboard.
    pub dashboard: Dashboard,
    upstream: Arc<Upstream>,
    max_body: usize,
    patience: Patience,
    /// What ids of this process begin with, and how many there are.
    id_prefix: String,
    ids: AtomicU64,
}

/// An endpoint that spends quota.
#[derive(Clone, Copy)]
struct Endpoint {
    path: &'static str,
    read: fn(Value) -> Result<Request, InvalidRequest>,
    dialect: Dialect,
}

const CHAT: Endpoint = Endpoint { path: "/chat/completions", read: bodies::openai_chat, dialect: Dialect::OpenAiChat };
const EMBEDDINGS: Endpoint =
    Endpoint { path: "/embeddings", read: bodies::openai_embeddings, dialect: Dialect::OpenAiEmbeddings };

/// The gateway's routes.
pub fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route(
            "/v1/chat/completions",
            post(|State(g): State<Arc<Gateway>>, h, b| async move { g.spend(CHAT, h, b).await }),
        )
        .route(
            "/v1/embeddings",
            post(|State(g): State<Arc<Gateway>>, h, b| async move { g.spend(EMBEDDINGS, h, b).await }),
        )
        .route("/v1/quota", get(|State(g): State<Arc<Gateway>>, h| async move { g.quota(&h) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(operator::routes())
        .merge(dashboard::routes())
        .fallback(nowhere)
        .method_not_allowed_fallback(nowhere)
        .with_state(gateway)
}

async fn nowhere(method: Method, uri: Uri, headers: HeaderMap) -> Response {
    let messages = uri.path().starts_with("/v1/messages");
    let manner = if messages { Manner::Anthropic } else { Manner::of(&headers) };
    manner.fault(&Fault::new(404, "not_found", format!("There is no {method} {}.", uri.path())))
}

impl Gateway {
    /// A gateway by its configuration.
    ///
    /// # Errors
    /// What is wrong with the policy, or the operating system has no random numbers.
    pub fn new(config: Config) -> Result<Arc<Gateway>, String> {
        let policy = config.source.load()?;
        Ok(Arc::new(Gateway {
            plan: RwLock::new(policy.plan().clone()),
            dashboard: Dashboard::default(),
            gate: Gate::new(policy),
            admin_key: config.admin_key,
            source: config.source,
            upstream: Arc::new(config.upstream),
            max_body: config.max_body,
            patience: config.patience,
            id_prefix: random_hex(8)?,
            ids: AtomicU64::new(0),
        }))
    }

    /// Loads the policy again and puts it in force.
    ///
    /// # Errors
    /// What is wrong with it; the one in force stays.
    pub fn reload(&self) -> Result<Policy, String> {
        let policy = self.source.load()?;
        let mut plan = self.plan.write().unwrap_or_else(PoisonError::into_inner);
        self.gate.reload(&policy);
        *plan = policy.plan().clone();
        Ok(policy)
    }

    /// Runs a request of an endpoint that spends quota.
    async fn spend(&self, endpoint: Endpoint, headers: HeaderMap, body: Body) -> Response {
        let manner = Manner::of(&headers);
        let own_id = self.new_id();
        let mut response = match self.admitted(endpoint, manner, &own_id, &headers, body).await {
            Ok(call) => {
                let (reply, answer) = oneshot::channel();
                // A task of its own: the lease must end by what the upstream did, even if the asker leaves.
                tokio::spawn(call.run(reply));
                answer.await.unwrap_or_else(|_| {
                    manner.fault(&Fault::new(500, "internal_error", "The gateway failed; the request may have run."))
                })
            }
            Err(response) => *response,
        };
        if !response.headers().contains_key(manner.id_header()) {
            add_headers(&mut response, &vec![(manner.id_header(), own_id)]);
        }
        response
    }

    /// Everything up to the call of the upstream.
    async fn admitted(
        &self,
        endpoint: Endpoint,
        manner: Manner,
        own_id: &str,
        headers: &HeaderMap,
        body: Body,
    ) -> Result<Call, Box<Response>> {
        let fault = |fault: Fault| Box::new(manner.fault(&fault));
        let who = self.authenticate(headers).map_err(|refusal| Box::new(manner.refusal(&refusal)))?;
        let bytes = self.read_body(headers, body).await.map_err(fault)?;
        let mut request = read_request(endpoint, &bytes).map_err(fault)?;
        request.id = Some(request_id(&who, headers, own_id).map_err(fault)?.into());
        let asker = request.user.as_deref().map_or_else(|| who.clone(), |user| who.on_behalf_of(user));
        let (lease, degradation) = admit(&self.gate, &who, &request).await.map_err(|refusal| {
            let mut response = manner.refusal(&refusal);
            add_headers(&mut response, &self.rate_headers(manner, &asker, &request.model));
            Box::new(response)
        })?;
        if lease.is_repeat() {
            let told = "A request under this idempotency key is being run; it is not run twice.";
            return Err(fault(Fault::new(409, "request_in_flight", told).header("x-should-retry", "false")));
        }
        let agreed = self.agreed(&lease, &request, degradation.as_ref());
        let rewritten = match rewrite(&bytes, request.stream, &agreed) {
            Ok(rewritten) => rewritten,
            Err(why) => {
                // It has not left yet, so this succeeds.
                let _ = lease.cancel();
                return Err(fault(why));
            }
        };
        let mut headers = self.rate_headers(manner, &asker, &lease.claim().terms.group);
        headers.push((manner.id_header(), request.id.as_deref().unwrap_or(own_id).to_owned()));
        if let Some(degradation) = &degradation {
            headers.push(("x-quota-action", "degrade".to_owned()));
            headers.push(("x-quota-reason", degradation.reason.code().to_owned()));
        }
        Ok(Call {
            lease,
            upstream: self.upstream.clone(),
            path: endpoint.path,
            body: rewritten.body,
            dialect: endpoint.dialect,
            wants_usage: rewritten.wants_usage,
            manner,
            headers,
            patience: self.patience,
        })
    }

    fn agreed(&self, lease: &Lease, request: &Request, degradation: Option<&Degradation>) -> Agreed {
        let plan = self.plan.read().unwrap_or_else(PoisonError::into_inner);
        let upstream = plan.models.get(lease.model()).and_then(|model| model.upstream.clone());
        let has_output = request.kind != Kind::Embeddings;
        Agreed {
            model: upstream.unwrap_or_else(|| lease.model().into()),
            max_output_tokens: has_output.then(|| (lease.max_output_tokens() / request.choices).max(1)),
            disable_tools: degradation.map(|degradation| degradation.disable_tools.clone()).unwrap_or_default(),
        }
    }

    /// The principal of the key in `authorization` or `x-api-key`.
    fn authenticate(&self, headers: &HeaderMap) -> Result<Principal, Box<quota_core::Refusal>> {
        let given = headers.get(header::AUTHORIZATION).or_else(|| headers.get("x-api-key"));
        self.gate.authenticate(given.and_then(|value| value.to_str().ok()).unwrap_or_default())
    }

    /// The whole body, if it is not too large and comes in time.
    async fn read_body(&self, headers: &HeaderMap, body: Body) -> Result<Vec<u8>, Fault> {
        let too_large = |found: usize| {
            let told = format!("The body is too large: {found} bytes; allowed: {}.", self.max_body);
            Fault::new(413, "body_too_large", told)
        };
        let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
        let read = async {
            let mut pieces = body.into_data_stream();
            let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(self.max_body));
            let mut found = 0;
            // An answer before the end of the body is lost in the reset of the connection that follows: what is a bit
            // too large is read and thrown away.
            while let Some(piece) = pieces.next().await {
                let piece = piece.map_err(|_| Fault::new(400, "body_incomplete", "The body ended before its end."))?;
                found += piece.len();
                if found <= self.max_body {
                    bytes.extend_from_slice(&piece);
                } else if found / MAX_EXCESS > self.max_body
                    || length.is_some_and(|all| all / MAX_EXCESS > self.max_body)
                {
                    break;
                }
            }
            if found > self.max_body { Err(too_large(length.unwrap_or(found))) } else { Ok(bytes) }
        };
        let late = || Fault::new(408, "body_late", format!("The body took over {} s.", BODY_TIME.as_secs()));
        tokio::time::timeout(BODY_TIME, read).await.map_err(|_| late())?
    }

    /// Rate-limit headers of a principal and a model.
    fn rate_headers(&self, manner: Manner, who: &Principal, model: &str) -> Headers {
        let mut balances = self.gate.balances(who, false);
        // Limits of other models say nothing about this one.
        let prefix = format!("tenant:{}/model:", who.tenant());
        balances.retain(|balance| balance.scope.strip_prefix(&*prefix).is_none_or(|of| of == model));
        let mut headers = match manner {
            Manner::OpenAi => balance_headers::openai(&balances),
            Manner::Anthropic => balance_headers::anthropic(&balances, self.gate.now().wall),
        };
        headers.extend(balance_headers::ietf(&balances));
        headers
    }

    /// The balances of the key that asks.
    fn quota(&self, headers: &HeaderMap) -> Response {
        let manner = Manner::of(headers);
        let who = match self.authenticate(headers) {
            Ok(who) => who,
            Err(refusal) => return manner.refusal(&refusal),
        };
        let balances = self.gate.balances(&who, false);
        let body = json!({
            "tenant": who.tenant(), "key": who.key(), "app": who.app(), "user": who.user(),
            "limits": balances.iter().map(limit).collect::<Vec<_>>(),
        });
        json_response(200, &Headers::new(), &body)
    }

    fn new_id(&self) -> String {
        // Relaxed: the number is only to be another one each time.
        format!("req-{}-{:x}", self.id_prefix, self.ids.fetch_add(1, Ordering::Relaxed))
    }
}

/// A balance for its owner; money as decimal text.
fn limit(balance: &Balance) -> Value {
    let show = |amount: u64| match balance.meter {
        quota_core::Meter::Money => json!(balance.meter.show(amount)),
        _ => json!(amount),
    };
    json!({
        "scope": *balance.scope, "limit": *balance.limit, "meter": balance.meter.name(),
        "hard": show(balance.hard), "soft": balance.soft.map(show),
        "used": show(balance.used), "remaining": show(balance.remaining),
        "resets_in_ms": balance.resets_in.map(|time| time.as_nanos().div_ceil(1_000_000) as u64),
    })
}

fn read_request(endpoint: Endpoint, bytes: &[u8]) -> Result<Request, Fault> {
    let value = serde_json::from_slice::<Value>(bytes).map_err(|why| {
        // The parser's own words could show what was written there.
        let told = format!("The body is not JSON: line {}, column {}.", why.line(), why.column());
        Fault::new(400, "request_invalid", told)
    })?;
    (endpoint.read)(value)
        .map_err(|why| Fault::new(400, "request_invalid", format!("The request is malformed: {why}.")).param(why.field))
}

/// The id that a request is admitted under: its idempotency key within its tenant, or one of the gateway's own.
fn request_id(who: &Principal, headers: &HeaderMap, own: &str) -> Result<String, Fault> {
    let Some(key) = headers.get("idempotency-key") else { return Ok(own.to_owned()) };
    let sound = |key: &&str| {
        let allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
        (1..=MAX_IDEMPOTENCY_KEY).contains(&key.len()) && key.bytes().all(allowed)
    };
    match key.to_str().ok().filter(sound) {
        // No colon in the key: the last one ends the tenant, so that no two tenants' ids are the same.
        Some(key) => Ok(format!("{}:{key}", who.tenant())),
        None => {
            let told = format!("idempotency-key: allowed: 1 to {MAX_IDEMPOTENCY_KEY} of A-Z, a-z, 0-9, `-`, `_`, `.`.");
            Err(Fault::new(400, "request_invalid", told))
        }
    }
}

/// Random bytes of the operating system in hex.
///
/// # Errors
/// It has none.
pub fn random_hex(bytes: usize) -> Result<String, String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|why| format!("no random numbers: {why}"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
