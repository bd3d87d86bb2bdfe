//! Calibration: what settled requests teach about a method's guesses, as one factor.
//!
//! Floor 1. Invariant: a factor is within its bounds whatever is reported, and it never lowers a reserve.
//!
//! The factor is the moving mean of real input / guessed input. Each request counts alike, whatever its size; sixteen
//! requests ago counts for a third of now. A share outside the bounds counts as the bound, so that one false report moves
//! the factor by an eighth at most, and any number of them to a bound and no further.

use super::InputEstimate;

/// The factor that changes nothing; what the others are counted in.
pub const ONE: u64 = 1 << 16;

/// The smallest factor: a half.
pub const LEAST: u64 = ONE / 2;

/// The largest factor: three.
pub const MOST: u64 = 3 * ONE;

/// One part in so many of the way to what was just seen.
const SHARE: u64 = 16;

/// The factor after a request whose input was guessed at `guess` tokens and had `real`. An input of nothing teaches
/// nothing.
pub fn learn(factor: u64, guess: u64, real: u64) -> u64 {
    let factor = factor.clamp(LEAST, MOST);
    if guess == 0 || real == 0 {
        return factor;
    }
    let seen = (real as u128 * ONE as u128 / guess as u128).clamp(LEAST as u128, MOST as u128) as u64;
    let step = seen.abs_diff(factor).div_ceil(SHARE);
    if seen > factor { factor + step } else { factor - step }
}

/// A guess with the factor applied; an exact count stays as it is.
///
/// The reserve keeps its proportion to the guess where the factor raises both, and is never below the method's own: that
/// a model has taken less so far does not make the method's stated error smaller.
pub fn apply(estimate: InputEstimate, factor: u64) -> InputEstimate {
    let factor = factor.clamp(LEAST, MOST);
    if estimate.exact || factor == ONE {
        return estimate;
    }
    let scale = |tokens: u64| {
        let scaled = (tokens as u128 * factor as u128).div_ceil(ONE as u128);
        u64::try_from(scaled).unwrap_or(u64::MAX)
    };
    InputEstimate {
        expected: scale(estimate.expected),
        reserve: estimate.reserve.max(scale(estimate.reserve)),
        exact: false,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn guess(expected: u64, reserve: u64) -> InputEstimate {
        InputEstimate { expected, reserve, exact: false }
    }

    #[test]
    fn raises_both_and_lowers_only_the_guess() {
        let half_more = ONE + ONE / 2;
        assert_eq!(apply(guess(100, 120), ONE), guess(100, 120));
        assert_eq!(apply(guess(100, 120), half_more), guess(150, 180));
        assert_eq!(apply(guess(101, 120), LEAST), guess(51, 120));
        let exact = InputEstimate { exact: true, ..guess(100, 100) };
        assert_eq!(apply(exact, MOST), exact);
        assert_eq!(apply(guess(u64::MAX, u64::MAX), MOST).reserve, u64::MAX);
    }

    #[test]
    fn a_steady_share_is_learned_in_half_a_hundred() {
        let factor = (0..50).fold(ONE, |factor, _| learn(factor, 1000, 1600));
        assert!(factor.abs_diff(ONE * 8 / 5) < ONE / 25, "{factor}");
        let settled = (0..500).fold(factor, |factor, _| learn(factor, 1000, 1600));
        assert_eq!(settled, ONE * 8 / 5);
        assert_eq!(learn(settled, 0, 9), settled);
        assert_eq!(learn(settled, 9, 0), settled);
    }

    proptest! {
        #[test]
        fn no_report_leads_out_of_the_bounds(reports in prop::collection::vec((any::<u64>(), any::<u64>()), 0..100)) {
            let mut factor = ONE;
            for (guess, real) in reports {
                let next = learn(factor, guess, real);
                prop_assert!((LEAST..=MOST).contains(&next));
                prop_assert!(next.abs_diff(factor) <= MOST / SHARE);
                factor = next;
            }
        }

        #[test]
        fn the_reserve_covers_the_guess(expected: u64, slack: u64, factor in 0..u64::MAX) {
            let before = guess(expected, expected.saturating_add(slack));
            let after = apply(before, factor);
            prop_assert!(after.reserve >= after.expected && after.reserve >= before.reserve);
        }
    }
}
