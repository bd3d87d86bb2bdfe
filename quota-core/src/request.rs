//! The request: what a gateway wants to run, described before it runs.
//!
//! Floor 0. Invariant: everything that limits look at is here; a field that the body states wrongly makes the whole
//! request invalid instead of being guessed.

use std::sync::Arc;

/// What a request asks for; built by hand or from a provider's JSON body (`estimate::body`).
#[derive(Debug, Clone)]
pub struct Request {
    /// The caller's or gateway's id of the logical request; retries of one request share it. At most
    /// [`MAX_REQUEST_ID`] bytes, unique over the gateway.
    pub id: Option<Arc<str>>,
    /// The model as asked for.
    pub model: Arc<str>,
    /// The shape of the call.
    pub kind: Kind,
    /// What goes in.
    pub input: Input,
    /// The largest output that one choice may have, as the request states it; `None` if it states none.
    pub max_output_tokens: Option<u64>,
    /// How many answers are generated (the larger of `n` and `best_of`); at least 1.
    pub choices: u64,
    /// Whether the answer is streamed.
    pub stream: bool,
    /// The service tier asked for, in the provider's word (`flex`, `priority`, `auto`); `None` if not stated.
    pub service_tier: Option<Arc<str>>,
    /// The lane asked for; the principal's or the policy's first if `None`.
    pub lane: Option<Arc<str>>,
    /// The end user named in the body; trusted only where the principal may name users.
    pub user: Option<Arc<str>>,
    /// The run of an agent that this request is a step of, at most [`MAX_RUN_ID`] bytes, unique within the tenant. A
    /// request without one belongs to no run. An id is not to be used for another run: until its time is over it names
    /// the first one, and for at least an hour more it is refused.
    pub run_id: Option<Arc<str>>,
    /// How many calls of tools this step's input newly carries, where the gateway has counted them itself; see
    /// [`new_tool_calls`](Request::new_tool_calls).
    pub tool_calls: Option<u64>,
    /// What makes a retry the same request, where the gateway knows better than the parts of the input tell; a request
    /// with neither parts nor this is never taken for a retry.
    pub fingerprint: Option<u64>,
}

/// The longest request id, in bytes.
pub const MAX_REQUEST_ID: usize = 128;

/// The longest run id, in bytes.
pub const MAX_RUN_ID: usize = 128;

/// The shape of a call, which decides what it can produce.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Messages in, text out.
    Chat,
    /// Text in, vectors out: no output tokens.
    Embeddings,
}

/// What goes into the model.
#[derive(Debug, Clone)]
pub enum Input {
    /// The gateway has counted the input itself.
    Counted(u64),
    /// Parts that the estimator counts.
    Parts(Vec<Part>),
}

/// A piece of input, in the order of the body.
#[derive(Debug, Clone)]
pub enum Part {
    /// The start of a message: adds the framing of its role and name.
    Message {
        /// The role's name.
        role: String,
        /// The author's name, where one is given.
        name: Option<String>,
    },
    /// Text.
    Text(String),
    /// A call of a tool by the assistant.
    ToolCall {
        /// The tool's name.
        name: String,
        /// The arguments as JSON text.
        arguments: String,
    },
    /// A picture; its bytes are never counted as text.
    Image(Image),
    /// Sound of so many encoded bytes.
    Audio {
        /// Length of the encoded data in bytes.
        bytes: u64,
    },
    /// A document (PDF) of so many encoded bytes.
    Document {
        /// Length of the encoded data in bytes.
        bytes: u64,
    },
    /// The definitions of tools, as compact JSON, and their number.
    Tools {
        /// Compact JSON of all definitions.
        json: String,
        /// How many there are.
        count: u64,
    },
    /// A JSON schema that the answer must follow, as compact JSON.
    ResponseFormat(String),
}

/// A picture as far as its price in tokens needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Image {
    /// Width and height in pixels, where known.
    pub size: Option<(u32, u32)>,
    /// Whether the request asks for the low detail.
    pub low_detail: bool,
}

impl Request {
    /// A chat request for a model, without input.
    pub fn chat(model: impl Into<Arc<str>>) -> Request {
        Request {
            id: None,
            model: model.into(),
            kind: Kind::Chat,
            input: Input::Counted(0),
            max_output_tokens: None,
            choices: 1,
            stream: false,
            service_tier: None,
            lane: None,
            user: None,
            run_id: None,
            tool_calls: None,
            fingerprint: None,
        }
    }

    /// The same request without its parts: counted input is kept, anything else becomes nothing.
    pub(crate) fn like(other: &Request) -> Request {
        let input = match other.input {
            Input::Counted(tokens) => Input::Counted(tokens),
            Input::Parts(_) => Input::Counted(0),
        };
        Request {
            id: other.id.clone(),
            model: other.model.clone(),
            kind: other.kind,
            input,
            max_output_tokens: other.max_output_tokens,
            choices: other.choices,
            stream: other.stream,
            service_tier: other.service_tier.clone(),
            lane: other.lane.clone(),
            user: other.user.clone(),
            run_id: other.run_id.clone(),
            tool_calls: Some(other.new_tool_calls()),
            fingerprint: other.fingerprint,
        }
    }

    /// An embeddings request for a model, without input.
    pub fn embeddings(model: impl Into<Arc<str>>) -> Request {
        Request { kind: Kind::Embeddings, ..Request::chat(model) }
    }

    /// Sets the request id.
    pub fn id(mut self, id: impl Into<Arc<str>>) -> Request {
        self.id = Some(id.into());
        self
    }

    /// Sets the input to a count of tokens that the gateway has made itself.
    pub fn input_tokens(mut self, tokens: u64) -> Request {
        self.input = Input::Counted(tokens);
        self
    }

    /// Sets the input to one user message of this text.
    pub fn text(mut self, text: impl Into<String>) -> Request {
        let message = Part::Message { role: "user".into(), name: None };
        self.input = Input::Parts(vec![message, Part::Text(text.into())]);
        self
    }

    /// Sets the largest output of one choice, in tokens.
    pub fn max_output_tokens(mut self, tokens: u64) -> Request {
        self.max_output_tokens = Some(tokens);
        self
    }

    /// Sets how many answers are generated.
    pub fn choices(mut self, choices: u64) -> Request {
        self.choices = choices;
        self
    }

    /// Sets whether the answer is streamed.
    pub fn stream(mut self, stream: bool) -> Request {
        self.stream = stream;
        self
    }

    /// Sets the lane.
    pub fn lane(mut self, lane: impl Into<Arc<str>>) -> Request {
        self.lane = Some(lane.into());
        self
    }

    /// Sets what makes a retry the same request.
    pub fn fingerprint(mut self, fingerprint: u64) -> Request {
        self.fingerprint = Some(fingerprint);
        self
    }

    /// Sets the service tier asked for.
    pub fn service_tier(mut self, tier: impl Into<Arc<str>>) -> Request {
        self.service_tier = Some(tier.into());
        self
    }

    /// Sets the run of an agent that it is a step of.
    pub fn run_id(mut self, run: impl Into<Arc<str>>) -> Request {
        self.run_id = Some(run.into());
        self
    }

    /// Sets how many calls of tools this step's input newly carries.
    pub fn tool_calls(mut self, calls: u64) -> Request {
        self.tool_calls = Some(calls);
        self
    }

    /// How many calls of tools this step's input newly carries: as stated, or as counted from its parts.
    ///
    /// An agent sends the whole conversation with each step, so calls of earlier steps don't count again. Counted are
    /// the calls of the assistant's last messages, if nothing but messages of others (results, the user's) follows them:
    /// once the assistant has answered without a call, the calls before its answer are old. Calls are therefore
    /// counted at the step that carries their results, one for each, and the same step sent again counts them again.
    pub fn new_tool_calls(&self) -> u64 {
        let parts = match (self.tool_calls, &self.input) {
            (Some(stated), _) => return stated,
            (None, Input::Counted(_)) => return 0,
            (None, Input::Parts(parts)) => parts,
        };
        // From the end: calls come before the mark of the message that holds them.
        let (mut calls, mut here) = (0u64, 0u64);
        for part in parts.iter().rev() {
            match part {
                Part::ToolCall { .. } => here += 1,
                Part::Message { role, .. } => {
                    let assistant = matches!(role.as_str(), "assistant" | "model");
                    if here == 0 && (assistant || calls > 0) {
                        return calls;
                    }
                    calls += std::mem::take(&mut here);
                }
                _ => {}
            }
        }
        calls + here
    }
}

/// A body that is not a request of its kind.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{field}: {found}; allowed: {allowed}")]
pub struct InvalidRequest {
    /// Where in the body, as a path (`messages[2].content`).
    pub field: String,
    /// What was found there, shortened; never prompt text.
    pub found: String,
    /// What is allowed there.
    pub allowed: String,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_calls_of_the_last_turn_are_new() {
        let message = |role: &str| Part::Message { role: role.into(), name: None };
        let call = || Part::ToolCall { name: "search".into(), arguments: "{}".into() };
        let text = || Part::Text("x".into());
        let turn = |role: &str, calls: usize| {
            let mut parts = vec![message(role), text()];
            parts.extend((0..calls).map(|_| call()));
            parts
        };
        for (turns, want) in [
            (vec![turn("user", 0)], 0),
            (vec![turn("user", 0), turn("assistant", 2)], 2),
            (vec![turn("assistant", 2), turn("tool", 0), turn("tool", 0)], 2),
            (vec![turn("assistant", 2), turn("user", 0)], 2),
            (vec![turn("assistant", 3), turn("tool", 0), turn("assistant", 2), turn("tool", 0)], 2),
            (vec![turn("assistant", 2), turn("tool", 0), turn("assistant", 0), turn("user", 0)], 0),
            (vec![turn("assistant", 1), turn("assistant", 1), turn("tool", 0)], 2),
            (vec![turn("assistant", 0), turn("assistant", 1), turn("tool", 0)], 1),
            (vec![turn("model", 1), turn("function", 0)], 1),
            (vec![vec![call(), call()]], 2),
            (vec![], 0),
        ] {
            let shown = format!("{turns:?}");
            let request = Request { input: Input::Parts(turns.concat()), ..Request::chat("m") };
            assert_eq!(request.new_tool_calls(), want, "{shown}");
            assert_eq!(request.tool_calls(7).new_tool_calls(), 7);
        }
        assert_eq!(Request::chat("m").input_tokens(9).new_tool_calls(), 0);
    }
}
