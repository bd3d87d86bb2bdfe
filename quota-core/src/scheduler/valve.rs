//! The valve: how many requests, and how many tokens of memory, are let into a pool at once.
//!
//! Floor 2. Invariant: what is in flight is counted in one word, so that no two threads get the same room.

use std::sync::Arc;

use super::drr::MAX_KEPT;
use crate::gpu::Load;
use crate::sync::{AtomicU64, Ordering};
use crate::time::SECOND;

/// The most requests in flight.
pub const MAX_IN_FLIGHT: u64 = (1 << 20) - 1;

/// Bits of the tokens kept: as many as all requests in flight can keep.
const KEPT_BITS: u32 = 44;

const KEPT: u64 = (1 << KEPT_BITS) - 1;

const _: () = assert!(MAX_IN_FLIGHT * MAX_KEPT <= KEPT && MAX_IN_FLIGHT << KEPT_BITS >> KEPT_BITS == MAX_IN_FLIGHT);

/// What is in flight, and how much may be.
#[derive(Debug)]
pub(super) struct Valve {
    /// Requests in flight in the upper 20 bits, tokens that they keep in the lower 44. Written by whoever takes or gives back
    /// room, read by all.
    word: AtomicU64,
    /// The most requests. Written by the thread that decides, read by all; so is `most_kept`.
    most: AtomicU64,
    /// The most tokens.
    most_kept: AtomicU64,
    /// The part of both, in percent, that only sparse flows may use.
    sparse_percent: u64,
}

/// What is in flight and what may be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ValveFigures {
    /// Requests in flight.
    pub in_flight: u64,
    /// The most of them.
    pub most: u64,
    /// Tokens that they are expected to keep in the pool's memory.
    pub kept: u64,
    /// The most of these.
    pub most_kept: u64,
}

impl Valve {
    pub(super) fn new(capacity: Capacity, sparse_percent: u8) -> Valve {
        let valve = Valve {
            word: AtomicU64::new(0),
            most: AtomicU64::new(0),
            most_kept: AtomicU64::new(0),
            sparse_percent: u64::from(sparse_percent.min(100)),
        };
        valve.set(capacity);
        valve
    }

    /// Takes room for a request that keeps so many tokens, if there is. A pool in which nothing runs has room for any
    /// request, unless it has no room at all.
    pub(super) fn try_take(&self, kept: u64, sparse: bool) -> bool {
        let kept = kept.min(MAX_KEPT);
        self.change(|in_flight, now_kept| {
            self.fits(in_flight, now_kept, kept, sparse).then(|| (in_flight + 1, now_kept + kept))
        })
    }

    /// Whether there is room for any request at all, at this moment.
    pub(super) fn is_open(&self) -> bool {
        // ORDERING: relaxed, as in `try_take`.
        let word = self.word.load(Ordering::Relaxed);
        self.fits(word >> KEPT_BITS, word & KEPT, 0, true)
    }

    /// Whether there is room for a request of a flow that is not sparse, at this moment.
    pub(super) fn has_room(&self, kept: u64) -> bool {
        // ORDERING: relaxed, as in `try_take`.
        let word = self.word.load(Ordering::Relaxed);
        self.fits(word >> KEPT_BITS, word & KEPT, kept.min(MAX_KEPT), false)
    }

    fn fits(&self, in_flight: u64, now_kept: u64, kept: u64, sparse: bool) -> bool {
        // ORDERING: relaxed; the bounds are numbers by themselves, and a thread may go by the last ones for a moment.
        let (most, most_kept) = (self.most.load(Ordering::Relaxed), self.most_kept.load(Ordering::Relaxed));
        let part = |whole: u64| match sparse {
            true => whole,
            false => whole - (u128::from(whole) * u128::from(self.sparse_percent) / 100) as u64,
        };
        let fits = in_flight < part(most) && now_kept + kept <= part(most_kept);
        fits || (in_flight == 0 && most > 0)
    }

    /// Counts a request whether there is room or not.
    pub(super) fn take(&self, kept: u64) {
        self.change(|in_flight, now_kept| Some((in_flight + 1, now_kept + kept.min(MAX_KEPT))));
    }

    /// Counts more tokens for a request in flight.
    pub(super) fn add(&self, kept: u64) {
        self.change(|in_flight, now_kept| Some((in_flight, now_kept + kept)));
    }

    /// Gives back the room of a request.
    pub(super) fn give_back(&self, kept: u64) {
        self.change(|in_flight, now_kept| Some((in_flight.saturating_sub(1), now_kept.saturating_sub(kept))));
    }

    fn change(&self, next: impl Fn(u64, u64) -> Option<(u64, u64)>) -> bool {
        let changed = |word: u64| {
            let (in_flight, kept) = next(word >> KEPT_BITS, word & KEPT)?;
            Some(in_flight.min(MAX_IN_FLIGHT) << KEPT_BITS | kept.min(KEPT))
        };
        // ORDERING: relaxed; the word is all there is to agree on, and room that is given back is told by a message.
        self.word.fetch_update(Ordering::Relaxed, Ordering::Relaxed, changed).is_ok()
    }

    fn set(&self, capacity: Capacity) {
        // ORDERING: relaxed, as in `try_take`.
        self.most.store(capacity.requests.min(MAX_IN_FLIGHT), Ordering::Relaxed);
        self.most_kept.store(capacity.kept.unwrap_or(KEPT).min(KEPT), Ordering::Relaxed);
    }

    pub(super) fn figures(&self) -> ValveFigures {
        // ORDERING: relaxed; figures to show.
        let word = self.word.load(Ordering::Relaxed);
        let (most, most_kept) = (self.most.load(Ordering::Relaxed), self.most_kept.load(Ordering::Relaxed));
        ValveFigures { in_flight: word >> KEPT_BITS, most, kept: word & KEPT, most_kept }
    }
}

/// What a pool can take.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Capacity {
    /// Requests at once, at most [`MAX_IN_FLIGHT`].
    pub requests: u64,
    /// Tokens in its memory; `None` where it is not known.
    pub kept: Option<u64>,
    /// Replicas, for the least that the valve is closed to: one request each.
    pub replicas: u64,
}

impl Capacity {
    /// Of one replica with so many requests at once, and no word about its memory.
    pub fn requests(requests: u64) -> Capacity {
        Capacity { requests, kept: None, replicas: 1 }
    }

    /// No bound but that of the word that counts.
    pub fn unlimited() -> Capacity {
        Capacity::requests(MAX_IN_FLIGHT)
    }

    /// What the replicas say that they can take, a twentieth of their memory kept free; a replica that doesn't say how many
    /// requests counts for `requests`. Memory is known only where all say it. Without replicas nothing fits.
    pub fn of(load: &Load, requests: u64) -> Capacity {
        let most = load.replicas.iter().map(|replica| replica.max_running.unwrap_or(requests));
        let mut tokens = load.replicas.iter().map(|replica| replica.kv_tokens);
        let kept = tokens.try_fold(0u64, |sum, tokens| Some(sum.saturating_add(tokens?)));
        Capacity {
            requests: most.fold(0u64, u64::saturating_add).min(MAX_IN_FLIGHT),
            kept: kept.filter(|_| !load.replicas.is_empty()).map(|kept| kept - kept / 20),
            replicas: load.replicas.len() as u64,
        }
    }
}

/// All of the capacity, in parts fine enough that a step up from the least is not rounded away.
const WHOLE: u64 = 1 << 40;

/// How the valve follows what the pool reports. Every interval it is changed by one factor:
///
/// | what is seen | factor |
/// |---|---|
/// | more than 4 requests waiting inside a replica, or where that is not known first tokens later than the input explains by more than half a second, or more than 0.9 of the memory in use | 0.95 |
/// | four times that, or a refusal (429, 503) by the pool | 0.7 |
/// | at most one waiting a replica, and the valve kept requests out | 1.03; 1.25 until it was first cut |
/// | more in flight than may be | at least 1: the last cut has not yet taken effect |
/// | nothing for five seconds | 1: the last value is held |
///
/// A pool that does not report is open as a whole; only its refusals close it, and it opens by 1.03 an interval again.
#[derive(Debug)]
pub(super) struct Adaption {
    valve: Arc<Valve>,
    capacity: Capacity,
    /// The part of the capacity that is open, of [`WHOLE`].
    open: u64,
    /// Whether the pool reports, so that the valve follows it; otherwise it follows the pool's refusals alone.
    adaptive: bool,
    /// Whether nothing is let in while no replica has reported in time.
    close_when_stale: bool,
    stale: bool,
    next: u64,
    /// Whether it was ever cut: until then it opens faster, since nothing is known of where it should be.
    cut: bool,
    /// Whether a request found no room since the last change.
    bound: bool,
    refusals: u64,
    /// How much later than expected first tokens came since the last change, and how many did.
    late: (u64, u64),
    /// The newest that a replica measured, in nanoseconds of engine time.
    heard: Option<u64>,
}

/// Nanoseconds between two changes.
const INTERVAL: u64 = SECOND;

/// Nanoseconds after which what was measured is too old to act on.
const TOO_OLD: u64 = 5 * SECOND;

/// The part that is open at first where the pool reports.
const AT_FIRST: u64 = WHOLE / 4;

impl Adaption {
    pub(super) fn new(valve: Arc<Valve>, capacity: Capacity, adaptive: bool, close_when_stale: bool) -> Adaption {
        let mut adaption = Adaption {
            valve,
            capacity,
            open: if adaptive { AT_FIRST } else { WHOLE },
            adaptive,
            close_when_stale,
            stale: false,
            next: 0,
            cut: false,
            bound: false,
            refusals: 0,
            late: (0, 0),
            heard: None,
        };
        adaption.apply();
        adaption
    }

    /// Notes that a request found no room.
    pub(super) fn found_no_room(&mut self) {
        self.bound = true;
    }

    /// Notes that the pool refused a request for lack of room.
    pub(super) fn refused(&mut self) {
        self.refusals += 1;
    }

    /// Notes by how many nanoseconds a first token came later than its input explains.
    pub(super) fn first_token(&mut self, late: u64) {
        self.late = (self.late.0.saturating_add(late), self.late.1 + 1);
    }

    /// Nanoseconds since the newest that the pool reported; `None` if it never did.
    pub(super) fn staleness(&self, now: u64) -> Option<u64> {
        self.heard.map(|heard| now.saturating_sub(heard))
    }

    /// Changes what the pool can take; the open part stays the same.
    pub(super) fn resize(&mut self, capacity: Capacity) {
        if capacity != self.capacity {
            self.capacity = capacity;
            self.apply();
        }
    }

    /// Takes in what the pool reports, and once an interval changes the valve by it.
    pub(super) fn report(&mut self, load: &Load, now: u64) {
        let measured = load.replicas.iter().filter_map(|replica| replica.as_of);
        self.heard = self.heard.max(measured.max());
        let stale = self.close_when_stale && !load.replicas.is_empty() && load.is_stale();
        if stale != self.stale {
            self.stale = stale;
            self.apply();
        }
        if now < self.next {
            return;
        }
        self.next = now.saturating_add(INTERVAL);
        let recent = |at: u64| at.saturating_add(TOO_OLD) > now;
        let fresh = || load.fresh().filter(|replica| replica.as_of.is_some_and(recent));
        let mean = |figures: &mut dyn Iterator<Item = u64>| {
            let (sum, count) = figures.fold((0u64, 0), |(sum, count), figure| (sum.saturating_add(figure), count + 1));
            (count > 0).then(|| sum.saturating_mul(1000) / count)
        };
        // Per replica, in thousandths; the memory in thousandths of what there is.
        let waiting = mean(&mut fresh().filter_map(|replica| replica.waiting));
        let memory = mean(&mut fresh().filter_map(|replica| replica.kv_used_ppm).map(|ppm| u64::from(ppm) / 1000));
        // What waits inside says more; how late first tokens are says something of pools that don't tell.
        let late = (self.late.1 > 0 && self.adaptive && waiting.is_none()).then(|| self.late.0 / self.late.1);
        let factor = self.factor(waiting, memory.map(|memory| memory / 1000), late);
        self.cut |= factor < 100;
        // As long as more is in flight than may be, what is seen is of before the last cut: cut again for the same, the
        // valve would stay shut long after.
        let figures = self.valve.figures();
        let shut = figures.in_flight > figures.most || figures.kept > figures.most_kept;
        let factor = if shut { factor.max(100) } else { factor };
        (self.bound, self.refusals, self.late) = (false, 0, (0, 0));
        let before = self.open;
        // Below a request a replica it would not close further, but would have the longer way back.
        let least = (WHOLE / self.capacity.requests.max(1)).saturating_mul(self.capacity.replicas).clamp(1, WHOLE);
        self.open = (before * factor / 100).clamp(least, WHOLE);
        if self.open != before {
            self.apply();
        }
    }

    /// In percent.
    fn factor(&self, waiting: Option<u64>, memory: Option<u64>, late: Option<u64>) -> u64 {
        let over = |found: Option<u64>, most: u64| found.map_or(0, |found| found / most.max(1));
        // How many times over its bound the worst of the signs is.
        let times = over(waiting, 4001).max(over(late, SECOND / 2 + 1)).max(over(memory, 901));
        let seen = waiting.is_some() || memory.is_some() || late.is_some();
        match times {
            _ if self.refusals > 0 => 70,
            _ if !self.adaptive => 103,
            4.. => 70,
            1..4 => 95,
            0 if seen && self.bound && !self.cut && waiting.is_none_or(|waiting| waiting <= 1000) => 125,
            0 if seen && self.bound && waiting.is_none_or(|waiting| waiting <= 1000) => 103,
            0 => 100,
        }
    }

    fn apply(&mut self) {
        let open = u128::from(self.open);
        let part = |whole: u64| ((u128::from(whole) * open + u128::from(WHOLE / 2)) / u128::from(WHOLE)) as u64;
        if self.stale {
            return self.valve.set(Capacity { requests: 0, kept: Some(0), replicas: 0 });
        }
        let least = self.capacity.replicas.min(self.capacity.requests);
        self.valve.set(Capacity {
            requests: part(self.capacity.requests).max(least),
            kept: self.capacity.kept.map(part),
            replicas: self.capacity.replicas,
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::gpu::ReplicaLoad;

    fn load(waiting: Option<u64>, kv_used_ppm: Option<u32>, at: u64) -> Load {
        let replica = ReplicaLoad { waiting, kv_used_ppm, as_of: Some(at), ..ReplicaLoad::default() };
        Load { replicas: vec![replica.clone(), replica] }
    }

    fn adaption(requests: u64) -> (Arc<Valve>, Adaption) {
        let capacity = Capacity { requests, kept: Some(1_000_000), replicas: 2 };
        let valve = Arc::new(Valve::new(capacity, 5));
        (valve.clone(), Adaption::new(valve, capacity, true, false))
    }

    #[test]
    fn room_is_taken_by_requests_and_by_tokens() {
        let valve = Valve::new(Capacity { requests: 40, kept: Some(1000), replicas: 1 }, 5);
        assert!(valve.try_take(5000, false), "an idle pool takes any request");
        assert!(!valve.try_take(1, true));
        valve.give_back(5000);
        for _ in 0..38 {
            assert!(valve.try_take(10, false));
        }
        assert!(!valve.try_take(10, false), "the rest is for sparse flows");
        assert!(valve.try_take(10, true));
        assert!(valve.try_take(10, true));
        assert!(!valve.try_take(0, true));
        let figures = valve.figures();
        assert_eq!((figures.in_flight, figures.kept), (40, 400));
        (0..40).for_each(|_| valve.give_back(10));
        valve.set(Capacity { requests: 0, kept: None, replicas: 0 });
        assert!(!valve.try_take(0, true), "a pool without replicas takes nothing");
    }

    #[test]
    fn the_valve_follows_what_is_reported() {
        for (waiting, memory, refused, want) in [
            (Some(5), None, false, 237),
            (Some(17), None, false, 175),
            (Some(0), Some(910_000), false, 237),
            (Some(0), Some(500_000), true, 175),
            (Some(1), Some(500_000), false, 313),
            (Some(3), Some(500_000), false, 250),
            (None, None, false, 250),
        ] {
            let (valve, mut adaption) = adaption(1000);
            assert_eq!(valve.figures().most, 250);
            adaption.found_no_room();
            if refused {
                adaption.refused();
            }
            adaption.report(&load(waiting, memory, SECOND), SECOND);
            assert_eq!(valve.figures().most, want, "{waiting:?} {memory:?} {refused}");
        }
    }

    #[test]
    fn once_cut_it_opens_slowly_and_is_not_cut_twice_for_the_same() {
        let (valve, mut adaption) = adaption(1000);
        (0..250).for_each(|_| valve.take(0));
        adaption.report(&load(Some(50), None, SECOND), SECOND);
        assert_eq!(valve.figures().most, 175);
        adaption.report(&load(Some(50), None, 2 * SECOND), 2 * SECOND);
        assert_eq!(valve.figures().most, 175, "250 are still there");
        (0..100).for_each(|_| valve.give_back(0));
        adaption.report(&load(Some(50), None, 3 * SECOND), 3 * SECOND);
        assert_eq!(valve.figures().most, 122);
        adaption.found_no_room();
        adaption.report(&load(Some(0), None, 4 * SECOND), 4 * SECOND);
        assert_eq!(valve.figures().most, 126);
    }

    #[test]
    fn a_valve_that_does_not_follow_reports_follows_refusals() {
        let capacity = Capacity::requests(100);
        let valve = Arc::new(Valve::new(capacity, 0));
        let mut adaption = Adaption::new(valve.clone(), capacity, false, false);
        adaption.report(&load(Some(1000), Some(1_000_000), SECOND), SECOND);
        assert_eq!(valve.figures().most, 100);
        adaption.refused();
        adaption.report(&load(None, None, 2 * SECOND), 2 * SECOND);
        assert_eq!(valve.figures().most, 70);
        for second in 3..20 {
            adaption.report(&load(None, None, second * SECOND), second * SECOND);
        }
        assert_eq!(valve.figures().most, 100);
    }

    /// From the least it comes back, however long it was cut.
    #[test]
    fn a_long_overload_is_recovered_from() {
        let (valve, mut adaption) = adaption(1000);
        let mut second = 0;
        let mut report = |adaption: &mut Adaption, waiting: u64| {
            second += 1;
            adaption.found_no_room();
            adaption.report(&load(Some(waiting), None, second * SECOND), second * SECOND);
        };
        (0..600).for_each(|_| report(&mut adaption, 100));
        assert_eq!((valve.figures().most, valve.figures().most_kept), (2, 2000));
        (0..300).for_each(|_| report(&mut adaption, 0));
        assert_eq!(valve.figures().most, 1000);
    }

    #[test]
    fn old_reports_change_nothing_and_are_told() {
        let (valve, mut adaption) = adaption(1000);
        adaption.found_no_room();
        adaption.report(&load(Some(50), None, SECOND), 7 * SECOND);
        assert_eq!(valve.figures().most, 250);
        assert_eq!(adaption.staleness(7 * SECOND), Some(6 * SECOND));
    }

    #[test]
    fn a_capacity_that_changes_is_followed_at_once() {
        let (valve, mut adaption) = adaption(1000);
        adaption.resize(Capacity { requests: 500, kept: Some(500_000), replicas: 1 });
        assert_eq!((valve.figures().most, valve.figures().most_kept), (125, 125_000));
    }

    #[test]
    fn the_valve_never_closes_below_a_request_a_replica() {
        let (valve, mut adaption) = adaption(8);
        for second in 1..60 {
            adaption.report(&load(Some(100), None, second * SECOND), second * SECOND);
        }
        assert_eq!(valve.figures().most, 2);
    }
}
