//! Server-sent events and lines of JSON: cuts a stream of bytes into events.
//!
//! Floor 1. Invariant: the pieces put together are the bytes that came in, and where they were cut by the network
//! changes neither their events nor their order.

use std::ops::Range;

use memchr::{memchr2, memchr2_iter};

/// The memory that is kept for the next event after a large one, in bytes.
const KEEP: usize = 16 * 1024;

/// The smallest bound of an event, in bytes: a line that goes over it has more than a byte order mark.
pub(super) const MIN_EVENT: usize = 64;

const BOM: &[u8] = b"\xEF\xBB\xBF";

/// Cuts a stream into events.
///
/// An event that lies whole in one slice is lent from it; one that was cut is put together in a buffer. A line ends at
/// CR, LF or CRLF and nowhere else; an event ends at an empty line, or in a stream of lines at every line.
#[derive(Debug)]
pub(super) struct Framer {
    lines: bool,
    /// The longest event that is looked into, in bytes.
    max: usize,
    /// The beginning of an event whose end has not come.
    carry: Vec<u8>,
    /// Whether `carry` was lent as a whole event and is to be emptied.
    spent: bool,
    /// The data of an event in several lines.
    joined: Vec<u8>,
    scan: Scan,
    /// Whether an event over the bound is being passed.
    skipping: bool,
    /// Whether the present line of an event over the bound has a byte.
    open: bool,
    /// Whether the last byte was a CR that ended a line, so that an LF belongs to it.
    after_cr: bool,
    /// Whether the stream's first line, which may begin with a byte order mark, is still to end.
    first_line: bool,
    /// Events over the bound.
    pub(super) oversize: u32,
}

/// How far an event has been looked at; positions count from its first byte.
#[derive(Debug, Default)]
struct Scan {
    at: usize,
    line: usize,
    /// Where its text begins: after a byte order mark.
    start: usize,
    data: Option<Range<usize>>,
    /// Whether it has more than one line of data.
    more: bool,
    name: Range<usize>,
}

/// A part of a stream.
#[derive(Debug)]
pub(super) enum Piece<'a> {
    /// An event, its empty line included.
    Event(Frame<'a>),
    /// A part of an event over the bound.
    Opaque(&'a [u8]),
    /// The LF of the CRLF whose CR ended the event before.
    Tail(&'a [u8]),
}

/// An event.
#[derive(Debug)]
pub(super) struct Frame<'a> {
    /// Its bytes.
    pub(super) raw: &'a [u8],
    /// Where its text begins: after a byte order mark.
    pub(super) start: usize,
    /// Its data, lines joined by LF; `None` if it has none, as a comment.
    pub(super) data: Option<&'a [u8]>,
    /// Where its data is, if it is one line.
    line: Option<Range<usize>>,
    /// Its name; empty if it has none.
    pub(super) name: &'a [u8],
}

impl Framer {
    pub(super) fn new(lines: bool, max: usize) -> Framer {
        Framer {
            lines,
            max: max.max(MIN_EVENT),
            carry: Vec::new(),
            spent: false,
            joined: Vec::new(),
            scan: Scan::default(),
            skipping: false,
            open: false,
            after_cr: false,
            first_line: true,
            oversize: 0,
        }
    }

    /// The next piece of the input, which is moved past it; `None` when all of it has been taken.
    pub(super) fn next<'a, 'b: 'a>(&'a mut self, input: &mut &'b [u8]) -> Option<Piece<'a>> {
        self.recycle();
        let first = *input.first()?;
        if self.carry.is_empty() && !self.skipping && std::mem::take(&mut self.after_cr) && first == b'\n' {
            return Some(Piece::Tail(split_off(input, 1)));
        }
        if self.skipping {
            let length = self.skip(input);
            return Some(Piece::Opaque(split_off(input, length)));
        }
        if !self.carry.is_empty() {
            return self.next_of_carry(input);
        }
        match self.find_end(input) {
            Some(end) if end <= self.max => {
                let raw = split_off(input, end);
                Some(Piece::Event(self.frame(raw)))
            }
            Some(end) => {
                self.oversize += 1;
                self.scan = Scan::default();
                Some(Piece::Opaque(split_off(input, end)))
            }
            None if input.len() > self.max => {
                self.start_skipping(input.len());
                Some(Piece::Opaque(split_off(input, input.len())))
            }
            None => {
                self.carry.extend_from_slice(split_off(input, input.len()));
                None
            }
        }
    }

    /// The event whose end has not come when the stream has: its last line counts as ended.
    pub(super) fn finish(&mut self) -> Option<Piece<'_>> {
        self.recycle();
        if self.carry.is_empty() {
            return None;
        }
        let carry = std::mem::take(&mut self.carry);
        if self.scan.line < carry.len() {
            self.end_line(&carry, self.scan.line..carry.len());
        }
        self.carry = carry;
        Some(self.frame_of_carry())
    }

    fn recycle(&mut self) {
        if std::mem::take(&mut self.spent) {
            self.carry.clear();
            self.carry.shrink_to(KEEP);
            self.joined.clear();
            self.joined.shrink_to(KEEP);
        }
    }

    fn next_of_carry<'a>(&'a mut self, input: &mut &[u8]) -> Option<Piece<'a>> {
        while !input.is_empty() {
            let length = memchr2(b'\n', b'\r', input).map_or(input.len(), |at| at + 1);
            if self.carry.len() + length > self.max {
                self.start_skipping(self.carry.len());
                self.spent = true;
                return Some(Piece::Opaque(&self.carry));
            }
            self.carry.extend_from_slice(split_off(input, length));
            let carry = std::mem::take(&mut self.carry);
            let end = self.find_end(&carry);
            self.carry = carry;
            if end.is_some() {
                return Some(self.frame_of_carry());
            }
        }
        None
    }

    fn frame_of_carry(&mut self) -> Piece<'_> {
        self.spent = true;
        let scan = std::mem::take(&mut self.scan);
        Piece::Event(build(&self.carry, scan, self.lines, &mut self.joined))
    }

    fn frame<'a>(&'a mut self, raw: &'a [u8]) -> Frame<'a> {
        let scan = std::mem::take(&mut self.scan);
        build(raw, scan, self.lines, &mut self.joined)
    }

    fn start_skipping(&mut self, seen: usize) {
        self.oversize += 1;
        self.open = self.scan.line < seen;
        self.skipping = true;
        self.first_line = false;
        self.scan = Scan::default();
    }

    /// The end of an event over the bound, or of the input.
    fn skip(&mut self, input: &[u8]) -> usize {
        let mut line = 0;
        for at in memchr2_iter(b'\n', b'\r', input) {
            let blank = at == line && !self.open;
            line = at + 1;
            let after_cr = std::mem::replace(&mut self.after_cr, input[at] == b'\r');
            if blank && after_cr && input[at] == b'\n' {
                continue;
            }
            self.open = false;
            if blank || self.lines {
                self.skipping = false;
                return line;
            }
        }
        if line < input.len() {
            (self.open, self.after_cr) = (true, false);
        }
        input.len()
    }

    /// Looks at the lines that have ended since the last call; the end of the event if it is there.
    fn find_end(&mut self, event: &[u8]) -> Option<usize> {
        while let Some(found) = memchr2(b'\n', b'\r', &event[self.scan.at..]) {
            let end = self.scan.at + found;
            let line = self.scan.line..end;
            (self.scan.at, self.scan.line) = (end + 1, end + 1);
            let after_cr = std::mem::replace(&mut self.after_cr, event[end] == b'\r');
            if line.is_empty() && after_cr && event[end] == b'\n' {
                continue;
            }
            if self.end_line(event, line) {
                return Some(end + 1);
            }
        }
        self.scan.at = event.len();
        None
    }

    /// Takes note of a line; whether it ends the event.
    fn end_line(&mut self, event: &[u8], mut line: Range<usize>) -> bool {
        if std::mem::take(&mut self.first_line) && event[line.clone()].starts_with(BOM) {
            line.start += BOM.len();
            self.scan.start = line.start;
        }
        if self.lines {
            self.scan.data = (!line.is_empty()).then_some(line);
            return true;
        }
        if line.is_empty() {
            return true;
        }
        let text = &event[line.clone()];
        if let Some(from) = value_start(text, b"data") {
            self.scan.more = self.scan.data.is_some();
            self.scan.data.get_or_insert(line.start + from..line.end);
        } else if let Some(from) = value_start(text, b"event") {
            self.scan.name = line.start + from..line.end;
        }
        false
    }
}

fn build<'a>(raw: &'a [u8], scan: Scan, lines: bool, joined: &'a mut Vec<u8>) -> Frame<'a> {
    let line = scan.data.clone().filter(|_| !scan.more);
    let data = match scan.data {
        Some(_) if scan.more && !lines => {
            joined.clear();
            for (at, line) in data_lines(raw, scan.start).enumerate() {
                if at > 0 {
                    joined.push(b'\n');
                }
                joined.extend_from_slice(&raw[line]);
            }
            Some(&joined[..])
        }
        data => data.map(|range| &raw[range]),
    };
    Frame { raw, start: scan.start, data, line, name: &raw[scan.name] }
}

impl Frame<'_> {
    /// The values of its lines of data.
    pub(super) fn data_lines(&self) -> impl Iterator<Item = Range<usize>> {
        let several = self.line.is_none().then(|| data_lines(self.raw, self.start));
        self.line.clone().into_iter().chain(several.into_iter().flatten())
    }
}

fn split_off<'b>(input: &mut &'b [u8], at: usize) -> &'b [u8] {
    let (head, tail) = input.split_at(at);
    *input = tail;
    head
}

/// Where the value of a line of this field begins, if it is one: after the colon and one space.
pub(super) fn value_start(line: &[u8], field: &[u8]) -> Option<usize> {
    match line.strip_prefix(field)? {
        [] => Some(field.len()),
        [b':', b' ', ..] => Some(field.len() + 2),
        [b':', ..] => Some(field.len() + 1),
        _ => None,
    }
}

/// The lines of an event from a position on, without their ends.
pub(super) fn lines(raw: &[u8], start: usize) -> impl Iterator<Item = Range<usize>> {
    let mut from = start;
    std::iter::from_fn(move || {
        if from >= raw.len() {
            return None;
        }
        let end = memchr2(b'\n', b'\r', &raw[from..]).map_or(raw.len(), |at| from + at);
        let line = from..end;
        from = end + if raw[end..].starts_with(b"\r\n") { 2 } else { 1 };
        Some(line)
    })
}

/// The values of an event's lines of data.
fn data_lines(raw: &[u8], start: usize) -> impl Iterator<Item = Range<usize>> {
    lines(raw, start).filter_map(|line| Some(line.start + value_start(&raw[line.clone()], b"data")?..line.end))
}
