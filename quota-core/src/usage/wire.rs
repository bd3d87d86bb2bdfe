//! Wire: how a dialect's streams are framed, and where their events have text and usage.
//!
//! Floor 1. Invariant: every dialect has one, in its own file.

use serde_json::Value;

use super::{Dialect, anthropic, bedrock, cohere, gemini, llama_cpp, ollama, openai, xai};

/// What is known of a dialect's streams.
#[derive(Clone, Copy)]
pub(super) struct Wire {
    /// Whether every line is an event; else the stream is of server-sent events.
    pub(super) lines: bool,
    /// Keys whose texts the caller sees.
    pub(super) visible: &'static [&'static [u8]],
    /// Keys that may repeat one text in an event: the longest of their texts counts, once.
    pub(super) repeats: &'static [&'static [u8]],
    /// Keys that an event with usage, or with the end of it, has.
    pub(super) usage: &'static [&'static [u8]],
    /// Whether a usage in this event is the last.
    pub(super) closes: fn(&Value) -> bool,
    /// Whether usage is sent only if it was asked for, and can be taken out for who did not ask.
    pub(super) optional: bool,
}

impl Wire {
    /// Server-sent events with a `usage` and no text.
    pub(super) const SSE: Wire =
        Wire { lines: false, visible: &[], repeats: &[], usage: &[b"usage"], closes: |_| true, optional: false };

    /// Any of the dialects of server-sent events, until the first event with usage tells which.
    pub(super) const ANY: Wire = Wire {
        visible: &[b"content", b"refusal", b"arguments", b"transcript", b"delta", b"partial_json", b"thinking"],
        repeats: &[b"text", b"reasoning_content", b"reasoning"],
        usage: &[b"usage", b"usageMetadata", b"timings", b"finishReason"],
        optional: true,
        ..Wire::SSE
    };

    /// That of a dialect.
    pub(super) const fn of(dialect: Dialect) -> Wire {
        match dialect {
            Dialect::Auto => Wire::ANY,
            Dialect::OpenAiChat => openai::CHAT,
            Dialect::OpenAiResponses => openai::RESPONSES,
            Dialect::OpenAiEmbeddings => Wire::SSE,
            Dialect::AnthropicMessages => anthropic::WIRE,
            Dialect::Gemini => gemini::WIRE,
            Dialect::BedrockConverse => bedrock::WIRE,
            Dialect::Cohere => cohere::WIRE,
            Dialect::Xai => xai::WIRE,
            Dialect::LlamaCpp => llama_cpp::WIRE,
            Dialect::Ollama => ollama::WIRE,
        }
    }
}

/// The dialect that an event with usage is in, by its shape; `Auto` if it has none of the known shapes.
pub(super) fn dialect_of(event: &Value) -> Dialect {
    let has = |key: &str| event.get(key).is_some();
    match event.get("type").and_then(Value::as_str) {
        Some("message_start" | "message_delta" | "content_block_start") => return Dialect::AnthropicMessages,
        Some("message-end") => return Dialect::Cohere,
        Some(name) if name.starts_with("response.") || name.starts_with("transcript.") => {
            return Dialect::OpenAiResponses;
        }
        _ => {}
    }
    if has("usageMetadata") || has("candidates") {
        Dialect::Gemini
    } else if has("choices") {
        Dialect::OpenAiChat
    } else if has("timings") {
        Dialect::LlamaCpp
    } else {
        Dialect::Auto
    }
}
