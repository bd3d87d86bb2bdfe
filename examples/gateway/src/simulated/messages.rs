//! Messages, in Anthropic's manner.
//!
//! Invariant: the counts of a stream are running totals, of which the last one counts.

use axum::response::Response;
use serde_json::{Value, json};

use super::Part;
use crate::answer::json_response;

fn message(part: &Part, content: Value, stop: Value, output: u64) -> Value {
    let mut message = json!({
        "id": "msg_simulated", "type": "message", "role": "assistant", "model": part.model, "content": content,
        "stop_reason": stop, "stop_sequence": null,
    });
    if part.reports {
        message["usage"] = json!({
            "input_tokens": part.input, "output_tokens": output,
            "cache_creation_input_tokens": 0, "cache_read_input_tokens": 0,
        });
    }
    message
}

fn stop(part: &Part) -> Value {
    json!(if part.full { "max_tokens" } else { "end_turn" })
}

pub(super) fn whole(part: &Part) -> Response {
    let content = json!([{ "type": "text", "text": part.text() }]);
    json_response(200, &Vec::new(), &message(part, content, stop(part), part.words))
}

pub(super) fn stream(part: &Part) -> Response {
    let event = |kind: &str, mut body: Value| {
        body["type"] = kind.into();
        format!("event: {kind}\ndata: {body}\n\n")
    };
    let block = json!({ "type": "text", "text": "" });
    let mut frames = vec![
        event("message_start", json!({ "message": message(part, json!([]), Value::Null, 1) })),
        event("content_block_start", json!({ "index": 0, "content_block": block })),
        event("ping", json!({})),
    ];
    let delta = |word| json!({ "index": 0, "delta": { "type": "text_delta", "text": word } });
    frames.extend(part.said().map(|word| event("content_block_delta", delta(word))));
    if part.breaks.is_none() {
        frames.push(event("content_block_stop", json!({ "index": 0 })));
        let mut end = json!({ "delta": { "stop_reason": stop(part), "stop_sequence": null } });
        if part.reports {
            end["usage"] = json!({ "output_tokens": part.words });
        }
        frames.push(event("message_delta", end));
        frames.push(event("message_stop", json!({})));
    }
    part.frames(frames)
}
