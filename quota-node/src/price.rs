//! Prices: what a usage costs, line by line, and the worst case of a request.

use std::sync::Arc;

use napi::{Env, Result};
use napi_derive::napi;
use quota_core as core;
use quota_core::policy::price;

use crate::convert::number;
use crate::count::{Count, plain};
use crate::errors;
use crate::usage::Usage;

/// A request, as far as its worst case goes.
#[napi(object, object_to_js = false)]
pub struct AskOptions {
    pub input: Count,
    pub output: Count,
    pub service_tier: Option<String>,
    pub text_only: Option<bool>,
    pub web_searches: Option<Count>,
    pub audio_millis: Option<Count>,
}

/// One line of a cost.
#[napi(object, object_from_js = false)]
pub struct CostLine {
    /// What was used, by the key that a policy's `price` has for it.
    pub item: &'static str,
    /// How much: tokens, requests, searches, or milliseconds.
    pub units: f64,
    /// Picodollars for one token, request, search or second.
    pub pico: f64,
    /// What it costs.
    pub usd: String,
    /// Whether the price is another class's.
    pub fallback: bool,
}

/// A cost with its explanation.
#[napi(object, object_from_js = false)]
pub struct Cost {
    /// The sum of the lines, exactly.
    pub usd: String,
    /// One for each class that was used and has a price.
    pub lines: Vec<CostLine>,
    /// Whether a line has the price of another class.
    pub fallback: bool,
    /// Whether something was used that has no price at all and is in no line.
    pub unpriced: bool,
}

/// What a model costs: prices by class, context and service tier.
#[napi]
pub struct Price(pub(crate) Arc<price::Price>);

#[napi]
impl Price {
    /// A price as a policy's `price` states it, as text.
    #[napi(constructor)]
    pub fn new(env: Env, document: String) -> Result<Price> {
        let read = price::Price::from_yaml(&document);
        read.map(|price| Price(Arc::new(price))).map_err(|wrong| errors::policy(&env, &wrong))
    }

    #[napi(js_name = "_cost")]
    pub fn cost(&self, usage: &Usage) -> Cost {
        let cost = self.0.cost(&usage.0);
        let line = |line: &price::Line| CostLine {
            item: line.class.key(),
            units: number(line.units),
            pico: number(line.rate),
            usd: line.cost.to_string(),
            fallback: line.fallback,
        };
        Cost {
            usd: cost.exact.to_string(),
            lines: cost.lines.iter().map(line).collect(),
            fallback: cost.fallback,
            unpriced: cost.unpriced,
        }
    }

    /// The most that a request can cost, in the dearest of the service tiers that may serve it.
    #[napi]
    pub fn worst_case(&self, ask: AskOptions) -> String {
        let ask = price::Ask {
            input: ask.input.0,
            output: ask.output.0,
            service_tier: ask.service_tier.as_deref(),
            text_only: ask.text_only.unwrap_or(false),
            web_searches: plain(ask.web_searches).unwrap_or(0),
            audio_millis: plain(ask.audio_millis).unwrap_or(0),
        };
        self.0.worst_case(&ask).to_string()
    }
}

/// A row of a list that was left out, and why.
#[napi(object, object_from_js = false)]
pub struct Skipped {
    pub model: String,
    pub why: String,
}

/// Prices of models by their exact names.
#[napi]
pub struct PriceList(pub(crate) core::policy::price_list::PriceList);

#[napi]
impl PriceList {
    /// Reads a list in LiteLLM's form (JSON text). Throws `InputError`.
    #[napi(factory)]
    pub fn litellm(env: Env, text: String) -> Result<PriceList> {
        let read = core::policy::price_list::PriceList::litellm(&text);
        read.map(PriceList).map_err(|error| errors::input(&env, "price_list_invalid", error.to_string()))
    }

    /// The price of a model of exactly this name.
    #[napi]
    pub fn get(&self, model: String) -> Option<Price> {
        self.0.get(&model).map(|listed| Price(listed.price.clone()))
    }

    /// The names, sorted.
    #[napi(getter)]
    pub fn models(&self) -> Vec<String> {
        let mut names: Vec<String> = self.0.models().map(|(name, _)| name.to_string()).collect();
        names.sort_unstable();
        names
    }

    /// The first rows that were left out, each with the reason.
    #[napi(getter)]
    pub fn skipped(&self) -> Vec<Skipped> {
        let skipped = |(model, why): &(String, String)| Skipped { model: model.to_string(), why: why.to_string() };
        self.0.report().named.iter().map(skipped).collect()
    }
}
