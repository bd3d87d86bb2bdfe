//! The budget: a fixed window, its period number packed beside its amount.
//!
//! Floor 1. Invariant: a word of a past period reads as zero, and a spent period is never opened again.

use std::time::Duration;

use super::{At, Reading, Taken, Wait};

/// A fixed window: `hard` per period.
///
/// The word is `number << amount_bits | amount`. Numbers are compared by their distance modulo their width, so that
/// the later of two is known as long as they lie less than half a round (at least fifteen years) apart.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Budget {
    hard: u64,
    amount_bits: u32,
}

impl Budget {
    /// `hard` per period, with `amount_bits` (1 to 63) of the word for the amount.
    pub fn new(hard: u64, amount_bits: u32) -> Budget {
        Budget { hard, amount_bits: amount_bits.clamp(1, 63) }
    }

    pub(super) fn hard(&self) -> u64 {
        self.hard
    }

    #[inline(always)]
    fn largest(&self) -> u64 {
        (1 << self.amount_bits) - 1
    }

    #[inline(always)]
    fn pack(&self, number: u64, amount: u64) -> u64 {
        number << self.amount_bits | amount.min(self.largest())
    }

    #[inline(always)]
    fn wrap(&self, number: u32) -> u64 {
        (number as u64) & (u64::MAX >> self.amount_bits)
    }

    /// The period that a word belongs to, as its marks name it.
    #[inline(always)]
    pub(super) fn number_of(&self, word: u64) -> u64 {
        word >> self.amount_bits
    }

    /// The period number and the amount that count at this moment: those of the word, unless its period is past.
    fn current(&self, word: u64, number: u32) -> (u64, u64) {
        let (stored, amount) = (word >> self.amount_bits, word & self.largest());
        let number = self.wrap(number);
        if word == 0 {
            // Never used: there is no period to stay in.
            return (number, 0);
        }
        let width = 64 - self.amount_bits;
        let ahead = number.wrapping_sub(stored) & (u64::MAX >> self.amount_bits);
        // `ahead` in (0, half): the present is later than the word. 0 is the same period; the other half means that
        // the wall clock has stepped back, and the later period stays.
        if ahead != 0 && ahead < 1 << (width - 1) { (number, 0) } else { (stored, amount) }
    }

    pub(super) fn take(&self, word: u64, n: u64, at: &At) -> Result<Taken, Wait> {
        self.fit(word, n, at).ok_or_else(|| self.wait(n, at))
    }

    /// Taking nothing still moves the word to this period, so that a later overrun finds its own.
    #[inline(always)]
    pub(super) fn fit(&self, word: u64, n: u64, at: &At) -> Option<Taken> {
        let mut number = self.wrap(at.period.number);
        let mut used = word & self.largest();
        if word >> self.amount_bits != number {
            (number, used) = self.current(word, at.period.number);
        }
        let sum = used.checked_add(n)?;
        (n == 0 || sum <= self.hard).then(|| Taken { word: self.pack(number, sum), mark: number })
    }

    fn wait(&self, n: u64, at: &At) -> Wait {
        if n > self.hard {
            return Wait::Never;
        }
        Wait::After(Duration::from_nanos(at.period.end.saturating_sub(at.now.wall).max(1)))
    }

    pub(super) fn charge(&self, word: u64, n: u64, at: &At) -> Taken {
        let (number, used) = self.current(word, at.period.number);
        Taken { word: self.pack(number, used.saturating_add(n)), mark: number }
    }

    /// Changes nothing once the period of the hold is over: a new period neither gains nor loses by an old one.
    #[inline(always)]
    pub(super) fn correct(&self, word: u64, mark: u64, held: u64, used: u64) -> u64 {
        let (stored, amount) = (word >> self.amount_bits, word & self.largest());
        if stored != mark {
            return word;
        }
        self.pack(stored, amount.saturating_sub(held).saturating_add(used))
    }

    pub(super) fn read(&self, word: u64, at: &At) -> Reading {
        let (_, used) = self.current(word, at.period.number);
        let resets_in = Some(at.period.end.saturating_sub(at.now.wall));
        Reading { used, remaining: self.hard.saturating_sub(used), resets_in }
    }

    /// Whether the word belongs to a period before this one, so that it can be forgotten without loss.
    pub fn is_past(word: u64, amount_bits: u32, number: u32) -> bool {
        let budget = Budget::new(0, amount_bits);
        let (current, _) = budget.current(word, number);
        current != word >> budget.amount_bits || word & budget.largest() == 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::{Now, Period};
    use proptest::prelude::*;

    fn at(number: u32) -> At {
        let start = number as u64 * 1000;
        At { now: Now::at(start + 400), period: Period { number, start, end: start + 1000 } }
    }

    #[test]
    fn fills_exactly_and_waits_for_the_end() {
        let budget = Budget::new(10, 40);
        let one = budget.take(0, 4, &at(7)).unwrap();
        let two = budget.take(one.word, 6, &at(7)).unwrap();
        assert_eq!(budget.take(two.word, 1, &at(7)), Err(Wait::After(Duration::from_nanos(600))));
        assert_eq!(budget.take(two.word, 11, &at(7)), Err(Wait::Never));
        assert!(budget.take(two.word, 0, &at(7)).is_ok());
        let next = budget.take(two.word, 10, &at(8)).unwrap();
        assert_eq!(budget.read(next.word, &at(8)).used, 10);
        assert_eq!(budget.read(next.word, &at(9)).used, 0);
    }

    #[test]
    fn a_correction_lands_in_its_own_period() {
        let budget = Budget::new(1000, 40);
        let hold = budget.take(0, 800, &at(7)).unwrap();
        assert_eq!(budget.read(budget.correct(hold.word, hold.mark, 800, 300), &at(7)).used, 300);
        let next = budget.take(hold.word, 100, &at(8)).unwrap();
        assert_eq!(budget.correct(next.word, hold.mark, 800, 300), next.word);
        assert_eq!(budget.correct(next.word, hold.mark, 800, 900), next.word, "an overrun neither");
    }

    #[test]
    fn a_clock_that_steps_back_stays_in_the_later_period() {
        let budget = Budget::new(10, 40);
        let spent = budget.take(0, 10, &at(8)).unwrap();
        assert!(budget.take(spent.word, 1, &at(7)).is_err());
        assert!(budget.take(spent.word, 1, &at(9)).is_ok());
    }

    #[test]
    fn debt_is_kept_and_shown_as_nothing_left() {
        let budget = Budget::new(200, 40);
        let hold = budget.take(0, 100, &at(1)).unwrap();
        let word = budget.correct(hold.word, hold.mark, 100, 240);
        let reading = budget.read(word, &at(1));
        assert_eq!((reading.used, reading.remaining), (240, 0));
    }

    #[test]
    fn nothing_fits_where_there_is_debt_and_all_of_it_comes_back() {
        let budget = Budget::new(10, 40);
        let word = budget.charge(0, 15, &at(7)).word;
        assert_eq!(budget.take(word, 0, &at(7)).map(|taken| taken.word), Ok(word));
        // As much as there is in a period fits into the next one, a unit more into none.
        assert_eq!(budget.take(word, 10, &at(7)), Err(Wait::After(Duration::from_nanos(600))));
        assert_eq!(budget.take(word, 11, &at(7)), Err(Wait::Never));
    }

    #[test]
    fn a_word_is_past_when_its_period_is_or_nothing_is_in_it() {
        let word = |number: u64, amount: u64| number << 40 | amount;
        for (word, past) in
            [(0, true), (word(7, 0), true), (word(7, 1), false), (word(6, 1), true), (word(8, 1), false)]
        {
            assert_eq!(Budget::is_past(word, 40, 7), past, "{word:#x}");
        }
    }

    #[test]
    fn half_a_round_away_counts_as_later() {
        // Nine bits: 256 periods on is as far as 256 back, and a spent period is never opened again.
        let budget = Budget::new(5, 55);
        let word = budget.take(0, 5, &at(8)).unwrap().word;
        assert_eq!(budget.read(word, &at(8 + 255)).used, 0);
        assert_eq!(budget.read(word, &at(8 + 256)).used, 5);
    }

    #[test]
    fn period_numbers_wrap_once_in_decades() {
        let budget = Budget::new(5, 55); // months: nine bits
        let last = budget.take(0, 5, &at(511)).unwrap();
        assert!(budget.take(last.word, 1, &at(511)).is_err());
        assert!(budget.take(last.word, 1, &at(512)).is_ok());
    }

    proptest! {
        #[test]
        fn never_panics(hard: u64, bits: u32, word: u64, n: u64, m: u64, mark: u64, number: u32, now: u64) {
            let budget = Budget::new(hard, bits);
            let at = At { now: Now::at(now), period: Period { number, start: now, end: now } };
            let _ = budget.take(word, n, &at);
            let _ = budget.charge(word, n, &at);
            let _ = budget.correct(word, mark, n, m);
            let _ = budget.read(word, &at);
            let _ = Budget::is_past(word, bits, number);
        }

        #[test]
        fn any_order_of_corrections_leaves_the_sum_of_usage(
            holds in prop::collection::vec((0u64..100, 0u64..200), 1..20), seed: u64,
        ) {
            let budget = Budget::new(10_000, 40);
            let (mut word, mut marks) = (0, Vec::new());
            for (held, used) in &holds {
                let taken = budget.take(word, *held, &at(3)).unwrap();
                word = taken.word;
                marks.push((*held, *used, taken.mark));
            }
            let turn = seed as usize % marks.len();
            marks.rotate_left(turn);
            for (held, used, mark) in &marks {
                word = budget.correct(word, *mark, *held, *used);
            }
            let sum: u64 = holds.iter().map(|(_, used)| used).sum();
            prop_assert_eq!(budget.read(word, &at(3)).used, sum);
        }
    }
}
