//! Routes, keys and what a key may see: what stands between a connection and the gate.
//!
//! Invariant: what a key is shown is of its own tenant.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use axum::Router;
use axum::extract::{Path, State};
use axum::http::{HeaderMap, Method, Uri, header};
use axum::response::Response;
use axum::routing::get;
use quota_core::gpu::Dialect;
use quota_core::keeper::Keeper;
use quota_core::key::Digest;
use quota_core::policy::plan::Plan;
use quota_core::respond::{Headers, headers as balance_headers};
use quota_core::{Balance, Gate, Policy, Principal};
use serde_json::{Value, json};

use crate::answer::{Fault, Manner, add_headers, json_response};
use crate::call::Patience;
use crate::dashboard::{self, Dashboard};
use crate::identity::Identity;
use crate::pools::{self, Metrics, Watch};
use crate::source::Source;
use crate::upstream::Upstream;
use crate::{acts, models, operator};

/// How often expired leases are looked for, and pools.
const SWEEP: Duration = Duration::from_secs(1);

/// How a gateway is set up.
pub struct Config {
    /// Where its policy comes from.
    pub source: Source,
    /// Where requests go.
    pub upstream: Upstream,
    /// Who tells how full the upstream is; the simulated one tells by itself.
    pub metrics: Option<Metrics>,
    /// Whose tokens it believes beside the policy's keys.
    pub identity: Identity,
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
    /// Ends leases and waits in time.
    _keeper: Keeper,
    /// Asks servers how full they are.
    pub(crate) watch: Option<Watch>,
    /// What tells the upstream whose turn it is.
    pub(crate) hints: Option<Dialect>,
    pub(crate) admin_key: Digest,
    /// What each worker has connections of its own to.
    pub(crate) upstream: Upstream,
    pub(crate) max_body: usize,
    pub(crate) patience: Patience,
    identity: Identity,
    source: Source,
    pub(crate) plan: RwLock<Arc<Plan>>,
    /// Who watches the dashboard.
    pub dashboard: Dashboard,
    /// What ids of this process begin with, and how many there are.
    id_prefix: String,
    ids: AtomicU64,
}

/// The routes that spend nothing; those that do are [`ENDPOINTS`](crate::endpoint::ENDPOINTS).
pub(crate) fn router(gateway: Arc<Gateway>) -> Router {
    Router::new()
        .route("/v1/models", get(|State(g): State<Arc<Gateway>>, h| async move { g.models(&h) }))
        .route(
            "/v1/models/{*name}",
            get(|State(g): State<Arc<Gateway>>, Path(name): Path<String>, h| async move { g.model(&name, &h) }),
        )
        .route("/v1/quota", get(|State(g): State<Arc<Gateway>>, h| async move { g.quota(&h) }))
        .route("/healthz", get(|| async { "ok\n" }))
        .merge(operator::routes())
        .merge(dashboard::routes())
        .merge(acts::routes())
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
    /// What is wrong with the policy or with what is said of its pools, or the operating system has no random numbers or no
    /// thread.
    pub fn new(config: Config) -> Result<Arc<Gateway>, String> {
        let policy = config.source.load()?;
        let plan = policy.plan().clone();
        let (gate, watch) = pools::gate(policy, &config.upstream, config.metrics.as_ref())?;
        let hints = config.metrics.filter(|metrics| metrics.priority_hints).map(|metrics| metrics.plan.dialect);
        Ok(Arc::new(Gateway {
            plan: RwLock::new(plan),
            dashboard: Dashboard::default(),
            _keeper: Keeper::start(gate.clone(), SWEEP).map_err(|why| format!("no thread: {why}"))?,
            watch,
            hints,
            gate,
            admin_key: Digest::of(&config.admin_key),
            identity: config.identity,
            source: config.source,
            upstream: config.upstream,
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

    /// The plan in force.
    pub(crate) fn plan(&self) -> Arc<Plan> {
        self.plan.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// The principal of the key or the token in `authorization` or `x-api-key`, or the answer that refuses it.
    pub(crate) fn authenticate(&self, manner: Manner, headers: &HeaderMap) -> Result<Principal, Box<Response>> {
        let given = headers.get(header::AUTHORIZATION).or_else(|| headers.get("x-api-key"));
        let bearer = given.and_then(|value| value.to_str().ok()).unwrap_or_default();
        self.identity.principal(&self.gate, manner, bearer)
    }

    /// Rate-limit headers of a principal and a model; without a model, of what counts for all of them.
    pub(crate) fn rate_headers(&self, manner: Manner, who: &Principal, model: Option<&str>) -> Headers {
        let mut balances = self.gate.balances(who, false);
        // Limits of other models say nothing about this one.
        let prefix = format!("tenant:{}/model:", who.tenant());
        balances.retain(|balance| balance.scope.strip_prefix(&*prefix).is_none_or(|of| Some(of) == model));
        let mut headers = match manner {
            Manner::OpenAi => balance_headers::openai(&balances),
            Manner::Anthropic => balance_headers::anthropic(&balances, self.gate.now().wall),
        };
        headers.extend(balance_headers::ietf(&balances));
        headers
    }

    /// The balances of the key that asks.
    fn quota(&self, headers: &HeaderMap) -> Response {
        self.shown(headers, |who| {
            let balances = self.gate.balances(who, false);
            Ok(json!({
                "tenant": who.tenant(), "key": who.key(), "app": who.app(), "user": who.user(),
                "limits": balances.iter().map(limit).collect::<Vec<_>>(),
            }))
        })
    }

    /// The models that the key may use.
    fn models(&self, headers: &HeaderMap) -> Response {
        self.shown(headers, |who| Ok(models::list(self, who)))
    }

    /// One of them.
    fn model(&self, name: &str, headers: &HeaderMap) -> Response {
        self.shown(headers, |who| models::one(self, who, name))
    }

    /// An answer to a key that spends nothing.
    fn shown(&self, headers: &HeaderMap, body: impl FnOnce(&Principal) -> Result<Value, Fault>) -> Response {
        let manner = Manner::of(headers);
        let who = match self.authenticate(manner, headers) {
            Ok(who) => who,
            Err(response) => return *response,
        };
        let mut response = match body(&who) {
            Ok(body) => json_response(200, &Headers::new(), &body),
            Err(fault) => manner.fault(&fault),
        };
        add_headers(&mut response, &self.rate_headers(manner, &who, None));
        response
    }

    pub(crate) fn new_id(&self) -> String {
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

/// Random bytes of the operating system in hex.
///
/// # Errors
/// It has none.
pub fn random_hex(bytes: usize) -> Result<String, String> {
    let mut random = vec![0; bytes];
    getrandom::fill(&mut random).map_err(|why| format!("no random numbers: {why}"))?;
    Ok(random.iter().map(|byte| format!("{byte:02x}")).collect())
}
