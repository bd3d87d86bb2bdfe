//! Figures of several engines made into one of the replica: sums of counts, the highest of fractions.
//!
//! Floor 2. Invariant: a figure that one engine gives and another spoils (NaN, negative, out of range) is unknown, never
//! what is left of it.

use std::collections::HashMap;

/// The first count that is too large to be one.
const END: f64 = (1u64 << 52) as f64;

/// How far above 1 a fraction may be by rounding.
const ROUNDING: f64 = 1e-3;

/// The most engines, ranks or models of one text that are told apart.
pub(super) const MAX_GROUPS: usize = 256;

/// A count below 2^52; a part of a thing counts as a whole one.
pub(super) fn count(value: f64) -> Option<u64> {
    // NaN is in no range.
    (0.0..END).contains(&value).then(|| value.ceil() as u64)
}

/// A fraction from 0 to 1 in millionths; 1.001 is still 1, anything above is no fraction.
pub(super) fn ppm(value: f64) -> Option<u32> {
    (0.0..=1.0 + ROUNDING).contains(&value).then(|| (value.min(1.0) * 1e6).round() as u32)
}

/// A count of things of which none makes no sense: a capacity.
pub(super) fn capacity(count: Option<u64>) -> Option<u64> {
    count.filter(|count| *count > 0 && *count < 1 << 52)
}

/// The product of two counts.
pub(super) fn product(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    a?.checked_mul(b?)
}

/// A figure over several samples: not there, there and unusable, or there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Figure<T>(Option<Option<T>>);

impl<T> Default for Figure<T> {
    fn default() -> Self {
        Figure(None)
    }
}

/// A sum of counts.
pub(super) type Sum = Figure<u64>;

/// The highest of fractions, in millionths.
pub(super) type Highest = Figure<u32>;

impl<T: Copy> Figure<T> {
    /// Whether any sample had it.
    pub(super) fn is_there(self) -> bool {
        self.0.is_some()
    }

    /// The figure, if it is there and usable.
    pub(super) fn get(self) -> Option<T> {
        self.0.flatten()
    }

    /// This, or the other if no sample had this one.
    pub(super) fn or(self, other: Self) -> Self {
        Figure(self.0.or(other.0))
    }

    fn fold(&mut self, with: Option<T>, fold: impl Fn(T, T) -> Option<T>) {
        self.0 = Some(match self.0 {
            None => with,
            Some(before) => before.zip(with).and_then(|(a, b)| fold(a, b)),
        });
    }
}

impl Figure<u64> {
    /// Adds a sample of a count.
    pub(super) fn add(&mut self, value: f64) {
        self.plus(count(value));
    }

    /// Adds a count.
    pub(super) fn plus(&mut self, with: Option<u64>) {
        self.fold(with, |a, b| a.checked_add(b).filter(|sum| *sum < 1 << 52));
    }

    /// Takes the least of the counts.
    pub(super) fn least(&mut self, with: Option<u64>) {
        self.fold(with, |a, b| Some(a.min(b)));
    }

    /// Takes the greatest of the counts.
    pub(super) fn most(&mut self, with: Option<u64>) {
        self.fold(with, |a, b| Some(a.max(b)));
    }

    /// The sum with another figure; with one that is not there this one.
    pub(super) fn and(mut self, other: Sum) -> Sum {
        if let Some(with) = other.0 {
            self.plus(with);
        }
        self
    }
}

impl Figure<u32> {
    /// Takes a sample of a fraction.
    pub(super) fn raise(&mut self, value: f64) {
        self.fold(ppm(value), |a, b| Some(a.max(b)));
    }

    /// The highest of all, as far as they are there.
    pub(super) fn highest(all: impl Iterator<Item = Highest>) -> Highest {
        all.filter_map(|figure| figure.0).fold(Highest::default(), |mut highest, with| {
            highest.fold(with, |a, b| Some(a.max(b)));
            highest
        })
    }
}

/// A count that several processes of one engine may show each: of one key the highest, over the keys the sum.
#[derive(Debug, Clone, Default)]
pub(super) struct PerKey<'a> {
    counts: HashMap<[&'a str; 4], Figure<u64>, ahash::RandomState>,
    too_many: bool,
}

impl<'a> PerKey<'a> {
    /// Takes a sample of a key's count.
    pub(super) fn take(&mut self, key: [&'a str; 4], with: Option<u64>) {
        if self.counts.len() == MAX_GROUPS && !self.counts.contains_key(&key) {
            self.too_many = true;
            return;
        }
        self.counts.entry(key).or_default().most(with);
    }

    /// The sum; unknown beyond [`MAX_GROUPS`] keys.
    pub(super) fn sum(&self) -> Sum {
        if self.too_many {
            return Figure(Some(None));
        }
        self.counts.values().fold(Sum::default(), |sum, count| sum.and(*count))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges() {
        for (value, whole, part) in [
            (0.0, Some(0), Some(0)),
            (-0.0, Some(0), Some(0)),
            (0.91, Some(1), Some(910_000)),
            (1.0, Some(1), Some(1_000_000)),
            (1.0009, Some(2), Some(1_000_000)),
            (1.01, Some(2), None),
            (57.0, Some(57), None),
            (4_503_599_627_370_495.0, Some((1 << 52) - 1), None),
            (4_503_599_627_370_496.0, None, None),
            (-1e-9, None, None),
            (f64::NAN, None, None),
            (f64::INFINITY, None, None),
            (f64::NEG_INFINITY, None, None),
        ] {
            assert_eq!((count(value), ppm(value)), (whole, part), "{value}");
        }
        assert_eq!((capacity(Some(0)), capacity(Some(1 << 52)), capacity(Some(7))), (None, None, Some(7)));
    }

    #[test]
    fn what_is_spoilt_stays_unknown() {
        let mut sum = Sum::default();
        assert_eq!((sum.is_there(), sum.get()), (false, None));
        sum.add(3.0);
        sum.add(f64::NAN);
        sum.add(4.0);
        assert_eq!((sum.is_there(), sum.get()), (true, None));
        assert_eq!(sum.or(Figure(Some(Some(1)))), sum, "there, though unusable");
        let mut large = Sum::default();
        large.add(END - 1.0);
        assert_eq!(large.get(), Some((1 << 52) - 1));
        large.add(1.0);
        assert_eq!(large.get(), None, "a sum has a count's range");
    }

    #[test]
    fn mirrors_count_once() {
        let mut per_key = PerKey::default();
        for (key, value) in [("0", 3), ("0", 4), ("1", 5)] {
            per_key.take(["", "", key, ""], Some(value));
        }
        assert_eq!(per_key.sum().get(), Some(9));
        let names: Vec<String> = (0..=MAX_GROUPS).map(|n| n.to_string()).collect();
        names.iter().for_each(|name| per_key.take([name, "", "", ""], Some(1)));
        assert_eq!((per_key.sum().is_there(), per_key.sum().get()), (true, None));
    }
}
