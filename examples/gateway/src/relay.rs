//! Passing a stream through while its usage is read.
//!
//! Invariant: the head is sent with the first event, so that a stream that fails before it is an ordinary error; only
//! whole events pass; when the asker leaves, the upstream is read on for its usage, in bounded time and bytes.

use std::convert::Infallible;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use quota_core::lease::Cause;
use quota_core::respond::Response as Told;
use quota_core::usage::{Outcome, StreamEnd, StreamReader};
use quota_core::{Lease, Usage};
use tokio::sync::{mpsc, oneshot};
use tokio::task::yield_now;
use tokio::time::{Instant, interval, sleep};
use tokio_stream::StreamExt;
use tokio_stream::wrappers::ReceiverStream;

use crate::answer::{Fault, add_headers, json_answer};
use crate::call::{Call, alive, broken, heartbeat, late};
use crate::sse::{Events, MAX_EVENT};

/// Pieces on their way to the asker.
const PIECES: usize = 32;
/// Bytes of events that have come together and go on as one piece; more go on at once.
const PIECE: usize = 16 << 10;
/// Bytes that are read after the asker has left.
const MAX_LEFT: usize = 16 << 20;
/// Output tokens after which the queue is told again how far an answer is.
const TOLD_EVERY: u64 = 32;
/// What an output may be above what was agreed before its stream is cut, in tokens: that and as much again.
const SLACK: u64 = 16;

/// How a stream ended.
enum End {
    /// By itself.
    Over,
    /// Broken off by the upstream, or silent for too long.
    Failed(Fault),
    /// Cut here, since a limit has no room for more, or since it went beyond what was agreed.
    Cut(Told),
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
    let mut usage = StreamReader::new(call.endpoint.dialect).strip_usage(call.strip_usage).max_event(MAX_EVENT);
    // The upstream is hung up on by then, so that a stream that is cut ends there too.
    let mut out = Vec::new();
    let end = pass(&call, body, &mut usage, &mut reader, &mut out).await;
    let last = usage.finish(|segment| out.extend_from_slice(segment));
    // What was too long came to its end all the same.
    let end = if last.done && matches!(end, End::Cut(_)) { End::Over } else { end };
    finish(&call.lease, last, &end);
    reader.send(&call, out).await;
    let manner = call.endpoint.manner;
    let told = match end {
        End::Over if reader.head.is_none() => return,
        End::Over => manner.failed(&broken()),
        End::Failed(fault) => manner.failed(&fault),
        End::Cut(told) => told,
        End::GivenUp => return,
    };
    match reader.head.take() {
        Some((reply, _)) => {
            let mut response = json_answer(&told);
            add_headers(&mut response, &call.headers);
            // The asker may have left.
            let _ = reply.send(response);
        }
        None => reader.send(&call, call.endpoint.last_event(told.body).into()).await,
    }
}

/// Passes the stream on until it ends; what is left in `out` is still to be sent.
async fn pass(call: &Call, body: Body, usage: &mut StreamReader, reader: &mut Reader, out: &mut Vec<u8>) -> End {
    let mut upstream = body.into_data_stream();
    let mut events = Events::default();
    // Made once: each event would make its own, and take it out of the timers and the channel's list again.
    let mut beat = interval(heartbeat(&call.lease));
    let silent = sleep(call.patience.idle);
    let pieces = reader.pieces.clone();
    let gone = pieces.closed();
    tokio::pin!(silent, gone);
    let (mut read_on, mut covered, mut tell_at) = (0, 0, 1);
    loop {
        tokio::select! {
            biased;
            _ = beat.tick() => { call.lease.renew(); }
            () = &mut gone, if reader.left.is_none() => reader.left = Some(Instant::now()),
            piece = upstream.next(), if out.len() < PIECE => {
                let Some(piece) = piece else { break };
                let Ok(bytes) = piece else { return End::Failed(broken()) };
                if events.push(&bytes).is_err() {
                    return End::Failed(broken());
                }
                while let Some(event) = events.next_event() {
                    usage.feed(event, |segment| out.extend_from_slice(segment));
                }
                if reader.left.is_some() {
                    read_on += bytes.len();
                }
                silent.as_mut().reset(Instant::now() + call.patience.idle);
                let output = usage.output_so_far();
                if output >= tell_at {
                    call.lease.progress(output);
                    tell_at = output + TOLD_EVERY;
                }
                if let Err(told) = cover(call, output, &mut covered) {
                    return End::Cut(told);
                }
            }
            // Once what brings the next piece has had its turn: writing to the asker costs more than all the rest, and
            // events that come at once are written at once.
            () = yield_now(), if !out.is_empty() => {
                reader.send(call, std::mem::take(out)).await;
                // The upstream is not silent while a slow asker is waited for.
                silent.as_mut().reset(Instant::now() + call.patience.idle);
            }
            () = &mut silent => return End::Failed(late()),
        }
        if read_on > MAX_LEFT || reader.left.is_some_and(|left| left.elapsed() > call.patience.left) {
            return End::GivenUp;
        }
    }
    // Some upstreams leave out the last blank line.
    usage.feed(events.rest(), |segment| out.extend_from_slice(segment));
    End::Over
}

/// Keeps an answer that grows covered by every limit; or why its stream is cut: a limit has no room for more of it, or it
/// has gone beyond what was agreed, which the upstream was told.
///
/// Between two counts of the provider the output is estimated from its text, so that one that keeps its bound may seem
/// to be above it.
fn cover(call: &Call, output: u64, covered: &mut u64) -> Result<(), Told> {
    let manner = call.endpoint.manner;
    let agreed = call.lease.max_output_tokens();
    if output > agreed.saturating_mul(2).saturating_add(SLACK) {
        let told = format!("The upstream went beyond the {agreed} output tokens that were agreed; it was cut off.");
        return Err(manner.failed(&Fault::new(502, "output_limit_passed", told)));
    }
    if output.min(agreed) > *covered {
        *covered = call.lease.follow(output.min(agreed)).map_err(|refusal| manner.refused(&refusal))?;
    }
    Ok(())
}

/// Ends the lease: by the usage if it came, else as unresolved with what was seen.
fn finish(lease: &Lease, told: StreamEnd, end: &End) {
    let input = lease.claim().terms.input.expected;
    let came = told.seen.is_some() || told.done;
    let none = || Usage { requests: 1, input_missing: true, ..Usage::default() };
    let seen = Some(told.seen.unwrap_or_else(none).or_input(input));
    // It fails where the lease has ended otherwise, for instance by an operator; that ending stands.
    let _ = match (told.outcome, end) {
        (Outcome::Unresolved(_), End::GivenUp | End::Cut(_)) => lease.unresolved(Cause::NoUsage, seen),
        (Outcome::Unresolved(_), _) if !came => lease.finish(Outcome::FailedWithoutUsage),
        (Outcome::Unresolved(_), End::Over) if !told.failed => lease.unresolved(Cause::NoUsage, seen),
        (Outcome::Unresolved(_), _) => lease.unresolved(Cause::UpstreamFailed, seen),
        (outcome, _) => lease.finish(outcome),
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
