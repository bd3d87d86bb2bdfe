//! A simulated model pool: the same question gets the same answer, with usage as OpenAI and Anthropic report it.
//!
//! Models whose names begin so behave in their own ways: `sim-error-before` fails with 500, `sim-error-mid-stream`
//! breaks off after a few words, `sim-no-usage` reports none, `sim-slow` takes its time, `sim-overlong` goes far beyond
//! its bound, `sim-429` has no room. Every other model answers as fast as the replicas give tokens, or at once. Invariant:
//! the text depends on the request alone.

mod chat;
mod messages;
mod pace;
mod responses;

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::http::{HeaderValue, header};
use axum::response::Response;
use quota_core::gpu::simulated::{Shape, SimulatedPool};
use quota_core::time::SystemClock;
use serde_json::{Value, json};
use tokio_stream::StreamExt;

pub use self::pace::QUICK;
use self::pace::{Pace, Run};
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

/// The simulated pool: with replicas that take their time, or without.
#[derive(Clone)]
pub struct Simulation(Option<Arc<Pace>>);

impl Simulation {
    /// Answers are there at once.
    pub fn instant() -> Simulation {
        Simulation(None)
    }

    /// Answers come as replicas of this shape give their tokens; it has to be asked within a runtime.
    pub fn paced(shape: Shape) -> Simulation {
        Simulation(Some(Arc::new(Pace::new(shape))))
    }

    /// The replicas, and the clock that they go by.
    pub fn replicas(&self) -> Option<(Arc<SimulatedPool>, Arc<SystemClock>)> {
        self.0.as_ref().map(|pace| (pace.pool.clone(), pace.clock.clone()))
    }

    /// The answer to a body posted to a path below `/v1`.
    pub async fn answer(&self, path: &str, body: &[u8]) -> Response {
        let Ok(body) = serde_json::from_slice::<Value>(body) else { return error(400, "the body is not JSON") };
        let model = body["model"].as_str().unwrap_or_default();
        if model.starts_with("sim-error-before") {
            return error(500, "the simulated model failed");
        }
        if model.starts_with("sim-429") {
            let mut response = error(429, "the simulated pool is full");
            response.headers_mut().insert("retry-after", HeaderValue::from_static("7"));
            return response;
        }
        let inputs: &[&str] = match path {
            "/embeddings" => &["input"],
            "/chat/completions" => &["messages"],
            "/completions" => &["prompt"],
            "/responses" => &["instructions", "input"],
            "/messages" => &["system", "messages"],
            _ => return error(404, "no such path"),
        };
        let part = Part::new(&body, inputs);
        let embeds = path == "/embeddings";
        let output = if embeds { 1 } else { part.choices * part.words };
        let run = match self.0.as_ref().map(|pace| pace.submit(part.input, output)).transpose() {
            Ok(run) => run,
            Err(why) => return error(400, &why.to_string()),
        };
        if body["stream"] == json!(true) && !embeds {
            let frames = match path {
                "/chat/completions" => chat::stream(&part, chat::CHUNK),
                "/completions" => chat::stream(&part, chat::TEXT),
                "/responses" => responses::stream(&part),
                _ => messages::stream(&part),
            };
            return part.stream(frames, run);
        }
        if let Some(run) = &run
            && run.reached(output).await.is_err()
        {
            return error(500, "the simulated replica is gone");
        }
        if part.slow {
            tokio::time::sleep(SLOW * 4).await;
        }
        let answer = match path {
            "/embeddings" => embeddings(&part.model, &body),
            "/chat/completions" => chat::whole(&part),
            "/completions" => chat::text(&part),
            "/responses" => responses::whole(&part),
            _ => messages::whole(&part),
        };
        json_response(200, &Vec::new(), &answer)
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

    /// A stream of frames, each when its words are there. One that breaks off does so behind those that are given.
    fn stream(&self, frames: Frames, run: Option<Run>) -> Response {
        let broken = || io::Error::new(io::ErrorKind::ConnectionReset, "the simulated model broke off");
        // Dropped with the body.
        let run = run.map(Arc::new);
        let frames = tokio_stream::iter(frames.list).then(move |(words, frame)| {
            let run = run.clone();
            async move {
                match run {
                    Some(run) => run.reached(words).await.map_err(|_| broken()).map(|()| frame),
                    None => Ok(frame),
                }
            }
        });
        let frames = frames.chain(tokio_stream::iter(self.breaks.map(|_| Err(broken()))));
        let body = match self.slow {
            true => Body::from_stream(frames.throttle(SLOW)),
            false => Body::from_stream(frames),
        };
        let mut response = Response::new(body);
        response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
        response
    }
}

/// The frames of a stream.
#[derive(Default)]
struct Frames {
    /// Each with the words that have to be there before it; the first are sent with the first word.
    list: Vec<(u64, Bytes)>,
    words: u64,
}

impl Frames {
    fn push(&mut self, frame: String) {
        self.list.push((self.words.max(1), frame.into()));
    }

    /// A frame with a word in it.
    fn say(&mut self, frame: String) {
        self.words += 1;
        self.push(frame);
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

fn embeddings(model: &str, body: &Value) -> Value {
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
    json!({
        "object": "list", "model": model, "data": data.collect::<Vec<_>>(),
        "usage": { "prompt_tokens": used, "total_tokens": used },
    })
}
