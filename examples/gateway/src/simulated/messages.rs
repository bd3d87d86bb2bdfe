//! Messages, in Anthropic's manner.
//!
//! Invariant: the counts of a stream are running totals, of which the last one counts.

use serde_json::{Value, json};

use super::{Frames, Part};

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

pub(super) fn whole(part: &Part) -> Value {
    let content = json!([{ "type": "text", "text": part.text() }]);
    message(part, content, stop(part), part.words)
}

pub(super) fn stream(part: &Part) -> Frames {
    let event = |kind: &str, mut body: Value| {
        body["type"] = kind.into();
        format!("event: {kind}\ndata: {body}\n\n")
    };
    let block = json!({ "type": "text", "text": "" });
    let mut frames = Frames::default();
    frames.push(event("message_start", json!({ "message": message(part, json!([]), Value::Null, 1) })));
    frames.push(event("content_block_start", json!({ "index": 0, "content_block": block })));
    frames.push(event("ping", json!({})));
    let delta = |word| json!({ "index": 0, "delta": { "type": "text_delta", "text": word } });
    part.said().for_each(|word| frames.say(event("content_block_delta", delta(word))));
    if part.breaks.is_none() {
        frames.push(event("content_block_stop", json!({ "index": 0 })));
        let mut end = json!({ "delta": { "stop_reason": stop(part), "stop_sequence": null } });
        if part.reports {
            end["usage"] = json!({ "output_tokens": part.words });
        }
        frames.push(event("message_delta", end));
        frames.push(event("message_stop", json!({})));
    }
    frames
}
