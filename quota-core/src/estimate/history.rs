//! Learned output lengths: a histogram per tenant and model, and what to hold by it.
//!
//! Floor 1. Invariant: pure functions over counts; the percentile is never below the true one of what was recorded, and
//! at most one eighth above it.

use super::DEFAULT_OUTPUT;

/// How many buckets a histogram has: one per length below 16, then eight per doubling, up to 2^24 tokens.
pub const BUCKETS: usize = 176;

/// Observations below which nothing has been learned.
pub const FEWEST: u64 = 20;

/// Observations at which a histogram is halved, so that the recent ones count most.
pub const HALVE_AT: u64 = 4096;

/// The bucket of an output length; lengths from 2^24 on share the last one.
pub const fn bucket_of(tokens: u64) -> usize {
    if tokens < 16 {
        return tokens as usize;
    }
    let octave = tokens.ilog2() as usize;
    let bucket = octave * 8 + (tokens >> (octave - 3)) as usize - 24;
    if bucket < BUCKETS { bucket } else { BUCKETS - 1 }
}

/// The largest length that a bucket holds (of the last bucket: 2^24 − 1); `bucket` above the last counts as the last.
pub const fn largest_in(bucket: usize) -> u64 {
    let bucket = if bucket < BUCKETS { bucket } else { BUCKETS - 1 };
    if bucket < 16 {
        return bucket as u64;
    }
    let (octave, step) = (bucket / 8 + 2, bucket % 8 + 8);
    ((step as u64 + 1) << (octave - 3)) - 1
}

/// The 95th percentile of the lengths counted, rounded up to its bucket's largest; `None` below [`FEWEST`].
pub fn p95(buckets: &[u32; BUCKETS]) -> Option<u64> {
    let total: u64 = buckets.iter().map(|count| *count as u64).sum();
    if total < FEWEST {
        return None;
    }
    let rank = (total * 95).div_ceil(100);
    let mut seen = 0;
    let bucket = buckets.iter().position(|count| {
        seen += *count as u64;
        seen >= rank
    });
    bucket.map(largest_in)
}

/// What to hold for a request's output: the percentile, or [`DEFAULT_OUTPUT`] while nothing has been learned, at most
/// the ceiling of the request. `choices` answers are held at `choices` times that.
pub fn held(buckets: &[u32; BUCKETS], choices: u64, ceiling: u64) -> u64 {
    p95(buckets).unwrap_or(DEFAULT_OUTPUT).saturating_mul(choices.max(1)).min(ceiling)
}

/// Halves every count, rounding down; what was seen once is forgotten.
pub fn halve(buckets: &mut [u32; BUCKETS]) {
    for count in buckets {
        *count /= 2;
    }
}

/// Lengths seen, in one place that one thread owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct History {
    /// Counts per bucket.
    pub buckets: [u32; BUCKETS],
    /// Their sum.
    pub total: u64,
}

impl Default for History {
    fn default() -> History {
        History { buckets: [0; BUCKETS], total: 0 }
    }
}

impl History {
    /// Counts one answer's length; halves the counts when [`HALVE_AT`] is reached.
    pub fn record(&mut self, tokens: u64) {
        let count = &mut self.buckets[bucket_of(tokens)];
        *count = count.saturating_add(1);
        self.total += 1;
        if self.total >= HALVE_AT {
            halve(&mut self.buckets);
            self.total = self.buckets.iter().map(|count| *count as u64).sum();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn buckets_are_dense_and_ordered() {
        let mut last = 0;
        for tokens in 0..200_000 {
            let bucket = bucket_of(tokens);
            assert!(bucket == last || bucket == last + 1, "{tokens}");
            assert!(largest_in(bucket) >= tokens, "{tokens}");
            assert!(largest_in(bucket) <= tokens + tokens / 8, "{tokens}");
            last = bucket;
        }
        assert_eq!(bucket_of((1 << 24) - 1), BUCKETS - 1);
        assert_eq!(largest_in(BUCKETS - 1), (1 << 24) - 1);
        assert_eq!(bucket_of(u64::MAX), BUCKETS - 1);
    }

    #[test]
    fn nothing_is_learned_from_a_few() {
        let mut history = History::default();
        for _ in 1..FEWEST {
            history.record(100);
        }
        assert_eq!(p95(&history.buckets), None);
        assert_eq!(held(&history.buckets, 1, 1_000_000), DEFAULT_OUTPUT);
        assert_eq!(held(&history.buckets, 1, 300), 300);
        history.record(100);
        assert_eq!(p95(&history.buckets), Some(103));
        assert_eq!(held(&history.buckets, 3, 1_000_000), 309);
        assert_eq!(held(&history.buckets, 3, 200), 200);
    }

    #[test]
    fn the_past_fades() {
        let mut history = History::default();
        for _ in 0..HALVE_AT {
            history.record(10_000);
        }
        assert_eq!(history.total, HALVE_AT / 2);
        for _ in 0..20 * HALVE_AT {
            history.record(10);
        }
        assert_eq!(p95(&history.buckets), Some(10));
        assert!(history.total < HALVE_AT);
    }

    proptest! {
        #[test]
        fn the_percentile_is_within_an_eighth(mut lengths in proptest::collection::vec(0u64..1 << 24, 20..400)) {
            let mut history = History::default();
            lengths.iter().for_each(|tokens| history.record(*tokens));
            lengths.sort_unstable();
            let exact = lengths[(lengths.len() * 95).div_ceil(100) - 1];
            let learned = p95(&history.buckets).unwrap();
            prop_assert!(learned >= exact && learned <= exact + exact / 8, "{learned} for {exact}");
        }
    }
}
