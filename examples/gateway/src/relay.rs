//! Passing a stream through while its usage is looked for.
//!
//! Invariant: the head is sent with the first event, so that a stream that fails before it is an ordinary error; when the
//! asker leaves, the upstream is read on for its usage, in bounded time and bytes.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use quota_core::lease::Cause;
use quota_core::usage::Outcome;
use tokio::sync::{mpsc, oneshot};
use tokio::time::{Instant, interval};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::answer::{Fault, add_headers};
use crate::call::{Call, HEARTBEAT, alive, broken, late};
use crate::sse::Events;
use crate::watch::Watch;

/// Pieces on their way to the asker.
const PIECES: usize = 32;
/// Bytes that are read after the asker has left.
const MAX_LEFT: usize = 16 << 20;

/// How a stream ended.
enum End {
    /// By itself.
    Over,
    /// Broken off by the upstream, or silent for too long.
    Failed(Fault),
    /// Given up, long after the asker had left.
    GivenUp,
}

/// The asker's side.
struct Reader {
    /// The answer, until its head is sent.
    head: Option<(oneshot::Sender<Response>, Response)>,
    pieces: mpsc::Sender<Bytes>,
    /// Since when the asker is gone.
    left: Option<Instant>,
}

/// Passes the upstream's stream on, and ends the lease by what was in it.
pub async fn relay(call: Call, body: Body, reply: oneshot::Sender<Response>) {
    let (pieces, receiver) = mpsc::channel(PIECES);
    let mut response = Response::new(Body::from_stream(ReceiverStream::new(receiver).map(Ok::<Bytes, Infallible>)));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    add_headers(&mut response, &call.headers);
    let mut reader = Reader { head: Some((reply, response)), pieces, left: None };
    let mut watch = Watch::new(call.wants_usage);
    let end = pass(&call, body, &mut watch, &mut reader).await;
    finish(&call, &watch, &end);
    let fault = match end {
        End::Over if reader.head.is_none() => return,
        End::Over => broken(),
        End::Failed(fault) => fault,
        End::GivenUp => return,
    };
    match reader.head.take() {
        Some((reply, _)) => {
            let mut response = call.manner.fault(&fault);
            add_headers(&mut response, &call.headers);
            // The asker may have left.
            let _ = reply.send(response);
        }
        None => reader.send(&call, call.manner.last_frame(&fault).into()).await,
    }
}

async fn pass(call: &Call, body: Body, watch: &mut Watch, reader: &mut Reader) -> End {
    let mut upstream = body.into_data_stream();
    let mut events = Events::default();
    let mut beat = interval(HEARTBEAT);
    let (mut heard, mut read_on) = (Instant::now(), 0);
    loop {
        tokio::select! {
            piece = upstream.next() => {
                let Some(piece) = piece else { break };
                let Ok(bytes) = piece else { return End::Failed(broken()) };
                heard = Instant::now();
                if events.push(&bytes).is_err() {
                    return End::Failed(broken());
                }
                let mut out = Vec::new();
                while let Some(event) = events.next_event() {
                    out.extend(watch.event(event).unwrap_or_default());
                }
                if reader.left.is_some() {
                    read_on += bytes.len();
                } else {
                    reader.send(call, out).await;
                }
            }
            () = reader.pieces.closed(), if reader.left.is_none() => reader.left = Some(Instant::now()),
            _ = beat.tick() => {
                call.lease.renew();
                if heard.elapsed() > call.patience.idle {
                    return End::Failed(late());
                }
            }
        }
        if read_on > MAX_LEFT || reader.left.is_some_and(|left| left.elapsed() > call.patience.left) {
            return End::GivenUp;
        }
    }
    // Some upstreams leave out the last blank line.
    let rest = events.rest().to_vec();
    if !rest.is_empty() {
        let out = watch.event(&rest).unwrap_or_default();
        reader.send(call, out).await;
    }
    End::Over
}

/// Ends the lease: by the usage if it came, else as unresolved with what was seen.
fn finish(call: &Call, watch: &Watch, end: &End) {
    let lease = &call.lease;
    let seen = Some(watch.seen(lease.claim().terms.input.expected));
    // It fails where the lease has ended otherwise, for instance by an operator; that ending stands.
    let _ = match (watch.usage(), end) {
        (Some(usage), _) => lease.settle(usage.clone()),
        (None, End::Over) if watch.is_complete() => lease.unresolved(Cause::NoUsage, seen),
        (None, End::GivenUp) => lease.unresolved(Cause::NoUsage, seen),
        (None, _) if watch.is_silent() => lease.finish(Outcome::FailedWithoutUsage),
        (None, _) => lease.unresolved(Cause::UpstreamFailed, seen),
    };
}

impl Reader {
    async fn send(&mut self, call: &Call, piece: Vec<u8>) {
        if piece.is_empty() || self.left.is_some() {
            return;
        }
        let here = match self.head.take() {
            Some((reply, response)) => reply.send(response).is_ok(),
            None => true,
        };
        let taken = match self.pieces.try_send(piece.into()) {
            Err(mpsc::error::TrySendError::Full(piece)) => {
                let sent = alive(&call.lease, call.patience.reader, self.pieces.send(piece)).await;
                matches!(sent, Some(Ok(())))
            }
            sent => sent.is_ok(),
        };
        if !(here && taken) {
            self.left = Some(Instant::now());
        }
    }
}
