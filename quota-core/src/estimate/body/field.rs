//! Fields: reading one from a body, and saying where and what it is when it is wrong.
//!
//! Floor 1. Invariant: what was found is told by its type, its length or its number, never by its text.

use serde_json::{Map, Value};

use crate::request::InvalidRequest;

/// How deep JSON may be nested where it is counted as text.
const MAX_DEPTH: usize = 64;

/// Where in the body; a chain on the stack, written out only for an error.
pub(super) struct Path<'a> {
    parent: Option<&'a Path<'a>>,
    step: Step<'a>,
}

enum Step<'a> {
    Key(&'a str),
    Index(usize),
}

impl<'a> Path<'a> {
    pub(super) fn root(key: &'a str) -> Path<'a> {
        Path { parent: None, step: Step::Key(key) }
    }

    pub(super) fn key(&'a self, key: &'a str) -> Path<'a> {
        Path { parent: Some(self), step: Step::Key(key) }
    }

    pub(super) fn index(&'a self, index: usize) -> Path<'a> {
        Path { parent: Some(self), step: Step::Index(index) }
    }

    pub(super) fn invalid(&self, found: Option<&Value>, allowed: &str) -> InvalidRequest {
        invalid(&self.text(), found, allowed)
    }

    fn text(&self) -> String {
        let parent = self.parent.map(Path::text);
        match (&self.step, parent) {
            (Step::Key(key), None) => (*key).to_owned(),
            (Step::Key(key), Some(parent)) => format!("{parent}.{key}"),
            (Step::Index(index), parent) => format!("{}[{index}]", parent.unwrap_or_default()),
        }
    }
}

/// The error for a field; `None` stands for a missing one.
pub(super) fn invalid(field: &str, found: Option<&Value>, allowed: &str) -> InvalidRequest {
    let found = match found {
        None => "nothing".to_owned(),
        Some(Value::Null) => "null".to_owned(),
        Some(Value::Bool(value)) => value.to_string(),
        Some(Value::Number(number)) => number.to_string(),
        Some(Value::String(text)) if text.is_empty() => "an empty string".to_owned(),
        Some(Value::String(text)) => format!("a string of {} bytes", text.len()),
        Some(Value::Array(list)) => format!("an array of {}", list.len()),
        Some(Value::Object(map)) => format!("an object of {} fields", map.len()),
    };
    InvalidRequest { field: field.to_owned(), found, allowed: allowed.to_owned() }
}

/// Takes a field out; `null` is absent.
pub(super) fn take(map: &mut Map<String, Value>, key: &str) -> Option<Value> {
    map.remove(key).filter(|value| !value.is_null())
}

/// Takes a text out.
pub(super) fn take_text(map: &mut Map<String, Value>, key: &str) -> Result<Option<String>, InvalidRequest> {
    match take(map, key) {
        None => Ok(None),
        Some(Value::String(text)) => Ok(Some(text)),
        Some(other) => Err(invalid(key, Some(&other), "a string")),
    }
}

/// Takes a truth value out.
pub(super) fn take_bool(map: &mut Map<String, Value>, key: &str) -> Result<Option<bool>, InvalidRequest> {
    match take(map, key) {
        None => Ok(None),
        Some(Value::Bool(value)) => Ok(Some(value)),
        Some(other) => Err(invalid(key, Some(&other), "true or false")),
    }
}

/// Takes a whole number from 0 on out. One beyond 64 bits is the largest there is, for a ceiling to cut.
pub(super) fn take_count(map: &mut Map<String, Value>, key: &str) -> Result<Option<u64>, InvalidRequest> {
    let Some(value) = take(map, key) else { return Ok(None) };
    match (value.as_u64(), value.as_f64()) {
        (Some(count), _) => Ok(Some(count)),
        (None, Some(huge)) if value.is_f64() && huge >= u64::MAX as f64 => Ok(Some(u64::MAX)),
        _ => Err(invalid(key, Some(&value), "a whole number from 0 on")),
    }
}

/// JSON as it counts: compact text. Refused if nested deeper than [`MAX_DEPTH`].
pub(super) fn compact(value: &Value, path: &Path<'_>) -> Result<String, InvalidRequest> {
    if is_deeper(value, MAX_DEPTH) {
        let found = "deeper nesting".to_owned();
        return Err(InvalidRequest { field: path.text(), found, allowed: format!("{MAX_DEPTH} levels") });
    }
    Ok(value.to_string())
}

fn is_deeper(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(list) => depth == 0 || list.iter().any(|entry| is_deeper(entry, depth - 1)),
        Value::Object(map) => depth == 0 || map.values().any(|entry| is_deeper(entry, depth - 1)),
        _ => false,
    }
}
