//! The timing wheel: which slots to look at when.
//!
//! Floor 2. Invariant: a slot with an open lease has its bit set in some bucket that the first sweep after its deadline's
//! tick looks at, or the one after that.
//!
//! A bucket is a bit per slot, so filing is one atomic or, a slot may stand in several buckets, and an old bit does no
//! harm: whoever looks reads the lease's own deadline. Memory is slots × 64 / 8 bytes, whatever happens.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Buckets, and so ticks that the wheel looks ahead; what lies farther is filed in the last and filed again then.
#[cfg(not(quota_loom))]
const BUCKETS: u64 = 64;
#[cfg(quota_loom)]
const BUCKETS: u64 = 4;

/// A tick is 2^30 nanoseconds, some 1.07 seconds.
const TICK_BITS: u32 = 30;

pub(crate) struct Wheel {
    buckets: Box<[Bucket]>,
    /// The tick up to which the last sweep has looked at all buckets. Only grows. Written by the sweeper, read by `file`.
    swept: AtomicU64,
    /// The tick from which the next sweep looks: where the last but one ended. Read and written by the sweeper.
    from: AtomicU64,
    /// 1 while somebody sweeps. Set and cleared by the sweeper.
    sweeping: AtomicU32,
}

/// The right to sweep, given up when dropped.
struct Sweeper<'a>(&'a AtomicU32);

impl Drop for Sweeper<'_> {
    fn drop(&mut self) {
        // ORDERING: release pairs with the acquire in `sweep`: one sweeper after another.
        self.0.store(0, Ordering::Release);
    }
}

struct Bucket {
    /// One bit a slot. Set by `file`, cleared by `sweep`.
    bits: Box<[AtomicU64]>,
    /// No deadline in the bucket is earlier. Lowered by `file`, raised by `sweep`.
    earliest: AtomicU64,
}

/// What to do with a slot that was looked at.
pub(crate) enum Look {
    /// Nothing is open there.
    Idle,
    /// What was due there has been seen to; this is what a sweep's bound counts.
    Ended,
    /// Look again at this engine time.
    Again(u64),
}

impl Wheel {
    pub(crate) fn new(slots: usize) -> Wheel {
        let bucket = || Bucket {
            bits: (0..slots.div_ceil(64)).map(|_| AtomicU64::new(0)).collect(),
            earliest: AtomicU64::new(u64::MAX),
        };
        Wheel {
            buckets: (0..BUCKETS).map(|_| bucket()).collect(),
            swept: AtomicU64::new(0),
            from: AtomicU64::new(0),
            sweeping: AtomicU32::new(0),
        }
    }

    /// Files a slot for a deadline.
    pub(crate) fn file(&self, slot: u32, deadline: u64, now: u64) {
        let (first, last) = (now >> TICK_BITS, (now >> TICK_BITS) + BUCKETS - 1);
        let mut tick = (deadline >> TICK_BITS).clamp(first, last);
        loop {
            let bucket = &self.buckets[(tick % BUCKETS) as usize];
            // ORDERING: release pairs with the acquire swap in `sweep`: the sweeper that takes the bit sees the lease.
            bucket.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Release);
            // ORDERING: release, after the bit: a sweeper that sees this hint (acquire) also sees the bit. Sequentially
            // consistent together with the load below and with the sweeper's store and load: either this thread sees
            // that the wheel has turned, or the sweep after the one that turned it sees the hint.
            bucket.earliest.fetch_min(deadline, Ordering::SeqCst);
            // ORDERING: sequentially consistent, see above. If the wheel has meanwhile turned past this bucket (this
            // thread was held up), the bit would wait for a whole round: file it in the present one too.
            let swept = self.swept.load(Ordering::SeqCst);
            if swept <= tick {
                return;
            }
            tick = swept;
        }
    }

    /// Looks at the slots whose turn has come until `at_most` of them had something due; at none if somebody else is
    /// sweeping. Slots with nothing due are not counted, or leases that ended long ago would use up the looks; there are
    /// at most as many as slots.
    pub(crate) fn sweep(&self, now: u64, at_most: usize, mut look: impl FnMut(u32) -> Look) {
        // ORDERING: acquire pairs with the release in `Sweeper::drop`; relaxed on failure, which nothing follows from.
        if self.sweeping.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return;
        }
        let _sweeper = Sweeper(&self.sweeping);
        let present = now >> TICK_BITS;
        // ORDERING: relaxed here and below; only the sweeper writes these two.
        let (from, swept) = (self.from.load(Ordering::Relaxed), self.swept.load(Ordering::Relaxed));
        let mut left = at_most;
        // What the last sweep has looked at is looked at again: a thread that files beside a sweep may set its bit just
        // after the look, and read `swept` just before the sweep ends.
        for tick in from.max(present.saturating_sub(BUCKETS - 1))..=present {
            // A bucket whose tick is over is emptied whatever its deadlines: those beyond the horizon are filed again.
            let due_by = if tick == present { now } else { u64::MAX - 1 };
            if !self.sweep_bucket((tick % BUCKETS) as usize, now, due_by, &mut left, &mut look) {
                return;
            }
        }
        // ORDERING: relaxed, as above.
        self.from.store(swept.min(present), Ordering::Relaxed);
        // ORDERING: sequentially consistent, see `file`.
        self.swept.store(swept.max(present), Ordering::SeqCst);
    }

    /// Whether the bucket was looked at to its end.
    fn sweep_bucket(
        &self,
        at: usize,
        now: u64,
        due_by: u64,
        left: &mut usize,
        look: &mut impl FnMut(u32) -> Look,
    ) -> bool {
        let bucket = &self.buckets[at];
        // ORDERING: sequentially consistent, see `file`.
        if bucket.earliest.load(Ordering::SeqCst) > due_by {
            return true;
        }
        // ORDERING: acquire and release: a deadline filed from here on lowers the new value, so it is not lost.
        bucket.earliest.swap(u64::MAX, Ordering::AcqRel);
        for (word_at, word) in bucket.bits.iter().enumerate() {
            // ORDERING: relaxed; a bit set after this look comes with a hint of its own.
            if word.load(Ordering::Relaxed) == 0 {
                continue;
            }
            // ORDERING: acquire, see `file`.
            let mut bits = word.swap(0, Ordering::Acquire);
            while bits != 0 {
                let slot = word_at as u32 * 64 + bits.trailing_zeros();
                if *left == 0 {
                    // ORDERING: release; the bits go back for the next sweeper, with a hint that calls for one.
                    word.fetch_or(bits, Ordering::Release);
                    bucket.earliest.fetch_min(now, Ordering::Release);
                    return false;
                }
                bits &= bits - 1;
                match look(slot) {
                    Look::Idle => {}
                    Look::Ended => *left -= 1,
                    Look::Again(deadline) => self.file(slot, deadline, now),
                }
            }
        }
        true
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;
    use std::collections::HashMap;

    const SECOND: u64 = 1_000_000_000;

    /// Runs a wheel over real deadlines; gives the engine times at which each slot was found due.
    fn due(wheel: &Wheel, deadlines: &HashMap<u32, u64>, now: u64, at_most: usize) -> Vec<u32> {
        let mut found = Vec::new();
        wheel.sweep(now, at_most, |slot| match deadlines.get(&slot) {
            Some(&deadline) if deadline <= now => {
                found.push(slot);
                Look::Ended
            }
            Some(&deadline) => Look::Again(deadline),
            None => Look::Idle,
        });
        found.sort();
        found
    }

    #[test]
    fn finds_what_is_due_at_its_deadline_and_not_before() {
        let wheel = Wheel::new(1000);
        let start = 1 << 50;
        let mut deadlines = HashMap::new();
        for (slot, after) in [(1, SECOND / 2), (2, 30 * SECOND), (3, 30 * SECOND), (900, 4000 * SECOND)] {
            deadlines.insert(slot, start + after);
            wheel.file(slot, start + after, start);
        }
        assert_eq!(due(&wheel, &deadlines, start + SECOND / 2 - 1, 100), [0u32; 0]);
        assert_eq!(due(&wheel, &deadlines, start + SECOND / 2, 100), [1]);
        assert_eq!(due(&wheel, &deadlines, start + 30 * SECOND - 1, 100), [0u32; 0]);
        assert_eq!(due(&wheel, &deadlines, start + 30 * SECOND, 1).len(), 1);
        assert_eq!(due(&wheel, &deadlines, start + 30 * SECOND, 1).len(), 1);
        assert_eq!(due(&wheel, &deadlines, start + 30 * SECOND, 1), [0u32; 0]);
        // Far beyond the horizon, reached by one leap of the clock.
        assert_eq!(due(&wheel, &deadlines, start + 3999 * SECOND, 100), [0u32; 0]);
        assert_eq!(due(&wheel, &deadlines, start + 4000 * SECOND, 100), [900]);
    }

    #[test]
    fn few_looks_at_a_time_get_to_everything() {
        let wheel = Wheel::new(256);
        let start = 1 << 50;
        let mut deadlines: HashMap<u32, u64> = (0..100).map(|slot| (slot, start + SECOND)).collect();
        deadlines.iter().for_each(|(slot, deadline)| wheel.file(*slot, *deadline, start));
        // Slots that were filed and have nothing open any more do not count.
        (100..256).for_each(|slot| wheel.file(slot, start + SECOND / 2, start));
        // Each that is found has a far deadline next, as an unresolved lease has; the looks go on to the others.
        for turn in 0..50 {
            let now = start + SECOND + turn * SECOND / 4;
            let found = due(&wheel, &deadlines, now, 2);
            assert_eq!(found.len(), 2, "turn {turn}");
            for slot in found {
                deadlines.insert(slot, now + 86_400 * SECOND);
                wheel.file(slot, now + 86_400 * SECOND, now);
            }
        }
    }

    #[test]
    fn a_renewed_deadline_is_found_at_its_new_time() {
        let wheel = Wheel::new(64);
        let start = 1 << 50;
        let mut deadlines = HashMap::from([(5, start + SECOND)]);
        wheel.file(5, start + SECOND, start);
        deadlines.insert(5, start + 9 * SECOND);
        assert_eq!(due(&wheel, &deadlines, start + 8 * SECOND, 100), [0u32; 0]);
        assert_eq!(due(&wheel, &deadlines, start + 9 * SECOND, 100), [5]);
    }
}
