//! Glance: what an event has, without parsing it: its marks and the length of its visible text.
//!
//! Floor 1. Invariant: one pass over the bytes and no allocation, whatever they are.

use memchr::{memchr, memchr2};

use super::shape::{Marks, Shape, Shown, Then, digits_end};
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

/// What has been seen of an event so far.
#[derive(Debug, Default)]
pub(super) struct Seen {
    pub(super) marks: Marks,
    usage: bool,
    error: bool,
    visible: u64,
    repeats: [u64; REPEATS],
}

impl Seen {
    pub(super) fn text(&mut self, shown: Shown, length: u64) {
        match shown {
            Shown::Visible => self.visible += length,
            Shown::Repeat(key) => self.repeats[key.min(REPEATS - 1)] += length,
            Shown::No => {}
        }
    }

    /// Whether the event is to be read, so that its shape is of no use.
    fn is_read(&self) -> bool {
        self.usage || self.error
    }

    fn end(self) -> Glance {
        let repeated = self.repeats.into_iter().max().unwrap_or(0);
        let visible = if self.marks.sound { 0 } else { self.visible + repeated };
        Glance { usage: self.usage, null_usage: self.marks.null_usage, error: self.error, visible }
    }
}

/// Looks at the keys of an event and the texts behind them, from where it no longer has the shape. The shape is one of
/// this wire, or empty.
pub(super) fn glance(data: &[u8], wire: &Wire, shape: &mut Shape) -> Glance {
    let mut followed = shape.follow(data);
    let mut seen = std::mem::take(&mut followed.seen);
    if shape.is_whole() {
        return seen.end();
    }
    shape.keep(&followed);
    let mut at = followed.at;
    // Where the next stretch of the shape begins. An event with a usage or an error is read anyway.
    let mut stretch = Some(at);
    while let Some(quote) = memchr(b'"', &data[at..]) {
        let key = Text::at(data, at + quote + 1);
        at = key.next;
        let Some(value) = value_after(data, at) else {
            continue;
        };
        at = value;
        let name = &data[key.from..key.to];
        if wire.usage.contains(&name) {
            let null = data[value..].starts_with(b"null");
            seen.marks.null_usage |= null;
            seen.usage |= !null;
        } else if name == b"error" {
            seen.error |= !data[value..].starts_with(b"null");
        } else if data.get(value) == Some(&b'"') {
            let told = Text::at(data, value + 1);
            at = told.next;
            if name == b"type" {
                let kind = &data[told.from..told.to];
                seen.marks.sound |= kind.ends_with(b"audio.delta");
                seen.error |= kind == b"error" || kind == b"response.failed";
                continue;
            }
            let shown = match wire.repeats.iter().position(|key| *key == name) {
                _ if wire.visible.contains(&name) => Shown::Visible,
                Some(key) => Shown::Repeat(key),
                None => Shown::No,
            };
            if shown != Shown::No || followed.differs_in(told.from..told.to) {
                let from = stretch.filter(|_| !seen.is_read());
                let added = from.is_some_and(|from| shape.add(data, from..told.from, seen.marks, Then::Text(shown)));
                stretch = added.then_some(at);
            }
            seen.text(shown, told.length(data));
        } else {
            let end = digits_end(data, value);
            if end > value && followed.differs_in(value..end) {
                let from = stretch.filter(|_| !seen.is_read());
                let added = from.is_some_and(|from| shape.add(data, from..value, seen.marks, Then::Number));
                (stretch, at) = (added.then_some(end), end);
            }
        }
    }
    if let Some(from) = stretch.filter(|_| !seen.is_read()) {
        shape.add(data, from..data.len(), seen.marks, Then::End);
    }
    seen.end()
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
pub(super) struct Text {
    from: usize,
    to: usize,
    pub(super) next: usize,
    /// Bytes of escapes, and twelfths of a token for what they stand for.
    escaped: (u64, u64),
}

impl Text {
    /// The text that begins here; one that does not end reaches to the end of the data.
    pub(super) fn at(data: &[u8], from: usize) -> Text {
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

    pub(super) fn length(&self, data: &[u8]) -> u64 {
        let bytes = &data[self.from..self.to];
        if bytes.is_empty() {
            return 0;
        }
        let other = bytes.iter().filter(|byte| **byte >= 0x80).count() as u64;
        let plain = (bytes.len() as u64 - other).saturating_sub(self.escaped.0);
        (plain * ASCII + other * OTHER + self.escaped.1).max(TOKEN)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::usage::{Dialect, strip};
    use proptest::prelude::*;
    use proptest::test_runner::TestCaseError;

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
            events in proptest::collection::vec((0usize..300, proptest::collection::vec(0..PARTS.len(), 0..8)), 1..12)
        ) {
            let (mut shape, mut before) = (Shape::default(), String::new());
            for (shared, parts) in events {
                let event: String =
                    before.chars().take(shared).collect::<String>() + &parts.iter().map(|part| PARTS[*part]).collect::<String>();
                same_as_alone(&event, &mut shape)?;
                before = event;
            }
        }

        #[test]
        fn events_of_one_shape_are_told_apart(
            events in proptest::collection::vec(
                ("[0-9]{1,3}", "[a-z\\u{e9}]{0,9}(\\\\\"|\\\\u0041)?", "[a-z]{0,4}", "(null|3)", 0..4u8), 2..12)
        ) {
            let mut shape = Shape::default();
            for (number, text, padding, usage, shaped) in events {
                let rest = format!("\"usage\":{usage},\"padding\":\"{padding}\"");
                let event = match shaped {
                    0 => format!("{{\"n\":{number},\"delta\":{{\"content\":\"{text}\"}},{rest}}}"),
                    1 => format!("{{\"n\":{number},\"delta\":{{\"reasoning\":\"{text}\",\"text\":\"{text}\"}},{rest}}}"),
                    2 => format!("{{\"n\":{number},\"delta\":{{\"content\":\"{text}"),
                    _ => format!("{{\"n\":{number},\"delta\":\"{text}\",{rest}}}"),
                };
                same_as_alone(&event, &mut shape)?;
            }
        }
    }

    /// An event is seen, and its usage found, as if it were the only one.
    fn same_as_alone(event: &str, shape: &mut Shape) -> Result<(), TestCaseError> {
        let data = event.as_bytes();
        let seen = glance(data, &Wire::ANY, shape);
        prop_assert_eq!(seen, glance(data, &Wire::ANY, &mut Shape::default()), "{}", event);
        prop_assert_eq!(shape.cuts(data), strip::cuts(data).unwrap_or_default(), "{}", event);
        Ok(())
    }

    #[test]
    fn what_differs_is_learned() {
        let mut shape = Shape::default();
        let event = |number: u64, text: &str| {
            format!(r#"{{"n":{number},"content":"{text}","usage":null,"item":"a","padding":"{text}"}}"#)
        };
        let mut whole = |event: String| {
            shape.follow(event.as_bytes());
            let whole = shape.is_whole();
            glance(event.as_bytes(), &Wire::ANY, &mut shape);
            whole
        };
        assert!(!whole(event(1, "So")));
        assert!(!whole(event(2, "it")), "its number differs");
        assert!(!whole(event(33, "goes")), "its padding differs");
        assert!(whole(event(4444, "on")));
        assert!(whole(event(5, "")));
        assert!(!whole(event(6, "x").replace("null", "nil")));
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut shape = Shape::default();
        let event = |piece: &str| format!("{{{}", piece.repeat(10_000));
        for event in [event("\"content\":\"x\","), event("\"key\":1,"), event("\"content\":\"x\",")] {
            same_as_alone(&event, &mut shape).unwrap();
            let (bytes, stretches) = shape.size();
            assert!(bytes <= 1024 && stretches <= 12, "{bytes} bytes in {stretches} stretches");
        }
    }

    #[test]
    fn visible_text_and_marks_are_found() {
        let at = |dialect, data: &str| {
            let seen = glance(data.as_bytes(), &Wire::of(dialect), &mut Shape::default());
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
