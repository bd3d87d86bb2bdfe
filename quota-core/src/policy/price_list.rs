//! Price lists: LiteLLM's JSON document of models and prices.
//!
//! Floor 1. Invariant: a row is either loaded whole or skipped with its reason, and no number passes through a float.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use serde_json::value::RawValue;

use crate::policy::price::{Per, Price, PriceBuilder, PriceClass, PriceError};
use crate::units::{MAX_AMOUNT, parse_decimal, parse_decimal_rounded};

/// The largest list, in bytes; the public one has some three and a half million.
pub const MAX_LIST_BYTES: usize = 32 << 20;
/// The longest model name, in bytes; a row with a longer one is skipped.
const MAX_NAME: usize = 256;
/// How many skipped rows are named in the report.
const MAX_NAMED: usize = 64;
/// Keys of the list that are not models: a template in prose, and rules for guessing.
const NOT_MODELS: [&str; 2] = ["sample_spec", "fallback_generalizations"];

/// Prices by exact model name.
#[derive(Debug, Clone)]
pub struct PriceList {
    models: HashMap<Arc<str>, ListedModel>,
    report: Report,
}

/// What a list says about a model.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListedModel {
    /// Its price.
    pub price: Arc<Price>,
    /// The longest input, in tokens; a hint.
    pub max_input_tokens: Option<u64>,
    /// The longest output, in tokens; a hint.
    pub max_output_tokens: Option<u64>,
}

/// What became of the rows of a list.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Report {
    /// Models that have a price now.
    pub loaded: u64,
    /// Rows that were left out.
    pub skipped: u64,
    /// The first 64 of them with the reason.
    pub named: Vec<(String, String)>,
    /// Prices finer than a picodollar, rounded half to even.
    pub rounded: u64,
    /// Prices in units or for conditions that are not reckoned (an image, a page, an hour of the day), left out.
    pub unknown_prices: u64,
}

/// Why a document is not a price list.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum PriceListError {
    /// Too many bytes.
    #[error("the price list has {found} bytes; allowed: {MAX_LIST_BYTES}")]
    TooLarge {
        /// How many there are.
        found: usize,
    },
    /// Not one JSON object. `NaN` and infinities are not JSON.
    #[error("the price list is not a JSON object: line {line}, column {column}")]
    NotJson {
        /// The line, from 1.
        line: usize,
        /// The column, from 1.
        column: usize,
    },
}

type Row<'a> = BTreeMap<String, &'a RawValue>;

impl PriceList {
    /// Reads a list in LiteLLM's format: an object of models, prices in USD for one unit.
    ///
    /// Read are the prices of tokens, requests, web searches of medium context and, in audio modes, of seconds, with
    /// thresholds, service tiers and `tiered_pricing`; unknown keys are left out. A row with a price that is negative,
    /// absurd or not a number is skipped, as is one whose only prices above zero are in units that are not reckoned.
    ///
    /// # Errors
    /// [`PriceListError`] if the document as a whole cannot be read.
    pub fn litellm(text: &str) -> Result<PriceList, PriceListError> {
        if text.len() > MAX_LIST_BYTES {
            return Err(PriceListError::TooLarge { found: text.len() });
        }
        let rows: Row<'_> = serde_json::from_str(text)
            .map_err(|error| PriceListError::NotJson { line: error.line(), column: error.column() })?;
        let mut list = PriceList { models: HashMap::new(), report: Report::default() };
        let mut aliases = Vec::new();
        for (name, row) in rows {
            if NOT_MODELS.contains(&name.as_str()) {
                continue;
            }
            match Alias::of(row) {
                Some(target) => aliases.push((name, target)),
                None => match list.model(&name, row) {
                    Ok(model) => list.load(name, model),
                    Err(why) => list.skip(name, why),
                },
            }
        }
        for (name, target) in aliases {
            match list.models.get(target.as_str()).cloned() {
                Some(model) if name.len() <= MAX_NAME => list.load(name, model),
                _ => list.skip(name, "the model that it is an alias of has no price".to_owned()),
            }
        }
        Ok(list)
    }

    /// What the list says about a model of exactly this name. Nothing is guessed from parts of names.
    pub fn get(&self, model: &str) -> Option<&ListedModel> {
        self.models.get(model)
    }

    /// All models, in no order.
    pub fn models(&self) -> impl Iterator<Item = (&Arc<str>, &ListedModel)> {
        self.models.iter()
    }

    /// What became of the rows.
    pub fn report(&self) -> &Report {
        &self.report
    }

    fn load(&mut self, name: String, model: ListedModel) {
        self.report.loaded += 1;
        self.models.insert(name.into(), model);
    }

    fn skip(&mut self, name: String, why: String) {
        self.report.skipped += 1;
        if self.report.named.len() < MAX_NAMED {
            self.report.named.push((name.chars().take(MAX_NAME).collect(), why));
        }
    }

    fn model(&mut self, name: &str, row: &RawValue) -> Result<ListedModel, String> {
        if name.len() > MAX_NAME {
            return Err(format!("the name has {} bytes; allowed: {MAX_NAME}", name.len()));
        }
        let row: Row<'_> = serde_json::from_str(row.get()).map_err(|_| "the row is not an object".to_owned())?;
        let mut reading = Reading::of(&row);
        reading.row(&row, None)?;
        if !reading.paid && reading.paid_otherwise {
            return Err("its prices are in units that are not reckoned".to_owned());
        }
        self.report.rounded += reading.rounded;
        self.report.unknown_prices += reading.unknown;
        let price = reading.price.build().map_err(|_| "it has no price that is reckoned".to_owned())?;
        let limit = |key: &str| row.get(key).and_then(|raw| whole(raw.get()));
        Ok(ListedModel {
            price: Arc::new(price),
            max_input_tokens: limit("max_input_tokens"),
            max_output_tokens: limit("max_output_tokens").or_else(|| limit("max_tokens")),
        })
    }
}

/// A row that says nothing but the model whose price it has.
#[derive(serde::Deserialize)]
#[serde(deny_unknown_fields)]
struct Alias {
    alias_of: String,
}

impl Alias {
    fn of(row: &RawValue) -> Option<String> {
        serde_json::from_str::<Alias>(row.get()).ok().map(|row| row.alias_of)
    }
}

/// A row being read.
#[derive(Default)]
struct Reading {
    price: PriceBuilder,
    /// Whether the provider's thresholds belong to the dearer side (`>=`).
    inclusive: bool,
    /// Whether seconds are seconds of audio.
    audio: bool,
    /// Whether a price above zero was read, of anything but searches, which come on top.
    paid: bool,
    /// Whether a price above zero was left out.
    paid_otherwise: bool,
    rounded: u64,
    unknown: u64,
}

impl Reading {
    fn of(row: &Row<'_>) -> Reading {
        let is = |key: &str, wanted: &str| row.get(key).is_some_and(|raw| raw.get() == wanted);
        Reading {
            inclusive: is("litellm_provider", "\"xai\""),
            audio: is("mode", "\"audio_transcription\"") || is("mode", "\"audio_speech\""),
            ..Reading::default()
        }
    }

    /// Reads the prices of a row, or those of one of its ranges, which hold above so many tokens. Ranges have none within
    /// them, so the depth is bounded whatever the document's is.
    fn row(&mut self, row: &Row<'_>, range: Option<u64>) -> Result<(), String> {
        let above = range.unwrap_or(0);
        for (key, raw) in row {
            let text = raw.get();
            match Key::parse(key) {
                _ if text == "null" || is_superseded(row, key) => {}
                Some(key) if self.counts(key.class) => self.set(key, above, text)?,
                None if key == "search_context_cost_per_query" => self.searches(raw)?,
                None if key == "tiered_pricing" && range.is_none() => self.ranges(raw)?,
                None if key == OLD_CACHE_READ => {
                    self.set(Key { class: PriceClass::CacheRead, above: 0, service: None }, above, text)?;
                }
                _ if key.contains("cost") || key.contains("pricing") || key.contains("multiplier") => {
                    self.unknown += 1;
                    self.paid_otherwise |= key.contains("cost") && is_positive(text);
                }
                _ => {}
            }
        }
        Ok(())
    }

    fn counts(&self, class: PriceClass) -> bool {
        self.audio || !matches!(class, PriceClass::AudioSecond | PriceClass::OutputAudioSecond)
    }

    fn set(&mut self, key: Key<'_>, above: u64, text: &str) -> Result<(), String> {
        let above = above.max(key.above);
        let shown = |error: PriceError| error.to_string();
        let prices = match key.service {
            Some(name) => self.price.service(name).map_err(shown)?,
            None => self.price.standard(),
        };
        let rounded = match above {
            0 => prices.set_rounded(key.class, text, Per::One),
            above => {
                let rates = prices.tier(if self.inclusive { above - 1 } else { above }).map_err(shown)?;
                rates.set_rounded(key.class, text, Per::One)
            }
        };
        self.rounded += rounded.map_err(shown)? as u64;
        self.paid |= key.class != PriceClass::WebSearch && is_positive(text);
        Ok(())
    }

    /// Web searches by the size of their context: medium, which is what a request gets that names none, or the dearest.
    fn searches(&mut self, raw: &RawValue) -> Result<(), String> {
        let sizes: Row<'_> = serde_json::from_str(raw.get())
            .map_err(|_| "search_context_cost_per_query is not an object of prices".to_owned())?;
        let price = |raw: &RawValue| parse_decimal_rounded(raw.get(), 12).map(|(pico, _)| pico).ok();
        let dearest = || sizes.values().max_by_key(|raw| price(raw));
        let Some(text) = sizes.get("search_context_size_medium").or_else(dearest) else {
            return Ok(());
        };
        self.set(Key { class: PriceClass::WebSearch, above: 0, service: None }, 0, text.get())
    }

    /// `tiered_pricing`: prices of ranges `(from, to]` of the input.
    fn ranges(&mut self, raw: &RawValue) -> Result<(), String> {
        let wrong = || "tiered_pricing is not a list of ranges with prices".to_owned();
        let ranges: Vec<Row<'_>> = serde_json::from_str(raw.get()).map_err(|_| wrong())?;
        for row in &ranges {
            let range: Vec<&RawValue> = match row.get("range") {
                Some(range) => serde_json::from_str(range.get()).map_err(|_| wrong())?,
                None => return Err(wrong()),
            };
            let from = range.first().and_then(|from| whole(from.get())).ok_or_else(wrong)?;
            self.row(row, Some(from))?;
        }
        Ok(())
    }
}

/// Whether another key of the row stands for this one: the new spelling of a cache read for the old, and of the two sides
/// that a second of audio is priced on the dearer. The format charges a second on one side and often states it on both.
fn is_superseded(row: &Row<'_>, key: &str) -> bool {
    let price =
        |key: &str| row.get(key).and_then(|raw| parse_decimal_rounded(raw.get(), 12).ok()).unwrap_or((0, false));
    let (input, output) = (price("input_cost_per_second"), price("output_cost_per_second"));
    match key {
        "input_cost_per_second" => input < output,
        OLD_CACHE_READ => row.contains_key("cache_read_input_token_cost"),
        "output_cost_per_second" => row.contains_key("input_cost_per_second") && output <= input,
        _ => false,
    }
}

/// An old spelling of `cache_read_input_token_cost`.
const OLD_CACHE_READ: &str = "input_cost_per_token_cache_hit";

/// A price's key: `<base>[_above_<N>k_tokens][_<service tier>]`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Key<'a> {
    class: PriceClass,
    above: u64,
    service: Option<&'a str>,
}

/// Bases, longer ones before their own beginnings. `above_1hr` and `above_12hr` are times that a cache entry is kept.
const BASES: [(&str, PriceClass); 17] = [
    ("input_cost_per_token", PriceClass::Input),
    ("output_cost_per_token", PriceClass::Output),
    ("cache_read_input_token_cost", PriceClass::CacheRead),
    ("cache_creation_input_token_cost_above_1hr", PriceClass::CacheWrite1h),
    ("cache_creation_input_token_cost_above_12hr", PriceClass::CacheWriteOther),
    ("cache_creation_input_token_cost", PriceClass::CacheWrite5m),
    ("output_cost_per_reasoning_token", PriceClass::Reasoning),
    ("input_cost_per_audio_token", PriceClass::InputAudio),
    ("output_cost_per_audio_token", PriceClass::OutputAudio),
    ("input_cost_per_image_token", PriceClass::InputImage),
    ("output_cost_per_image_token", PriceClass::OutputImage),
    ("input_cost_per_video_token", PriceClass::InputVideo),
    ("input_cost_per_request", PriceClass::Request),
    ("input_cost_per_query", PriceClass::Request),
    ("input_cost_per_second", PriceClass::AudioSecond),
    ("output_cost_per_second", PriceClass::OutputAudioSecond),
    ("input_cost_per_audio_per_second", PriceClass::AudioSecond),
];
const SERVICES: [&str; 5] = ["priority", "flex", "batches", "balanced", "ultrafast"];

impl<'a> Key<'a> {
    /// The parts of a key; `None` if it has a base or a suffix that is not known.
    fn parse(key: &'a str) -> Option<Key<'a>> {
        let known = |(base, class): &(&str, PriceClass)| Some((key.strip_prefix(base)?, *class));
        let (mut rest, class) = BASES.iter().find_map(known)?;
        let mut parsed = Key { class, above: 0, service: None };
        while !rest.is_empty() {
            rest = rest.strip_prefix('_')?;
            if let Some(size) = rest.strip_prefix("above_").filter(|_| parsed.above == 0) {
                let (size, after) = size.split_once("_tokens")?;
                let (digits, unit) = size.strip_suffix('k').map_or((size, 1), |digits| (digits, 1000));
                let above = digits.parse::<u64>().ok()?.checked_mul(unit)?;
                parsed.above = Some(above).filter(|above| (1..=MAX_AMOUNT).contains(above))?;
                rest = after;
            } else {
                let name = SERVICES.into_iter().find(|name| rest.starts_with(name))?;
                if parsed.service.is_some() {
                    return None;
                }
                (parsed.service, rest) = (Some(&rest[..name.len()]), &rest[name.len()..]);
            }
        }
        Some(parsed)
    }
}

/// A whole number of at most [`MAX_AMOUNT`], also where it is written as a float.
fn whole(text: &str) -> Option<u64> {
    parse_decimal(text, 0).ok().filter(|count| *count <= MAX_AMOUNT as u128).map(|count| count as u64)
}

/// Whether a number is above zero, or anything else has a digit that could make it so.
fn is_positive(text: &str) -> bool {
    match parse_decimal_rounded(text, 12) {
        Ok((pico, rounded)) => pico > 0 || rounded,
        Err(_) => text.bytes().any(|byte| matches!(byte, b'1'..=b'9')),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Usage;

    fn list(text: &str) -> PriceList {
        PriceList::litellm(text).unwrap()
    }

    /// The cost of so many input and output tokens by the only row of a list, as text.
    fn cost(row: &str, usage: &Usage) -> String {
        let list = list(&format!("{{\"m\": {row}}}"));
        assert_eq!(list.report().named, []);
        list.get("m").unwrap().price.exact(usage).to_string()
    }

    #[test]
    fn keys() {
        let key = |class, above, service| Some(Key { class, above, service });
        for (text, want) in [
            ("input_cost_per_token", key(PriceClass::Input, 0, None)),
            ("input_cost_per_token_above_272k_tokens_priority", key(PriceClass::Input, 272_000, Some("priority"))),
            ("input_cost_per_token_priority_above_200k_tokens", key(PriceClass::Input, 200_000, Some("priority"))),
            ("output_cost_per_token_above_512_tokens", key(PriceClass::Output, 512, None)),
            ("cache_creation_input_token_cost_above_1hr", key(PriceClass::CacheWrite1h, 0, None)),
            (
                "cache_creation_input_token_cost_above_12hr_above_272k_tokens_flex",
                key(PriceClass::CacheWriteOther, 272_000, Some("flex")),
            ),
            ("cache_creation_input_token_cost_above_200k_tokens", key(PriceClass::CacheWrite5m, 200_000, None)),
            ("output_cost_per_token_batches", key(PriceClass::Output, 0, Some("batches"))),
            ("input_cost_per_token_cache_hit", None),
            ("input_cost_per_token_flexible", None),
            ("input_cost_per_token_flex_flex", None),
            ("input_cost_per_token_above_0k_tokens", None),
            ("input_cost_per_token_above_18446744073709551615k_tokens", None),
            ("input_cost_per_token_above_1k_tokens_above_2k_tokens", None),
            ("input_cost_per_token_", None),
            ("input_cost_per_image", None),
            ("input_dbu_cost_per_token", None),
        ] {
            assert_eq!(Key::parse(text), want, "{text}");
        }
    }

    #[test]
    fn rows_are_loaded_whole_or_skipped() {
        let list = list(
            r#"{
            "sample_spec": {"input_cost_per_token": "0.00 per token"},
            "fallback_generalizations": [],
            "good": {"input_cost_per_token": 2.0000000000000002e-07, "max_input_tokens": 1000, "max_tokens": 50.0,
                     "supports_vision": true, "ocr_cost_per_page": 0.1},
            "alias": {"alias_of": "good"},
            "dangling": {"alias_of": "gone"},
            "text": {"input_cost_per_token": "1e-06"},
            "negative": {"input_cost_per_token": 1e-06, "output_cost_per_token": -1},
            "huge": {"input_cost_per_token": 1e400},
            "slip": {"input_cost_per_token": 2.5},
            "none": {"mode": "chat", "input_cost_per_token": null},
            "image": {"input_cost_per_token": 0, "output_cost_per_image": 0.04},
            "list": []
        }"#,
        );
        let mut loaded: Vec<_> = list.models().map(|(name, _)| &**name).collect();
        loaded.sort_unstable();
        assert_eq!(loaded, ["alias", "good"]);
        let good = list.get("good").unwrap();
        assert_eq!((good.max_input_tokens, good.max_output_tokens), (Some(1000), Some(50)));
        assert_eq!(list.get("alias"), Some(good));
        let report = list.report();
        assert_eq!((report.loaded, report.skipped, report.rounded, report.unknown_prices), (2, 8, 1, 1));
        let named: Vec<_> = report.named.iter().map(|(name, _)| name.as_str()).collect();
        assert_eq!(named, ["huge", "image", "list", "negative", "none", "slip", "text", "dangling"]);
    }

    #[test]
    fn special_rows() {
        let seconds = Usage { audio_millis: 60_000, requests: 1, ..Usage::default() };
        for (row, usage, want) in [
            // A second that is priced on both sides is charged once, at the dearer of the two.
            (
                r#"{"mode": "audio_transcription", "input_cost_per_second": 0.0001, "output_cost_per_second": 0.0001}"#,
                &seconds,
                "0.006",
            ),
            (
                r#"{"mode": "audio_transcription", "input_cost_per_second": 0.0, "output_cost_per_second": 2.77778e-05}"#,
                &seconds,
                "0.001666668",
            ),
            (r#"{"mode": "rerank", "input_cost_per_query": 0.002}"#, &Usage::tokens(500, 0), "0.002"),
            // xAI's thresholds belong to the dearer side.
            (
                r#"{"litellm_provider": "xai", "input_cost_per_token": 1e-06, "input_cost_per_token_above_1k_tokens": 2e-06}"#,
                &Usage::tokens(1000, 0),
                "0.002",
            ),
            (
                r#"{"input_cost_per_token": 1e-06, "input_cost_per_token_above_1k_tokens": 2e-06}"#,
                &Usage::tokens(1000, 0),
                "0.001",
            ),
            (
                r#"{"output_cost_per_token": 1e-05, "tiered_pricing": [
                    {"range": [0, 256000.0], "input_cost_per_token": 1e-06},
                    {"range": [256000.0, 1e6], "input_cost_per_token": 3e-06}]}"#,
                &Usage::tokens(256_001, 1),
                "0.768013",
            ),
            (
                r#"{"input_cost_per_token": 1e-06, "search_context_cost_per_query":
                    {"search_context_size_low": 0.01, "search_context_size_medium": 0.02, "search_context_size_high": 0.03}}"#,
                &Usage { web_searches: 2, ..Usage::tokens(0, 0) },
                "0.04",
            ),
            (
                r#"{"input_cost_per_token": 1e-06, "input_cost_per_token_cache_hit": 1e-07}"#,
                &Usage { input_cache_read: 10, ..Usage::tokens(0, 0) },
                "0.000001",
            ),
        ] {
            assert_eq!(cost(row, usage), want, "{row}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let depth = 100_000;
        let open = r#"{"range": [0, 1], "input_cost_per_token": 1e-06, "tiered_pricing": ["#.repeat(depth);
        let close = "]}".repeat(depth);
        assert_eq!(list(&format!("{{\"m\": {open}{close}}}")).report().loaded, 1);
    }

    #[test]
    fn documents_that_are_no_list() {
        assert_eq!(PriceList::litellm("[]").err(), Some(PriceListError::NotJson { line: 1, column: 0 }));
        assert!(matches!(PriceList::litellm("{\"m\": {\"a\": NaN}}"), Err(PriceListError::NotJson { line: 1, .. })));
        let long = " ".repeat(MAX_LIST_BYTES + 1);
        assert_eq!(PriceList::litellm(&long).err(), Some(PriceListError::TooLarge { found: MAX_LIST_BYTES + 1 }));
    }
}
