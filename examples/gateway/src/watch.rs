//! Watching a stream of chat completion chunks: what to pass on, what was used, what was seen.
//!
//! Invariant: usage that the asker did not ask for is taken out, and nothing else is changed.

use std::collections::BTreeMap;

use quota_core::Usage;
use quota_core::usage::Dialect;
use serde_json::Value;
use serde_json::value::RawValue;

use crate::sse;

/// Bytes of text that count as one token while nobody has told the real number.
const BYTES_PER_TOKEN: u64 = 4;

/// What has been seen of a stream.
#[derive(Debug, Default)]
pub struct Watch {
    /// Whether the asker wants the usage.
    wants_usage: bool,
    /// The last usage that was reported.
    usage: Option<Usage>,
    /// Whether that was the report of the whole answer.
    whole: bool,
    /// Whether the stream said that it was over.
    done: bool,
    /// Whether the upstream reported an error in it.
    failed: bool,
    /// Bytes of generated text.
    bytes: u64,
}

impl Watch {
    /// Watches a stream for an asker who wants the usage in it or not.
    pub fn new(wants_usage: bool) -> Watch {
        Watch { wants_usage, ..Watch::default() }
    }

    /// Takes note of an event and gives what to pass on of it; `None` for nothing.
    pub fn event(&mut self, event: &[u8]) -> Option<Vec<u8>> {
        let Some(data) = sse::data(event) else { return Some(event.to_vec()) };
        if data.trim() == "[DONE]" {
            self.done = true;
            return Some(event.to_vec());
        }
        let Ok(chunk) = serde_json::from_str::<Value>(&data) else { return Some(event.to_vec()) };
        self.failed |= chunk.get("error").is_some_and(|error| !error.is_null());
        let choices = chunk.get("choices").and_then(Value::as_array);
        self.bytes = choices.into_iter().flatten().fold(self.bytes, |sum, choice| sum.saturating_add(text(choice)));
        let reports = chunk.get("usage").is_some_and(Value::is_object);
        let no_choices = choices.is_none_or(Vec::is_empty);
        if reports && let Ok(usage) = Usage::read(Dialect::OpenAiChat, &chunk) {
            self.usage = Some(usage);
            self.whole |= no_choices;
        }
        if self.wants_usage || chunk.get("usage").is_none() {
            return Some(event.to_vec());
        }
        if reports && no_choices {
            return None;
        }
        Some(without_usage(&data).unwrap_or_else(|| event.to_vec()))
    }

    /// The usage of the whole answer, once the stream is over.
    pub fn usage(&self) -> Option<&Usage> {
        self.usage.as_ref().filter(|_| self.whole || self.done)
    }

    /// The best-known usage, for an answer with so much estimated input.
    pub fn seen(&self, input: u64) -> Usage {
        self.usage.clone().unwrap_or_else(|| Usage::tokens(input, self.bytes.div_ceil(BYTES_PER_TOKEN)))
    }

    /// Whether no text has been seen.
    pub fn is_silent(&self) -> bool {
        self.bytes == 0 && self.usage.is_none()
    }

    /// Whether the stream came to its own end without an error.
    pub fn is_complete(&self) -> bool {
        self.done && !self.failed
    }
}

/// Bytes of the text that a choice of a chunk adds.
fn text(choice: &Value) -> u64 {
    let Some(delta) = choice.get("delta") else { return 0 };
    let length = |value: Option<&Value>| value.and_then(Value::as_str).map_or(0, |text| text.len() as u64);
    let plain: u64 =
        ["content", "reasoning_content", "reasoning", "refusal"].map(|key| length(delta.get(key))).iter().sum();
    let calls = delta.get("tool_calls").and_then(Value::as_array).into_iter().flatten();
    let functions = calls.filter_map(|call| call.get("function"));
    plain + functions.map(|function| length(function.get("name")) + length(function.get("arguments"))).sum::<u64>()
}

/// The event of a chunk without its `usage`; all else stands as it was written.
fn without_usage(data: &str) -> Option<Vec<u8>> {
    let mut members: BTreeMap<String, &RawValue> = serde_json::from_str(data).ok()?;
    members.remove("usage");
    Some(format!("data: {}\n\n", serde_json::to_string(&members).ok()?).into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    const WORD: &str = r#"{"choices":[{"index":0,"delta":{"content":"twelve bytes"}}],"usage":null}"#;
    const REPORT: &str = r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":5}}"#;

    fn run(wants: bool, events: &[&str]) -> (Watch, Vec<String>) {
        let mut watch = Watch::new(wants);
        let passed = events.iter().filter_map(|data| watch.event(format!("data: {data}\n\n").as_bytes()));
        let passed = passed.map(|event| String::from_utf8(event).unwrap()).collect();
        (watch, passed)
    }

    #[test]
    fn the_usage_is_passed_on_only_where_it_was_asked_for() {
        let (watch, passed) = run(false, &[WORD, REPORT, "[DONE]"]);
        let word = r#"data: {"choices":[{"index":0,"delta":{"content":"twelve bytes"}}]}"#;
        assert_eq!(passed, [format!("{word}\n\n"), "data: [DONE]\n\n".into()]);
        assert_eq!(watch.usage(), Some(&Usage::tokens(7, 5)));
        assert!(watch.is_complete());
        let (_, passed) = run(true, &[WORD, REPORT, "[DONE]"]);
        assert_eq!(passed.len(), 3);
        assert!(passed[1].contains("prompt_tokens"));
    }

    #[test]
    fn a_running_usage_is_final_only_at_the_end() {
        let running = r#"{"choices":[{"delta":{"content":"x"}}],"usage":{"prompt_tokens":7,"completion_tokens":1}}"#;
        let (watch, passed) = run(false, &[running]);
        assert_eq!((watch.usage(), watch.seen(99)), (None, Usage::tokens(7, 1)));
        assert!(!passed[0].contains("usage") && passed[0].contains("\"x\""));
        let (watch, _) = run(false, &[running, "[DONE]"]);
        assert_eq!(watch.usage(), Some(&Usage::tokens(7, 1)));
    }

    #[test]
    fn what_was_seen_is_counted() {
        let call = r#"{"choices":[{"delta":{"tool_calls":[{"function":{"name":"abcd","arguments":"{}"}}]}}]}"#;
        let (watch, _) = run(false, &[WORD, call, "not json", r#"{"choices":"odd"}"#]);
        assert_eq!(watch.seen(40), Usage::tokens(40, 5));
        let (watch, _) = run(false, &[r#"{"error":{"message":"no"}}"#, "[DONE]"]);
        assert!(!watch.is_complete());
    }
}
