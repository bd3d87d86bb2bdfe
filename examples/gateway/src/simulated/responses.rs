//! Responses.
//!
//! Invariant: only the last event of a stream, which holds the whole response, has its usage.

use serde_json::{Value, json};

use super::{Frames, Part};

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

pub(super) fn whole(part: &Part) -> Value {
    let output = json!([item(json!([text(part.text())]), true)]);
    response(part, output, true)
}

pub(super) fn stream(part: &Part) -> Frames {
    let mut frames = Frames::default();
    let event = |frames: &Frames, kind: &str, mut body: Value| {
        body["type"] = kind.into();
        body["sequence_number"] = frames.list.len().into();
        format!("event: {kind}\ndata: {body}\n\n")
    };
    let push = |frames: &mut Frames, kind: &str, body: Value| frames.push(event(frames, kind, body));
    let at = |member: &str, value: Value| json!({ "item_id": "msg_simulated", "output_index": 0, "content_index": 0, member: value });
    push(&mut frames, "response.created", json!({ "response": response(part, json!([]), false) }));
    push(&mut frames, "response.in_progress", json!({ "response": response(part, json!([]), false) }));
    push(&mut frames, "response.output_item.added", json!({ "output_index": 0, "item": item(json!([]), false) }));
    push(&mut frames, "response.content_part.added", at("part", text(String::new())));
    for word in part.said() {
        let mut delta = at("delta", word.into());
        delta["logprobs"] = json!([]);
        let event = event(&frames, "response.output_text.delta", delta);
        frames.say(event);
    }
    if part.breaks.is_none() {
        let done = item(json!([text(part.text())]), true);
        push(&mut frames, "response.output_text.done", at("text", part.text().into()));
        push(&mut frames, "response.content_part.done", at("part", text(part.text())));
        push(&mut frames, "response.output_item.done", json!({ "output_index": 0, "item": done }));
        let last = if part.full { "response.incomplete" } else { "response.completed" };
        push(&mut frames, last, json!({ "response": response(part, json!([done]), true) }));
    }
    frames
}
