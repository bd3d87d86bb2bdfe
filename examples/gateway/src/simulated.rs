//! A simulated model pool in OpenAI's manner: the same question gets the same answer, with usage as OpenAI reports it.
//!
//! Models whose names begin so behave in their own ways: `sim-error-before` fails with 500, `sim-error-mid-stream`
//! breaks off after a few words, `sim-no-usage` reports none, `sim-slow` takes its time, `sim-429` has no room. Every
//! other model answers at once. Invariant: the text depends on the request alone.

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
    match path {
        "/embeddings" => embeddings(&model, &body),
        "/chat/completions" if body["stream"] == json!(true) => stream(&model, &body),
        "/chat/completions" => {
            if model.starts_with("sim-slow") {
                tokio::time::sleep(SLOW * 4).await;
            }
            completion(&model, &body)
        }
        _ => error(404, "no such path"),
    }
}

fn error(status: u16, message: &str) -> Response {
    let kind = if status < 500 { "invalid_request_error" } else { "server_error" };
    json_response(status, &Vec::new(), &json!({ "error": { "message": message, "type": kind, "code": null } }))
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

/// How many choices there are, and the words of each with its `finish_reason`.
fn choices(body: &Value) -> (u64, u64, &'static str) {
    let bound = ["max_completion_tokens", "max_tokens"].iter().filter_map(|field| body[field].as_u64()).min();
    let words = ANSWER.min(bound.unwrap_or(ANSWER));
    (body["n"].as_u64().unwrap_or(1), words, if words < ANSWER { "length" } else { "stop" })
}

fn word(at: u64) -> &'static str {
    WORDS[at as usize % WORDS.len()]
}

fn usage(body: &Value) -> Value {
    let (input, (choices, words, _)) = (tokens(&body["messages"]), choices(body));
    json!({
        "prompt_tokens": input, "completion_tokens": choices * words, "total_tokens": input + choices * words,
        "prompt_tokens_details": { "cached_tokens": 0 }, "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

fn completion(model: &str, body: &Value) -> Response {
    let (count, words, finish) = choices(body);
    let text: String = (0..words).map(word).collect();
    let choice = |index| {
        json!({
            "index": index, "finish_reason": finish, "logprobs": null,
            "message": { "role": "assistant", "content": text, "refusal": null },
        })
    };
    let mut answer = json!({
        "id": "chatcmpl-simulated", "object": "chat.completion", "created": 0, "model": model,
        "choices": (0..count).map(choice).collect::<Vec<_>>(),
    });
    if !model.starts_with("sim-no-usage") {
        answer["usage"] = usage(body);
    }
    json_response(200, &Vec::new(), &answer)
}

fn stream(model: &str, body: &Value) -> Response {
    let (count, words, finish) = choices(body);
    let with_usage = body["stream_options"]["include_usage"] == json!(true) && !model.starts_with("sim-no-usage");
    let frame = |choices: Value, usage: Option<Value>| {
        let mut chunk = json!({
            "id": "chatcmpl-simulated", "object": "chat.completion.chunk", "created": 0, "model": model,
            "choices": choices,
        });
        if with_usage {
            chunk["usage"] = usage.unwrap_or(Value::Null);
        }
        Ok(Bytes::from(format!("data: {chunk}\n\n")))
    };
    let delta = |index: u64, delta: Value, finish: Value| {
        frame(json!([{ "index": index, "delta": delta, "logprobs": null, "finish_reason": finish }]), None)
    };
    let breaks = model.starts_with("sim-error-mid-stream");
    let mut frames: Vec<Result<Bytes, io::Error>> = Vec::new();
    for index in 0..count {
        frames.push(delta(index, json!({ "role": "assistant", "content": "" }), Value::Null));
        for at in 0..if breaks { BROKEN_AFTER.min(words) } else { words } {
            frames.push(delta(index, json!({ "content": word(at) }), Value::Null));
        }
        if breaks {
            frames.push(Err(io::Error::new(io::ErrorKind::ConnectionReset, "the simulated model broke off")));
            break;
        }
        frames.push(delta(index, json!({}), json!(finish)));
    }
    if with_usage {
        frames.push(frame(json!([]), Some(usage(body))));
    }
    frames.push(Ok(Bytes::from_static(b"data: [DONE]\n\n")));
    let frames = tokio_stream::iter(frames);
    let body = match model.starts_with("sim-slow") {
        true => Body::from_stream(frames.throttle(SLOW)),
        false => Body::from_stream(frames),
    };
    let mut response = Response::new(body);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/event-stream"));
    response
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
