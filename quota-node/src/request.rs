//! The request: described by options, or read from a provider's body.

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::estimate::body;
use quota_core::request::{Input, Kind, Part};

use crate::convert::{self, number};
use crate::count::{Count, plain, type_error};
use crate::errors;

/// What a request is described by.
#[napi(object, object_to_js = false)]
pub struct RequestOptions {
    pub model: String,
    pub kind: Option<String>,
    pub text: Option<String>,
    pub input_tokens: Option<Count>,
    pub max_output_tokens: Option<Count>,
    pub choices: Option<Count>,
    pub stream: Option<bool>,
    pub service_tier: Option<String>,
    pub lane: Option<String>,
    pub user: Option<String>,
    pub run_id: Option<String>,
    pub tool_calls: Option<Count>,
    pub fingerprint: Option<Count>,
    pub id: Option<String>,
}

/// What a body does not say.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct BodyOptions {
    pub model: Option<String>,
    pub stream: Option<bool>,
    pub id: Option<String>,
    pub lane: Option<String>,
    pub run_id: Option<String>,
    pub tool_calls: Option<Count>,
}

/// Ceilings of output; `null` for one that is not set.
#[napi(object, object_to_js = false)]
#[derive(Default)]
pub struct Ceilings {
    pub per_choice: Option<Vec<Option<Count>>>,
    pub total: Option<Vec<Option<Count>>>,
}

/// What a request asks for.
#[napi]
pub struct Request(pub(crate) core::Request);

#[napi]
impl Request {
    #[napi(constructor)]
    pub fn new(env: Env, options: RequestOptions) -> Result<Request> {
        let mut request = match options.kind.as_deref() {
            None | Some("chat") => core::Request::chat(options.model),
            Some("embeddings") => core::Request::embeddings(options.model),
            Some(other) => return Err(type_error(env, format!("kind is 'chat' or 'embeddings', not {other:?}"))),
        };
        request = match (options.text, options.input_tokens) {
            (Some(_), Some(_)) => return Err(type_error(env, "either text or inputTokens is wanted, not both")),
            (Some(text), None) => request.text(text),
            (None, Some(Count(tokens))) => request.input_tokens(tokens),
            (None, None) => request,
        };
        Ok(Request(core::Request {
            id: options.id.map(Into::into),
            max_output_tokens: plain(options.max_output_tokens),
            choices: plain(options.choices).unwrap_or(1),
            stream: options.stream.unwrap_or(false),
            service_tier: options.service_tier.map(Into::into),
            lane: options.lane.map(Into::into),
            user: options.user.map(Into::into),
            run_id: options.run_id.map(Into::into),
            tool_calls: plain(options.tool_calls),
            fingerprint: plain(options.fingerprint),
            ..request
        }))
    }

    /// Reads a provider's JSON body: `openai_chat`, `openai_completions`, `openai_embeddings`, `openai_responses`,
    /// `anthropic_messages`, or `gemini`, whose model stands in its address and is handed over.
    #[napi(js_name = "_fromBody")]
    pub fn from_body(env: Env, dialect: String, body: String, options: Option<BodyOptions>) -> Result<Request> {
        let body = convert::parse(&env, &body)?;
        let BodyOptions { model, stream, id, lane, run_id, tool_calls } = options.unwrap_or_default();
        if dialect != "gemini" && (model.is_some() || stream.is_some()) {
            let message = "model and stream are handed over for gemini alone; other bodies have them";
            return Err(type_error(env, message));
        }
        let read = match dialect.as_str() {
            "openai_chat" => body::openai_chat(body),
            "openai_completions" => body::openai_completions(body),
            "openai_embeddings" => body::openai_embeddings(body),
            "openai_responses" => body::openai_responses(body),
            "anthropic_messages" => body::anthropic_messages(body),
            "gemini" => {
                body::gemini_generate_content(model.as_deref().unwrap_or_default(), body, stream.unwrap_or(false))
            }
            other => return Err(type_error(env, format!("no dialect of bodies is called {other:?}"))),
        };
        let request = read.map_err(|error| errors::request(&env, &error))?;
        Ok(Request(core::Request {
            id: id.map(Into::into),
            lane: lane.map(Into::into),
            run_id: run_id.map(Into::into),
            tool_calls: plain(tool_calls),
            ..request
        }))
    }

    /// The texts that are counted, in their order; empty where the host has counted the input itself. An estimator reads them.
    #[napi(getter)]
    pub fn texts(&self) -> Vec<String> {
        let Input::Parts(parts) = &self.0.input else { return Vec::new() };
        let texts = parts.iter().flat_map(|part| match part {
            Part::Text(text) | Part::ResponseFormat(text) => [Some(text), None],
            Part::ToolCall { name, arguments } => [Some(name), Some(arguments)],
            Part::Tools { json, .. } => [Some(json), None],
            Part::Message { name, .. } => [name.as_ref(), None],
            Part::Image(_) | Part::Audio { .. } | Part::Document { .. } => [None, None],
        });
        texts.flatten().cloned().collect()
    }

    /// The tokens of each picture, in their order.
    #[napi(getter)]
    pub fn image_tokens(&self) -> Vec<f64> {
        core::estimate::images_of(&self.0).into_iter().map(number).collect()
    }

    /// The most output tokens that it can use over all its choices, cut at the ceilings of one choice and of the whole
    /// request; 0 for embeddings.
    #[napi]
    pub fn output_ceiling(&self, ceilings: Option<Ceilings>) -> f64 {
        let Ceilings { per_choice, total } = ceilings.unwrap_or_default();
        let plain = |given: Option<Vec<Option<Count>>>| -> Vec<Option<u64>> {
            given.into_iter().flatten().map(plain).collect()
        };
        number(core::estimate::output_of(&self.0, &plain(per_choice), &plain(total)))
    }

    #[napi(getter)]
    pub fn id(&self) -> Option<&str> {
        self.0.id.as_deref()
    }

    #[napi(getter)]
    pub fn model(&self) -> &str {
        &self.0.model
    }

    #[napi(getter)]
    pub fn kind(&self) -> &'static str {
        match self.0.kind {
            Kind::Chat => "chat",
            Kind::Embeddings => "embeddings",
        }
    }

    /// The count of the input where the host has made it; `null` where the gate estimates it.
    #[napi(getter)]
    pub fn input_tokens(&self) -> Option<f64> {
        match self.0.input {
            Input::Counted(tokens) => Some(number(tokens)),
            Input::Parts(_) => None,
        }
    }

    #[napi(getter)]
    pub fn max_output_tokens(&self) -> Option<f64> {
        self.0.max_output_tokens.map(number)
    }

    #[napi(getter)]
    pub fn choices(&self) -> f64 {
        number(self.0.choices)
    }

    #[napi(getter)]
    pub fn stream(&self) -> bool {
        self.0.stream
    }

    #[napi(getter)]
    pub fn service_tier(&self) -> Option<&str> {
        self.0.service_tier.as_deref()
    }

    #[napi(getter)]
    pub fn lane(&self) -> Option<&str> {
        self.0.lane.as_deref()
    }

    #[napi(getter)]
    pub fn user(&self) -> Option<&str> {
        self.0.user.as_deref()
    }

    #[napi(getter)]
    pub fn run_id(&self) -> Option<&str> {
        self.0.run_id.as_deref()
    }

    /// How many calls of tools this step's input newly carries.
    #[napi(getter)]
    pub fn new_tool_calls(&self) -> f64 {
        number(self.0.new_tool_calls())
    }
}
