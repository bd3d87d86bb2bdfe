//! Estimates: counts of texts and requests, by the core or by a function of the host's.

use napi::bindgen_prelude::{Either, FnArgs};
use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::estimate::{Estimator, InputEstimate, Standard, Tokenizer};

use crate::callback::Callback;
use crate::count::{Count, type_error};
use crate::request::Request;

/// Tokens as they were counted: the best guess, and what to reserve for it.
#[napi(object)]
pub struct TokenCount {
    /// The best guess.
    pub expected: Count,
    /// What to reserve: the guess plus the method's stated error; the guess itself if left out.
    pub reserve: Option<Count>,
    /// Whether it is the tokenizer's own count.
    pub exact: Option<bool>,
}

impl TokenCount {
    fn of(count: InputEstimate) -> TokenCount {
        TokenCount { expected: Count(count.expected), reserve: Some(Count(count.reserve)), exact: Some(count.exact) }
    }

    fn core(&self) -> InputEstimate {
        let expected = self.expected.0;
        let reserve = self.reserve.map_or(expected, |reserve| reserve.0.max(expected));
        InputEstimate { expected, reserve, exact: self.exact.unwrap_or(false) && reserve == expected }
    }
}

fn tokenizer(env: Env, name: Option<String>) -> Result<Tokenizer> {
    let Some(name) = name else { return Ok(Tokenizer::Heuristic) };
    Tokenizer::from_name(&name).ok_or_else(|| {
        let names = Tokenizer::ALL.map(Tokenizer::name).join(", ");
        type_error(env, format!("no tokenizer is called {name:?}; there are {names}"))
    })
}

#[napi(js_name = "_countTokens")]
pub fn count_text(env: Env, text: String, tokenizer: Option<String>, model: Option<String>) -> Result<TokenCount> {
    let tokenizer = self::tokenizer(env, tokenizer)?;
    Ok(TokenCount::of(core::estimate::count_text(&text, tokenizer, model.as_deref().unwrap_or_default())))
}

#[napi(js_name = "_estimate")]
pub fn estimate(env: Env, request: &Request, tokenizer: Option<String>) -> Result<TokenCount> {
    Ok(TokenCount::of(Standard.estimate(&request.0, self::tokenizer(env, tokenizer)?)))
}

/// The names of the tokenizers that this build counts with exactly.
#[napi(js_name = "_exactTokenizers")]
pub fn exact_tokenizers() -> Vec<&'static str> {
    let exact = Tokenizer::ALL.into_iter().filter(|one| *one != Tokenizer::Heuristic && one.is_built_in());
    exact.map(Tokenizer::name).collect()
}

/// What an estimator is asked.
pub type Question = FnArgs<(Request, &'static str)>;
/// What it answers; nothing where it threw.
pub type Answer = Option<Either<Count, TokenCount>>;

/// A function of the host's. Where it can't be asked, or throws, the core's own count stands in.
pub struct HostEstimator(pub Callback<Question, Answer>);

impl Estimator for HostEstimator {
    fn estimate(&self, request: &core::Request, tokenizer: Tokenizer) -> InputEstimate {
        // A count that the host has made already is asked of nobody.
        if let core::request::Input::Counted(_) = request.input {
            return Standard.estimate(request, tokenizer);
        }
        match self.0.call((Request(request.clone()), tokenizer.name()).into()).flatten() {
            Some(Either::A(Count(tokens))) => InputEstimate { expected: tokens, reserve: tokens, exact: false },
            Some(Either::B(count)) => count.core(),
            None => Standard.estimate(request, tokenizer),
        }
    }
}
