//! Counts: counters that many threads raise and few read.
//!
//! Floor 2. Invariant: counting never waits, and nothing that was counted is lost.

use crossbeam::utils::CachePadded;

use super::Counter;
use crate::sync::{AtomicU32, AtomicU64, OnceBox, Ordering, thread_hint};

/// Once threads have met, the counters are kept in so many more copies.
const STRIPES: usize = 8;

/// One counter for each of [`Counter`].
type Counters = [AtomicU64; Counter::ALL.len()];

/// The counters of one tally: most are raised by one thread at a time, which needs one copy and one step to have it.
pub(super) struct Counts {
    alone: Stripe,
    /// Made by the first thread that met another at `alone`.
    met: OnceBox<Met>,
}

struct Met {
    stripes: [CachePadded<Stripe>; STRIPES],
    /// For a thread that finds all stripes taken. Raised by `fetch_add`.
    rest: Counters,
}

/// Counters that one thread at a time raises.
struct Stripe {
    /// 1 while a thread raises the counters.
    taken: AtomicU32,
    /// Written by whoever has taken the stripe, read by whoever sums up.
    counters: Counters,
}

fn zeroes() -> Counters {
    std::array::from_fn(|_| AtomicU64::new(0))
}

impl Stripe {
    fn new() -> Stripe {
        Stripe { taken: AtomicU32::new(0), counters: zeroes() }
    }

    /// Adds, unless another thread does so at this moment: several counters for one locked step.
    fn try_add(&self, counts: &[(Counter, u64)]) -> bool {
        // ORDERING: acquire pairs with the release below: what the thread before has written is read here. Relaxed on
        // failure, which nothing follows from.
        if self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        for (counter, amount) in counts.iter().filter(|(_, amount)| *amount > 0) {
            let counter = &self.counters[*counter as usize];
            // ORDERING: relaxed; nobody else writes it now, and each counter is a figure by itself to those who read.
            let sum = counter.load(Ordering::Relaxed).wrapping_add(*amount);
            // ORDERING: relaxed, as above.
            counter.store(sum, Ordering::Relaxed);
        }
        // ORDERING: release, see above.
        self.taken.store(0, Ordering::Release);
        true
    }
}

impl Default for Counts {
    fn default() -> Counts {
        Counts { alone: Stripe::new(), met: OnceBox::empty() }
    }
}

impl Counts {
    pub(super) fn add(&self, counts: &[(Counter, u64)]) {
        if self.met.get().is_none() && self.alone.try_add(counts) {
            return;
        }
        let met = self
            .met
            .get_or_make(|| Met { stripes: std::array::from_fn(|_| CachePadded::new(Stripe::new())), rest: zeroes() });
        let first = thread_hint();
        if (0..STRIPES).any(|next| met.stripes[(first + next) % STRIPES].try_add(counts)) {
            return;
        }
        for (counter, amount) in counts {
            // ORDERING: relaxed; a figure by itself.
            met.rest[*counter as usize].fetch_add(*amount, Ordering::Relaxed);
        }
    }

    /// A counter's sum.
    pub(super) fn get(&self, counter: Counter) -> u64 {
        // ORDERING: relaxed; each counter is a figure by itself, and readers sum what they see.
        let of = |counters: &Counters| counters[counter as usize].load(Ordering::Relaxed);
        let met = self.met.get().map(|met| {
            let stripes = met.stripes.iter().map(|stripe| of(&stripe.counters));
            stripes.fold(of(&met.rest), u64::wrapping_add)
        });
        of(&self.alone.counters).wrapping_add(met.unwrap_or(0))
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_threads_count_together_is_all_there() {
        const THREADS: u64 = 12;
        const TIMES: u64 = 20_000;
        let counts = Counts::default();
        std::thread::scope(|scope| {
            for thread in 0..THREADS {
                let counts = &counts;
                scope.spawn(move || {
                    (0..TIMES).for_each(|_| counts.add(&[(Counter::Settled, 1), (Counter::Money, thread)]))
                });
            }
        });
        assert_eq!(counts.get(Counter::Settled), THREADS * TIMES);
        assert_eq!(counts.get(Counter::Money), TIMES * (0..THREADS).sum::<u64>());
        assert_eq!(counts.get(Counter::Cancelled), 0);
    }

    #[test]
    fn whoever_finds_it_taken_counts_elsewhere() {
        let counts = Counts::default();
        counts.add(&[(Counter::Settled, 1)]);
        assert!(counts.met.get().is_none(), "one thread needs one copy");
        // ORDERING: relaxed; one thread.
        counts.alone.taken.store(1, Ordering::Relaxed);
        counts.add(&[(Counter::Settled, 10)]);
        let met = counts.met.get().expect("made by who met another");
        // ORDERING: relaxed; one thread.
        met.stripes.iter().for_each(|stripe| stripe.taken.store(1, Ordering::Relaxed));
        counts.add(&[(Counter::Settled, 100)]);
        // ORDERING: relaxed; one thread.
        assert_eq!(met.rest[Counter::Settled as usize].load(Ordering::Relaxed), 100);
        assert_eq!(counts.get(Counter::Settled), 111);
    }
}

#[cfg(all(test, quota_loom))]
mod models {
    use super::*;

    /// Two threads that count at once, one of them twice: nothing is lost, whoever has which copy.
    #[test]
    fn loom_nothing_that_is_counted_is_lost() {
        loom::model(|| {
            let counts = std::sync::Arc::new(Counts::default());
            let other = {
                let counts = counts.clone();
                loom::thread::spawn(move || counts.add(&[(Counter::Settled, 1)]))
            };
            counts.add(&[(Counter::Settled, 10)]);
            counts.add(&[(Counter::Settled, 100)]);
            other.join().unwrap();
            assert_eq!(counts.get(Counter::Settled), 111);
        });
    }
}
