//! The trace: the last things that happened, for whoever has to find out why a seed failed; and a digest of all of them.
//!
//! Floor 5. Invariant: nothing that differs between two runs of a seed is noted, lease ids least of all.

use std::collections::VecDeque;
use std::fmt;

/// How many are shown.
const SHOWN: usize = 40;

/// One thing that happened: when, what, to which request, and a figure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Note {
    at: u64,
    what: &'static str,
    job: u32,
    figure: u64,
}

/// What happened last, and a digest of all that did.
#[derive(Debug, Clone, Default)]
pub struct Trace {
    last: VecDeque<Note>,
    /// The first moment, which the others are shown against.
    start: u64,
    digest: u64,
    noted: u64,
}

impl Trace {
    pub(super) fn begin(&mut self, at: u64) {
        *self = Trace { start: at, ..Trace::default() };
    }

    pub(super) fn note(&mut self, at: u64, what: &'static str, job: u32, figure: u64) {
        if self.last.len() == SHOWN {
            self.last.pop_front();
        }
        self.last.push_back(Note { at, what, job, figure });
        self.noted += 1;
        let mut add =
            |part: u64| self.digest = (self.digest ^ part).wrapping_mul(0x0000_0100_0000_01B3).rotate_left(29);
        add(at);
        add(what.len() as u64 ^ u64::from(what.as_bytes()[0]) << 8);
        add(u64::from(job));
        add(figure);
    }

    /// Two runs of one seed have the same.
    pub fn digest(&self) -> u64 {
        self.digest
    }

    /// How many things happened.
    pub fn noted(&self) -> u64 {
        self.noted
    }
}

impl fmt::Display for Trace {
    /// The last, a line each.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let earlier = self.noted - self.last.len() as u64;
        writeln!(f, "  ({earlier} earlier)")?;
        for Note { at, what, job, figure } in &self.last {
            let nanos = at.saturating_sub(self.start);
            let (seconds, rest) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
            let of = if *job == u32::MAX { String::new() } else { format!(" request {job}") };
            writeln!(f, "  {seconds:>5}.{rest:09} s{of} {what} {figure}")?;
        }
        Ok(())
    }
}
