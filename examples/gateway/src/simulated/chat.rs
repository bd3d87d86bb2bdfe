//! Chat completions and completions.
//!
//! Invariant: a stream has usage only if it was asked for, in a chunk of its own before `[DONE]`.

use serde_json::{Value, json};

use super::{Frames, Part};

/// The shape of a stream's chunks.
#[derive(Clone, Copy)]
pub(super) struct Shape {
    id: &'static str,
    object: &'static str,
    /// A choice at its beginning, with a word, and at its end.
    begins: fn() -> Value,
    says: fn(&str) -> Value,
    ends: fn() -> Value,
}

pub(super) const CHUNK: Shape = Shape {
    id: "chatcmpl-simulated",
    object: "chat.completion.chunk",
    begins: || json!({ "delta": { "role": "assistant", "content": "" } }),
    says: |word| json!({ "delta": { "content": word } }),
    ends: || json!({ "delta": {} }),
};

pub(super) const TEXT: Shape = Shape {
    id: "cmpl-simulated",
    object: "text_completion",
    begins: || json!({ "text": "" }),
    says: |word| json!({ "text": word }),
    ends: || json!({ "text": "" }),
};

fn usage(part: &Part) -> Value {
    let (input, output) = (part.input, part.choices * part.words);
    json!({
        "prompt_tokens": input, "completion_tokens": output, "total_tokens": input + output,
        "prompt_tokens_details": { "cached_tokens": 0 }, "completion_tokens_details": { "reasoning_tokens": 0 },
    })
}

fn finish(part: &Part) -> &'static str {
    if part.full { "length" } else { "stop" }
}

pub(super) fn whole(part: &Part) -> Value {
    let message = json!({ "role": "assistant", "content": part.text(), "refusal": null });
    answer(part, "chatcmpl-simulated", "chat.completion", "message", message)
}

pub(super) fn text(part: &Part) -> Value {
    answer(part, "cmpl-simulated", "text_completion", "text", part.text().into())
}

fn answer(part: &Part, id: &str, object: &str, member: &str, content: Value) -> Value {
    let choice = |index| json!({ "index": index, "finish_reason": finish(part), "logprobs": null, member: content });
    let choices: Vec<Value> = (0..part.choices).map(choice).collect();
    let mut answer = json!({ "id": id, "object": object, "created": 0, "model": part.model, "choices": choices });
    if part.reports {
        answer["usage"] = usage(part);
    }
    answer
}

pub(super) fn stream(part: &Part, shape: Shape) -> Frames {
    let frame = |choices: Value, usage: Value| {
        let mut chunk = json!({
            "id": shape.id, "object": shape.object, "created": 0, "model": part.model, "choices": choices,
        });
        if part.streams_usage {
            chunk["usage"] = usage;
        }
        format!("data: {chunk}\n\n")
    };
    let one = |index: u64, mut choice: Value, finish: Value| {
        choice["index"] = index.into();
        choice["logprobs"] = Value::Null;
        choice["finish_reason"] = finish;
        frame(json!([choice]), Value::Null)
    };
    let mut frames = Frames::default();
    for index in 0..part.choices {
        frames.push(one(index, (shape.begins)(), Value::Null));
        part.said().for_each(|word| frames.say(one(index, (shape.says)(word), Value::Null)));
        if part.breaks.is_some() {
            return frames;
        }
        frames.push(one(index, (shape.ends)(), json!(finish(part))));
    }
    if part.streams_usage {
        frames.push(frame(json!([]), usage(part)));
    }
    frames.push("data: [DONE]\n\n".into());
    frames
}
