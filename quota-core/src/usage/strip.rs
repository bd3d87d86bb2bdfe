//! Strip: takes the usage out of an event for who did not ask for it.
//!
//! Floor 1. Invariant: every byte that is not the usage, its key and one comma stays, in order; what is not an object of
//! JSON stays whole.

use std::ops::Range;

use memchr::memchr2;
use smallvec::SmallVec;

use super::sse::{Frame, lines};

/// Ranges of an event's data.
pub(super) type Cuts = SmallVec<[Range<usize>; 2]>;

/// Passes a whole event but its comments by: no caller sees it.
pub(super) fn withhold(frame: &Frame<'_>, pass: &mut dyn FnMut(&[u8])) {
    let mut starts = lines(frame.raw, frame.start).map(|line| line.start).chain([frame.raw.len()]).peekable();
    while let (Some(start), Some(next)) = (starts.next(), starts.peek()) {
        if frame.raw[start] == b':' {
            pass(&frame.raw[start..*next]);
        }
    }
}

/// Passes an event without these ranges of its data.
pub(super) fn rewrite(frame: &Frame<'_>, cuts: &[Range<usize>], pass: &mut dyn FnMut(&[u8])) {
    let mut passed = 0;
    let mut emit = |until: usize, next: usize| {
        if until > passed {
            pass(&frame.raw[passed..until]);
        }
        passed = next;
    };
    // Positions in the data, whose lines are joined by one byte each, as positions in the event.
    let (mut line_at, mut next) = (0, 0);
    for line in frame.data_lines() {
        let line_end = line_at + line.len();
        while let Some(cut) = cuts.get(next).filter(|cut| cut.start < line_end) {
            let from = cut.start.max(line_at) - line_at + line.start;
            let to = cut.end.min(line_end) - line_at + line.start;
            if from < to {
                emit(from, to);
            }
            if cut.end > line_end {
                break;
            }
            next += 1;
        }
        line_at = line_end + 1;
    }
    emit(frame.raw.len(), frame.raw.len());
}

/// Where an object has the key `usage`, with its value and one comma each; nothing if it is no object.
pub(super) fn cuts(data: &[u8]) -> Option<Cuts> {
    let mut cuts = Cuts::new();
    // The last comma that stays.
    let mut comma = None;
    let mut at = skip_space(data, 0);
    if data.get(at) != Some(&b'{') {
        return None;
    }
    at = skip_space(data, at + 1);
    while data.get(at) != Some(&b'}') {
        let key = at;
        at = text_end(data, at)?;
        let wanted = &data[key..at] == b"\"usage\"";
        at = skip_space(data, at);
        if data.get(at) != Some(&b':') {
            return None;
        }
        at = value_end(data, skip_space(data, at + 1))?;
        let end = at;
        at = skip_space(data, at);
        match (data.get(at)?, wanted) {
            (b',', true) => cuts.push(key..at + 1),
            (b',', false) => comma = Some(at),
            (b'}', true) => {
                let from = comma.unwrap_or(key);
                // Of two usages at the end, the first was cut with the comma after it.
                cuts.retain(|cut| cut.end <= from);
                cuts.push(from..end);
            }
            (b'}', false) => {}
            _ => return None,
        }
        if data[at] == b',' {
            at = skip_space(data, at + 1);
        }
    }
    (skip_space(data, at + 1) == data.len()).then_some(cuts)
}

fn skip_space(data: &[u8], mut at: usize) -> usize {
    while matches!(data.get(at), Some(b' ' | b'\n' | b'\r' | b'\t')) {
        at += 1;
    }
    at
}

/// After the text that begins with the quote here.
fn text_end(data: &[u8], at: usize) -> Option<usize> {
    if data.get(at) != Some(&b'"') {
        return None;
    }
    let mut at = at + 1;
    loop {
        at += memchr2(b'"', b'\\', data.get(at..)?)?;
        if data[at] == b'"' {
            return Some(at + 1);
        }
        at += 2;
    }
}

/// After the value that begins here.
fn value_end(data: &[u8], mut at: usize) -> Option<usize> {
    let mut depth = 0u32;
    loop {
        match data.get(at)? {
            b'"' => at = text_end(data, at)?,
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth > 0 => (depth, at) = (depth - 1, at + 1),
            b'}' | b']' | b',' if depth == 0 => return Some(at),
            _ => at += 1,
        }
        if depth == 0 && matches!(data.get(at), Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')) {
            return Some(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_and_one_comma_are_cut() {
        let cut = |data: &str| {
            let cuts = cuts(data.as_bytes())?;
            let mut rest = data.to_owned();
            cuts.iter().rev().for_each(|cut| rest.replace_range(cut.clone(), ""));
            Some(rest)
        };
        for (data, want) in [
            (r#"{"a":1,"usage":null}"#, Some(r#"{"a":1}"#)),
            (r#"{"usage":null,"a":1}"#, Some(r#"{"a":1}"#)),
            (r#"{"a":1,"usage":{"x":[1,2,{"usage":3}]},"b":2}"#, Some(r#"{"a":1,"b":2}"#)),
            (r#"{"usage":null}"#, Some("{}")),
            (r#" { "a" : "usage" , "usage" : null } "#, Some(r#" { "a" : "usage"  } "#)),
            (r#"{"x":{"usage":1}}"#, Some(r#"{"x":{"usage":1}}"#)),
            (r#"{"a":1,"usage":1,"usage":2}"#, Some(r#"{"a":1}"#)),
            (r#"{"usage":1,"usage":2}"#, Some("{}")),
            (r#"{"usage":"},\"","b":2}"#, Some(r#"{"b":2}"#)),
            (r#"{"usage":1"#, None),
            (r#"[{"usage":1}]"#, None),
            (r#"{"usage":1}x"#, None),
            ("", None),
        ] {
            assert_eq!(cut(data).as_deref(), want, "{data}");
        }
    }
}
