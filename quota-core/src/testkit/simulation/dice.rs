//! Dice: numbers that look random, the same ones for the same seed on every machine.
//!
//! Floor 5. Invariant: integers only, so that no machine's arithmetic makes another run of a seed.

/// SplitMix64.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    pub(super) fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    }

    /// A number below this one; 0 below 0.
    pub(super) fn below(&mut self, most: u64) -> u64 {
        ((u128::from(self.roll()) * u128::from(most)) >> 64) as u64
    }

    /// A number of a range, both ends included.
    pub(super) fn within(&mut self, (least, most): (u64, u64)) -> u64 {
        least + self.below(most - least + 1)
    }

    /// The same, small ones more often: few requests are long.
    pub(super) fn skewed(&mut self, (least, most): (u64, u64)) -> u64 {
        let part = self.below(1 << 20);
        least + (((most - least) as u128 * part as u128 * part as u128) >> 40) as u64
    }

    /// Whether something happens that does in one of so many cases.
    pub(super) fn one_in(&mut self, cases: u64) -> bool {
        self.below(cases) == 0
    }

    /// One of several.
    pub(super) fn one_of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u64) as usize]
    }
}
