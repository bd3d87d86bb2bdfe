//! The span: a bound on the time from the first taking.
//!
//! Floor 1. Invariant: once a word is set it never changes, so that nothing makes a span longer.

use super::{Reading, Taken, Wait};
use crate::time::SECOND;

/// For how long after its end a span is remembered, in nanoseconds: an hour. A word that is older can be forgotten.
pub const REMEMBERED: u64 = 3600 * SECOND;

/// A bound on time: takings fit from the first one on for so long, and never again.
///
/// The word is the engine's time at which the span is over, set by the first taking; 0 before. One that has begun keeps
/// its end if the bound is changed. Amounts are not counted. A first taking that is undone has begun it all the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Span {
    nanos: u64,
}

impl Span {
    /// A span of so many nanoseconds; one of 0 lets nothing pass.
    pub const fn new(nanos: u64) -> Span {
        Span { nanos }
    }

    /// In seconds, rounded up.
    pub(super) fn hard(&self) -> u64 {
        self.nanos.div_ceil(SECOND)
    }

    fn end(&self, word: u64, now: u64) -> u64 {
        if word == 0 { now.saturating_add(self.nanos) } else { word }
    }

    pub(super) fn take(&self, word: u64, n: u64, now: u64) -> Result<Taken, Wait> {
        self.fit(word, n, now).ok_or(Wait::Never)
    }

    pub(super) fn fit(&self, word: u64, n: u64, now: u64) -> Option<Taken> {
        let end = self.end(word, now);
        match n {
            0 => Some(Taken { word, mark: 0 }),
            _ if self.nanos == 0 || now > end => None,
            _ => Some(Taken { word: end, mark: 0 }),
        }
    }

    pub(super) fn charge(&self, word: u64, now: u64) -> Taken {
        Taken { word: self.end(word, now), mark: 0 }
    }

    pub(super) fn read(&self, word: u64, now: u64) -> Reading {
        let left = self.end(word, now).saturating_sub(now) / SECOND;
        let remaining = left.min(self.hard());
        Reading { used: self.hard() - remaining, remaining, resets_in: None }
    }

    /// Whether a word can be forgotten: nothing was taken, or the span has been over for [`REMEMBERED`].
    pub fn is_forgotten(word: u64, now: u64) -> bool {
        word == 0 || word.saturating_add(REMEMBERED) <= now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn runs_from_the_first_taking_to_its_end() {
        let span = Span::new(10 * SECOND);
        let start = 100 * SECOND;
        assert_eq!(span.read(0, start), Reading { used: 0, remaining: 10, resets_in: None });
        let word = span.take(0, 1, start).unwrap().word;
        assert_eq!(span.take(word, 1, start + 10 * SECOND).unwrap().word, word);
        assert_eq!(span.take(word, 1, start + 10 * SECOND + 1), Err(Wait::Never));
        assert!(span.take(word, 0, start + 11 * SECOND).is_ok());
        assert_eq!(span.read(word, start + 4 * SECOND).remaining, 6);
        assert_eq!(span.read(word, start + 99 * SECOND).used, 10);
        assert_eq!(Span::new(0).take(0, 1, start), Err(Wait::Never));
        // Another bound leaves the end of a span that has begun.
        assert!(Span::new(99 * SECOND).take(word, 1, start + 11 * SECOND).is_err());
        assert!(Span::new(SECOND).take(word, 1, start + 9 * SECOND).is_ok());
        let over = start + 3610 * SECOND;
        assert!(Span::is_forgotten(word, over) && !Span::is_forgotten(word, over - 1) && Span::is_forgotten(0, 0));
    }

    proptest! {
        #[test]
        fn never_panics(nanos: u64, word: u64, n: u64, now: u64) {
            let span = Span::new(nanos);
            let _ = span.take(word, n, now);
            let _ = span.charge(word, now);
            let _ = span.read(word, now);
            let _ = Span::is_forgotten(word, now);
        }
    }
}
