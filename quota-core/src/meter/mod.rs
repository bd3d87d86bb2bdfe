//! Meters: a limit is one 64-bit word and pure functions of (word, amount, now).
//!
//! Floor 1. Invariant: no function here knows what is counted or for whom, and none can panic on any word.

mod budget;
mod gauge;
mod rate;
mod span;

pub use budget::Budget;
pub use gauge::Gauge;
pub use rate::Rate;
pub use span::{REMEMBERED, Span};

use std::time::Duration;

use crate::time::{Now, Period};

/// How a word is read: one of the four shapes of a limit.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Rule {
    /// A rolling window.
    Rate(Rate),
    /// A fixed window.
    Budget(Budget),
    /// An amount held, or used up over a lifetime.
    Gauge(Gauge),
    /// A time from the first taking on.
    Span(Span),
}

/// The moment of an operation, as a rule needs it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct At {
    /// The time.
    pub now: Now,
    /// The period of the rule's calendar that holds `now.wall`; ignored by all but budgets.
    pub period: Period,
}

/// What taking an amount did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Taken {
    /// The word afterwards.
    pub word: u64,
    /// What a later correction needs to know about this taking: the arrival time after it (rate), the period number
    /// (budget), nothing (gauge, span).
    pub mark: u64,
}

/// When the same request could pass if nothing else happened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// After exactly this long; one nanosecond earlier it would not.
    After(Duration),
    /// Some time, unknown when: a slot comes free when another request ends.
    Unknown,
    /// Never as it is.
    Never,
}

impl Wait {
    /// The longer of two waits: never beats unknown, unknown beats any time.
    pub fn max(self, other: Wait) -> Wait {
        match (self, other) {
            (Wait::Never, _) | (_, Wait::Never) => Wait::Never,
            (Wait::Unknown, _) | (_, Wait::Unknown) => Wait::Unknown,
            (Wait::After(a), Wait::After(b)) => Wait::After(a.max(b)),
        }
    }

    /// The wait in milliseconds, rounded up; `None` where no time is known.
    pub fn millis(self) -> Option<u64> {
        match self {
            Wait::After(time) => Some(u64::try_from(time.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)),
            Wait::Unknown | Wait::Never => None,
        }
    }
}

/// What a word says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading {
    /// The amount in use: spent and held; above the hard amount where there is debt.
    pub used: u64,
    /// The largest amount that could be taken now.
    pub remaining: u64,
    /// Nanoseconds until all of it is back if nothing else happens; `None` for a gauge and a span.
    pub resets_in: Option<u64>,
}

impl Rule {
    /// Takes an amount if it fits. An amount that exactly fills the limit fits; an amount of 0 always does.
    ///
    /// # Errors
    /// How long until it would fit. The word is then unchanged.
    pub fn take(&self, word: u64, amount: u64, at: &At) -> Result<Taken, Wait> {
        match self {
            Rule::Rate(rate) => rate.take(word, amount, at.now.mono),
            Rule::Budget(budget) => budget.take(word, amount, at),
            Rule::Gauge(gauge) => gauge.take(word, amount),
            Rule::Span(span) => span.take(word, amount, at.now.mono),
        }
    }

    /// As [`take`](Rule::take), without saying how long until it would fit: the way of nearly all requests.
    #[inline(always)]
    pub(crate) fn fit(&self, word: u64, amount: u64, at: &At) -> Option<Taken> {
        match self {
            Rule::Rate(rate) => rate.fit(word, amount, at.now.mono),
            Rule::Budget(budget) => budget.fit(word, amount, at),
            Rule::Gauge(gauge) => gauge.fit(word, amount),
            Rule::Span(span) => span.fit(word, amount, at.now.mono),
        }
    }

    /// The mark of a taking that left this word, see [`Taken::mark`]; but for a [`charge`](Rule::charge) that a bucket had no
    /// room for.
    #[inline(always)]
    pub(crate) fn mark(&self, word: u64) -> u64 {
        match self {
            Rule::Rate(_) => word,
            Rule::Budget(budget) => budget.number_of(word),
            Rule::Gauge(_) | Rule::Span(_) => 0,
        }
    }

    /// Takes an amount whether it fits or not: how a limit in shadow counts.
    pub fn charge(&self, word: u64, amount: u64, at: &At) -> Taken {
        match self {
            Rule::Rate(rate) => rate.charge(word, amount, at.now.mono),
            Rule::Budget(budget) => budget.charge(word, amount, at),
            Rule::Gauge(gauge) => gauge.charge(word, amount),
            Rule::Span(span) => span.charge(word, at.now.mono),
        }
    }

    /// Replaces a held amount by the amount used: gives the rest back, or charges the overrun as debt.
    ///
    /// A correction lands in the window in which the hold was taken, and in no other.
    #[inline(always)]
    pub fn correct(&self, word: u64, mark: u64, held: u64, used: u64, at: &At) -> u64 {
        match self {
            Rule::Rate(rate) => rate.correct(word, mark, held, used, at.now.mono),
            Rule::Budget(budget) => budget.correct(word, mark, held, used),
            Rule::Gauge(gauge) => gauge.correct(word, held, used),
            Rule::Span(_) => word,
        }
    }

    /// As [`correct`](Rule::correct), where the word after the taking tells its mark.
    #[inline(always)]
    pub(crate) fn correct_after(&self, word: u64, after: u64, held: u64, used: u64, at: &At) -> u64 {
        match self {
            Rule::Rate(rate) => rate.correct(word, after, held, used, at.now.mono),
            Rule::Budget(budget) => budget.correct(word, budget.number_of(after), held, used),
            Rule::Gauge(gauge) => gauge.correct(word, held, used),
            Rule::Span(_) => word,
        }
    }

    /// Reads a word.
    pub fn read(&self, word: u64, at: &At) -> Reading {
        match self {
            Rule::Rate(rate) => rate.read(word, at.now.mono),
            Rule::Budget(budget) => budget.read(word, at),
            Rule::Gauge(gauge) => gauge.read(word),
            Rule::Span(span) => span.read(word, at.now.mono),
        }
    }

    /// The hard amount: the most that could be taken of an empty account at once.
    pub fn hard(&self) -> u64 {
        match self {
            Rule::Rate(rate) => rate.burst(),
            Rule::Budget(budget) => budget.hard(),
            Rule::Gauge(gauge) => gauge.hard(),
            Rule::Span(span) => span.hard(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    const AT: At = At { now: Now::at(100 * SECOND), period: Period { number: 7, start: 0, end: 200 * SECOND } };

    fn all() -> [Rule; 4] {
        [
            Rule::Rate(Rate::new(60, 60 * SECOND, 10)),
            Rule::Budget(Budget::new(20, 40)),
            Rule::Gauge(Gauge::new(30)),
            Rule::Span(Span::new(40 * SECOND)),
        ]
    }

    #[test]
    fn a_rule_has_the_hard_amount_of_its_shape() {
        assert_eq!(all().map(|rule| rule.hard()), [10, 20, 30, 40]);
    }

    #[test]
    fn what_was_held_is_replaced_by_what_was_used() {
        for (rule, used, after) in [(all()[0], 10, 3), (all()[1], 10, 3), (all()[2], 10, 3), (all()[3], 0, 0)] {
            let taken = rule.take(0, 10, &AT).unwrap();
            assert_eq!(rule.read(taken.word, &AT).used, used, "{rule:?}");
            let corrected = rule.correct(taken.word, taken.mark, 10, 3, &AT);
            assert_eq!(rule.read(corrected, &AT).used, after, "{rule:?}");
        }
        // A span's word is its end: no figure moves it.
        let span = all()[3];
        let word = span.take(0, 1, &AT).unwrap().word;
        assert_eq!((word, span.correct(word, 0, 1, 0, &AT)), (140 * SECOND, word));
    }

    #[test]
    fn a_reading_says_when_all_of_it_is_back() {
        // A bucket of one a second from which four were taken; a period that ends in 100 s; gauges and spans don't.
        let back = all().map(|rule| rule.read(rule.take(0, 4, &AT).unwrap().word, &AT).resets_in);
        assert_eq!(back, [Some(4 * SECOND), Some(100 * SECOND), None, None]);
    }

    #[test]
    fn waits_are_told_in_whole_milliseconds_rounded_up() {
        let after = |nanos| Wait::After(Duration::from_nanos(nanos)).millis();
        assert_eq!([after(0), after(1), after(1_000_000), after(1_000_001)], [Some(0), Some(1), Some(1), Some(2)]);
        assert_eq!(Wait::After(Duration::MAX).millis(), Some(u64::MAX));
        assert_eq!((Wait::Unknown.millis(), Wait::Never.millis()), (None, None));
    }
}
