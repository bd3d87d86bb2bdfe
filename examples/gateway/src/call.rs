//! One call of the upstream, from the lease to its end.
//!
//! Invariant: it runs as a task of its own, so that the lease ends by what the upstream did, whether or not the asker is
//! still there.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, to_bytes};
use axum::http::{HeaderMap, header};
use axum::response::Response;
use quota_core::Lease;
use quota_core::respond::Headers;
use quota_core::usage::{Outcome, outcome_of, without_content};
use serde_json::Value;
use tokio::sync::oneshot;
use tokio::time::{Instant, timeout};

use crate::answer::{Fault, add_headers};
use crate::aside::aside;
use crate::endpoint::Endpoint;
use crate::relay;
use crate::upstream::{Unanswered, Upstream};

/// How often a lease is told that its request is alive, at most.
const HEARTBEAT: Duration = Duration::from_secs(1);
/// The largest answer that is not streamed, in bytes.
const MAX_ANSWER: usize = 64 << 20;
/// The largest account of an error that is read, in bytes.
const MAX_ERROR: usize = 64 << 10;

/// How long to wait for others.
#[derive(Debug, Clone, Copy)]
pub struct Patience {
    /// For the head of the upstream's answer, and for an answer that is not streamed.
    pub answer: Duration,
    /// For the next piece of a stream.
    pub idle: Duration,
    /// For the asker to take the next piece.
    pub reader: Duration,
    /// For the end of a stream whose asker has left.
    pub left: Duration,
}

impl Default for Patience {
    fn default() -> Patience {
        let seconds = Duration::from_secs;
        Patience { answer: seconds(600), idle: seconds(60), reader: seconds(60), left: seconds(60) }
    }
}

/// An admitted request on its way to the upstream.
pub struct Call {
    /// What it holds.
    pub lease: Lease,
    /// The upstream.
    pub upstream: Arc<Upstream>,
    /// What is called.
    pub endpoint: Endpoint,
    /// The upstream's body.
    pub body: Vec<u8>,
    /// Whether usage in a stream is kept from the asker, who has not asked for it.
    pub strip_usage: bool,
    /// Headers of the answer, whatever it is.
    pub headers: Headers,
    /// How long to wait.
    pub patience: Patience,
}

/// How often a lease is renewed: once a second, or three times in its life where the policy gives it less than that.
pub fn heartbeat(lease: &Lease) -> Duration {
    let life = Duration::from_nanos(lease.claim().terms.deal.ttl);
    (life / 3).clamp(Duration::from_millis(1), HEARTBEAT)
}

/// Waits for something while the lease is kept alive; `None` if it took too long.
pub async fn alive<T>(lease: &Lease, limit: Duration, work: impl Future<Output = T>) -> Option<T> {
    let (end, beat) = (Instant::now() + limit, heartbeat(lease));
    tokio::pin!(work);
    // One timer at a time: nearly all work is done before its first one ends.
    while let Some(left) = end.checked_duration_since(Instant::now()).filter(|left| !left.is_zero()) {
        match timeout(left.min(beat), &mut work).await {
            Ok(done) => return Some(done),
            Err(_) => {
                lease.renew();
            }
        }
    }
    None
}

impl Call {
    /// Sends the request, hands the answer to `reply` and ends the lease.
    pub async fn run(mut self, reply: oneshot::Sender<Response>) {
        if !self.lease.sent() {
            let fault = Fault::new(503, "lease_lost", "The request's reservation ended before it was sent.");
            return self.answer(reply, self.endpoint.manner.fault(&fault));
        }
        let body = std::mem::take(&mut self.body);
        let sent = alive(&self.lease, self.patience.answer, self.upstream.send(&self.endpoint, body)).await;
        let (outcome, fault) = match sent {
            Some(Ok(response)) if !response.status().is_success() => self.refused(response).await,
            Some(Ok(response)) if is_stream(response.headers()) => {
                // Boxed, since most of what a call keeps would be for streams.
                return Box::pin(relay::relay(self, response.into_body(), reply)).await;
            }
            Some(Ok(response)) => match self.whole(response).await {
                Ok((outcome, response)) => {
                    self.end(outcome);
                    return self.answer(reply, response);
                }
                Err(fault) => (Outcome::FailedWithoutUsage, fault),
            },
            Some(Err(Unanswered::NotConnected)) => {
                let fault = Fault::new(502, "upstream_unreachable", "The upstream could not be reached.");
                (outcome_of(None, self.endpoint.dialect, None), fault)
            }
            Some(Err(Unanswered::Broken)) => (Outcome::FailedWithoutUsage, broken()),
            None => (Outcome::FailedWithoutUsage, late()),
        };
        self.end(outcome);
        self.answer(reply, self.endpoint.manner.fault(&fault));
    }

    fn answer(&self, reply: oneshot::Sender<Response>, mut response: Response) {
        add_headers(&mut response, &self.headers);
        // The asker may have left: nobody is there to be told.
        let _ = reply.send(response);
    }

    fn end(&self, outcome: Outcome) {
        // It fails where the lease has ended otherwise, for instance by an operator; that ending stands.
        let _ = self.lease.finish(outcome);
    }

    /// An answer that is not a stream, as it stands.
    async fn whole(&self, response: Response) -> Result<(Outcome, Response), Fault> {
        let (mut parts, body) = response.into_parts();
        let read = alive(&self.lease, self.patience.answer, to_bytes(body, MAX_ANSWER)).await;
        let bytes = read.ok_or_else(late)?.map_err(|_| broken())?;
        let json = aside(bytes.len(), || without_content(&bytes));
        let outcome = outcome_of(Some(parts.status.as_u16()), self.endpoint.dialect, json.as_ref());
        let kind = parts.headers.get(header::CONTENT_TYPE).cloned();
        parts.headers = kind.into_iter().map(|kind| (header::CONTENT_TYPE, kind)).collect();
        Ok((outcome, Response::from_parts(parts, Body::from(bytes))))
    }

    /// What an upstream's refusal means for the lease and for the asker.
    async fn refused(&self, response: Response) -> (Outcome, Fault) {
        let status = response.status().as_u16();
        if matches!(status, 429 | 503) {
            self.lease.pool_refused();
        }
        let seconds =
            response.headers().get(header::RETRY_AFTER).and_then(|value| value.to_str().ok()?.parse::<u32>().ok());
        let read = alive(&self.lease, self.patience.idle, to_bytes(response.into_body(), MAX_ERROR)).await;
        let json = read.and_then(Result::ok).and_then(|bytes| serde_json::from_slice::<Value>(&bytes).ok());
        let mut fault = fault_of(status, json.as_ref());
        if let Some(seconds) = seconds.filter(|_| matches!(fault.status, 429 | 503)) {
            fault = fault.header("retry-after", seconds.to_string());
        }
        (outcome_of(Some(status), self.endpoint.dialect, json.as_ref()), fault)
    }
}

/// What to tell the asker of an upstream's status. Only what is wrong with the request itself is handed on in the
/// upstream's words: the rest may tell of the gateway's own account.
fn fault_of(status: u16, body: Option<&Value>) -> Fault {
    match status {
        400 | 413 | 415 | 422 => {
            let error = body.map(|body| &body["error"]);
            let word = |name: &str| error.and_then(|error| error[name].as_str());
            let message = word("message").unwrap_or("The upstream refused the request.");
            let fault = Fault::new(status, word("code").unwrap_or("upstream_refused"), message);
            Fault { param: word("param").map(str::to_owned), ..fault }
        }
        429 => Fault::new(429, "upstream_busy", "The upstream takes no more requests at present."),
        503 => Fault::new(503, "upstream_unavailable", "The upstream is unavailable."),
        408 | 504 => late(),
        _ => Fault::new(502, "upstream_failed", format!("The upstream failed with status {status}.")),
    }
}

/// The upstream broke off.
pub fn broken() -> Fault {
    Fault::new(502, "upstream_broken", "The upstream broke off before its answer was complete.")
}

/// The upstream took too long.
pub fn late() -> Fault {
    Fault::new(504, "upstream_late", "The upstream took too long.")
}

fn is_stream(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    kind.is_some_and(|kind| kind.trim_start().to_ascii_lowercase().starts_with("text/event-stream"))
}
