//! The timing wheel: which slots to look at when.
//!
//! Floor 2. Invariant: a slot with an open lease has its bit set in some bucket that the first sweep after its deadline's
//! tick looks at, or the one after that.
//!
//! A bucket is a bit per slot, so filing is one atomic or, a slot may stand in several buckets, and an old bit does no
//! harm: whoever looks reads the lease's own deadline. Memory is slots × 64 / 8 bytes, whatever happens.

use crate::sync::{AtomicU32, AtomicU64, Ordering};

/// Buckets, a tick each.
#[cfg(not(quota_loom))]
const BUCKETS: u64 = 64;
#[cfg(quota_loom)]
const BUCKETS: u64 = 4;

/// Ticks that are looked ahead; what lies farther is filed there and filed again then. Only half a round: the last buckets
/// of a whole one are those of the ticks just past, which the next sweeps look at once more, and whatever is filed there would
/// be looked at and filed there again by each of them.
const AHEAD: u64 = BUCKETS / 2;

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
        let present = now >> TICK_BITS;
        let mut tick = (deadline >> TICK_BITS).clamp(present, present + AHEAD);
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
        // Every shortage asks for a sweep: where there is none to do, nothing that others read is written.
        if !self.is_due(now) {
            return;
        }
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

    /// Whether a sweep may find something, or has the wheel to turn.
    fn is_due(&self, now: u64) -> bool {
        let present = now >> TICK_BITS;
        // ORDERING: sequentially consistent, as in `sweep`: what a sweep of this tick would find, this finds. `from` is
        // relaxed: an older one only adds buckets.
        let (from, swept) = (self.from.load(Ordering::Relaxed), self.swept.load(Ordering::SeqCst));
        let earliest = |tick: u64| self.buckets[(tick % BUCKETS) as usize].earliest.load(Ordering::SeqCst);
        // Once two sweeps of this tick have ended, another one looks at this tick's bucket alone.
        swept < present || from < present || earliest(present) <= now
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

    #[test]
    fn finds_exactly_what_is_due_whatever_was_filed_and_however_time_passed() {
        const TICK: u64 = 1 << TICK_BITS;
        let spans =
            [0, 1, TICK - 1, TICK, TICK + 1, 7 * TICK / 2, 31 * TICK, 32 * TICK, 63 * TICK, 65 * TICK, 300 * TICK];
        for seed in 0..100u64 {
            let mut state = seed;
            let mut below = |most: usize| {
                state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                (state >> 33) as usize % most
            };
            let (wheel, mut deadlines) = (Wheel::new(130), HashMap::new());
            let mut now = (1 << 50) + below(TICK as usize) as u64;
            for step in 0..120 {
                match below(5) {
                    0..3 => {
                        let (slot, deadline) = (below(130) as u32, now + spans[below(spans.len())] + below(3) as u64);
                        deadlines.insert(slot, deadline);
                        wheel.file(slot, deadline, now);
                    }
                    // What was filed for a lease that has ended since does no harm.
                    3 => drop(deadlines.remove(&(below(130) as u32))),
                    _ => now += spans[below(spans.len())],
                }
                let mut want: Vec<u32> =
                    deadlines.iter().filter(|(_, deadline)| **deadline <= now).map(|(slot, _)| *slot).collect();
                let mut found = Vec::new();
                wheel.sweep(now, usize::MAX, |slot| match deadlines.get(&slot) {
                    Some(deadline) if *deadline <= now => {
                        deadlines.remove(&slot);
                        found.push(slot);
                        Look::Ended
                    }
                    Some(deadline) => Look::Again(*deadline),
                    None => Look::Idle,
                });
                want.sort();
                found.sort();
                assert_eq!(found, want, "seed {seed}, step {step}");
            }
        }
    }

    #[test]
    fn what_is_far_ahead_is_looked_at_twice_a_round_however_often_is_swept() {
        let (wheel, start) = (Wheel::new(64), 1 << 50);
        let at = |tick: u64| start + (tick << TICK_BITS);
        (0..2).for_each(|_| wheel.sweep(start, 8, |_| unreachable!("nothing is filed")));
        wheel.file(9, at(1000), start);
        let mut looked = Vec::new();
        for tick in 0..1000 {
            for _ in 0..3 {
                wheel.sweep(at(tick), 8, |slot| {
                    assert_eq!(slot, 9);
                    looked.push(tick);
                    Look::Again(at(1000))
                });
            }
        }
        // Once its bucket's tick is over; until then nothing in it can be due.
        assert!(looked.iter().copied().eq((1..=30).map(|round| round * (AHEAD + 1))), "{looked:?}");
    }

    #[test]
    fn a_sweep_after_a_long_pause_looks_once_at_each_bucket() {
        let (wheel, now) = (Wheel::new(64), 1 << 50);
        // The first sweep of all: the longest pause there is.
        wheel.file(9, now + 1, now);
        wheel.sweep(now, 8, |slot| panic!("{slot} is due later in this tick"));
    }

    #[test]
    fn a_sweep_ends_as_many_as_it_may_and_the_next_goes_on() {
        let (wheel, start) = (Wheel::new(200), 1 << 50);
        let deadlines: HashMap<u32, u64> = (0..150).map(|slot| (slot, start + slot as u64 % 3 * SECOND)).collect();
        deadlines.iter().for_each(|(slot, deadline)| wheel.file(*slot, *deadline, start));
        let now = start + 4 * SECOND;
        let mut found = Vec::new();
        for at_most in [0, 1, 7, 40, 100, 100] {
            let now_found = due(&wheel, &deadlines, now, at_most);
            assert_eq!(now_found.len(), at_most.min(150 - found.len()));
            found.extend(now_found);
        }
        found.sort();
        assert!(found.iter().copied().eq(0..150), "each once");
    }

    #[test]
    fn a_sweep_is_due_as_long_as_there_is_something_to_look_at_or_to_turn() {
        let (wheel, start) = (Wheel::new(64), 1 << 50);
        assert!(wheel.is_due(start), "it has to turn");
        (0..2).for_each(|_| wheel.sweep(start, 8, |_| unreachable!("nothing is filed")));
        assert!(!wheel.is_due(start) && !wheel.is_due(start + 9));
        wheel.file(5, start + 9, start);
        assert!(!wheel.is_due(start + 8) && wheel.is_due(start + 9));
        wheel.sweep(start + 9, 8, |_| Look::Ended);
        assert!(!wheel.is_due(start + 9));
        assert!(wheel.is_due(start + (1 << TICK_BITS)), "a tick later");
    }

    #[test]
    fn only_one_sweeps_at_a_time() {
        let (wheel, start) = (Wheel::new(64), 1 << 50);
        (0..2).for_each(|slot| wheel.file(slot, start, start));
        let mut found = Vec::new();
        wheel.sweep(start, 8, |slot| {
            wheel.sweep(start, 8, |slot| panic!("{slot} is looked at beside a sweep"));
            found.push(slot);
            Look::Ended
        });
        assert_eq!(found, [0, 1]);
    }
}
