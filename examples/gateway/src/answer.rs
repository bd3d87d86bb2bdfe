//! Answers that are not the upstream's: refusals of the gate and the gateway's own faults, in the asker's manner.
//!
//! Invariant: an answer holds no key and no prompt text.

use axum::body::Body;
use axum::http::{HeaderMap, HeaderName, HeaderValue, StatusCode, header};
use axum::response::Response;
use quota_core::Refusal;
use quota_core::respond::{Headers, Response as Told, anthropic, openai};
use serde_json::{Value, json};

/// Whose clients an answer is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Manner {
    /// OpenAI's, and whoever copies them.
    OpenAi,
    /// Anthropic's: they send `anthropic-version`.
    Anthropic,
}

/// Something that went wrong outside the gate.
#[derive(Debug, Clone)]
pub struct Fault {
    /// The status.
    pub status: u16,
    /// The code, in `snake_case`.
    pub code: String,
    /// One sentence.
    pub message: String,
    /// The field of the body that it is about.
    pub param: Option<String>,
    /// Headers that tell whether and when to come back.
    pub headers: Headers,
}

impl Fault {
    /// A fault without a field and without headers.
    pub fn new(status: u16, code: &str, message: impl Into<String>) -> Fault {
        Fault { status, code: code.into(), message: message.into(), param: None, headers: Headers::new() }
    }

    /// The same, about a field.
    pub fn param(mut self, param: impl Into<String>) -> Fault {
        self.param = Some(param.into());
        self
    }

    /// The same with a header.
    pub fn header(mut self, name: &'static str, value: impl Into<String>) -> Fault {
        self.headers.push((name, value.into()));
        self
    }
}

impl Manner {
    /// The manner of a request outside the endpoints that have their own.
    pub fn of(headers: &HeaderMap) -> Manner {
        if headers.contains_key("anthropic-version") { Manner::Anthropic } else { Manner::OpenAi }
    }

    /// A refusal as an answer.
    pub fn refusal(self, refusal: &Refusal) -> Response {
        json_answer(&self.refused(refusal))
    }

    /// A fault as an answer.
    pub fn fault(self, fault: &Fault) -> Response {
        json_answer(&self.failed(fault))
    }

    /// A refusal, for an answer or the end of a stream.
    pub fn refused(self, refusal: &Refusal) -> Told {
        match self {
            Manner::OpenAi => openai::response(refusal),
            Manner::Anthropic => anthropic::response(refusal),
        }
    }

    /// A fault, for an answer or the end of a stream.
    pub fn failed(self, fault: &Fault) -> Told {
        Told { status: fault.status, headers: fault.headers.clone(), body: self.body(fault) }
    }

    /// The header that carries a request's id.
    pub fn id_header(self) -> &'static str {
        match self {
            Manner::OpenAi => "x-request-id",
            Manner::Anthropic => "request-id",
        }
    }

    fn body(self, fault: &Fault) -> Value {
        match self {
            Manner::OpenAi => {
                let kind = match fault.status {
                    403 => "permission_error",
                    429 => "requests",
                    500.. => "server_error",
                    _ => "invalid_request_error",
                };
                json!({ "error": {
                    "message": fault.message, "type": kind, "param": fault.param, "code": fault.code,
                } })
            }
            Manner::Anthropic => {
                let kind = match fault.status {
                    401 => "authentication_error",
                    403 => "permission_error",
                    404 => "not_found_error",
                    413 => "request_too_large",
                    429 => "rate_limit_error",
                    500.. => "api_error",
                    _ => "invalid_request_error",
                };
                json!({ "type": "error", "error": {
                    "type": kind, "message": fault.message, "details": { "error_code": fault.code },
                } })
            }
        }
    }
}

/// What was told, as an answer.
pub fn json_answer(told: &Told) -> Response {
    json_response(told.status, &told.headers, &told.body)
}

/// A JSON answer.
pub fn json_response(status: u16, headers: &Headers, body: &Value) -> Response {
    let mut response = Response::new(Body::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    add_headers(&mut response, headers);
    response
}

/// Adds headers, each in place of one of the same name. A value that is no header value is left out.
pub fn add_headers(response: &mut Response, headers: &Headers) {
    let all = response.headers_mut();
    all.reserve(headers.len());
    for (name, value) in headers {
        if let Ok(value) = HeaderValue::from_str(value) {
            // It is lower case already.
            all.insert(HeaderName::from_static(name), value);
        }
    }
}
