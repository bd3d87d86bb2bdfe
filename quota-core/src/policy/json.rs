//! JSON as the YAML that it nearly is, so that one reader reads both.
//!
//! Floor 1. Invariant: a text that is no JSON is told as such, and lines stay lines.

use std::borrow::Cow;

use serde::de::IgnoredAny;

use super::error::{ErrorKind, Origin, PolicyError};
use super::node::MAX_BYTES;

/// The same document as YAML: tabs between values as blanks, and characters that are escaped as two halves (`\ud83d\ude00`)
/// escaped whole. What follows one of those in its line stands two columns to the left.
///
/// # Errors
/// The text is no JSON.
pub(super) fn as_yaml(text: &str) -> Result<Cow<'_, str>, PolicyError> {
    if text.len() > MAX_BYTES {
        return Ok(Cow::Borrowed(text)); // for the reader, which says how long it may be
    }
    serde_json::from_str::<IgnoredAny>(text).map_err(|error| {
        let (line, column) = (error.line() as u32, error.column() as u32);
        let shown = error.to_string();
        let what = shown.split(" at line ").next().unwrap_or_default();
        Origin::top((line, column)).error(ErrorKind::Syntax, format!("this is no JSON: {what}"))
    })?;
    if !text.contains(['\t', '\\']) {
        return Ok(Cow::Borrowed(text));
    }
    let mut yaml = String::with_capacity(text.len());
    let (mut rest, mut in_string) = (text, false);
    while let Some(at) = rest.find(['\t', '"', '\\']) {
        yaml.push_str(&rest[..at]);
        rest = &rest[at..];
        let taken = match rest.as_bytes()[0] {
            b'\\' => match whole(rest) {
                Some(c) => {
                    yaml.push_str(&format!("\\U{:08X}", u32::from(c)));
                    PAIR
                }
                None => {
                    // An escape of one character, or the start of one: what follows the backslash is no end of the string.
                    yaml.push_str(&rest[..2]);
                    2
                }
            },
            b'\t' => {
                yaml.push(' ');
                1
            }
            _ => {
                in_string = !in_string;
                yaml.push('"');
                1
            }
        };
        rest = &rest[taken..];
    }
    debug_assert!(!in_string, "a JSON text ends outside of its strings");
    yaml.push_str(rest);
    Ok(Cow::Owned(yaml))
}

/// Bytes of a character that is escaped as two halves.
const PAIR: usize = 12;

/// The character of two halves at the start of a text.
fn whole(text: &str) -> Option<char> {
    let half = |at: usize| {
        let digits = text.get(at..)?.strip_prefix("\\u")?.get(..4)?;
        u16::from_str_radix(digits, 16).ok()
    };
    char::decode_utf16([half(0)?, half(PAIR / 2)?]).next()?.ok().filter(|c| c.len_utf16() == 2)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_yaml_reads_otherwise_is_written_otherwise() {
        for (json, want) in [
            (r#"{"a": 1}"#, r#"{"a": 1}"#),
            ("{\t\"a\":\t1}", "{ \"a\": 1}"),
            (r#"["\ud83d\ude00", "\\ud83d", "\u00e9", "a\"b\\"]"#, r#"["\U0001F600", "\\ud83d", "\u00e9", "a\"b\\"]"#),
            (r#"["\ud83d"]"#, r#"["\ud83d"]"#),
        ] {
            assert_eq!(as_yaml(json).unwrap(), want);
        }
        let error = as_yaml("{\n  rpm: 1}").unwrap_err();
        assert_eq!((error.kind, error.line), (ErrorKind::Syntax, 2));
        assert_eq!(error.message, "this is no JSON: key must be a string");
    }
}
