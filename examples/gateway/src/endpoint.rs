//! The endpoints that spend quota, each with what is its own: all else is one path for them all.
//!
//! Invariant: an endpoint's clients are answered in its own manner, whatever their headers say.

use quota_core::Request;
use quota_core::estimate::body as bodies;
use quota_core::request::InvalidRequest;
use quota_core::usage::Dialect;
use serde_json::{Value, json};

use crate::answer::Manner;

/// An endpoint that spends quota.
#[derive(Debug, Clone, Copy)]
pub struct Endpoint {
    /// The path below `/v1`, here and at the upstream.
    pub path: &'static str,
    /// Whose clients call it.
    pub manner: Manner,
    /// How its usage is reported.
    pub dialect: Dialect,
    /// Reads its bodies.
    pub read: fn(Value) -> Result<Request, InvalidRequest>,
    /// The members of a body that bound the output of one choice; the first is set where none is stated. Empty where
    /// there is no output.
    pub bounds: &'static [&'static str],
    /// Whether a stream has its usage only if `stream_options` asks for it.
    pub usage_on_request: bool,
}

/// OpenAI's chat completions.
pub const CHAT: Endpoint = Endpoint {
    path: "/chat/completions",
    manner: Manner::OpenAi,
    dialect: Dialect::OpenAiChat,
    read: bodies::openai_chat,
    bounds: &["max_completion_tokens", "max_tokens"],
    usage_on_request: true,
};

/// OpenAI's completions.
pub const COMPLETIONS: Endpoint =
    Endpoint { path: "/completions", read: bodies::openai_completions, bounds: &["max_tokens"], ..CHAT };

/// OpenAI's responses.
pub const RESPONSES: Endpoint = Endpoint {
    path: "/responses",
    dialect: Dialect::OpenAiResponses,
    read: bodies::openai_responses,
    bounds: &["max_output_tokens"],
    usage_on_request: false,
    ..CHAT
};

/// OpenAI's embeddings.
pub const EMBEDDINGS: Endpoint = Endpoint {
    path: "/embeddings",
    dialect: Dialect::OpenAiEmbeddings,
    read: bodies::openai_embeddings,
    bounds: &[],
    usage_on_request: false,
    ..CHAT
};

/// Anthropic's messages.
pub const MESSAGES: Endpoint = Endpoint {
    path: "/messages",
    manner: Manner::Anthropic,
    dialect: Dialect::AnthropicMessages,
    read: bodies::anthropic_messages,
    bounds: &["max_tokens"],
    usage_on_request: false,
};

/// All of them.
pub const ENDPOINTS: [Endpoint; 5] = [CHAT, COMPLETIONS, RESPONSES, EMBEDDINGS, MESSAGES];

impl Endpoint {
    /// The endpoint at a path.
    pub fn of(path: &str) -> Option<Endpoint> {
        let path = path.strip_prefix("/v1")?;
        ENDPOINTS.into_iter().find(|endpoint| endpoint.path == path)
    }

    /// The body of an error as the last event of a stream that has begun: the clients raise it where they stand.
    pub fn last_event(&self, mut body: Value) -> String {
        match self.dialect {
            Dialect::AnthropicMessages => format!("event: error\ndata: {body}\n\n"),
            Dialect::OpenAiResponses => {
                // Clients look for `error`, or for the type of the event.
                body["type"] = json!("error");
                for member in ["code", "message", "param"] {
                    body[member] = body["error"][member].clone();
                }
                format!("event: error\ndata: {body}\n\n")
            }
            _ => format!("data: {body}\n\n"),
        }
    }
}
