//! The model's lengths: every answer that was seen, one by one.
//!
//! Floor 5. Invariant: the percentile is that of all of them; no count is kept but of how many there are.

use std::sync::Arc;

/// After so many lengths the percentile is reckoned anew, once there are [`FEWEST`] of them.
const EVERY: usize = 16;
const FEWEST: usize = 20;

/// Output tokens of a choice where nothing has been learned.
const UNKNOWN: u64 = 4096;

/// The lengths of a tenant's answers by a model.
#[derive(Debug, Clone, Default)]
pub(super) struct Lengths {
    seen: Vec<u64>,
    likely: Option<u64>,
}

/// Whose answers they are: a tenant and a model.
pub(super) type Speaker = (Arc<str>, Arc<str>);

impl Lengths {
    /// Sees one more answer.
    pub(super) fn see(&mut self, length: u64) {
        self.seen.push(length);
        let count = self.seen.len();
        if count.is_multiple_of(EVERY) && count >= FEWEST {
            let mut sorted = self.seen.clone();
            sorted.sort_unstable();
            self.likely = Some(rounded(sorted[(count * 95).div_ceil(100) - 1]));
        }
    }

    /// The output that so many choices are likely to have, at most what they may have.
    pub(super) fn likely(&self, choices: u64, most: u64) -> u64 {
        (self.likely.unwrap_or(UNKNOWN) * choices).min(most)
    }
}

/// Lengths are told apart by their four highest bits.
fn rounded(length: u64) -> u64 {
    let mut step = 1;
    while length / step >= 16 {
        step *= 2;
    }
    length / step * step + step - 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_to_four_bits() {
        let rounds = |length| rounded(length);
        assert_eq!([0, 9, 15, 16, 17, 100, 999, 1024].map(rounds), [0, 9, 15, 17, 17, 103, 1023, 1151]);
    }
}
