//! Lengths: how long answers are, as far as it has been seen.
//!
//! Floor 2. Invariant: recording never waits, and a length that is lost beside another thread changes a percentile by less
//! than its own error.

use crate::estimate::history::{self, BUCKETS};
use crate::sync::{AtomicU64, OnceBox, Ordering};

/// After so many lengths the percentile is reckoned anew.
const RELEARN_EVERY: u64 = 16;

/// The first lengths are kept one by one: a tenant that asks seldom needs no histogram.
const FIRST: usize = 24;

/// Counts of 16 bits in a word of the histogram. It is halved long before one is full.
const A_WORD: usize = 4;

/// The lengths of answers, by bucket.
#[derive(Default)]
pub(super) struct Lengths {
    /// How many were recorded.
    recorded: AtomicU64,
    /// The buckets of the first ones plus one, a byte each. Added by who recorded them, emptied by who halves the counts.
    first: [AtomicU64; FIRST / 8],
    /// Counts by bucket, of those after the first. Raised by settlements, halved by the one that finds them full.
    counts: OnceBox<[AtomicU64; BUCKETS / A_WORD]>,
}

impl Lengths {
    /// Records a length; the 95th percentile, where it was reckoned anew.
    pub(super) fn record(&self, length: u64) -> Option<u64> {
        let bucket = history::bucket_of(length);
        // ORDERING: relaxed throughout; the histogram is a statistic, and a count that is lost while another thread
        // halves the buckets changes it by less than its own error. Each number is handed out once.
        let nth = self.recorded.fetch_add(1, Ordering::Relaxed);
        let (word, shift, amount) = match usize::try_from(nth).ok().filter(|nth| *nth < FIRST) {
            Some(nth) => (&self.first[nth / 8], nth % 8 * 8, bucket as u64 + 1),
            None => (&self.counts()[bucket / A_WORD], bucket % A_WORD * 16, 1),
        };
        // ORDERING: relaxed, as above.
        word.fetch_add(amount << shift, Ordering::Relaxed);
        if !(nth + 1).is_multiple_of(RELEARN_EVERY) {
            return None;
        }
        let mut buckets = self.buckets();
        let p95 = history::p95(&buckets);
        if buckets.iter().map(|count| *count as u64).sum::<u64>() >= history::HALVE_AT {
            history::halve(&mut buckets);
            self.replace(&buckets);
        }
        p95
    }

    fn counts(&self) -> &[AtomicU64; BUCKETS / A_WORD] {
        self.counts.get_or_make(|| std::array::from_fn(|_| AtomicU64::new(0)))
    }

    fn buckets(&self) -> [u32; BUCKETS] {
        let mut buckets = [0; BUCKETS];
        // ORDERING: relaxed, as in `record`.
        let first = self.first.iter().map(|word| word.load(Ordering::Relaxed)).filter(|word| *word != 0);
        for byte in first.flat_map(u64::to_le_bytes) {
            if let Some(count) = usize::from(byte).checked_sub(1).and_then(|bucket| buckets.get_mut(bucket)) {
                *count += 1;
            }
        }
        for (counts, word) in buckets.chunks_exact_mut(A_WORD).zip(self.counts.get().into_iter().flatten()) {
            // ORDERING: relaxed, as in `record`.
            let word = word.load(Ordering::Relaxed);
            // Most tenants' answers are of a few lengths.
            if word != 0 {
                for (at, count) in counts.iter_mut().enumerate() {
                    *count += u32::from((word >> (at * 16)) as u16);
                }
            }
        }
        buckets
    }

    fn replace(&self, buckets: &[u32; BUCKETS]) {
        // ORDERING: relaxed, as in `record`.
        self.first.iter().for_each(|word| word.store(0, Ordering::Relaxed));
        for (counts, word) in buckets.chunks_exact(A_WORD).zip(self.counts()) {
            let packed = counts.iter().rev().fold(0, |word, count| word << 16 | u64::from(*count & 0xffff));
            // ORDERING: relaxed, as in `record`.
            word.store(packed, Ordering::Relaxed);
        }
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_learned_is_what_plain_counts_say() {
        let (lengths, mut buckets, mut halved) = (Lengths::default(), [0u32; BUCKETS], 0);
        let mut seed = 7u64;
        for nth in 1..20_000u64 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            // Of all sizes, and many of one.
            let length = if nth % 3 == 0 { 200 } else { (seed >> 32) >> (seed % 33) };
            let told = lengths.record(length);
            buckets[history::bucket_of(length)] += 1;
            assert_eq!(lengths.counts.get().is_some(), nth > FIRST as u64, "the first need no histogram");
            if nth % RELEARN_EVERY != 0 {
                assert_eq!(told, None);
                continue;
            }
            assert_eq!(told, history::p95(&buckets), "after {nth}");
            if buckets.iter().map(|count| u64::from(*count)).sum::<u64>() >= history::HALVE_AT {
                history::halve(&mut buckets);
                halved += 1;
            }
            assert_eq!(lengths.buckets(), buckets, "after {nth}");
        }
        assert!(halved > 3, "{halved}");
    }
}
