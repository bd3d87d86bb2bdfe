//! The slab: leases in a bounded number of slots, each slot with generations.
//!
//! Floor 2. Invariant: an open lease keeps its slot; of those that have ended, the last half as many as may be open are
//! remembered.
//!
//! There are twice as many slots as leases may be open. A new lease takes the next slot in turn whose lease has ended and
//! is not among the last to have done so, and no list of free slots is needed. At most three quarters of the slots are
//! open or among the last, so looking for one takes four tries on average however leases come and go.

use std::sync::Arc;

use crossbeam::utils::Backoff;

use crate::lease::{Claim, LeaseId, Record, Stand};
use crate::sync::{AtomicU32, AtomicU64, Ordering, TryCell, pause};

/// Marks a slot that is taken: from before a lease is put in until it has ended.
const TAKEN: u32 = 1 << 31;

/// One more ending in the counts; what is below counts open leases.
const ENDING: u64 = 1 << 32;

pub(crate) struct Slab {
    /// `TAKEN`, or how many leases had ended when the slot's own did (31 bits, round and round). Taken by `next_free`, given
    /// free by `close`. Apart from the leases, so that looking for a slot touches none of them.
    marks: Box<[AtomicU32]>,
    /// One cell a slot. Written by `insert`, by the one who has taken the slot.
    slots: Box<[TryCell<Claim>]>,
    /// Counts slots tried: its low bits name the slot, the rest its generation. Only ever grows.
    cursor: AtomicU64,
    /// Layout: endings (32 bits, round and round) above open leases (32 bits). The leases are counted before they are put in
    /// and until they have ended, so never too few. Written by `place` and `close`.
    counts: AtomicU64,
    max_open: u32,
    /// So many of the last endings are remembered.
    remembered: u32,
    /// Keys the tags of ids.
    secret: ahash::RandomState,
}

/// The right to open one lease, which counts as open; given back when dropped.
pub(crate) struct Place<'a> {
    slab: &'a Slab,
    /// The counts when it was given.
    counts: u64,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        // ORDERING: relaxed, see `place`.
        self.slab.counts.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A slot that was taken for a new lease.
struct Free {
    id: LeaseId,
    turn: u64,
    /// Its mark before.
    mark: u32,
}

impl Slab {
    /// A slab for at most `max_open` open leases (1 to 2^28).
    pub(crate) fn new(max_open: u32) -> Slab {
        let max_open = max_open.clamp(1, 1 << 28);
        let slots = (max_open as usize * 2).next_power_of_two();
        let remembered = max_open.div_ceil(2);
        Slab {
            marks: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            slots: (0..slots).map(|_| TryCell::empty()).collect(),
            cursor: AtomicU64::new(0),
            // As if enough had ended before: all slots are free.
            counts: AtomicU64::new((remembered as u64 + 1) * ENDING),
            max_open,
            remembered,
            secret: ahash::RandomState::new(),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Open leases at this moment.
    pub(crate) fn open(&self) -> u64 {
        // ORDERING: relaxed; a figure to show.
        self.counts.load(Ordering::Relaxed) % ENDING
    }

    fn id(&self, slot: u32, turn: u64) -> LeaseId {
        let generation = (turn >> (self.slots.len() as u64 - 1).count_ones()) as u32;
        LeaseId { slot, generation, tag: self.secret.hash_one(turn) }
    }

    /// The right to open one more lease; `None` where as many are open as the slab was built for.
    pub(crate) fn place(&self) -> Option<Place<'_>> {
        // ORDERING: relaxed; the counter guards only itself. It is raised before the lease is there and lowered after
        // it has gone, so it is never below the truth and the bound holds.
        let place = Place { slab: self, counts: self.counts.fetch_add(1, Ordering::Relaxed) };
        (place.counts % ENDING < self.max_open as u64).then_some(place)
    }

    /// Puts a lease in; `make` is called once with its id. Gives the ended lease that was forgotten for it.
    pub(crate) fn insert(
        &self,
        place: Place<'_>,
        make: impl FnOnce(LeaseId) -> Arc<Claim>,
    ) -> (Arc<Claim>, Option<Arc<Claim>>) {
        let backoff = Backoff::new();
        loop {
            let free = self.next_free(place.counts);
            let slot = free.id.slot as usize;
            if let Some(room) = self.slots[slot].try_room() {
                // It is the lease's from here on, until `close`.
                std::mem::forget(place);
                let claim = make(free.id);
                let forgotten = room.replace(claim.clone());
                #[cfg(not(quota_loom))]
                self.fetch_ahead(free.turn);
                return (claim, forgotten);
            }
            // Somebody is looking at what was there: another slot, rather than wait.
            // ORDERING: release, see `next_free`.
            self.marks[slot].store(free.mark, Ordering::Release);
            pause(&backoff);
        }
    }

    /// Asks for the memory of leases that are about to be forgotten. It is cold, and whoever forgets one would wait for its
    /// lines one after the other: a fifth of the time of a reservation. Here none is waited for, as nothing follows from
    /// what is read.
    #[cfg(not(quota_loom))]
    fn fetch_ahead(&self, turn: u64) {
        let there = |ahead| &self.slots[self.slot_of(turn.wrapping_add(ahead)) as usize];
        there(4).try_with(|claim| claim.fetch());
    }

    /// Takes the next slot in turn whose lease had ended by these counts, and not among the last. There is one for whoever
    /// has a place, by the counts of now.
    fn next_free(&self, mut counts: u64) -> Free {
        let mut tried = 0;
        loop {
            if tried == self.slots.len() {
                // This thread was held up, or others are at work on what is free.
                crate::sync::spin();
                // ORDERING: relaxed; a later count frees more slots.
                (counts, tried) = (self.counts.load(Ordering::Relaxed), 0);
            }
            tried += 1;
            // ORDERING: relaxed; only that every caller gets another number matters.
            let turn = self.cursor.fetch_add(1, Ordering::Relaxed);
            let slot = self.slot_of(turn);
            let state = &self.marks[slot as usize];
            // ORDERING: relaxed; whoever takes the slot looks again.
            let mark = state.load(Ordering::Relaxed);
            if mark == TAKEN || !self.is_old(mark, counts) {
                continue;
            }
            // ORDERING: acquire pairs with the release in `close`: whoever takes the slot comes after all that its last owner
            // did. Relaxed on failure: another slot is tried.
            if state.compare_exchange(mark, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return Free { id: self.id(slot, turn), turn, mark };
            }
        }
    }

    /// The slot of a turn: its low bits, rotated. Every slot is visited once a round; neighbours in time are in different
    /// cache lines, sixteen slots apart, and the next one is where a processor expects it.
    fn slot_of(&self, turn: u64) -> u32 {
        let bits = (self.slots.len() as u64 - 1).count_ones();
        let up = bits.min(4);
        let turn = turn & (self.slots.len() as u64 - 1);
        ((turn << up | turn >> (bits - up)) & (self.slots.len() as u64 - 1)) as u32
    }

    /// Whether a slot's lease is not among the last that had ended by these counts.
    fn is_old(&self, mark: u32, counts: u64) -> bool {
        let since = Self::endings(counts).wrapping_sub(mark) % TAKEN;
        // Its own ending is one of them. Half way round or more: it has ended later than these counts are of.
        since > self.remembered && since < TAKEN / 2
    }

    fn endings(counts: u64) -> u32 {
        (counts / ENDING) as u32 % TAKEN
    }

    /// The lease; `None` also for one that is being forgotten at this moment. An open one is always found: its slot is not
    /// replaced until it has ended, and whoever knows its id learned it after it was put in.
    pub(crate) fn get(&self, id: LeaseId) -> Option<Arc<Claim>> {
        let cell = self.slots.get(id.slot as usize)?;
        cell.try_load().filter(|claim| claim.id == id)
    }

    /// Whatever is in a slot.
    pub(crate) fn at(&self, slot: usize) -> Option<Arc<Claim>> {
        self.slots[slot].try_load()
    }

    /// Gives the slot of a lease free that has ended; called once, by whoever ended it.
    pub(crate) fn close(&self, id: LeaseId) {
        // ORDERING: relaxed; of endings at once several may get the same mark, and are forgotten that much earlier.
        let mark = Self::endings(self.counts.load(Ordering::Relaxed));
        // ORDERING: release, see `next_free`. Before the count is lowered: whoever has a place finds a slot.
        self.marks[id.slot as usize].store(mark, Ordering::Release);
        // ORDERING: relaxed, see `place`. One open lease less, one ending more.
        self.counts.fetch_add(ENDING - 1, Ordering::Relaxed);
    }

    /// Steps a lease on if it still stands as `before`; gives the record after the step, or of now.
    pub(crate) fn step(&self, before: Record, next: Stand) -> Result<Record, Record> {
        let after = before.step(next)?;
        if !after.is_open() {
            self.close(after.claim.id);
        }
        Ok(after)
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    /// Endings are counted in 31 bits, round and round.
    #[test]
    fn slots_are_found_when_the_count_of_endings_comes_round() {
        let slab = Slab::new(2);
        for mark in &slab.marks {
            // ORDERING: relaxed; one thread.
            mark.store(TAKEN - 8, Ordering::Relaxed);
        }
        // ORDERING: relaxed; one thread.
        slab.counts.store(u64::from(TAKEN - 4) * ENDING, Ordering::Relaxed);
        for turn in 0..12 {
            let place = slab.place().expect("nothing is open");
            let free = slab.next_free(place.counts);
            std::mem::forget(place);
            assert_eq!(u64::from(free.id.generation), turn / 4, "each slot in its turn");
            slab.close(free.id);
        }
        assert_eq!(slab.open(), 0);
    }
}
