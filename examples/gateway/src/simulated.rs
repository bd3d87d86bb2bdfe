//! A simulated model pool: the same question gets the same answer, with usage as OpenAI and Anthropic report it.
//!
//! Models whose names begin so behave in their own ways: `sim-error-before` fails with 500, `sim-error-mid-stream`
//! breaks off after a few words, `sim-no-usage` reports none, `sim-slow` takes its time, `sim-overlong` goes far beyond
//! its bound, `sim-429` has no room. Every other model answers at once. Invariant: the text depends on the request
//! alone.

mod chat;
mod messages;
mod responses;

use std::convert::Infallible;
use std::io;
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::http::{HeaderValue, header};
use axum::response::Response;
use serde_json::{Value, json};
use tokio_stream::StreamExt;

use crate::answer::json_response;

/// What answers are made of; each word counts as one token.
const WORDS: [&str; 12] =
    ["The ", "pool ", "is ", "simulated ", "and ", "every ", "word ", "of ", "it ", "counts ", "as ", "one. "];
/// Tokens of an answer that is not cut off.
const ANSWER: u64 = 24;
/// Tokens of an answer that knows no bound.
const OVERLONG: u64 = 480;
/// Words before `sim-error-mid-stream` breaks off.
const BROKEN_AFTER: u64 = 3;
/// What `sim-slow` waits before each frame.
const SLOW: Duration = Duration::from_millis(50);
/// Numbers in a vector.
const DIMENSIONS: u64 = 8;

/// The pool as a server of its own, for a gateway that is given its address.
pub fn router() -> Router {
    Router::new().fallback(|request: Request| async {
        let (parts, body) = request.into_parts();
        let body = axum::body::to_bytes(body, 64 << 20).await.unwrap_or_default();
        Ok::<_, Infallible>(answer(parts.uri.path().trim_start_matches("/v1"), &body).await)
    })
}

/// The pool's answer to a body posted to a path below `/v1`.
pub async fn answer(path: &str, body: &[u8]) -> Response {
    let Ok(body) = serde_json::from_slice::<Value>(body) else { return error(400, "the body is not JSON") };
    let model = body["model"].as_str().unwrap_or_default().to_owned();
    if model.starts_with("sim-error-before") {
        return error(500, "the simulated model failed");
    }
    if model.starts_with("sim-429") {
        let mut response = error(429, "the simulated pool is full");
        response.headers_mut().insert("retry-after", HeaderValue::from_static("7"));
        return response;
    }
    let streamed = body["stream"] == json!(true);
    if model.starts_with("sim-slow") && !streamed {
        tokio::time::sleep(SLOW * 4).await;
    }
    match (path, streamed) {
        ("/embeddings", _) => embeddings(&model, &body),
        ("/chat/completions", false) => chat::whole(&Part::new(&body, &["messages"])),
        ("/chat/completions", true) => chat::stream(&Part::new(&body, &["messages"]), chat::CHUNK),
        ("/completions", false) => chat::text(&Part::new(&body, &["prompt"])),
        ("/completions", true) => chat::stream(&Part::new(&body, &["prompt"]), chat::TEXT),
        ("/responses", false) => responses::whole(&Part::new(&body, &["instructions", "input"])),
        ("/responses", true) => responses::stream(&Part::new(&body, &["instructions", "input"])),
        ("/messages", false) => messages::whole(&Part::new(&body, &["system", "messages"])),
        ("/messages", true) => messages::stream(&Part::new(&body, &["system", "messages"])),
        _ => error(404, "no such path"),
    }
}

/// An error, whose object both manners' clients understand.
fn error(status: u16, message: &str) -> Response {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    let error = json!({ "message": message, "type": kind, "code": null });
    json_response(status, &Vec::new(), &json!({ "type": "error", "error": error }))
}

/// The part that the pool plays for one request.
struct Part {
    model: String,
    /// Tokens of the input.
    input: u64,
    /// How many answers there are.
    choices: u64,
    /// Words of each.
    words: u64,
    /// Whether they end for want of room.
    full: bool,
    /// After how many words it breaks off.
    breaks: Option<u64>,
    /// Whether usage is reported, and in a stream of chat completions.
    reports: bool,
    streams_usage: bool,
    slow: bool,
}

impl Part {
    fn new(body: &Value, inputs: &[&str]) -> Part {
        let model = body["model"].as_str().unwrap_or_default();
        let bounds = ["max_completion_tokens", "max_tokens", "max_output_tokens"];
        let bound = bounds.iter().filter_map(|field| body[field].as_u64()).min().unwrap_or(ANSWER);
        let words = if model.starts_with("sim-overlong") { OVERLONG } else { ANSWER.min(bound) };
        let prompts = body["prompt"].as_array().filter(|all| !all[0].is_number()).map_or(1, |all| all.len() as u64);
        let reports = !model.starts_with("sim-no-usage");
        Part {
            input: inputs.iter().map(|field| tokens(&body[field])).sum(),
            choices: body["n"].as_u64().unwrap_or(1) * prompts,
            words,
            full: words < ANSWER,
            breaks: model.starts_with("sim-error-mid-stream").then_some(BROKEN_AFTER.min(words)),
            reports,
            streams_usage: reports && body["stream_options"]["include_usage"] == json!(true),
            slow: model.starts_with("sim-slow"),
            model: model.to_owned(),
        }
    }

    /// The words of a stream, as far as it goes.
    fn said(&self) -> impl Iterator<Item = &'static str> + use<> {
        (0..self.breaks.unwrap_or(self.words)).map(word)
    }

    fn text(&self) -> String {
        (0..self.words).map(word).collect()
    }

    /// A stream of frames. One that breaks off does so behind those that are given.
    fn frames(&self, frames: Vec<String>) -> Response {
        let broken = io::Error::new(io::ErrorKind::ConnectionReset, "the simulated model broke off");
        let frames = frames.into_iter().map(|frame| Ok(Bytes::from(frame)));
        let frames: Vec<io::Result<Bytes>> = frames.chain(self.breaks.map(|_| Err(broken))).collect();
        let frames = tokio_stream::iter(frames);
        let body = match self.slow {
            true => Body::from_stream(frames.throttle(SLOW)),
            false => Body::from_stream(frames),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }
}

/// Tokens of a text or of everything in a list or object: a quarter of its bytes.
fn tokens(value: &Value) -> u64 {
    match value {
        Value::String(text) => (text.len() as u64).div_ceil(4),
        Value::Array(items) => items.iter().map(tokens).sum(),
        Value::Object(fields) => 1 + fields.values().map(tokens).sum::<u64>(),
        Value::Number(_) => 1,
        Value::Bool(_) | Value::Null => 0,
    }
}

fn word(at: u64) -> &'static str {
    WORDS[at as usize % WORDS.len()]
}

fn embeddings(model: &str, body: &Value) -> Response {
    let input = &body["input"];
    let single = !input.is_array() || input[0].is_number();
    let inputs = if single { vec![input] } else { input.as_array().into_iter().flatten().collect() };
    let vector = |input: &Value| {
        let seed = tokens(input);
        (0..DIMENSIONS).map(|at| (seed * (at + 3) % 17) as f64 / 16.0).collect::<Vec<_>>()
    };
    let data = inputs
        .iter()
        .enumerate()
        .map(|(index, input)| json!({ "object": "embedding", "index": index, "embedding": vector(input) }));
    let used = tokens(input);
    let answer = json!({
        "object": "list", "model": model, "data": data.collect::<Vec<_>>(),
        "usage": { "prompt_tokens": used, "total_tokens": used },
    });
    json_response(200, &Vec::new(), &answer)
}
