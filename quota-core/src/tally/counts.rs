//! Counts: counters that many threads raise and few read.
//!
//! Floor 2. Invariant: counting never waits, and nothing that was counted is lost.

use crossbeam::utils::CachePadded;

use super::Counter;
use crate::sync::{AtomicU32, AtomicU64, OnceBox, Ordering, thread_hint};

/// Once threads have met, the counters are kept in so many more copies.
const STRIPES: usize = 8;

/// One counter for each of [`Counter`].
struct Counters {
    common: [AtomicU64; Counter::COMMON],
    /// Made by who first raises one of them: most tenants need none.
    rare: OnceBox<[AtomicU64; Counter::ALL.len() - Counter::COMMON]>,
}

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

impl Counters {
    fn new() -> Counters {
        Counters { common: zeroes(), rare: OnceBox::empty() }
    }

    fn of(&self, counter: Counter) -> &AtomicU64 {
        match self.common.get(counter as usize) {
            Some(count) => count,
            None => self.of_rare(counter),
        }
    }

    #[cold]
    #[inline(never)]
    fn of_rare(&self, counter: Counter) -> &AtomicU64 {
        &self.rare.get_or_make(zeroes)[counter as usize - Counter::COMMON]
    }

    fn get(&self, counter: Counter) -> u64 {
        let place = counter as usize;
        let rare = || Some(&self.rare.get()?[place - Counter::COMMON]);
        // ORDERING: relaxed; each counter is a figure by itself, and readers sum what they see.
        self.common.get(place).or_else(rare).map_or(0, |count| count.load(Ordering::Relaxed))
    }
}

fn zeroes<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

impl Stripe {
    fn new() -> Stripe {
        Stripe { taken: AtomicU32::new(0), counters: Counters::new() }
    }

    /// Adds, unless another thread does so at this moment: several counters for one locked step.
    fn try_add(&self, counts: &[(Counter, u64)]) -> bool {
        // ORDERING: acquire pairs with the release below: what the thread before has written is read here. Relaxed on
        // failure, which nothing follows from.
        if self.taken.compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        for &(counter, amount) in counts {
            let count = match self.counters.common.get(counter as usize) {
                Some(count) => count,
                None if amount == 0 => continue,
                None => self.counters.of_rare(counter),
            };
            // ORDERING: relaxed; nobody else writes it now, and each counter is a figure by itself to those who read.
            let sum = count.load(Ordering::Relaxed).wrapping_add(amount);
            // ORDERING: relaxed, as above.
            count.store(sum, Ordering::Relaxed);
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
        let met = self.met.get_or_make(|| Met {
            stripes: std::array::from_fn(|_| CachePadded::new(Stripe::new())),
            rest: Counters::new(),
        });
        let first = thread_hint();
        if (0..STRIPES).any(|next| met.stripes[(first + next) % STRIPES].try_add(counts)) {
            return;
        }
        for (counter, amount) in counts.iter().filter(|(_, amount)| *amount > 0) {
            // ORDERING: relaxed; a figure by itself.
            met.rest.of(*counter).fetch_add(*amount, Ordering::Relaxed);
        }
    }

    /// A counter's sum.
    pub(super) fn get(&self, counter: Counter) -> u64 {
        let met = self.met.get().map(|met| {
            let stripes = met.stripes.iter().map(|stripe| stripe.counters.get(counter));
            stripes.fold(met.rest.get(counter), u64::wrapping_add)
        });
        self.alone.counters.get(counter).wrapping_add(met.unwrap_or(0))
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
    fn counters_that_few_raise_are_made_by_who_does() {
        let counts = Counts::default();
        counts.add(&[(Counter::Settled, 1), (Counter::Degraded, 0)]);
        assert!(counts.alone.counters.rare.get().is_none());
        assert_eq!(counts.get(Counter::Degraded), 0);
        let in_counts = |counter: &Counter| !matches!(counter, Counter::Rejected | Counter::Queued);
        let counters: Vec<Counter> = Counter::ALL.into_iter().filter(in_counts).collect();
        counters.iter().zip(1..).for_each(|(counter, amount)| counts.add(&[(*counter, amount)]));
        let plus = |counter: &Counter| u64::from(*counter == Counter::Settled);
        for (counter, amount) in counters.iter().zip(1..) {
            assert_eq!(counts.get(*counter), amount + plus(counter), "{counter:?}");
        }
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
        assert_eq!(met.rest.get(Counter::Settled), 100);
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
