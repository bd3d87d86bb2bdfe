//! Responses.
//!
//! Invariant: only the last event of a stream, which holds the whole response, has its usage.

use axum::response::Response;
use serde_json::{Value, json};

use super::Part;
use crate::answer::json_response;

/// The response with so much of its output.
fn response(part: &Part, output: Value, done: bool) -> Value {
    let status = match (done, part.full) {
        (false, _) => "in_progress",
        (true, true) => "incomplete",
        (true, false) => "completed",
    };
    let incomplete = (done && part.full).then(|| json!({ "reason": "max_output_tokens" }));
    let usage = json!({
        "input_tokens": part.input, "input_tokens_details": { "cached_tokens": 0 },
        "output_tokens": part.words, "output_tokens_details": { "reasoning_tokens": 0 },
        "total_tokens": part.input + part.words,
    });
    json!({
        "id": "resp_simulated", "object": "response", "created_at": 0, "status": status, "model": part.model,
        "output": output, "usage": if done && part.reports { usage } else { Value::Null },
        "error": null, "incomplete_details": incomplete, "instructions": null, "metadata": {},
        "parallel_tool_calls": true, "tool_choice": "auto", "tools": [], "temperature": 1.0, "top_p": 1.0,
    })
}

fn text(text: String) -> Value {
    json!({ "type": "output_text", "text": text, "annotations": [] })
}

fn item(content: Value, done: bool) -> Value {
    let status = if done { "completed" } else { "in_progress" };
    json!({ "id": "msg_simulated", "type": "message", "role": "assistant", "status": status, "content": content })
}

pub(super) fn whole(part: &Part) -> Response {
    let output = json!([item(json!([text(part.text())]), true)]);
    json_response(200, &Vec::new(), &response(part, output, true))
}

pub(super) fn stream(part: &Part) -> Response {
    let mut frames = Vec::new();
    let mut event = |kind: &str, mut body: Value| {
        body["type"] = kind.into();
        body["sequence_number"] = frames.len().into();
        frames.push(format!("event: {kind}\ndata: {body}\n\n"));
    };
    let at = |member: &str, value: Value| json!({ "item_id": "msg_simulated", "output_index": 0, "content_index": 0, member: value });
    event("response.created", json!({ "response": response(part, json!([]), false) }));
    event("response.in_progress", json!({ "response": response(part, json!([]), false) }));
    event("response.output_item.added", json!({ "output_index": 0, "item": item(json!([]), false) }));
    event("response.content_part.added", at("part", text(String::new())));
    for word in part.said() {
        let mut delta = at("delta", word.into());
        delta["logprobs"] = json!([]);
        event("response.output_text.delta", delta);
    }
    if part.breaks.is_none() {
        let done = item(json!([text(part.text())]), true);
        event("response.output_text.done", at("text", part.text().into()));
        event("response.content_part.done", at("part", text(part.text())));
        event("response.output_item.done", json!({ "output_index": 0, "item": done }));
        let last = if part.full { "response.incomplete" } else { "response.completed" };
        event(last, json!({ "response": response(part, json!([done]), true) }));
    }
    part.frames(frames)
}
