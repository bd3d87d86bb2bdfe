//! The path of a request that spends quota, from its headers to the call of the upstream.
//!
//! Invariant: the tenant comes from the key alone; no header and no member of a body names another one, or another
//! upstream.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderMap, header};
use axum::response::Response;
use http_body_util::BodyExt;
use hyper::body::Incoming;
use quota_core::request::MAX_RUN_ID;
use quota_core::{Lease, Principal, Request};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio_stream::StreamExt;

use crate::answer::{Fault, add_headers};
use crate::aside::aside;
use crate::call::Call;
use crate::endpoint::Endpoint;
use crate::rewrite::{Agreed, rewrite};
use crate::server::Gateway;
use crate::upstream::Upstream;

/// How long a body may take to arrive.
const BODY_TIME: Duration = Duration::from_secs(60);
/// How many times too large a body may be and still be read to its end.
const MAX_EXCESS: usize = 4;
/// Of an announced body's memory so much is taken before its bytes come.
const AT_ONCE: usize = 64 << 10;
/// The longest idempotency key, in bytes.
const MAX_IDEMPOTENCY_KEY: usize = 64;
/// The header that names the run of an agent.
const RUN_ID: &str = "x-agent-run-id";

/// Whose limits an answer shows: the asker, and the model once it is known.
struct Shown {
    who: Principal,
    model: Option<Arc<str>>,
}

impl Gateway {
    /// Runs a request of an endpoint that spends quota.
    pub(crate) async fn spend(
        &self,
        endpoint: Endpoint,
        upstream: &Arc<Upstream>,
        headers: HeaderMap,
        body: Incoming,
    ) -> Response {
        let manner = endpoint.manner;
        let own_id = self.new_id();
        let mut response = match self.authenticate(manner, &headers) {
            Ok(who) => {
                let mut shown = Shown { who, model: None };
                match self.admitted(endpoint, upstream, &own_id, &headers, body, &mut shown).await {
                    Ok(call) => {
                        let (reply, answer) = oneshot::channel();
                        // A task of its own: the lease must end by what the upstream did, even if the asker leaves.
                        // Boxed, as it would be copied about while the task is made.
                        tokio::spawn(Box::pin(call.run(reply)));
                        let lost = "The gateway failed; the request may have run.";
                        answer.await.unwrap_or_else(|_| manner.fault(&Fault::new(500, "internal_error", lost)))
                    }
                    Err(mut response) => {
                        add_headers(&mut response, &self.rate_headers(manner, &shown.who, shown.model.as_deref()));
                        *response
                    }
                }
            }
            Err(response) => *response,
        };
        if !response.headers().contains_key(manner.id_header()) {
            add_headers(&mut response, &vec![(manner.id_header(), own_id)]);
        }
        response
    }

    /// Everything between the key and the call of the upstream.
    async fn admitted(
        &self,
        endpoint: Endpoint,
        upstream: &Arc<Upstream>,
        own_id: &str,
        headers: &HeaderMap,
        body: Incoming,
        shown: &mut Shown,
    ) -> Result<Call, Box<Response>> {
        let manner = endpoint.manner;
        let fault = |fault: Fault| Box::new(manner.fault(&fault));
        let who = shown.who.clone();
        let bytes = read_body(headers, body, self.max_body).await.map_err(fault)?;
        let mut request = aside(bytes.len(), || read_request(endpoint, &bytes)).map_err(fault)?;
        request.id = Some(request_id(&who, headers, own_id).map_err(fault)?.into());
        request.run_id = run_id(headers).map_err(fault)?;
        if let Some(user) = request.user.as_deref() {
            shown.who = who.on_behalf_of(user);
        }
        shown.model = Some(request.model.clone());
        // An asker who leaves drops this future, and with it the place in the queue.
        let mut turn = pin!(self.gate.acquire(&who, &request));
        // Its first step counts the input.
        let turn = poll_fn(|context| aside(bytes.len(), || turn.as_mut().poll(context))).await;
        let lease = turn.map_err(|refusal| Box::new(manner.refusal(&refusal)))?;
        if lease.is_repeat() {
            // One settlement would pay for many calls.
            let told = "A request under this idempotency key is in progress; it is not run twice.";
            return Err(fault(Fault::new(409, "request_in_progress", told).header("x-should-retry", "false")));
        }
        let agreed = self.agreed(&lease, &request);
        let rewritten = match aside(bytes.len(), || rewrite(&endpoint, &bytes, request.stream, &agreed)) {
            Ok(rewritten) => rewritten,
            Err(why) => {
                // It has not left yet, so this succeeds.
                let _ = lease.cancel();
                return Err(fault(why));
            }
        };
        let mut headers = self.rate_headers(manner, &shown.who, Some(&lease.claim().terms.deal.group));
        headers.push((manner.id_header(), request.id.as_deref().unwrap_or(own_id).to_owned()));
        let waited = lease.waited();
        if !waited.is_zero() {
            headers.push(("x-quota-waited-ms", waited.as_nanos().div_ceil(1_000_000).to_string()));
        }
        if let Some(degradation) = lease.degradation() {
            headers.push(("x-quota-degraded", format!("{};{}", degradation.step, degradation.reason.code())));
        }
        Ok(Call {
            lease,
            upstream: upstream.clone(),
            endpoint,
            body: rewritten.body,
            strip_usage: rewritten.strip_usage,
            headers,
            patience: self.patience,
        })
    }

    fn agreed(&self, lease: &Lease, request: &Request) -> Agreed {
        Agreed {
            model: lease.upstream_model(),
            max_output_tokens: (lease.max_output_tokens() / request.choices).max(1),
            disable_tools: lease.degradation().map(|lesser| lesser.disable_tools.clone()).unwrap_or_default(),
            priority: self.hints.and_then(|dialect| dialect.priority(lease.rank())),
        }
    }
}

/// The whole body, if it is not too large and comes in time.
async fn read_body(headers: &HeaderMap, body: Incoming, max_body: usize) -> Result<Vec<u8>, Fault> {
    let too_large = |found: usize| {
        let told = format!("The body is too large: {found} bytes; allowed: {}.", max_body);
        Fault::new(413, "body_too_large", told)
    };
    let length = headers.get(header::CONTENT_LENGTH).and_then(|value| value.to_str().ok()?.parse::<usize>().ok());
    let read = async {
        let mut pieces = body.into_data_stream();
        let mut bytes = Vec::with_capacity(length.unwrap_or(0).min(max_body).min(AT_ONCE));
        let mut found = 0;
        // An answer before the end of the body is lost in the reset of the connection that follows: what is a bit
        // too large is read and thrown away.
        while let Some(piece) = pieces.next().await {
            let piece = piece.map_err(|_| Fault::new(400, "body_incomplete", "The body ended before its end."))?;
            found += piece.len();
            if found <= max_body {
                bytes.extend_from_slice(&piece);
            } else if found / MAX_EXCESS > max_body || length.is_some_and(|all| all / MAX_EXCESS > max_body) {
                break;
            }
        }
        if found > max_body { Err(too_large(length.unwrap_or(found))) } else { Ok(bytes) }
    };
    let late = || Fault::new(408, "body_late", format!("The body took over {} s.", BODY_TIME.as_secs()));
    tokio::time::timeout(BODY_TIME, read).await.map_err(|_| late())?
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

/// The run of an agent that a request is a step of.
fn run_id(headers: &HeaderMap) -> Result<Option<Arc<str>>, Fault> {
    let Some(run) = headers.get(RUN_ID) else { return Ok(None) };
    let sound = |run: &&str| (1..=MAX_RUN_ID).contains(&run.len()) && run.bytes().all(|byte| byte.is_ascii_graphic());
    match run.to_str().ok().filter(sound) {
        Some(run) => Ok(Some(run.into())),
        None => {
            let told = format!("{RUN_ID}: allowed: 1 to {MAX_RUN_ID} printable characters without a space.");
            Err(Fault::new(400, "request_invalid", told))
        }
    }
}
