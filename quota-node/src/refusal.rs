//! What a decision is explained with: refusals, balances, lesser forms, offers.

use std::sync::Arc;

use napi::bindgen_prelude::{ClassInstance, Either};
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::refusal::Wait;
use quota_core::respond;
use quota_core::time::{Clock, SystemClock};

use crate::convert::{amount, instant, millis, number};
use crate::count::type_error;
use crate::errors;
use crate::lease::ReceiptData;

/// One limit that had no room.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Shortage {
    pub scope: String,
    pub limit: String,
    /// Whether other tenants share the scope: its figures are for operators only.
    pub shared: bool,
    pub meter: &'static str,
    pub hard: Either<f64, String>,
    pub used: Either<f64, String>,
    pub asked: Either<f64, String>,
    pub retry_after_ms: Option<f64>,
}

impl Shortage {
    fn of(shortage: &core::refusal::Shortage) -> Shortage {
        let figure = |figure| amount(shortage.meter, figure);
        Shortage {
            scope: shortage.scope.to_string(),
            limit: shortage.limit.to_string(),
            shared: shortage.shared,
            meter: shortage.meter.name(),
            hard: figure(shortage.hard),
            used: figure(shortage.used),
            asked: figure(shortage.asked),
            retry_after_ms: shortage.wait.millis().map(number),
        }
    }
}

/// What would fit at the moment of a refusal.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Fits {
    /// The largest output ceiling with which the same request would have been admitted.
    pub max_output_tokens: Option<f64>,
    /// Other models with which the same request would have been admitted.
    pub models: Vec<String>,
}

/// Status, headers and body of an answer; the body as JSON text.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct ResponseText {
    pub status: u16,
    pub headers: Vec<Vec<String>>,
    pub body: String,
}

/// A request that was not admitted, and why.
#[napi]
pub struct Refusal(Arc<core::Refusal>);

impl Refusal {
    pub fn new(refusal: Arc<core::Refusal>) -> Refusal {
        Refusal(refusal)
    }

    pub fn get(&self) -> &Arc<core::Refusal> {
        &self.0
    }
}

#[napi]
impl Refusal {
    /// The stable code.
    #[napi(getter)]
    pub fn reason(&self) -> &'static str {
        self.0.reason.code()
    }

    #[napi(getter)]
    pub fn status(&self) -> u16 {
        self.0.reason.status()
    }

    #[napi(getter)]
    pub fn tenant(&self) -> &str {
        &self.0.tenant
    }

    #[napi(getter)]
    pub fn model(&self) -> &str {
        &self.0.model
    }

    #[napi(getter)]
    pub fn request_id(&self) -> Option<&str> {
        self.0.request_id.as_deref()
    }

    /// `after` (a known time), `unknown`, or `never`.
    #[napi(getter)]
    pub fn wait(&self) -> &'static str {
        match self.0.wait {
            Wait::After(_) => "after",
            Wait::Unknown => "unknown",
            Wait::Never => "never",
        }
    }

    #[napi(getter)]
    pub fn retry_after_ms(&self) -> Option<f64> {
        self.0.wait.millis().map(number)
    }

    #[napi(getter)]
    pub fn shortages(&self) -> Vec<Shortage> {
        self.0.shortages.iter().map(Shortage::of).collect()
    }

    #[napi(getter)]
    pub fn fits(&self) -> Fits {
        Fits {
            max_output_tokens: self.0.fits.max_output_tokens.map(number),
            models: self.0.fits.models.iter().map(ToString::to_string).collect(),
        }
    }

    #[napi(getter)]
    pub fn detail(&self) -> Option<&str> {
        self.0.detail.as_deref()
    }

    #[napi(js_name = "_receipt")]
    pub fn receipt(&self) -> Option<ReceiptData> {
        self.0.receipt.as_deref().map(ReceiptData::of)
    }

    #[napi(getter, js_name = "_isRetryable")]
    pub fn is_retryable(&self) -> bool {
        self.0.reason.retry() != core::reason::Retry::No
    }

    #[napi(js_name = "_fromText")]
    pub fn from_text(env: Env, data: String) -> Result<Refusal> {
        from_data(&env, &data).map(Arc::new).map(Refusal::new)
    }

    #[napi(js_name = "_toText")]
    pub fn to_text(&self, env: Env) -> Result<String> {
        to_data(&env, &*self.0)
    }

    /// One sentence for the asker.
    #[napi(getter)]
    pub fn message(&self) -> String {
        self.0.message()
    }

    #[napi(js_name = "_response")]
    pub fn response(&self, env: Env, manner: Option<String>) -> Result<ResponseText> {
        let response = match manner.as_deref() {
            None | Some("openai") => respond::openai::response(&self.0),
            Some("anthropic") => respond::anthropic::response(&self.0),
            Some("gemini") => respond::gemini::response(&self.0),
            Some(other) => return Err(no_manner(env, other)),
        };
        Ok(ResponseText {
            status: response.status,
            headers: response.headers.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect(),
            body: response.body.to_string(),
        })
    }

    /// The same error as the last frame of an event stream that has begun.
    #[napi]
    pub fn stream_error(&self, env: Env, manner: Option<String>) -> Result<String> {
        match manner.as_deref() {
            None | Some("openai") => Ok(respond::openai::stream_error(&self.0)),
            Some("anthropic") => Ok(respond::anthropic::stream_error(&self.0)),
            Some("gemini") => Ok(respond::gemini::stream_error(&self.0)),
            Some(other) => Err(no_manner(env, other)),
        }
    }
}

fn no_manner(env: Env, name: &str) -> napi::Error {
    type_error(env, format!("the manner is 'openai', 'anthropic' or 'gemini', not {name:?}"))
}

/// In which lesser form a request was admitted.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Degradation {
    /// The step's place in the policy's list.
    pub step: u16,
    pub reason: &'static str,
    pub limit: String,
    pub model: String,
    pub max_output_tokens: f64,
    pub disable_tools: Vec<String>,
    pub lane: String,
}

impl Degradation {
    pub fn of(degradation: &core::gate::Degradation) -> Degradation {
        Degradation {
            step: degradation.step,
            reason: degradation.reason.code(),
            limit: degradation.limit.to_string(),
            model: degradation.model.to_string(),
            max_output_tokens: number(degradation.max_output_tokens),
            disable_tools: degradation.disable_tools.iter().map(ToString::to_string).collect(),
            lane: degradation.lane.to_string(),
        }
    }
}

/// What `preview` found that `admit` would hold.
#[napi(object, object_from_js = false, use_nullable = true)]
pub struct Offer {
    pub model: String,
    pub lane: String,
    pub input_tokens: f64,
    pub max_output_tokens: f64,
    /// The worst case in money.
    pub worst_usd: String,
}

impl Offer {
    pub fn of(offer: &core::gate::Offer) -> Offer {
        Offer {
            model: offer.model.to_string(),
            lane: offer.lane.to_string(),
            input_tokens: number(offer.input_tokens),
            max_output_tokens: number(offer.max_output_tokens),
            worst_usd: offer.worst_cost.to_string(),
        }
    }
}

/// The state of one limit for one principal.
#[napi]
pub struct Balance(pub(crate) core::Balance);

impl Balance {
    fn figure(&self, figure: u64) -> Either<f64, String> {
        amount(self.0.meter, figure)
    }
}

#[napi]
impl Balance {
    #[napi(js_name = "_fromText")]
    pub fn from_text(env: Env, data: String) -> Result<Balance> {
        from_data(&env, &data).map(Balance)
    }

    #[napi(js_name = "_toText")]
    pub fn to_text(&self, env: Env) -> Result<String> {
        to_data(&env, &self.0)
    }

    #[napi(getter)]
    pub fn scope(&self) -> &str {
        &self.0.scope
    }

    #[napi(getter)]
    pub fn limit(&self) -> &str {
        &self.0.limit
    }

    #[napi(getter)]
    pub fn meter(&self) -> &'static str {
        self.0.meter.name()
    }

    #[napi(getter)]
    pub fn hard(&self) -> Either<f64, String> {
        self.figure(self.0.hard)
    }

    #[napi(getter)]
    pub fn soft(&self) -> Option<Either<f64, String>> {
        self.0.soft.map(|soft| self.figure(soft))
    }

    #[napi(getter)]
    pub fn used(&self) -> Either<f64, String> {
        self.figure(self.0.used)
    }

    #[napi(getter)]
    pub fn remaining(&self) -> Either<f64, String> {
        self.figure(self.0.remaining)
    }

    /// Until everything is back; `null` for what is held.
    #[napi(getter)]
    pub fn resets_ms(&self) -> Option<f64> {
        self.0.resets_in.map(|time| millis(time.as_nanos()))
    }

    /// Whether the window rolls, so that what was used comes back bit by bit.
    #[napi(getter)]
    pub fn rolling(&self) -> bool {
        self.0.rolling
    }

    /// The window, where it has a fixed length.
    #[napi(getter)]
    pub fn window_ms(&self) -> Option<f64> {
        self.0.window.map(|nanos| millis(nanos.into()))
    }
}

fn from_data<T: serde::de::DeserializeOwned>(env: &Env, data: &str) -> Result<T> {
    serde_json::from_str(data).map_err(|error| errors::input(env, "data_invalid", error.to_string()))
}

fn to_data(env: &Env, object: &impl serde::Serialize) -> Result<String> {
    serde_json::to_string(object).map_err(|error| errors::input(env, "data_invalid", error.to_string()))
}

/// Balances as rate-limit headers, in the manner of `openai`, `anthropic` or `ietf`. Anthropic's resets are instants: `at` is
/// the present.
pub fn headers(env: Env, balances: &[core::Balance], manner: Option<&str>, at: u64) -> Result<Vec<Vec<String>>> {
    let headers = match manner {
        None | Some("openai") => respond::headers::openai(balances),
        Some("anthropic") => respond::headers::anthropic(balances, at),
        Some("ietf") => respond::headers::ietf(balances),
        Some(other) => {
            return Err(type_error(env, format!("the manner is 'openai', 'anthropic' or 'ietf', not {other:?}")));
        }
    };
    Ok(headers.into_iter().map(|(name, value)| vec![name.to_owned(), value]).collect())
}

#[napi(js_name = "_balanceHeaders")]
pub fn balance_headers(
    env: Env,
    balances: Vec<ClassInstance<'_, Balance>>,
    manner: Option<String>,
    at: Option<String>,
) -> Result<Vec<Vec<String>>> {
    let at = at.map_or_else(|| Ok(SystemClock::new().now().wall), |at| instant(&env, &at))?;
    let balances: Vec<core::Balance> = balances.iter().map(|balance| balance.0.clone()).collect();
    headers(env, &balances, manner.as_deref(), at)
}

/// One row of the registry of reasons.
#[napi(object, object_from_js = false)]
pub struct ReasonRow {
    pub code: &'static str,
    /// The HTTP status that says the same.
    pub status: u16,
    /// Whether sending the request again helps: `soon`, when the period ends (`next_period`), or not as it is (`no`).
    pub retry: &'static str,
    pub text: &'static str,
}

#[napi(js_name = "_reasons")]
pub fn reasons() -> Vec<ReasonRow> {
    let retry = |reason: &core::Reason| match reason.retry() {
        core::reason::Retry::Soon => "soon",
        core::reason::Retry::NextPeriod => "next_period",
        core::reason::Retry::No => "no",
    };
    let row =
        |row: &core::Reason| ReasonRow { code: row.code(), status: row.status(), retry: retry(row), text: row.text() };
    core::Reason::ALL.iter().map(row).collect()
}
