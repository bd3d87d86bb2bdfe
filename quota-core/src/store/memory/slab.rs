//! The slab: leases in a bounded number of slots, each slot with generations.
//!
//! Floor 2. Invariant: an open lease keeps its slot; what is forgotten is the oldest that has ended.
//!
//! There are twice as many slots as leases may be open. A new lease takes the next slot in turn that has no open lease,
//! so at least as many ended leases are remembered as may be open, and no list of free slots is needed.

use std::hash::{BuildHasher, RandomState};
use std::sync::Arc;

use crate::lease::{LeaseId, Record};
use crate::sync::{ArcCell, AtomicU64, Ordering};

pub(crate) struct Slab {
    /// One cell a slot. Written by `insert` (an ended lease by a new one) and `step` (a record by its next).
    slots: Box<[ArcCell<Record>]>,
    /// Counts insertions tried: its low bits name the slot, the rest its generation. Only ever grows.
    cursor: AtomicU64,
    /// Open leases. Raised before a lease is put in, lowered after it has ended, so it never counts too few.
    open: AtomicU64,
    max_open: u64,
    /// Keys the tags of ids.
    secret: RandomState,
}

/// The right to open one lease, which the counter of open leases has been raised for.
pub(crate) struct Place(());

/// A lease just put in.
pub(crate) struct Inserted {
    pub(crate) record: Arc<Record>,
    /// The ended lease that was forgotten for it.
    pub(crate) forgotten: Option<Arc<Record>>,
}

impl Slab {
    /// A slab for at most `max_open` open leases (1 to 2^30).
    pub(crate) fn new(max_open: u32) -> Slab {
        let max_open = max_open.clamp(1, 1 << 30);
        let slots = (max_open as usize * 2).next_power_of_two();
        Slab {
            slots: (0..slots).map(|_| ArcCell::empty()).collect(),
            cursor: AtomicU64::new(0),
            open: AtomicU64::new(0),
            max_open: max_open as u64,
            secret: RandomState::new(),
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
            self.close();
        }
        room.then_some(Place(()))
    }

    /// Puts a lease in; `make` is called once with its id.
    pub(crate) fn insert(&self, _place: Place, make: impl FnOnce(LeaseId) -> Record) -> Inserted {
        let (id, mut before) = self.next_free();
        let mut record = Arc::new(make(id));
        while !self.slots[record.claim.id.slot as usize].swap_if(before.as_ref(), record.clone()) {
            // Somebody a whole round ahead took the slot meanwhile: the next one.
            let (id, next) = self.next_free();
            (record, before) = (rename(&record, id), next);
        }
        Inserted { record, forgotten: before }
    }

    /// The next slot in turn without an open lease, as the id of a lease there, and what is in it. There is one for
    /// whoever has a place: less than half of the slots have open leases.
    fn next_free(&self) -> (LeaseId, Option<Arc<Record>>) {
        let mask = self.slots.len() as u64 - 1;
        loop {
            // ORDERING: relaxed; only that every caller gets another number matters.
            let turn = self.cursor.fetch_add(1, Ordering::Relaxed);
            // An odd factor visits every slot once a round, and spreads neighbours over cache lines.
            let slot = (turn.wrapping_mul(0x9E37_79B1) & mask) as u32;
            let before = self.slots[slot as usize].load();
            if !before.as_ref().is_some_and(|record| record.is_open()) {
                return (self.id(slot, (turn >> mask.count_ones()) as u32), before);
            }
        }
    }

    /// The lease as it stands.
    pub(crate) fn get(&self, id: LeaseId) -> Option<Arc<Record>> {
        let cell = self.slots.get(id.slot as usize)?;
        cell.load().filter(|record| record.claim.id == id)
    }

    /// Whatever is in a slot.
    pub(crate) fn at(&self, slot: usize) -> Option<Arc<Record>> {
        self.slots[slot].load()
    }

    /// Puts the next record of a lease in place if it still stands as `before`; tells whether it did.
    pub(crate) fn step(&self, before: &Arc<Record>, next: Arc<Record>) -> bool {
        let closes = before.is_open() && !next.is_open();
        let done = self.slots[before.claim.id.slot as usize].swap_if(Some(before), next);
        if done && closes {
            self.close();
        }
        done
    }

    fn close(&self) {
        // ORDERING: relaxed, see `insert`.
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The same record under another id, for the rare insertion that lost its slot.
fn rename(record: &Record, id: LeaseId) -> Arc<Record> {
    let claim = &record.claim;
    let claim = crate::lease::Claim::new(id, claim.terms.clone(), claim.at, claim.holds.clone());
    Arc::new(Record::held(claim))
}
