//! The gauge: an amount held against a ceiling.
//!
//! Floor 1. Invariant: what is given back was taken before, so the word is the sum of what is held.
//!
//! The lifetime of a run is a gauge as well: nothing gives its amounts back but the correction of a hold to what was
//! used.

use super::{Reading, Taken, Wait};

/// An amount held: the word is what is in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Gauge {
    hard: u64,
    lasting: bool,
}

impl Gauge {
    /// At most `hard` at any moment.
    pub const fn new(hard: u64) -> Gauge {
        Gauge { hard, lasting: false }
    }

    /// At most `hard` altogether: what is used stays used, so what doesn't fit is told that it never will.
    pub const fn lasting(hard: u64) -> Gauge {
        Gauge { hard, lasting: true }
    }

    pub(super) fn hard(&self) -> u64 {
        self.hard
    }

    pub(super) fn take(&self, word: u64, n: u64) -> Result<Taken, Wait> {
        self.fit(word, n).ok_or_else(|| self.wait(n))
    }

    #[inline(always)]
    pub(super) fn fit(&self, word: u64, n: u64) -> Option<Taken> {
        let sum = word.checked_add(n)?;
        (n == 0 || sum <= self.hard).then_some(Taken { word: sum, mark: 0 })
    }

    fn wait(&self, n: u64) -> Wait {
        if n > self.hard || self.lasting { Wait::Never } else { Wait::Unknown }
    }

    pub(super) fn charge(&self, word: u64, n: u64) -> Taken {
        Taken { word: word.saturating_add(n), mark: 0 }
    }

    #[inline(always)]
    pub(super) fn correct(&self, word: u64, held: u64, used: u64) -> u64 {
        word.saturating_sub(held).saturating_add(used)
    }

    pub(super) fn read(&self, word: u64) -> Reading {
        Reading { used: word, remaining: self.hard.saturating_sub(word), resets_in: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_and_gives_back() {
        let gauge = Gauge::new(2);
        let one = gauge.take(0, 1).unwrap().word;
        let two = gauge.take(one, 1).unwrap().word;
        assert_eq!(gauge.take(two, 1), Err(Wait::Unknown));
        assert_eq!(gauge.take(0, 3), Err(Wait::Never));
        assert_eq!(gauge.take(two, 2), Err(Wait::Unknown), "all of it can come back");
        assert_eq!(gauge.take(3, 0).map(|taken| taken.word), Ok(3), "nothing always fits");
        assert_eq!(Gauge::new(0).take(0, 1), Err(Wait::Never));
        assert_eq!(gauge.read(gauge.correct(two, 1, 0)).remaining, 1);
        assert_eq!(gauge.correct(0, 5, 0), 0, "a word never goes below nothing");
        assert_eq!(gauge.charge(u64::MAX, 1).word, u64::MAX);
    }

    #[test]
    fn a_lifetime_comes_back_only_by_correction() {
        let gauge = Gauge::lasting(10);
        let held = gauge.take(0, 8).unwrap().word;
        assert_eq!(gauge.take(held, 3), Err(Wait::Never));
        let used = gauge.correct(held, 8, 5);
        assert_eq!(gauge.read(used), Reading { used: 5, remaining: 5, resets_in: None });
        assert!(gauge.take(used, 5).is_ok());
    }
}
