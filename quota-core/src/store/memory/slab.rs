//! The slab: leases in a bounded number of slots, each slot with generations.
//!
//! Floor 2. Invariant: an open lease keeps its slot; what is forgotten is the oldest that has ended.
//!
//! There are twice as many slots as leases may be open. A new lease takes the next slot in turn that has no open lease,
//! so at least as many ended leases are remembered as may be open, and no list of free slots is needed.

use std::sync::Arc;

use crate::lease::{Claim, First, LeaseId, Record};
use crate::sync::{AtomicU32, AtomicU64, Ordering, TryCell};

pub(crate) struct Slab {
    /// Whether a slot is taken: 1 from before a lease is put in until it has ended. Set by `next_free`, cleared by
    /// `close`. Apart from the leases, so that looking for a slot touches none of them.
    taken: Box<[AtomicU32]>,
    /// One cell a slot. Written by `insert`, by the one who has taken the slot.
    slots: Box<[TryCell<Claim>]>,
    /// Counts slots tried: its low bits name the slot, the rest its generation. Only ever grows.
    cursor: AtomicU64,
    /// Open leases. Raised before a lease is put in, lowered after it has ended, so it never counts too few.
    open: AtomicU64,
    max_open: u64,
    /// Keys the tags of ids.
    secret: ahash::RandomState,
}

/// The right to open one lease, which the counter of open leases has been raised for.
pub(crate) struct Place(());

impl Slab {
    /// A slab for at most `max_open` open leases (1 to 2^30).
    pub(crate) fn new(max_open: u32) -> Slab {
        let max_open = max_open.clamp(1, 1 << 30);
        let slots = (max_open as usize * 2).next_power_of_two();
        Slab {
            taken: (0..slots).map(|_| AtomicU32::new(0)).collect(),
            slots: (0..slots).map(|_| TryCell::empty()).collect(),
            cursor: AtomicU64::new(0),
            open: AtomicU64::new(0),
            max_open: max_open as u64,
            secret: ahash::RandomState::new(),
        }
    }

    pub(crate) fn slots(&self) -> usize {
        self.slots.len()
    }

    /// Open leases at this moment.
    pub(crate) fn open(&self) -> u64 {
        // ORDERING: relaxed; a figure to show.
        self.open.load(Ordering::Relaxed)
    }

    fn id(&self, slot: u32, generation: u32) -> LeaseId {
        LeaseId { slot, generation, tag: self.secret.hash_one((slot, generation)) }
    }

    /// The right to open one more lease; `None` where as many are open as the slab was built for.
    pub(crate) fn place(&self) -> Option<Place> {
        // ORDERING: relaxed; the counter guards only itself. It is raised before the lease is there and lowered after
        // it has gone, so `open` is never below the truth and the bound holds.
        let room = self.open.fetch_add(1, Ordering::Relaxed) < self.max_open;
        if !room {
            // ORDERING: relaxed, as above.
            self.open.fetch_sub(1, Ordering::Relaxed);
        }
        room.then_some(Place(()))
    }

    /// Puts a lease in; `make` is called once with its id. Gives the ended lease that was forgotten for it.
    pub(crate) fn insert(
        &self,
        _place: Place,
        make: impl FnOnce(LeaseId) -> Claim,
    ) -> (Arc<Claim>, Option<Arc<Claim>>) {
        let mut claim = Arc::new(make(self.next_free()));
        loop {
            let slot = claim.id.slot as usize;
            if let Some(forgotten) = self.slots[slot].try_swap(claim.clone()) {
                return (claim, forgotten);
            }
            // Somebody is looking at what was there: another slot, rather than wait.
            // ORDERING: release, see `next_free`.
            self.taken[slot].store(0, Ordering::Release);
            claim = Arc::new(renamed(&claim, self.next_free()));
        }
    }

    /// Takes the next slot in turn without an open lease. There is one for whoever has a place: less than half of the
    /// slots have open leases.
    fn next_free(&self) -> LeaseId {
        let mask = self.slots.len() as u64 - 1;
        loop {
            // ORDERING: relaxed; only that every caller gets another number matters.
            let turn = self.cursor.fetch_add(1, Ordering::Relaxed);
            // An odd factor visits every slot once a round, and spreads neighbours over cache lines.
            let slot = (turn.wrapping_mul(0x9E37_79B1) & mask) as u32;
            // ORDERING: acquire pairs with the release in `close`: whoever takes the slot comes after all that its last
            // owner did.
            if self.taken[slot as usize].swap(1, Ordering::Acquire) == 0 {
                return self.id(slot, (turn >> mask.count_ones()) as u32);
            }
        }
    }

    /// The lease; `None` also for one that is being forgotten at this moment.
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
        // ORDERING: release, see `next_free`.
        self.taken[id.slot as usize].store(0, Ordering::Release);
        // ORDERING: relaxed, see `place`.
        self.open.fetch_sub(1, Ordering::Relaxed);
    }

    /// Steps a lease on if it still stands as `before`; gives the record after the step, or of now.
    pub(crate) fn step(&self, before: Record, next: Box<First>) -> Result<Record, Record> {
        let after = before.step(next)?;
        if !after.is_open() {
            self.close(after.claim.id);
        }
        Ok(after)
    }
}

/// The same claim under another id, for the rare insertion that could not have its slot.
fn renamed(claim: &Claim, id: LeaseId) -> Claim {
    Claim::new(id, claim.terms.clone(), claim.at, claim.holds.clone())
}
