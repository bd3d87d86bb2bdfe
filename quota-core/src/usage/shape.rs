//! Shape: what the events of a stream have in common, so that only what differs in them has to be looked at.
//!
//! Floor 1. Invariant: an event that has the shape is told the same by it as by a look at all of it; what is remembered is
//! bounded.

use std::ops::Range;

use smallvec::smallvec;

use super::glance::{Seen, Text};
use super::strip::{self, Cuts};

/// The most that is remembered of an event, in bytes and in stretches.
const MAX_BYTES: usize = 1024;
const MAX_STRETCHES: usize = 12;

/// The shape of a stream's events: stretches of bytes that are the same in each, and between them texts and numbers.
///
/// Whatever stands in the place of a text or of a number, an event's keys and their places stay the same. So what the
/// first event of a shape was found to have, the others have, too.
#[derive(Default)]
pub(super) struct Shape {
    /// The bytes of all stretches.
    bytes: Vec<u8>,
    stretches: Vec<Stretch>,
    /// Whether the stretches reach to the end of the event that was looked at last.
    whole: bool,
    /// Which stretch the usage is in that is to be taken out, and where in it.
    cut: Option<(usize, Range<usize>)>,
}

/// Bytes that events have in common.
struct Stretch {
    /// Where they are in the shape.
    bytes: Range<usize>,
    /// Where they began in the event that was looked at last.
    at: usize,
    /// What is seen up to their end.
    marks: Marks,
    then: Then,
}

/// What is seen of an event besides its texts.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Marks {
    /// It has a usage that is null.
    pub(super) null_usage: bool,
    /// Its text is sound.
    pub(super) sound: bool,
}

/// What follows a stretch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Then {
    /// The rest of a text behind its quote, and who sees it.
    Text(Shown),
    /// Digits.
    Number,
    /// The end of the event.
    End,
}

/// To whom a text is shown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Shown {
    /// The caller sees it.
    Visible,
    /// The caller sees it, maybe under several keys, of which this is one.
    Repeat(usize),
    /// Nobody.
    No,
}

/// How far an event has the shape.
pub(super) struct Followed {
    /// Where its own bytes begin.
    pub(super) at: usize,
    /// What is seen in it up to there.
    pub(super) seen: Seen,
    /// Its first byte that is another one than the shape's.
    differs: usize,
    /// How many stretches it has.
    stretches: usize,
}

impl Shape {
    /// Follows an event as far as it has the shape.
    pub(super) fn follow(&mut self, data: &[u8]) -> Followed {
        let mut followed = Followed { at: 0, seen: Seen::default(), differs: 0, stretches: 0 };
        self.whole = false;
        for stretch in &mut self.stretches {
            let own = &data[followed.at..];
            let common = &self.bytes[stretch.bytes.clone()];
            let after = followed.at + common.len();
            let fits = own.starts_with(common);
            let next = match stretch.then {
                _ if !fits => None,
                Then::End => (after == data.len()).then_some(after),
                Then::Number => Some(digits_end(data, after)).filter(|end| *end > after),
                Then::Text(shown) => {
                    let text = Text::at(data, after);
                    followed.seen.text(shown, text.length(data));
                    Some(text.next)
                }
            };
            let Some(next) = next else {
                followed.differs =
                    followed.at + own.iter().zip(common).take_while(|(own, common)| own == common).count();
                return followed;
            };
            stretch.at = followed.at;
            followed.at = next;
            followed.stretches += 1;
            followed.seen.marks = stretch.marks;
            self.whole = stretch.then == Then::End;
        }
        followed
    }

    /// Whether the event that was followed has the shape from its beginning to its end.
    pub(super) fn is_whole(&self) -> bool {
        self.whole
    }

    #[cfg(test)]
    pub(super) fn size(&self) -> (usize, usize) {
        (self.bytes.len(), self.stretches.len())
    }

    /// Forgets what an event that was followed does not have.
    pub(super) fn keep(&mut self, followed: &Followed) {
        self.stretches.truncate(followed.stretches);
        self.bytes.truncate(self.stretches.last().map_or(0, |last| last.bytes.end));
        self.cut = None;
    }

    /// Adds a stretch of an event, with what is seen up to its end and what follows; whether there is room for it.
    pub(super) fn add(&mut self, data: &[u8], stretch: Range<usize>, marks: Marks, then: Then) -> bool {
        let room = self.stretches.len() < MAX_STRETCHES && self.bytes.len() + stretch.len() <= MAX_BYTES;
        if room {
            let (from, at) = (self.bytes.len(), stretch.start);
            self.bytes.extend_from_slice(&data[stretch]);
            self.stretches.push(Stretch { bytes: from..self.bytes.len(), at, marks, then });
            self.whole = then == Then::End;
        }
        room
    }

    /// Where the event that was looked at last has a usage, with one comma each.
    pub(super) fn cuts(&mut self, data: &[u8]) -> Cuts {
        if let Some((number, cut)) = self.cut.as_ref().filter(|_| self.whole) {
            let at = self.stretches[*number].at;
            return smallvec![at + cut.start..at + cut.end];
        }
        let cuts = strip::cuts(data).unwrap_or_default();
        if let ([cut], true) = (&cuts[..], self.whole) {
            let around = |one: &Stretch| one.at <= cut.start && cut.end <= one.at + one.bytes.len();
            self.cut = self.stretches.iter().position(around).map(|number| {
                let at = self.stretches[number].at;
                (number, cut.start - at..cut.end - at)
            });
        }
        cuts
    }
}

impl Followed {
    /// Whether it is this value in which the event differs from those before it.
    pub(super) fn differs_in(&self, value: Range<usize>) -> bool {
        value.start <= self.differs && self.differs <= value.end
    }
}

/// After the digits here.
pub(super) fn digits_end(data: &[u8], at: usize) -> usize {
    at + data[at..].iter().take_while(|byte| byte.is_ascii_digit()).count()
}
