//! The rate: a token bucket kept as its theoretical arrival time, in nanoseconds of the engine's clock.
//!
//! Floor 1. Invariant: at any moment, what was taken and not given back is at most burst + elapsed × amount / period,
//! to within a 64th of a unit.

use std::time::Duration;

use super::{Reading, Taken, Wait};

/// A rolling window: `amount` per `period`, at most `burst` at one instant.
///
/// The word is the moment at which the bucket will be full again. A word in the past is a full bucket.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rate {
    amount: u64,
    period: u64,
    /// 0 where the amount is.
    burst: u64,
    /// The time that a full bucket takes to refill, and the slack of [`latest`](Rate::latest); reckoned once, for divisions
    /// are what a taking costs.
    full: u64,
    slack: u64,
    /// The time of one unit, where that is a whole number of nanoseconds; else 0.
    unit: u64,
}

impl Rate {
    /// `amount` per `period` nanoseconds with the given burst. An amount or a burst of 0 lets nothing pass.
    pub fn new(amount: u64, period: u64, burst: u64) -> Rate {
        let mut rate = Rate { amount, period, burst: if amount == 0 { 0 } else { burst }, full: 0, slack: 0, unit: 0 };
        rate.unit = if period.checked_rem(amount) == Some(0) { period / amount } else { 0 };
        rate.full = rate.cost(burst);
        rate.slack = match period.checked_rem(amount) {
            None | Some(0) => 0,
            Some(_) => burst.saturating_mul(1024).min(rate.cost(1) / 64),
        };
        rate
    }

    pub(super) fn burst(&self) -> u64 {
        self.burst
    }

    /// The time that `n` units take to refill, rounded up: never in favour of the taker.
    #[inline(always)]
    fn cost(&self, n: u64) -> u64 {
        match n.checked_mul(self.unit) {
            Some(time) if self.unit != 0 => time,
            _ => self.divided_cost(n),
        }
    }

    fn divided_cost(&self, n: u64) -> u64 {
        match (n.checked_mul(self.period), self.amount) {
            _ if n == 0 => 0,
            (_, 0) => u64::MAX,
            (Some(product), amount) => product.div_ceil(amount),
            (None, amount) => {
                let wide = (n as u128 * self.period as u128).div_ceil(amount as u128);
                u64::try_from(wide).unwrap_or(u64::MAX)
            }
        }
    }

    /// The moment up to which takings may fill the bucket, seen from `now`.
    ///
    /// Costs are rounded up, so where a unit is no whole number of nanoseconds, `burst` single takings come to some
    /// nanoseconds more than one taking of `burst`. That much is let pass, for a thousand full buckets in a row, and
    /// never more than a 64th of a unit.
    #[inline(always)]
    fn latest(&self, now: u64) -> u64 {
        now.saturating_add(self.full).saturating_add(self.slack)
    }

    /// The largest number of units whose cost is at most `time`.
    fn units(&self, time: u64) -> u64 {
        let wide = time as u128 * self.amount as u128 / self.period.max(1) as u128;
        u64::try_from(wide).unwrap_or(u64::MAX)
    }

    pub(super) fn take(&self, word: u64, n: u64, now: u64) -> Result<Taken, Wait> {
        self.fit(word, n, now).ok_or_else(|| self.wait(word, n, now))
    }

    #[inline(always)]
    pub(super) fn fit(&self, word: u64, n: u64, now: u64) -> Option<Taken> {
        let end = match n {
            0 => word,
            _ => word.max(now).saturating_add(self.cost(n)),
        };
        (n == 0 || n <= self.burst && end <= self.latest(now)).then_some(Taken { word: end, mark: end })
    }

    fn wait(&self, word: u64, n: u64, now: u64) -> Wait {
        if n > self.burst {
            return Wait::Never;
        }
        let end = word.max(now).saturating_add(self.cost(n));
        Wait::After(Duration::from_nanos(end.saturating_sub(self.latest(now))))
    }

    /// In shadow the bucket stays empty while demand is above the rate; it does not run up a debt that a limit which
    /// had been enforced would never have seen.
    pub(super) fn charge(&self, word: u64, n: u64, now: u64) -> Taken {
        let start = word.max(now);
        let end = start.saturating_add(self.cost(n));
        let empty = now.saturating_add(self.full).max(word);
        if end <= empty {
            return Taken { word: end, mark: end };
        }
        // Only what was taken may be given back.
        Taken { word: empty, mark: now.saturating_add(empty - start) }
    }

    /// A hold is refilled by time whether it is used or not, so only its part that still lies ahead (`mark` is where
    /// it ends) can be given back: what the bucket has already earned again is not paid twice.
    #[inline(always)]
    pub(super) fn correct(&self, word: u64, mark: u64, held: u64, used: u64, now: u64) -> u64 {
        let (held, used) = (self.cost(held), self.cost(used));
        if used <= held {
            let ahead = mark.saturating_sub(now);
            word.saturating_sub((held - used).min(ahead))
        } else {
            word.max(now).saturating_add(used - held)
        }
    }

    pub(super) fn read(&self, word: u64, now: u64) -> Reading {
        let burst = self.burst;
        let latest = self.latest(now);
        let start = word.max(now);
        let (used, remaining) = if burst == 0 {
            (0, 0)
        } else if start <= latest {
            let remaining = self.units(latest - start).min(burst);
            (burst - remaining, remaining)
        } else {
            let debt = (((start - latest) as u128 * self.amount as u128).div_ceil(self.period.max(1) as u128)) as u64;
            (burst.saturating_add(debt), 0)
        };
        Reading { used, remaining, resets_in: Some(start - now) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;
    use proptest::prelude::*;

    #[test]
    fn bucket_by_hand() {
        // 60 per minute, burst 5: after a pause of 6 s exactly five fit, and two more two seconds later.
        let rate = Rate::new(60, 60 * SECOND, 5);
        let mut word = 0;
        let mut take = |now: u64| match rate.take(word, 1, now) {
            Ok(taken) => {
                word = taken.word;
                None
            }
            Err(wait) => Some(wait),
        };
        let start = 100 * SECOND;
        for _ in 0..5 {
            assert_eq!(take(start), None);
        }
        assert_eq!(take(start), Some(Wait::After(Duration::from_secs(1))));
        for _ in 0..5 {
            assert_eq!(take(start + 6 * SECOND), None);
        }
        assert_eq!(take(start + 6 * SECOND), Some(Wait::After(Duration::from_secs(1))));
        assert_eq!(take(start + 8 * SECOND), None);
        assert_eq!(take(start + 8 * SECOND), None);
        assert_eq!(take(start + 8 * SECOND), Some(Wait::After(Duration::from_secs(1))));
    }

    #[test]
    fn edges() {
        let rate = Rate::new(0, SECOND, 0);
        assert_eq!(rate.take(0, 1, 5), Err(Wait::Never));
        assert!(rate.take(0, 0, 5).is_ok());
        assert_eq!(rate.read(0, 5).remaining, 0);
        let rate = Rate::new(10, SECOND, 10);
        assert_eq!(rate.take(0, 11, 5), Err(Wait::Never));
        assert!(rate.take(u64::MAX, 10, u64::MAX).is_ok(), "the end of time saturates");
        assert_eq!(Rate::new(1, u64::MAX, 1).take(0, 1, u64::MAX - 1).map(|t| t.word), Ok(u64::MAX));
    }

    #[test]
    fn a_unit_that_is_no_whole_number_of_nanoseconds_is_still_a_unit() {
        for (amount, period) in [(7, 60), (90, 60), (3, 1), (700, 60), (7_000, 60), (999, 1)] {
            let rate = Rate::new(amount, period * SECOND, amount);
            let mut word = 0;
            // The bucket is full again after exactly a period, and again after the next.
            for now in (0..10).map(|round| (1000 + round * period) * SECOND) {
                for taken in 0..amount {
                    assert_eq!(rate.read(word, now).remaining, amount - taken, "{amount} per {period} s");
                    word = rate.take(word, 1, now).unwrap().word;
                }
                assert_eq!(rate.read(word, now).used, amount);
                assert!(rate.take(word, 1, now).is_err(), "{amount} per {period} s: one more");
                let debt = rate.correct(word, word, 1, 3, now);
                assert_eq!(rate.read(debt, now).used, amount + 2, "{amount} per {period} s: debt");
            }
        }
    }

    #[test]
    fn correction_gives_back_only_what_lies_ahead() {
        let rate = Rate::new(60, 60 * SECOND, 60);
        let now = 1000 * SECOND;
        let hold = rate.take(0, 30, now).unwrap();
        // Ten seconds later twenty of the thirty seconds lie ahead.
        let late = now + 10 * SECOND;
        assert_eq!(rate.correct(hold.word, hold.mark, 30, 0, late), now + 10 * SECOND);
        assert_eq!(rate.correct(hold.word, hold.mark, 30, 25, late), now + 25 * SECOND);
        // Once the hold is refilled there is nothing to give back, whoever has taken since.
        let other = rate.take(hold.word, 60, now + 30 * SECOND).unwrap();
        assert_eq!(rate.correct(other.word, hold.mark, 30, 0, now + 31 * SECOND), other.word);
        // An overrun is charged from now on, beyond the burst if need be.
        assert_eq!(rate.correct(hold.word, hold.mark, 30, 100, now), now + 100 * SECOND);
        assert_eq!(rate.read(now + 100 * SECOND, now).used, 100);
        assert_eq!(rate.read(now + 100 * SECOND, now).remaining, 0);
    }

    #[test]
    fn shadow_keeps_the_bucket_empty_without_debt() {
        let rate = Rate::new(10, 10 * SECOND, 10);
        let mut word = 0;
        for _ in 0..100 {
            word = rate.charge(word, 1, 1000 * SECOND).word;
        }
        assert_eq!(word, 1010 * SECOND);
        // The eleventh took nothing, so undoing it gives nothing back.
        let eleventh = rate.charge(word, 1, 1000 * SECOND);
        assert_eq!(rate.correct(eleventh.word, eleventh.mark, 1, 0, 1000 * SECOND), word);
    }

    /// The obvious bucket: a level in exact fractions of a unit (numerator over `period`).
    struct Naive {
        level: i128,
        at: u64,
    }

    proptest! {
        #[test]
        fn equals_a_naive_bucket_in_exact_fractions(
            // Amounts that divide the period keep every cost a whole number of nanoseconds, so equality is exact.
            unit_nanos in 1u64..5_000_000, amount in 1u64..10_000, burst in 1u64..10_000,
            steps in prop::collection::vec((0u64..50_000_000, 1u64..200), 1..60),
        ) {
            let period = unit_nanos * amount;
            let rate = Rate::new(amount, period, burst);
            let (mut word, mut now) = (0, 1 << 40);
            let mut naive = Naive { level: burst as i128 * period as i128, at: now };
            for (pause, n) in steps {
                now += pause;
                let cap = burst as i128 * period as i128;
                naive.level = (naive.level + (now - naive.at) as i128 * amount as i128).min(cap);
                naive.at = now;
                let fits = naive.level >= n as i128 * period as i128;
                match rate.take(word, n, now) {
                    Ok(taken) => {
                        prop_assert!(fits);
                        naive.level -= n as i128 * period as i128;
                        word = taken.word;
                    }
                    Err(wait) => {
                        prop_assert!(!fits);
                        if let Wait::After(wait) = wait {
                            let wait = wait.as_nanos() as u64;
                            prop_assert!(rate.take(word, n, now + wait).is_ok());
                            prop_assert!(rate.take(word, n, now + wait - 1).is_err());
                        } else {
                            prop_assert!(n > burst);
                        }
                    }
                }
                prop_assert_eq!(rate.read(word, now).remaining as i128, naive.level / period as i128);
            }
        }

        #[test]
        fn odd_amounts_lose_less_than_a_nanosecond_a_take(
            amount in 1u64..1_000_000, takes in 1u64..500,
        ) {
            let rate = Rate::new(amount, 60 * SECOND, u64::from(u32::MAX));
            let mut word = 0;
            let now = 1 << 40;
            for _ in 0..takes {
                word = rate.charge(word, 1, now).word;
            }
            let exact = takes as u128 * 60 * SECOND as u128 / amount as u128;
            let kept = (word - now) as u128;
            prop_assert!(kept >= exact && kept <= exact + takes as u128);
        }

        #[test]
        fn never_panics(amount: u64, period: u64, burst: u64, word: u64, n: u64, m: u64, now: u64, mark: u64) {
            let rate = Rate::new(amount, period, burst);
            let _ = rate.take(word, n, now);
            let _ = rate.charge(word, n, now);
            let _ = rate.correct(word, mark, n, m, now);
            let _ = rate.read(word, now);
        }
    }
}
