//! The request: described by keywords, or read from a provider's body.

use pyo3::exceptions::{PyTypeError, PyValueError};
use pyo3::prelude::*;
use quota_core as core;
use quota_core::estimate::body;
use quota_core::request::{Input, Kind, Part};

use crate::convert::{self, Count, LONG};
use crate::errors;

/// What a request asks for.
#[pyclass(frozen, module = "quota")]
pub struct Request {
    pub inner: core::Request,
    /// Bytes of text that the estimator has to look at.
    pub text: usize,
}

impl Request {
    pub fn of(inner: core::Request) -> Request {
        let text = match &inner.input {
            Input::Counted(_) => 0,
            Input::Parts(parts) => parts.iter().map(length).sum(),
        };
        Request { inner, text }
    }

    /// Whether to estimate it takes so long that others run meanwhile.
    pub fn is_long(&self) -> bool {
        is_long(self.text)
    }
}

/// Whether to count so many bytes takes long. Where tokenizers are exact the first text may load one, and each byte takes
/// many times as long.
pub fn is_long(bytes: usize) -> bool {
    bytes >= if cfg!(feature = "tiktoken") { 1 } else { LONG }
}

fn length(part: &Part) -> usize {
    match part {
        Part::Text(text) | Part::ResponseFormat(text) => text.len(),
        Part::ToolCall { name, arguments } => name.len() + arguments.len(),
        Part::Tools { json, .. } => json.len(),
        Part::Message { .. } | Part::Image(_) | Part::Audio { .. } | Part::Document { .. } => 0,
    }
}

#[pymethods]
impl Request {
    #[new]
    #[pyo3(signature = (
        *, model, kind="chat", text=None, input_tokens=None, max_output_tokens=None, choices=Count(1), stream=false,
        service_tier=None, lane=None, user=None, run_id=None, tool_calls=None, fingerprint=None, id=None
    ))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        model: &str,
        kind: &str,
        text: Option<String>,
        input_tokens: Option<Count>,
        max_output_tokens: Option<Count>,
        choices: Count,
        stream: bool,
        service_tier: Option<&str>,
        lane: Option<&str>,
        user: Option<&str>,
        run_id: Option<&str>,
        tool_calls: Option<Count>,
        fingerprint: Option<Count>,
        id: Option<&str>,
    ) -> PyResult<Request> {
        let mut request = match kind {
            "chat" => core::Request::chat(model),
            "embeddings" => core::Request::embeddings(model),
            other => return Err(PyValueError::new_err(format!("kind is 'chat' or 'embeddings', not {other:?}"))),
        };
        request = match (text, input_tokens) {
            (Some(_), Some(_)) => return Err(PyTypeError::new_err("either text or input_tokens is wanted, not both")),
            (Some(text), None) => request.text(text),
            (None, Some(Count(tokens))) => request.input_tokens(tokens),
            (None, None) => request,
        };
        Ok(Request::of(core::Request {
            id: id.map(Into::into),
            max_output_tokens: max_output_tokens.map(|count| count.0),
            choices: choices.0,
            stream,
            service_tier: service_tier.map(Into::into),
            lane: lane.map(Into::into),
            user: user.map(Into::into),
            run_id: run_id.map(Into::into),
            tool_calls: tool_calls.map(|count| count.0),
            fingerprint: fingerprint.map(|count| count.0),
            ..request
        }))
    }

    /// Reads a provider's JSON body: `openai_chat`, `openai_completions`, `openai_embeddings`, `openai_responses`,
    /// `anthropic_messages`, or `gemini`, whose model stands in its address and is handed over.
    #[staticmethod]
    #[pyo3(signature = (dialect, body, *, model=None, stream=None, id=None, lane=None, run_id=None, tool_calls=None))]
    #[allow(clippy::too_many_arguments)]
    fn from_body(
        py: Python<'_>,
        dialect: &str,
        body: &Bound<'_, PyAny>,
        model: Option<&str>,
        stream: Option<bool>,
        id: Option<&str>,
        lane: Option<&str>,
        run_id: Option<&str>,
        tool_calls: Option<Count>,
    ) -> PyResult<Request> {
        let body = convert::document(body)?;
        if dialect != "gemini" && (model.is_some() || stream.is_some()) {
            return Err(PyTypeError::new_err(
                "model and stream are handed over for gemini alone; other bodies have them",
            ));
        }
        let read = match dialect {
            "openai_chat" => body::openai_chat(body),
            "openai_completions" => body::openai_completions(body),
            "openai_embeddings" => body::openai_embeddings(body),
            "openai_responses" => body::openai_responses(body),
            "anthropic_messages" => body::anthropic_messages(body),
            "gemini" => body::gemini_generate_content(model.unwrap_or_default(), body, stream.unwrap_or(false)),
            other => return Err(PyValueError::new_err(format!("no dialect of bodies is called {other:?}"))),
        };
        let request = read.map_err(|error| errors::request(py, &error))?;
        Ok(Request::of(core::Request {
            id: id.map(Into::into),
            lane: lane.map(Into::into),
            run_id: run_id.map(Into::into),
            tool_calls: tool_calls.map(|count| count.0),
            ..request
        }))
    }

    /// The id of the logical request, which its retries share.
    #[getter]
    fn id(&self) -> Option<&str> {
        self.inner.id.as_deref()
    }

    /// The model as asked for.
    #[getter]
    fn model(&self) -> &str {
        &self.inner.model
    }

    /// `chat` or `embeddings`.
    #[getter]
    fn kind(&self) -> &'static str {
        match self.inner.kind {
            Kind::Chat => "chat",
            Kind::Embeddings => "embeddings",
        }
    }

    /// The count of the input where the host has made it; `None` where the gate estimates it.
    #[getter]
    fn input_tokens(&self) -> Option<u64> {
        match self.inner.input {
            Input::Counted(tokens) => Some(tokens),
            Input::Parts(_) => None,
        }
    }

    /// The largest output of one choice, as the request states it.
    #[getter]
    fn max_output_tokens(&self) -> Option<u64> {
        self.inner.max_output_tokens
    }

    /// How many answers are generated.
    #[getter]
    fn choices(&self) -> u64 {
        self.inner.choices
    }

    /// Whether the answer is streamed.
    #[getter]
    fn stream(&self) -> bool {
        self.inner.stream
    }

    /// The service tier asked for, in the provider's word.
    #[getter]
    fn service_tier(&self) -> Option<&str> {
        self.inner.service_tier.as_deref()
    }

    /// The lane asked for.
    #[getter]
    fn lane(&self) -> Option<&str> {
        self.inner.lane.as_deref()
    }

    /// The end user named in the body.
    #[getter]
    fn user(&self) -> Option<&str> {
        self.inner.user.as_deref()
    }

    /// The run of an agent that it is a step of.
    #[getter]
    fn run_id(&self) -> Option<&str> {
        self.inner.run_id.as_deref()
    }

    /// The texts that are counted, in their order; empty where the host has counted the input itself. An estimator reads them.
    #[getter]
    fn texts(&self) -> Vec<&str> {
        let Input::Parts(parts) = &self.inner.input else { return Vec::new() };
        let texts = parts.iter().flat_map(|part| match part {
            Part::Text(text) | Part::ResponseFormat(text) => [Some(text), None],
            Part::ToolCall { name, arguments } => [Some(name), Some(arguments)],
            Part::Tools { json, .. } => [Some(json), None],
            Part::Message { name, .. } => [name.as_ref(), None],
            Part::Image(_) | Part::Audio { .. } | Part::Document { .. } => [None, None],
        });
        texts.flatten().map(String::as_str).collect()
    }

    /// The tokens of each picture, in their order.
    #[getter]
    fn image_tokens(&self) -> Vec<u64> {
        core::estimate::images_of(&self.inner)
    }

    /// The most output tokens that it can use over all its choices, cut at the ceilings of one choice and of the whole
    /// request; 0 for embeddings.
    #[pyo3(signature = (*, per_choice=None, total=None))]
    fn output_ceiling(&self, per_choice: Option<Vec<Option<Count>>>, total: Option<Vec<Option<Count>>>) -> u64 {
        let ceilings = |given: Option<Vec<Option<Count>>>| -> Vec<Option<u64>> {
            given.into_iter().flatten().map(|ceiling| ceiling.map(|count| count.0)).collect()
        };
        core::estimate::output_of(&self.inner, &ceilings(per_choice), &ceilings(total))
    }

    /// How many calls of tools this step's input newly carries.
    #[getter]
    fn new_tool_calls(&self) -> u64 {
        self.inner.new_tool_calls()
    }

    fn __repr__(&self) -> String {
        format!("Request(model={:?}, id={:?})", &*self.inner.model, self.inner.id.as_deref().unwrap_or_default())
    }
}
