//! Strip: takes the usage out of an event for who did not ask for it.
//!
//! Floor 1. Invariant: every byte that is not the usage, its key and one comma stays, in order; what is not an object of
//! JSON stays whole.

use std::ops::Range;

use memchr::memchr2;
use smallvec::SmallVec;

use super::sse::{Frame, data_lines, lines};

/// Ranges of an event's data.
type Cuts = SmallVec<[Range<usize>; 2]>;

/// Passes a whole event but its comments by: no caller sees it.
pub(super) fn withhold(frame: &Frame<'_>, pass: &mut dyn FnMut(&[u8])) {
    let mut starts = lines(frame.raw, frame.start).map(|line| line.start).chain([frame.raw.len()]).peekable();
    while let (Some(start), Some(next)) = (starts.next(), starts.peek()) {
        if frame.raw[start] == b':' {
            pass(&frame.raw[start..*next]);
        }
    }
}

/// Where a look at an object has got to: inside the value of a member.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Inside {
    at: usize,
    depth: u32,
    comma: Option<usize>,
}

/// Passes an event without the `usage` of its data, the beginning of which need not be looked at again.
pub(super) fn rewrite(frame: &Frame<'_>, from: Option<Inside>, pass: &mut dyn FnMut(&[u8])) {
    let cuts = frame.data.and_then(|data| cuts(data, from).ok()).unwrap_or_default();
    let mut passed = 0;
    let mut emit = |until: usize, next: usize| {
        if until > passed {
            pass(&frame.raw[passed..until]);
        }
        passed = next;
    };
    // Positions in the data, whose lines are joined by one byte each, as positions in the event.
    let (mut line_at, mut next) = (0, 0);
    for line in data_lines(frame.raw, frame.start) {
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

/// What the beginning of an object leads to, if it ends inside the value of a member and has no usage.
pub(super) fn inside(beginning: &[u8]) -> Option<Inside> {
    cuts(beginning, None).err().flatten()
}

/// Where an object has the key `usage`, with its value and one comma; what it ends inside of if it does not end, and
/// nothing if it is no object.
fn cuts(data: &[u8], from: Option<Inside>) -> Result<Cuts, Option<Inside>> {
    let mut cuts = Cuts::new();
    let mut depth = from.map(|from| from.depth);
    // The last comma that stays.
    let mut comma = from.and_then(|from| from.comma);
    let mut at = match from {
        Some(from) => from.at,
        None => skip_space(data, 0),
    };
    if from.is_none() {
        if data.get(at) != Some(&b'{') {
            return Err(None);
        }
        at = skip_space(data, at + 1);
    }
    while depth.is_some() || data.get(at) != Some(&b'}') {
        let key = at;
        let mut wanted = false;
        if depth.is_none() {
            at = text_end(data, at).ok_or(None)?;
            wanted = &data[key..at] == b"\"usage\"";
            at = skip_space(data, at);
            if data.get(at) != Some(&b':') {
                return Err(None);
            }
            at = skip_space(data, at + 1);
        }
        let told = value_end(data, at, depth.take().unwrap_or(0));
        let more = |depth| Inside { at: data.len(), depth, comma };
        at = told.map_err(|depth| depth.filter(|_| cuts.is_empty() && !wanted).map(more))?;
        let end = at;
        at = skip_space(data, at);
        match (data.get(at).ok_or(None)?, wanted) {
            (b',', true) => cuts.push(key..at + 1),
            (b',', false) => comma = Some(at),
            (b'}', true) => {
                let from = comma.unwrap_or(key);
                // Of two usages at the end, the first was cut with the comma after it.
                cuts.retain(|cut| cut.end <= from);
                cuts.push(from..end);
            }
            (b'}', false) => {}
            _ => return Err(None),
        }
        if data[at] == b',' {
            at = skip_space(data, at + 1);
        }
    }
    if skip_space(data, at + 1) == data.len() { Ok(cuts) } else { Err(None) }
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

/// After the value that goes on here, so deep in lists and objects; how deep the data ends if the value does not, or
/// nothing if a text does not.
fn value_end(data: &[u8], mut at: usize, mut depth: u32) -> Result<usize, Option<u32>> {
    loop {
        match data.get(at).ok_or(Some(depth))? {
            b'"' => at = text_end(data, at).ok_or(None)?,
            b'{' | b'[' => (depth, at) = (depth + 1, at + 1),
            b'}' | b']' if depth > 0 => (depth, at) = (depth - 1, at + 1),
            b'}' | b']' | b',' if depth == 0 => return Ok(at),
            _ => at += 1,
        }
        if depth == 0 && matches!(data.get(at), Some(b',' | b'}' | b']' | b' ' | b'\n' | b'\r' | b'\t')) {
            return Ok(at);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn usage_and_one_comma_are_cut() {
        let cut = |data: &str| {
            let cuts = cuts(data.as_bytes(), None).ok()?;
            // However much of its beginning was looked at before.
            for at in 0..data.len() {
                let from = inside(&data.as_bytes()[..at]);
                assert!(from.is_none() || super::cuts(data.as_bytes(), from).as_ref() == Ok(&cuts), "{data} from {at}");
            }
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
