//! The timing wheel: which slots to look at when.
//!
//! Floor 2. Invariant: a slot with an open lease has its bit set in some bucket whose turn comes no later than one tick
//! after the lease's deadline.
//!
//! A bucket is a bit per slot, so filing is one atomic or, a slot may stand in several buckets, and an old bit does no
//! harm: whoever looks reads the lease's own deadline. Memory is slots × 64 / 8 bytes, whatever happens.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Buckets, and so ticks that the wheel looks ahead; what lies farther is filed in the last and filed again then.
const BUCKETS: u64 = 64;

/// A tick is 2^30 nanoseconds, some 1.07 seconds.
const TICK_BITS: u32 = 30;

pub(crate) struct Wheel {
    buckets: Box<[Bucket]>,
    /// The tick up to which all buckets have been looked at; that tick's own bucket is looked at again. Only grows.
    /// Written by the sweeper, read by `file`.
    swept: AtomicU64,
    /// 1 while somebody sweeps. Whoever finds it so leaves the work to them: were two to walk one bucket, one could turn
    /// the wheel past what the other puts back.
    sweeping: AtomicU32,
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
    Done,
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
            sweeping: AtomicU32::new(0),
        }
    }

    /// Files a slot for a deadline.
    pub(crate) fn file(&self, slot: u32, deadline: u64, now: u64) {
        self.file_from(now >> TICK_BITS, slot, deadline);
    }

    /// Files a slot for a deadline, or in the last bucket of the round that begins with a tick.
    fn file_from(&self, first: u64, slot: u32, deadline: u64) {
        let mut tick = (deadline >> TICK_BITS).clamp(first, first + BUCKETS - 1);
        loop {
            let bucket = &self.buckets[(tick % BUCKETS) as usize];
            // ORDERING: release pairs with the acquire swap in `sweep`: the sweeper that takes the bit sees the lease.
            bucket.bits[slot as usize / 64].fetch_or(1 << (slot % 64), Ordering::Release);
            // ORDERING: release, after the bit: a sweeper that sees this hint (acquire) also sees the bit.
            bucket.earliest.fetch_min(deadline, Ordering::Release);
            // ORDERING: acquire pairs with the release in `sweep`. If the wheel has meanwhile turned past this bucket
            // (this thread was held up), the bit would wait for a whole round: file it in the present one too.
            let swept = self.swept.load(Ordering::Acquire);
            if swept <= tick {
                return;
            }
            tick = swept;
        }
    }

    /// Looks at the slots whose turn has come, `at_most` of them; at none while somebody else does.
    pub(crate) fn sweep(&self, now: u64, at_most: usize, look: impl FnMut(u32) -> Look) {
        // ORDERING: acquire pairs with the release below: what the last sweeper put back is seen.
        if self.sweeping.swap(1, Ordering::Acquire) == 0 {
            self.sweep_alone(now, at_most, look);
            // ORDERING: release, see above.
            self.sweeping.store(0, Ordering::Release);
        }
    }

    fn sweep_alone(&self, now: u64, at_most: usize, mut look: impl FnMut(u32) -> Look) {
        let present = now >> TICK_BITS;
        // ORDERING: relaxed; only sweepers write it, one after the other.
        let from = self.swept.load(Ordering::Relaxed).max(present.saturating_sub(BUCKETS - 1));
        let mut left = at_most;
        for tick in from..=present {
            // A bucket whose tick is over is emptied whatever its deadlines: those beyond the horizon are filed again.
            let due_by = if tick == present { now } else { u64::MAX - 1 };
            if !self.sweep_bucket(tick, now, due_by, &mut left, &mut look) {
                return;
            }
            // The wheel turns bucket by bucket: a sweep that stops in one does not begin with those before it next time,
            // where it would look at the same leases again and get no farther.
            // ORDERING: release, see `file`. A maximum: a sweep with an older time does not turn the wheel back.
            self.swept.fetch_max(present.min(tick + 1), Ordering::Release);
        }
    }

    /// Whether the bucket was looked at to its end.
    fn sweep_bucket(
        &self,
        tick: u64,
        now: u64,
        due_by: u64,
        left: &mut usize,
        look: &mut impl FnMut(u32) -> Look,
    ) -> bool {
        let bucket = &self.buckets[(tick % BUCKETS) as usize];
        // ORDERING: acquire, see `file`.
        if bucket.earliest.load(Ordering::Acquire) > due_by {
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
                *left -= 1;
                bits &= bits - 1;
                if let Look::Again(deadline) = look(slot) {
                    // In the round that begins here, so that what lies beyond it goes to a bucket that this sweep is past.
                    self.file_from(tick, slot, deadline);
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
                Look::Done
            }
            Some(&deadline) => Look::Again(deadline),
            None => Look::Done,
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
    fn a_bounded_look_reaches_everything() {
        let wheel = Wheel::new(64);
        let start = 1 << 50;
        let mut deadlines: HashMap<u32, u64> = (0..10).map(|slot| (slot, start + SECOND)).collect();
        deadlines.iter().for_each(|(slot, deadline)| wheel.file(*slot, *deadline, start));
        // Each that is found has a far deadline next, as an unresolved lease has; the looks go on to the others.
        let mut found = 0;
        for turn in 0..20 {
            let now = start + SECOND + turn * SECOND / 2;
            for slot in due(&wheel, &deadlines, now, 2) {
                found += 1;
                deadlines.insert(slot, now + 86_400 * SECOND);
                wheel.file(slot, now + 86_400 * SECOND, now);
            }
        }
        assert_eq!(found, 10);
    }

    #[test]
    fn few_looks_at_a_time_get_to_everything() {
        let wheel = Wheel::new(256);
        let start = 1 << 50;
        let mut deadlines: HashMap<u32, u64> = (0..200).map(|slot| (slot, start + SECOND)).collect();
        deadlines.iter().for_each(|(slot, deadline)| wheel.file(*slot, *deadline, start));
        let (mut found, mut sweeps) = (0, 0);
        while found < 200 {
            sweeps += 1;
            assert!(sweeps < 1000, "{found} found");
            let mut looks = 0;
            let mut first = Vec::new();
            wheel.sweep(start + SECOND, 3, |slot| {
                looks += 1;
                if deadlines[&slot] > start + SECOND {
                    return Look::Again(deadlines[&slot]);
                }
                // Each is filed again, far beyond the horizon, as an expired lease is.
                first.push(slot);
                Look::Again(start + 4000 * SECOND)
            });
            assert!(looks <= 3);
            found += first.len();
            first.into_iter().for_each(|slot| {
                deadlines.insert(slot, start + 4000 * SECOND);
            });
        }
        assert_eq!(due(&wheel, &deadlines, start + 4000 * SECOND, 1000).len(), 200);
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
