//! Stream: reads the usage of an answer while its events pass through.
//!
//! Floor 1. Invariant: bytes pass unchanged and in order, but for a usage that is taken out on request; the latest usage
//! counts, never a sum or a maximum of running totals.

use serde_json::{Map, Value};

use super::glance::{TOKEN, glance};
use super::shape::Shape;
use super::sse::{Frame, Framer, Piece};
use super::wire::{Wire, dialect_of};
use super::{Dialect, Outcome, Unusable, Usage, anthropic, strip};

/// The longest event that is looked into, in bytes, unless it is set otherwise: 1 MiB.
pub const MAX_EVENT: usize = 1 << 20;

/// Reads a streamed answer's usage from its bytes, which it passes on.
///
/// ```
/// use quota_core::usage::{Dialect, Outcome, StreamReader};
///
/// let mut reader = StreamReader::new(Dialect::OpenAiChat);
/// let mut passed = Vec::new();
/// for bytes in [
///     "data: {\"choices\":[{\"delta\":{\"content\":\"Hi\"}}]}\n\ndata: {\"choices\":[],",
///     "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1,\"total_tokens\":8}}\n\ndata: [DONE]\n\n",
/// ] {
///     reader.feed(bytes.as_bytes(), |segment| passed.extend_from_slice(segment));
/// }
/// let end = reader.finish(|segment| passed.extend_from_slice(segment));
/// let Outcome::Final(usage) = end.outcome else { panic!() };
/// assert_eq!((usage.input_total(), usage.output_total()), (7, 1));
/// ```
///
/// How the bytes are cut changes nothing. Cost: linear in the bytes; an event without usage is not parsed, and where it is
/// made as the last one was, only its texts are looked at; one that was cut is copied once. Memory: the longest event that
/// is looked into, twice if its data is in several lines, a kilobyte of what events have in common, and the JSON of one with
/// usage while it is read. A longer event passes unread and is counted in
/// [`StreamEnd::anomalies`].
#[derive(Debug)]
pub struct StreamReader {
    framer: Framer,
    strip_usage: bool,
    /// Whether the event before was withheld, to which the LF of a CRLF may belong.
    withheld: bool,
    fold: Fold,
}

/// What a stream has come to.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StreamEnd {
    /// The final usage, or why there is none. A stream that failed before any output is
    /// [`Outcome::FailedWithoutUsage`]; it is never [`Outcome::NotRun`], as its answer had begun.
    pub outcome: Outcome,
    /// What is known if the outcome is not final: the last usage told, with output estimated from the text since then.
    pub seen: Option<Usage>,
    /// Whether an event said that the answer failed. A failed stream may have a final usage.
    pub failed: bool,
    /// Whether the stream said that it is at its end (`[DONE]`, `message_stop`).
    pub done: bool,
    /// Events that could not be read: over the bound, or with a usage and not JSON.
    pub anomalies: u32,
}

impl StreamReader {
    /// A reader of one stream. Bedrock's and Ollama's are lines of JSON (Bedrock's after the host has opened the binary
    /// frames), the others' server-sent events; [`Dialect::Auto`] takes server-sent events of any dialect.
    pub fn new(dialect: Dialect) -> StreamReader {
        let wire = Wire::of(dialect);
        StreamReader {
            framer: Framer::new(wire.lines, MAX_EVENT),
            strip_usage: false,
            withheld: false,
            fold: Fold::new(dialect),
        }
    }

    /// The same, taking usage out of OpenAI's chat streams for a request that did not ask for it: the extra chunk
    /// without choices is withheld, and elsewhere the `usage` key is removed. No other dialect is changed.
    ///
    /// Then an event passes when its end has come, and otherwise every byte at once.
    pub fn strip_usage(mut self, strip: bool) -> StreamReader {
        self.strip_usage = strip && self.fold.wire.optional;
        self
    }

    /// The same, looking into events of up to so many bytes; at least 64. To be called before the first byte.
    pub fn max_event(mut self, bytes: usize) -> StreamReader {
        self.framer = Framer::new(self.fold.wire.lines, bytes);
        self
    }

    /// Takes the next bytes of the stream and calls `pass` with each segment that goes on, in order; segments are not
    /// empty.
    pub fn feed(&mut self, bytes: &[u8], mut pass: impl FnMut(&[u8])) {
        if !self.strip_usage && !bytes.is_empty() {
            pass(bytes);
        }
        let mut rest = bytes;
        while let Some(piece) = self.framer.next(&mut rest) {
            take(&mut self.fold, &mut self.withheld, piece, self.strip_usage, &mut pass);
        }
    }

    /// Output tokens so far: the provider's last count, plus an estimate of the text since then.
    ///
    /// The estimate is a token for four ASCII characters or three bytes of other scripts, and at least one for each
    /// event with text; hidden thinking is not in it.
    pub fn output_so_far(&self) -> u64 {
        self.fold.output()
    }

    /// Whether the stream said that it is at its end: by `[DONE]`, `message_stop`, or the last event of a response. Never so
    /// in dialects whose streams end with their bytes.
    pub fn is_done(&self) -> bool {
        self.fold.done || (self.fold.closed && self.fold.dialect == Dialect::OpenAiResponses)
    }

    /// Ends the stream, also one that broke off: passes what was held back, and tells what the stream has come to.
    pub fn finish(mut self, mut pass: impl FnMut(&[u8])) -> StreamEnd {
        if let Some(piece) = self.framer.finish() {
            take(&mut self.fold, &mut self.withheld, piece, self.strip_usage, &mut pass);
        }
        self.fold.anomalies = self.fold.anomalies.saturating_add(self.framer.oversize);
        self.fold.end()
    }
}

fn take(fold: &mut Fold, withheld: &mut bool, piece: Piece<'_>, strip: bool, pass: &mut dyn FnMut(&[u8])) {
    let (raw, drop) = match piece {
        Piece::Tail(raw) => (raw, *withheld),
        Piece::Opaque(raw) => (raw, false),
        Piece::Event(frame) => {
            let fate = fold.event(&frame);
            *withheld = strip && fate == Fate::Withhold;
            match fate {
                Fate::Withhold if strip => return strip::withhold(&frame, pass),
                Fate::Rewrite if strip => {
                    let cuts = frame.data.map(|data| fold.shape.cuts(data)).unwrap_or_default();
                    return strip::rewrite(&frame, &cuts, pass);
                }
                _ => (frame.raw, false),
            }
        }
    };
    if strip && !drop {
        pass(raw);
    }
}

/// What becomes of an event for who did not ask for usage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    Pass,
    Withhold,
    Rewrite,
}

/// What the events so far say.
struct Fold {
    dialect: Dialect,
    wire: Wire,
    /// What the events of this wire have in common.
    shape: Shape,
    /// The fields of Anthropic's usage, which come in several events.
    fields: Map<String, Value>,
    /// The last usage that could be read.
    known: Option<Usage>,
    /// Why the latest one can't be.
    bad: Option<Unusable>,
    /// Whether the last usage is the last one that comes.
    closed: bool,
    /// Whether there is more than one choice: then usage beside choices is of one choice alone.
    many: bool,
    failed: bool,
    done: bool,
    /// Output tokens by the provider's last count.
    counted: u64,
    /// Visible text since then, in parts of a token.
    visible: u64,
    anomalies: u32,
}

impl std::fmt::Debug for Fold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fold").field("dialect", &self.dialect).field("output", &self.output()).finish_non_exhaustive()
    }
}

impl Fold {
    fn new(dialect: Dialect) -> Fold {
        Fold {
            dialect,
            wire: Wire::of(dialect),
            shape: Shape::default(),
            fields: Map::new(),
            known: None,
            bad: None,
            closed: false,
            many: false,
            failed: false,
            done: false,
            counted: 0,
            visible: 0,
            anomalies: 0,
        }
    }

    fn output(&self) -> u64 {
        self.counted.saturating_add(self.visible.div_ceil(TOKEN))
    }

    fn event(&mut self, frame: &Frame<'_>) -> Fate {
        match frame.name {
            b"error" => self.failed = true,
            b"message_stop" => self.done = true,
            _ => {}
        }
        let Some(data) = frame.data else {
            return Fate::Pass;
        };
        if data.trim_ascii() == b"[DONE]" {
            self.done = true;
            return Fate::Pass;
        }
        let seen = glance(data, &self.wire, &mut self.shape);
        self.visible = self.visible.saturating_add(seen.visible);
        if !seen.usage && !seen.error {
            return if seen.null_usage && self.wire.optional { Fate::Rewrite } else { Fate::Pass };
        }
        match serde_json::from_slice(data) {
            Ok(event) => self.parsed(event),
            Err(_) => {
                self.anomalies = self.anomalies.saturating_add(1);
                Fate::Pass
            }
        }
    }

    fn parsed(&mut self, mut event: Value) -> Fate {
        if self.dialect == Dialect::Auto {
            self.dialect = dialect_of(&event);
            self.wire = Wire::of(self.dialect);
            self.shape = Shape::default();
        }
        let failed = says_failed(&event);
        self.failed |= failed;
        let usage = event.get("usage");
        let fate = match usage {
            None => Fate::Pass,
            Some(usage) if !usage.is_null() && !failed && choices(&event).is_some_and(<[Value]>::is_empty) => {
                Fate::Withhold
            }
            Some(_) => Fate::Rewrite,
        };
        self.many |= choices(&event).is_some_and(|all| all.iter().any(|choice| choice["index"].as_u64() > Some(0)));
        self.read(&mut event);
        if self.wire.optional { fate } else { Fate::Pass }
    }

    fn read(&mut self, event: &mut Value) {
        let closes = (self.wire.closes)(event);
        if self.dialect == Dialect::AnthropicMessages {
            let before = self.fields.get("output_tokens").cloned();
            anthropic::overwrite(&mut self.fields, event);
            self.closed |= closes;
            // A count that is sent again is not newer than the text.
            if let Some(count) = self.fields.get("output_tokens").filter(|now| before.as_ref() != Some(now)) {
                self.count(count.as_u64().unwrap_or(0));
            }
            return;
        }
        match Usage::read(self.dialect, event) {
            Ok(usage) => {
                let of_one_choice = self.many && choices(event).is_some_and(|choices| !choices.is_empty());
                if !of_one_choice {
                    self.count(usage.output_total());
                }
                self.closed = closes && !of_one_choice;
                self.bad = None;
                self.known = Some(usage);
            }
            Err(Unusable::Missing) => {}
            Err(why) => self.bad = Some(why),
        }
    }

    fn count(&mut self, output: u64) {
        self.counted = output;
        self.visible = 0;
    }

    fn end(mut self) -> StreamEnd {
        self.read_fields();
        let output = self.output();
        let complete = self.closed || self.done;
        let (outcome, seen) = match (self.bad, self.known) {
            (None, Some(usage)) if complete => (Outcome::Final(usage), None),
            (None, Some(usage)) => (Outcome::Unresolved(Unusable::Unfinished), Some(usage)),
            (None, None) if self.failed && output == 0 => (Outcome::FailedWithoutUsage, None),
            (why, known) => {
                let guess = || Usage { requests: 1, input_missing: true, ..Usage::default() };
                let seen = known.or_else(|| (output > 0).then(guess));
                (Outcome::Unresolved(why.unwrap_or(Unusable::Missing)), seen)
            }
        };
        let seen = seen.map(|mut usage| {
            usage.output_text = usage.output_text.saturating_add(output.saturating_sub(usage.output_total()));
            usage
        });
        StreamEnd { outcome, seen, failed: self.failed, done: self.done, anomalies: self.anomalies }
    }

    /// Reads Anthropic's usage, once, from the fields that have come.
    fn read_fields(&mut self) {
        if self.fields.is_empty() {
            return;
        }
        if !self.closed && !self.done {
            self.fields.entry("output_tokens").or_insert_with(|| 0.into());
        }
        let usage = Value::Object(Map::from_iter([("usage".to_owned(), std::mem::take(&mut self.fields).into())]));
        match Usage::read(self.dialect, &usage) {
            Ok(usage) => self.known = Some(usage),
            Err(Unusable::AllZero | Unusable::Missing) if !self.closed && !self.done => {}
            Err(why) => self.bad = Some(why),
        }
    }
}

fn choices(event: &Value) -> Option<&[Value]> {
    event.get("choices")?.as_array().map(Vec::as_slice)
}

/// Whether an event says that the answer failed: an `error` that is something, or a type that says so.
fn says_failed(event: &Value) -> bool {
    let error = match event.get("error") {
        None | Some(Value::Null | Value::Bool(false)) => false,
        Some(Value::String(text)) => !text.is_empty(),
        Some(_) => true,
    };
    error || matches!(event.get("type").and_then(Value::as_str), Some("error" | "response.failed"))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// What an event begins as, and what is put into it.
    const EVENTS: [&str; 9] = [
        r#"{"id":"c","created":17,"choices":[{"index":0,"delta":{"content":"So"},"finish_reason":null}],"usage":null}"#,
        r#"{"id":"c","usage":null,"choices":[{"index":1,"delta":{"reasoning":"a","text":"a"}}],"obfuscation":"xY"}"#,
        r#"{"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16}}"#,
        r#"{"choices":[{"index":0}],"usage":{"prompt_tokens":7,"completion_tokens":9,"total_tokens":16}}"#,
        r#"{"type":"response.output_text.delta","sequence_number":4,"delta":"it","logprobs":[]}"#,
        r#"{"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"goes"}}"#,
        r#"{"type":"message_delta","usage":{"input_tokens":7,"output_tokens":9}}"#,
        r#"{"candidates":[{"content":{"parts":[{"text":"on"}]}}],"usageMetadata":{"promptTokenCount":7,"candidatesTokenCount":2}}"#,
        "[DONE]",
    ];
    const PARTS: [&str; 34] = [
        "\"",
        "\\",
        "\\\"",
        "\\u0041",
        ",",
        ":",
        "{",
        "}",
        "[",
        "]",
        " ",
        "\n",
        "null",
        "0",
        "9",
        "17",
        "-",
        "1.5",
        "e3",
        "é",
        "x",
        "\"usage\":null,",
        ",\"usage\":null",
        "\"usage\":3,",
        "\"usage\":",
        "\"usage\":{\"prompt_tokens\":7,\"completion_tokens\":1},",
        "\"content\":\"y\",",
        "\"content\":",
        "\"text\":\"zz\",",
        "\"error\":null,",
        "\"error\":{},",
        "\"type\":\"audio.delta\",",
        "\"us\\u0061ge\":null,",
        "\"n\":1,",
    ];

    /// An event, how it is changed (where, how much is taken out, what is put in), and how it is framed.
    type Made = (Option<usize>, Vec<(usize, usize, usize)>, u8);

    fn made() -> impl Strategy<Value = Made> {
        let place = 0..400usize;
        let change = (place, prop_oneof![3 => Just(0usize), 1 => 1..30usize], 0..PARTS.len());
        let begun = prop_oneof![2 => Just(None), 1 => (0..EVENTS.len()).prop_map(Some)];
        (begun, proptest::collection::vec(change, 0..4), 0..12u8)
    }

    fn event(before: &str, (begun, changes, _): &Made) -> String {
        let mut event = begun.map_or(before, |number| EVENTS[number]).to_owned();
        for (at, length, part) in changes {
            let places: Vec<usize> = event.char_indices().map(|(at, _)| at).chain([event.len()]).collect();
            let from = at % places.len();
            let to = (from + length).min(places.len() - 1);
            event.replace_range(places[from]..places[to], PARTS[*part]);
        }
        event
    }

    fn framed(event: &str, how: u8) -> String {
        match how {
            0 => format!("data:{event}\r\n\r\n"),
            1 => format!("data: {event}\r\r"),
            2 => format!(": note\nid: 1\ndata: {event}\n\n"),
            3 => format!("event: delta\ndata: {event}\n: \"usage\":null\n\n"),
            4 => format!("data: {}\n\n", event.replace(',', ",\ndata: ")),
            _ => format!("data: {event}\n\n"),
        }
    }

    proptest! {
        /// A reader that forgets what events have in common after each passes the same and counts the same.
        #[test]
        fn what_events_share_changes_nothing(
            dialect in proptest::sample::select(&Dialect::ALL[..]), strip: bool,
            all in proptest::collection::vec(made(), 1..16), slice in 1..60usize
        ) {
            let reader = || StreamReader::new(dialect).strip_usage(strip);
            let (mut learning, mut forgetting, mut cut) = (reader(), reader(), reader());
            let (mut passed, mut alone, mut of_cut) = (Vec::new(), Vec::new(), Vec::new());
            let (mut before, mut stream) = (String::new(), String::new());
            for made in &all {
                before = event(&before, made);
                let bytes = framed(&before, made.2);
                stream += &bytes;
                forgetting.fold.shape = Shape::default();
                learning.feed(bytes.as_bytes(), |segment| passed.extend_from_slice(segment));
                forgetting.feed(bytes.as_bytes(), |segment| alone.extend_from_slice(segment));
                prop_assert_eq!(String::from_utf8_lossy(&passed), String::from_utf8_lossy(&alone));
                prop_assert_eq!(learning.fold.visible, forgetting.fold.visible, "{}", bytes);
                prop_assert_eq!(learning.fold.counted, forgetting.fold.counted, "{}", bytes);
            }
            for bytes in stream.as_bytes().chunks(slice) {
                cut.feed(bytes, |segment| of_cut.extend_from_slice(segment));
            }
            let ends = [learning.finish(|bytes| passed.extend_from_slice(bytes)),
                forgetting.finish(|bytes| alone.extend_from_slice(bytes)),
                cut.finish(|bytes| of_cut.extend_from_slice(bytes))];
            prop_assert_eq!(&ends[0], &ends[1]);
            prop_assert_eq!(&ends[0], &ends[2]);
            prop_assert_eq!(&passed, &alone);
            prop_assert_eq!(&passed, &of_cut);
        }
    }
}
