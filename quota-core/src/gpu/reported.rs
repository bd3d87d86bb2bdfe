//! A pool whose replicas report: the newest sample of each, until it is too old.
//!
//! Floor 2. Invariant: reading takes no lock; a replica that has not reported in time is stale, never idle.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use super::{GpuBackend, Load, ReplicaLoad};
use crate::sync::ArcCell;
use crate::time::Now;

/// The newest sample of each replica, as a poller, or the host out of responses' headers, writes it.
///
/// A sample older than the time-to-live is shown with `stale`, and so is a replica that has never reported. Memory and
/// the replicas are fixed when it is built.
pub struct Reported {
    cells: Box<[ArcCell<ReplicaLoad>]>,
    /// Nanoseconds.
    ttl: u64,
    max_running: Option<u64>,
    kv_tokens: Option<u64>,
}

impl Reported {
    /// A pool of `replicas`, numbered from 0, of which none has reported. A sample holds for `ttl`, that moment
    /// included; three times the interval of a poller, and its time-out, is usual.
    pub fn new(replicas: u16, ttl: Duration) -> Reported {
        let cells = (0..replicas).map(|_| ArcCell::empty()).collect();
        let ttl = u64::try_from(ttl.as_nanos()).unwrap_or(u64::MAX);
        Reported { cells, ttl, max_running: None, kv_tokens: None }
    }

    /// The same with capacities that stand in where a replica's samples tell none: the most requests that run on it at
    /// once, and the tokens of keys and values that it holds.
    pub fn declaring(mut self, max_running: Option<u64>, kv_tokens: Option<u64>) -> Reported {
        (self.max_running, self.kv_tokens) = (max_running, kv_tokens);
        self
    }

    /// How many replicas there are.
    pub fn replicas(&self) -> usize {
        self.cells.len()
    }

    /// Puts a sample of a replica, measured at `now`, in place of the one before. What `load` says of its age is not
    /// looked at.
    ///
    /// `false`, and nothing is kept, if there is no such replica, or its sample is newer.
    pub fn report(&self, replica: usize, load: ReplicaLoad, now: Now) -> bool {
        let sample = ReplicaLoad { as_of: Some(now.mono), stale: false, ..load };
        self.replace(replica, now, |_| sample.clone())
    }

    /// Puts the figures that `load` has, measured at `now`, in place of the same figures of the sample before: for
    /// reports that say less than a poller learns, such as headers. What is kept keeps its age, and the sample is as old
    /// as the oldest figure of load in it; of a stale one only capacities are kept.
    ///
    /// `false`, and nothing is kept, if there is no such replica, or its sample is newer.
    pub fn amend(&self, replica: usize, load: ReplicaLoad, now: Now) -> bool {
        self.replace(replica, now, |before| {
            let mut sample = ReplicaLoad { as_of: Some(now.mono), stale: false, ..load.clone() };
            let Some(before) = before else { return sample };
            sample.kv_tokens = sample.kv_tokens.or(before.kv_tokens);
            sample.max_running = sample.max_running.or(before.max_running);
            if self.is_old(before, now) {
                return sample;
            }
            let keeps = (load.running.is_none() && before.running.is_some())
                || (load.waiting.is_none() && before.waiting.is_some())
                || (load.kv_used_ppm.is_none() && before.kv_used_ppm.is_some());
            sample.running = sample.running.or(before.running);
            sample.waiting = sample.waiting.or(before.waiting);
            sample.kv_used_ppm = sample.kv_used_ppm.or(before.kv_used_ppm);
            sample.preemptions = sample.preemptions.or(before.preemptions);
            if keeps {
                sample.as_of = before.as_of;
            }
            sample
        })
    }

    fn replace(&self, replica: usize, now: Now, make: impl Fn(Option<&ReplicaLoad>) -> ReplicaLoad) -> bool {
        let Some(cell) = self.cells.get(replica) else { return false };
        loop {
            let before = cell.load();
            if before.as_ref().is_some_and(|before| before.as_of > Some(now.mono)) {
                return false;
            }
            if cell.swap_if(before.as_ref(), Arc::new(make(before.as_deref()))) {
                return true;
            }
        }
    }

    fn is_old(&self, sample: &ReplicaLoad, now: Now) -> bool {
        sample.as_of.is_none_or(|as_of| now.mono.saturating_sub(as_of) > self.ttl)
    }
}

impl GpuBackend for Reported {
    /// Replica by replica, in their order. Cost: linear in the replicas.
    fn load(&self, now: Now) -> Load {
        let shown = |cell: &ArcCell<ReplicaLoad>| {
            let mut shown = cell.with(|sample| sample.map(|sample| (**sample).clone())).unwrap_or_default();
            shown.stale = self.is_old(&shown, now);
            shown.max_running = shown.max_running.or(self.max_running);
            shown.kv_tokens = shown.kv_tokens.or(self.kv_tokens);
            shown
        };
        Load { replicas: self.cells.iter().map(shown).collect() }
    }
}

impl fmt::Debug for Reported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let replicas: Vec<_> = self.cells.iter().map(ArcCell::load).collect();
        f.debug_struct("Reported").field("ttl", &self.ttl).field("replicas", &replicas).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::time::SECOND;

    fn pool() -> Reported {
        Reported::new(2, Duration::from_secs(10))
    }

    fn at(seconds: u64) -> Now {
        Now::at(seconds * SECOND)
    }

    fn busy(running: u64) -> ReplicaLoad {
        ReplicaLoad { running: Some(running), waiting: Some(1), kv_used_ppm: Some(500_000), ..ReplicaLoad::default() }
    }

    #[test]
    fn who_never_reported_is_stale_and_not_idle() {
        let pool = pool();
        let load = pool.load(at(1));
        assert!(load.is_stale());
        assert_eq!(load.replicas, vec![ReplicaLoad { stale: true, ..ReplicaLoad::default() }; 2]);
        assert!(pool.report(1, busy(3), at(1)));
        let load = pool.load(at(1));
        assert_eq!(load.fresh().collect::<Vec<_>>(), [&ReplicaLoad { as_of: Some(SECOND), ..busy(3) }]);
        assert!(!pool.report(2, busy(3), at(1)) && !pool.amend(2, busy(3), at(1)), "there is no replica 2");
    }

    #[test]
    fn a_sample_holds_for_its_time() {
        let pool = pool();
        pool.report(0, ReplicaLoad { stale: true, as_of: None, ..busy(3) }, at(5));
        for (seconds, stale) in [(4, false), (5, false), (15, false), (16, true), (u64::MAX / SECOND, true)] {
            let replica = pool.load(at(seconds)).replicas.swap_remove(0);
            assert_eq!(
                (replica.stale, replica.running, replica.as_of),
                (stale, Some(3), Some(5 * SECOND)),
                "{seconds}"
            );
        }
        assert!(!pool.report(0, busy(9), at(4)), "an older one comes late");
        assert!(pool.report(0, busy(7), at(20)));
        let replica = pool.load(at(21)).replicas.swap_remove(0);
        assert_eq!((replica.stale, replica.running), (false, Some(7)));
    }

    #[test]
    fn a_header_amends_what_was_polled() {
        let pool = pool();
        let header = ReplicaLoad { waiting: Some(8), kv_used_ppm: Some(900_000), ..ReplicaLoad::default() };
        let capacity = ReplicaLoad { kv_tokens: Some(1000), preemptions: Some(2), ..busy(3) };
        pool.report(0, capacity, at(5));
        assert!(pool.amend(0, header.clone(), at(9)));
        let replica = pool.load(at(9)).replicas.swap_remove(0);
        assert_eq!((replica.running, replica.waiting, replica.kv_used_ppm), (Some(3), Some(8), Some(900_000)));
        assert_eq!((replica.kv_tokens, replica.preemptions), (Some(1000), Some(2)));
        assert_eq!(replica.as_of, Some(5 * SECOND), "as old as the running ones");
        assert!(pool.amend(0, header.clone(), at(16)));
        let replica = pool.load(at(16)).replicas.swap_remove(0);
        assert_eq!((replica.running, replica.waiting, replica.kv_tokens), (None, Some(8), Some(1000)));
        assert_eq!((replica.stale, replica.as_of), (false, Some(16 * SECOND)), "what was stale is gone");
        assert!(pool.amend(0, header.clone(), at(17)));
        assert_eq!(pool.load(at(17)).replicas[0].as_of, Some(17 * SECOND), "nothing older is left");
        assert!(!pool.amend(0, header.clone(), at(15)));
        assert!(pool.amend(1, header, at(1)), "the first that is known of a replica");
    }

    #[test]
    fn what_is_declared_stands_in() {
        let pool = pool().declaring(Some(64), Some(5000));
        pool.report(0, ReplicaLoad { max_running: Some(8), ..busy(1) }, at(1));
        let load = pool.load(at(1));
        let capacities = load.replicas.iter().map(|replica| (replica.max_running, replica.kv_tokens, replica.stale));
        assert_eq!(capacities.collect::<Vec<_>>(), [(Some(8), Some(5000), false), (Some(64), Some(5000), true)]);
    }
}
