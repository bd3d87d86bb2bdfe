//! A provider's report: where the usage object is in an answer, and counts read from it strictly.
//!
//! Floor 1. Invariant: what is not a count from 0 to 2^52 − 1 is an error; only an absent or null detail is nothing.

use serde_json::{Map, Value};

use super::{bedrock, cohere, gemini, llama_cpp, ollama};
use crate::units::{MAX_AMOUNT, Pico, parse_decimal_rounded};

/// The longest service tier's name that is kept, in bytes.
const MAX_TIER: usize = 64;

/// The names of OpenAI's dialects, Anthropic's and xAI's by one of which a bare usage object is known.
const OPENAI_LIKE: [&str; 10] = [
    "prompt_tokens",
    "completion_tokens",
    "total_tokens",
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "seconds",
    "prompt_text_tokens",
    "cached_prompt_text_tokens",
];

/// The names by one of which a bare usage object is known.
const BARE: [&[&str]; 7] = [
    &OPENAI_LIKE,
    &gemini::NAMES,
    &bedrock::NAMES,
    &["totalTokens"],
    &cohere::NAMES,
    &ollama::NAMES,
    &llama_cpp::NAMES,
];

/// What holds a usage object in an answer or a stream's event, after the answer itself.
const HOLDERS: [&str; 5] = ["response", "message", "x_groq", "metadata", "delta"];

/// What a usage object is called; the second row where there is none of the first.
const NAMES: [&[&str]; 2] = [&["usage", "usageMetadata", "usage_metadata"], &["meta", "meta_info", "timings"]];

/// Why a report cannot be charged as it stands. Nothing is refunded for one: the reservation stays charged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum Unusable {
    /// No usage object, or one without a count.
    #[error("the answer has no usage")]
    Missing,
    /// Every count is zero.
    #[error("every count of the usage is zero")]
    AllZero,
    /// A field is not a count.
    #[error("usage field {field} has {found}; allowed: a whole number from 0 to 2^52 - 1")]
    Malformed {
        /// The field's path in the usage object.
        field: String,
        /// What it holds: a number as it is, else the kind of thing.
        found: String,
    },
    /// A stream ended before its usage was final.
    #[error("the stream ended before its usage was final")]
    Unfinished,
    /// The object's names can be read in two ways that differ.
    #[error("the usage can be read in two ways that differ: {one} or {other} tokens")]
    Ambiguous {
        /// The total of one reading.
        one: u64,
        /// The total of the other.
        other: u64,
    },
}

impl Unusable {
    /// The stable code, in `snake_case`.
    pub const fn code(&self) -> &'static str {
        match self {
            Unusable::Missing => "usage_missing",
            Unusable::AllZero => "usage_all_zero",
            Unusable::Malformed { .. } => "usage_malformed",
            Unusable::Unfinished => "usage_unfinished",
            Unusable::Ambiguous { .. } => "usage_ambiguous",
        }
    }
}

/// A usage object and the object that it was found in.
pub(super) struct Found<'a> {
    pub(super) counts: Counts<'a>,
    pub(super) beside: Counts<'a>,
}

impl Found<'_> {
    /// The service tier that the usage object names, or else the answer.
    pub(super) fn service_tier(&self) -> Option<String> {
        let tier = self.counts.text("service_tier").or_else(|| self.beside.text("service_tier"));
        let bedrock = || self.beside.inner("serviceTier").ok()?.text("type");
        tier.or_else(bedrock).map(str::to_owned)
    }
}

/// Finds the usage object: the value itself, or where an answer or a stream's event has it.
pub(super) fn locate(value: &Value) -> Result<Found<'_>, Unusable> {
    let top = value.as_object().ok_or(Unusable::Missing)?;
    let nested = || HOLDERS.into_iter().filter_map(|key| top.get(key)?.as_object());
    for (names, first) in NAMES.into_iter().zip([true, false]) {
        for holder in std::iter::once(top).chain(nested()) {
            for key in names {
                match holder.get(*key) {
                    Some(Value::Object(usage)) => {
                        return Ok(Found { counts: Counts::top(usage), beside: Counts::top(holder) });
                    }
                    Some(other) if first && !other.is_null() => return Err(malformed("", key, other)),
                    _ => {}
                }
            }
        }
        if is_bare(top) {
            return Ok(Found { counts: Counts::top(top), beside: Counts::top(top) });
        }
    }
    Err(Unusable::Missing)
}

fn is_bare(fields: &Map<String, Value>) -> bool {
    BARE.into_iter().flatten().any(|name| fields.contains_key(*name))
}

/// The counts of one object.
#[derive(Clone, Copy)]
pub(super) struct Counts<'a> {
    fields: Option<&'a Map<String, Value>>,
    path: &'static str,
}

impl<'a> Counts<'a> {
    fn top(fields: &'a Map<String, Value>) -> Counts<'a> {
        Counts { fields: Some(fields), path: "" }
    }

    fn get(&self, field: &str) -> Option<&'a Value> {
        self.fields?.get(field).filter(|value| !value.is_null())
    }

    /// Whether any of the fields is there and not null.
    pub(super) fn has(&self, fields: &[&str]) -> bool {
        fields.iter().any(|field| self.get(field).is_some())
    }

    /// A count that has to be there.
    pub(super) fn need(&self, field: &'static str) -> Result<u64, Unusable> {
        if !self.fields.is_some_and(is_bare) {
            return Err(Unusable::Missing);
        }
        self.may(field)?.ok_or_else(|| malformed(self.path, field, &Value::Null))
    }

    /// A count that may be left out.
    pub(super) fn may(&self, field: &'static str) -> Result<Option<u64>, Unusable> {
        self.get(field).map(|value| count(value).ok_or_else(|| malformed(self.path, field, value))).transpose()
    }

    /// The first count of several spellings that is not zero; zero if none is.
    pub(super) fn any(&self, fields: &[&'static str]) -> Result<u64, Unusable> {
        let mut first = 0;
        for field in fields {
            let count = self.may(field)?.unwrap_or(0);
            first = if first == 0 { count } else { first };
        }
        Ok(first)
    }

    /// A span in seconds, whole or not, as milliseconds; at least one for a span that is not zero.
    pub(super) fn millis(&self, field: &'static str) -> Result<u64, Unusable> {
        self.may_millis(field)?.ok_or_else(|| malformed(self.path, field, &Value::Null))
    }

    /// The same, where it may be left out.
    pub(super) fn may_millis(&self, field: &'static str) -> Result<Option<u64>, Unusable> {
        let Some(value) = self.get(field) else {
            return Ok(None);
        };
        let parsed = value.as_number().and_then(|number| parse_decimal_rounded(&number.to_string(), 3).ok());
        match parsed {
            Some((millis, rounded)) if millis <= MAX_AMOUNT as u128 => Ok(Some((millis as u64).max(rounded as u64))),
            _ => Err(malformed(self.path, field, value)),
        }
    }

    /// An object of further counts; one without any if it is left out.
    pub(super) fn inner(&self, field: &'static str) -> Result<Counts<'a>, Unusable> {
        match self.get(field) {
            None => Ok(Counts { fields: None, path: field }),
            Some(Value::Object(fields)) => Ok(Counts { fields: Some(fields), path: field }),
            Some(other) => Err(malformed(self.path, field, other)),
        }
    }

    /// The first of several spellings of a list of objects of counts.
    pub(super) fn list(&self, fields: &[&'static str]) -> Result<Vec<Counts<'a>>, Unusable> {
        let Some((field, value)) = fields.iter().find_map(|field| Some((*field, self.get(field)?))) else {
            return Ok(Vec::new());
        };
        let items = value.as_array().ok_or_else(|| malformed(self.path, field, value))?;
        let object = |item: &'a Value| match item {
            Value::Object(fields) => Ok(Counts { fields: Some(fields), path: field }),
            other => Err(malformed(self.path, field, other)),
        };
        items.iter().map(object).collect()
    }

    /// Money in units of 10^-`scale` USD, finer parts rounded; `None` if it is not a sum of at most [`MAX_AMOUNT`] units
    /// of 1e-8 USD.
    pub(super) fn money(&self, field: &str, scale: u32) -> Option<Pico> {
        let number = self.get(field)?.as_number()?.to_string();
        let (pico, _) = parse_decimal_rounded(&number, 12 - scale).ok()?;
        (pico <= MAX_AMOUNT as u128 * 10_000).then_some(Pico(pico))
    }

    /// Whether the field is `true`.
    pub(super) fn says(&self, field: &str) -> bool {
        self.get(field).and_then(Value::as_bool) == Some(true)
    }

    /// A short text; anything else is as good as absent.
    pub(super) fn text(&self, field: &str) -> Option<&'a str> {
        self.get(field)?.as_str().filter(|text| text.len() <= MAX_TIER)
    }
}

/// A whole number of at most [`MAX_AMOUNT`], also where it is written as a float.
fn count(value: &Value) -> Option<u64> {
    let number = value.as_number()?;
    let whole = number.as_u64().or_else(|| {
        let float = number.as_f64().filter(|float| float.fract() == 0.0 && *float >= 0.0)?;
        (float <= MAX_AMOUNT as f64).then_some(float as u64)
    })?;
    (whole <= MAX_AMOUNT).then_some(whole)
}

fn malformed(path: &str, field: &str, value: &Value) -> Unusable {
    let field = if path.is_empty() { field.to_owned() } else { format!("{path}.{field}") };
    // Never the text of a string: nobody knows what a confused proxy puts there.
    let found = match value {
        Value::Null => "nothing".to_owned(),
        Value::Bool(_) => "a boolean".to_owned(),
        Value::Number(number) => number.to_string(),
        Value::String(_) => "a text".to_owned(),
        Value::Array(_) => "a list".to_owned(),
        Value::Object(_) => "an object".to_owned(),
    };
    Unusable::Malformed { field, found }
}

/// Parts that are taken out of a total.
pub(super) struct Split {
    rest: u64,
    cuts: u32,
}

impl Split {
    pub(super) fn of(total: u64) -> Split {
        Split { rest: total, cuts: 0 }
    }

    /// Takes a part, cut at what is left; a cut is an anomaly.
    pub(super) fn take(&mut self, part: u64) -> u64 {
        let taken = part.min(self.rest);
        self.cuts += (taken < part) as u32;
        self.rest -= taken;
        taken
    }

    /// What is left, and how many parts were cut.
    pub(super) fn rest(self) -> (u64, u32) {
        (self.rest, self.cuts)
    }
}
