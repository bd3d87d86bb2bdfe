//! Glance: what an event has, without parsing it: its marks and the length of its visible text.
//!
//! Floor 1. Invariant: one pass over the bytes and no allocation, whatever they are.

use memchr::{memchr, memchr2};

use super::strip::{self, Inside};
use super::wire::Wire;

/// A token in the unit of visible text, a twelfth, so that four ASCII characters and three bytes of other scripts are
/// one token each.
pub(super) const TOKEN: u64 = 12;
const ASCII: u64 = 3;
const OTHER: u64 = 4;

/// The most keys that may repeat a text.
const REPEATS: usize = 3;

/// What an event has.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Glance {
    /// Whether it may have a usage, or the end of the stream's usage.
    pub(super) usage: bool,
    /// Whether it has a usage that is null.
    pub(super) null_usage: bool,
    /// Whether it may have an error.
    pub(super) error: bool,
    /// The length of its visible text, in twelfths of a token; at least one token for a text that is not empty, as
    /// servers send one token or more at a time.
    pub(super) visible: u64,
}

/// How much of an event's beginning is remembered, in bytes; less than the least takes no time to look at.
const BEGINNING: std::ops::RangeInclusive<usize> = 32..=512;

/// What an event began with, up to the key of its first visible text. The events of a stream begin alike, so that most
/// of them need to be looked at from there on only.
#[derive(Default)]
pub(super) struct Beginning {
    bytes: Vec<u8>,
    /// What is to be seen in it, which is no usage, error or text.
    null_usage: bool,
    sound: bool,
    /// What it leads to, once that was asked for.
    inside: Option<Option<Inside>>,
}

/// Looks at the keys of an event and the texts behind them. The beginning is one of this wire, or empty.
pub(super) fn glance(data: &[u8], wire: &Wire, beginning: &mut Beginning) -> Glance {
    let mut seen = Glance::default();
    let mut repeats = [0; REPEATS];
    let (mut sound, mut known) = (false, 0);
    if !beginning.bytes.is_empty() && data.starts_with(&beginning.bytes) {
        (sound, known) = (beginning.sound, beginning.bytes.len());
        seen.null_usage = beginning.null_usage;
    }
    let mut at = known;
    let mut first = true;
    while let Some(quote) = memchr(b'"', &data[at..]) {
        let begins = at + quote;
        let key = text(data, begins + 1);
        at = key.next;
        let Some(value) = value_after(data, at) else {
            continue;
        };
        at = value;
        let name = &data[key.from..key.to];
        let is_text = data.get(value) == Some(&b'"');
        if wire.usage.contains(&name) {
            let null = data[value..].starts_with(b"null");
            seen.null_usage |= null;
            seen.usage |= !null;
        } else if name == b"error" {
            seen.error |= !data[value..].starts_with(b"null");
        } else if is_text {
            let told = text(data, value + 1);
            at = told.next;
            if name == b"type" {
                let kind = &data[told.from..told.to];
                sound |= kind.ends_with(b"audio.delta");
                seen.error |= kind == b"error" || kind == b"response.failed";
                continue;
            }
            let length = match wire.repeats.iter().position(|key| *key == name) {
                _ if wire.visible.contains(&name) => &mut seen.visible,
                Some(which) => &mut repeats[which.min(REPEATS - 1)],
                None => continue,
            };
            *length += told.length(data);
            if std::mem::take(&mut first) && begins != known && !seen.usage && !seen.error {
                beginning.keep(&data[..begins], seen.null_usage, sound);
            }
        }
    }
    seen.visible += repeats.into_iter().max().unwrap_or(0);
    if sound {
        seen.visible = 0;
    }
    seen
}

impl Beginning {
    fn keep(&mut self, bytes: &[u8], null_usage: bool, sound: bool) {
        if !BEGINNING.contains(&bytes.len()) {
            return;
        }
        self.bytes.clear();
        self.bytes.extend_from_slice(bytes);
        (self.null_usage, self.sound, self.inside) = (null_usage, sound, None);
    }

    /// Where to go on in an event for who looks for its members.
    pub(super) fn inside(&mut self, data: &[u8]) -> Option<Inside> {
        if self.bytes.is_empty() || !data.starts_with(&self.bytes) {
            return None;
        }
        *self.inside.get_or_insert_with(|| strip::inside(&self.bytes))
    }
}

/// Where the value begins if a colon follows.
fn value_after(data: &[u8], at: usize) -> Option<usize> {
    let colon = skip_space(data, at);
    (data.get(colon) == Some(&b':')).then(|| skip_space(data, colon + 1))
}

fn skip_space(data: &[u8], mut at: usize) -> usize {
    while matches!(data.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// A JSON text: its bytes without the quotes, and what its escapes shorten.
struct Text {
    from: usize,
    to: usize,
    next: usize,
    /// Bytes of escapes, and twelfths of a token for what they stand for.
    escaped: (u64, u64),
}

impl Text {
    fn length(&self, data: &[u8]) -> u64 {
        let bytes = &data[self.from..self.to];
        if bytes.is_empty() {
            return 0;
        }
        let other = bytes.iter().filter(|byte| **byte >= 0x80).count() as u64;
        let plain = (bytes.len() as u64 - other).saturating_sub(self.escaped.0);
        (plain * ASCII + other * OTHER + self.escaped.1).max(TOKEN)
    }
}

/// The text that begins here; one that does not end reaches to the end of the data.
fn text(data: &[u8], from: usize) -> Text {
    let mut escaped = (0, 0);
    let mut at = from;
    while let Some(found) = data.get(at..).and_then(|rest| memchr2(b'"', b'\\', rest)) {
        at += found;
        if data[at] == b'"' {
            return Text { from, to: at, next: at + 1, escaped };
        }
        let (bytes, worth) = if data.get(at + 1) == Some(&b'u') { (6, TOKEN) } else { (2, ASCII) };
        escaped = (escaped.0 + bytes, escaped.1 + worth);
        at += 2;
    }
    Text { from, to: data.len(), next: data.len(), escaped }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::Dialect;
    use proptest::prelude::*;

    /// What events are made of here, in any order.
    const PARTS: [&str; 12] = [
        "{\"id\":\"0123456789012345678901234567890123456789\",",
        "\"content\":\"so it goes\",",
        "\"content\":\"",
        "\"reasoning\":\"well\",",
        "\"delta\":{",
        "\"type\":\"response.output_audio.delta\",",
        "\"type\":\"error\",",
        "\"usage\":null,",
        "\"usage\":{\"x\":1},",
        "\"error\":{},",
        "\\",
        "\"",
    ];

    proptest! {
        #[test]
        fn what_is_remembered_changes_nothing(
            events in proptest::collection::vec((0usize..200, proptest::collection::vec(0..PARTS.len(), 0..8)), 1..12)
        ) {
            let (mut beginning, mut before) = (Beginning::default(), String::new());
            for (shared, parts) in events {
                let event: String =
                    before.chars().take(shared).collect::<String>() + &parts.iter().map(|part| PARTS[*part]).collect::<String>();
                let seen = glance(event.as_bytes(), &Wire::ANY, &mut beginning);
                prop_assert_eq!(seen, glance(event.as_bytes(), &Wire::ANY, &mut Beginning::default()), "{}", event);
                prop_assert!(beginning.bytes.len() <= *BEGINNING.end());
                before = event;
            }
        }
    }

    #[test]
    fn visible_text_and_marks_are_found() {
        let at = |dialect, data: &str| {
            let seen = glance(data.as_bytes(), &Wire::of(dialect), &mut Beginning::default());
            (seen.visible, seen.usage, seen.null_usage, seen.error)
        };
        use Dialect::*;
        for (dialect, data, want) in [
            (OpenAiChat, r#"{"choices":[{"delta":{"content":"12345678"}}]}"#, (24, false, false, false)),
            (OpenAiChat, r#"{"choices":[{"delta":{"content" : "a"}}], "usage" : null}"#, (12, false, true, false)),
            (OpenAiChat, r#"{"content":"","role":"assistant","error":null}"#, (0, false, false, false)),
            (OpenAiChat, r#"{"content":"say \"usage\": 3"}"#, (14 * 3, false, false, false)),
            (OpenAiChat, r#"{"content":"\u9650\u984d"}"#, (24, false, false, false)),
            (OpenAiChat, r#"{"content":"限額"}"#, (24, false, false, false)),
            (OpenAiChat, r#"{"reasoning":"abcdefgh","reasoning_content":"abcdefgh"}"#, (24, false, false, false)),
            (OpenAiChat, r#"{"obfuscation":"abcdefgh","usage":{"x":1}}"#, (0, true, false, false)),
            (OpenAiChat, r#"{"error":{"message":"x"}}"#, (0, false, false, true)),
            (OpenAiResponses, r#"{"type":"response.output_audio.delta","delta":"AAAA"}"#, (0, false, false, false)),
            (OpenAiResponses, r#"{"type":"response.failed","response":{}}"#, (0, false, false, true)),
            (Gemini, r#"{"parts":[{"text":"abcd"},{"text":"efgh"}],"finishReason":"STOP"}"#, (24, true, false, false)),
            (OpenAiChat, r#"{"content":"unfinished"#, (30, false, false, false)),
            (OpenAiChat, r#"{"content":"\"#, (12, false, false, false)),
            (OpenAiChat, r#""""":"":"""#, (0, false, false, false)),
        ] {
            assert_eq!(at(dialect, data), want, "{data}");
        }
    }
}
