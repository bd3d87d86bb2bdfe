//! Rows: the words of one scope's accounts, changed as a whole.
//!
//! Floor 2. Invariant: a row goes from one whole state to the next; a reader sees one of them, never a mixture.
//!
//! A row is a header word that names the buffer which holds its words. A writer copies the words, changes the copy by a
//! pure function, writes it into a spare buffer of its own and puts that buffer in place by one compare-and-swap of the
//! header; the buffer that was in place becomes the writer's spare. Readers validate the header after reading, as in
//! a sequence lock. A failed swap means that another writer's succeeded, so some thread always makes progress.

use crossbeam::utils::{Backoff, CachePadded};

use crate::account::Identity;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence, thread_hint};

/// Accounts in a row.
#[cfg(not(quota_loom))]
pub const WIDTH: usize = 7;
#[cfg(quota_loom)]
pub const WIDTH: usize = 1;

/// A row's state: word 0 is its identity and pins, the rest its accounts.
pub type Words = [u64; WIDTH + 1];

/// Bits of word 0 that count pins: open leases that hold something in the row.
const PIN_BITS: u32 = Identity::BITS_BELOW;

/// Word 0 of a fresh row of an identity.
pub(crate) fn unpinned(identity: Identity) -> u64 {
    identity.get() << PIN_BITS
}

/// Whether a row's words are an identity's.
pub(crate) fn owns(identity: Identity, words: &Words) -> bool {
    words[0] >> PIN_BITS == identity.get()
}

/// Counts one more open lease on a row; `false` (and nothing done) at 2^24 − 1.
pub(crate) fn pin(words: &mut Words) -> bool {
    let room = words[0] & ((1 << PIN_BITS) - 1) < (1 << PIN_BITS) - 1;
    words[0] += room as u64;
    room
}

/// Counts one open lease less.
pub(crate) fn unpin(words: &mut Words) {
    if is_pinned(words) {
        words[0] -= 1;
    }
}

/// Whether an open lease holds something in the row.
pub(crate) fn is_pinned(words: &Words) -> bool {
    words[0] & ((1 << PIN_BITS) - 1) != 0
}

/// Bits of the header for the buffer's index; the rest is the version.
const INDEX_BITS: u32 = 24;

/// Marks a spare slot whose buffer is in use.
const IN_USE: u32 = u32::MAX;

/// Spare buffers, and so threads that can change rows at the same moment without waiting.
#[cfg(not(quota_loom))]
const SPARES: u32 = 256;
#[cfg(quota_loom)]
const SPARES: u32 = 3;

/// Turns that a thread waits after its swap has failed, at first and at most. The other one is done with the row in some
/// hundred; trying again at once takes the line away from it, and yielding the processor takes longer than its change.
const FIRST_PAUSE: u32 = 8;
const LONGEST_PAUSE: u32 = 256;

/// One cache line of words.
#[repr(align(64))]
struct Buffer([AtomicU64; WIDTH + 1]);

/// All rows of a store.
pub struct Rows {
    /// Layout: version (40 bits) above buffer index (24 bits). Written by the compare-and-swap of `update`, read by all.
    /// The version grows by one with each change, so a header that comes back unchanged means an unchanged row; it
    /// comes round after 2^40 changes of one row while one thread stands still between two instructions.
    headers: Box<[AtomicU64]>,
    /// Written only by the thread that has the buffer as its spare; read by all, validated by the header.
    buffers: Box<[Buffer]>,
    /// Buffer indices that no row names; `IN_USE` while a thread works with one. Swapped by any thread.
    spares: Box<[CachePadded<AtomicU32>]>,
}

/// What proves how a row stood: no other state of it has the same.
#[derive(Debug, Clone, Copy)]
pub struct Header(u64);

/// A spare buffer that one thread has to itself, until it is handed back by `Rows::release`.
pub struct Spare {
    slot: usize,
    buffer: u32,
}

impl Rows {
    /// So many rows (at most 2^24 − 256), all of zeros.
    pub fn new(rows: u32) -> Rows {
        let rows = rows.min((1 << INDEX_BITS) - SPARES);
        let zeros = || Buffer(std::array::from_fn(|_| AtomicU64::new(0)));
        Rows {
            headers: (0..rows).map(|row| AtomicU64::new(row as u64)).collect(),
            buffers: (0..rows + SPARES).map(|_| zeros()).collect(),
            spares: (0..SPARES).map(|spare| CachePadded::new(AtomicU32::new(rows + spare))).collect(),
        }
    }

    pub(crate) fn len(&self) -> u32 {
        self.headers.len() as u32
    }

    /// Every buffer that a row or a spare slot names.
    #[cfg(all(test, quota_loom))]
    pub(super) fn buffers_in_use(&self) -> Vec<u32> {
        // ORDERING: relaxed; the models call this when all other threads have ended.
        let headers = self.headers.iter().map(|header| index(header.load(Ordering::Relaxed)));
        headers.chain(self.spares.iter().map(|spare| spare.load(Ordering::Relaxed))).collect()
    }

    /// Takes a spare buffer. Waits only if as many threads as there are spares are changing rows at this moment.
    #[inline]
    pub fn claim(&self) -> Spare {
        let backoff = Backoff::new();
        let start = thread_hint();
        let mut tried = 0;
        loop {
            let slot = (start + tried) % self.spares.len();
            // ORDERING: acquire pairs with the release in `release`: what its last owner wrote into the buffer
            // happens before what this one writes.
            let buffer = self.spares[slot].swap(IN_USE, Ordering::Acquire);
            if buffer != IN_USE {
                // ORDERING: release fence, partner of the acquire fence in `read`. The swap that took this buffer out
                // of its row happened before (same thread, or through the spare slot), so a reader that sees any
                // word we write into it from here on also sees that the row's header has changed.
                fence(Ordering::Release);
                return Spare { slot, buffer };
            }
            tried += 1;
            if tried.is_multiple_of(self.spares.len()) {
                crate::sync::pause(&backoff);
            }
        }
    }

    /// Hands a spare back.
    #[inline]
    pub fn release(&self, spare: Spare) {
        // ORDERING: release pairs with the acquire in `claim`.
        self.spares[spare.slot].store(spare.buffer, Ordering::Release);
    }

    /// The row's words at one moment.
    pub fn read(&self, row: u32) -> Words {
        self.snapshot(row).1
    }

    /// The row's words at one moment, to be replaced by others.
    #[inline]
    pub fn snapshot(&self, row: u32) -> (Header, Words) {
        let header = &self.headers[row as usize];
        loop {
            // ORDERING: acquire pairs with the release of the swap that put the buffer in place: its words are there.
            let before = header.load(Ordering::Acquire);
            let buffer = &self.buffers[index(before) as usize];
            // ORDERING: relaxed; a word that a later owner of the buffer is writing is thrown away by the check below.
            let words = std::array::from_fn(|i| buffer.0[i].load(Ordering::Relaxed));
            // ORDERING: acquire fence, partner of the release fence in `claim`: if any word above came from a later
            // owner, the load below sees a newer header.
            fence(Ordering::Acquire);
            // ORDERING: relaxed, after the fence.
            if header.load(Ordering::Relaxed) == before {
                return (Header(before), words);
            }
            crate::sync::spin();
        }
    }

    /// Changes the whole row by a pure function of its words; `None` from the function leaves the row as it is.
    ///
    /// The function may run several times, each time on a state that the row really had; its last result counts.
    pub fn update<R>(&self, spare: &mut Spare, row: u32, mut change: impl FnMut(&mut Words) -> Option<R>) -> Option<R> {
        let mut turns = FIRST_PAUSE;
        loop {
            let (header, mut words) = self.snapshot(row);
            let result = change(&mut words)?;
            if self.replace(spare, row, header, &words) {
                return Some(result);
            }
            crate::sync::spin_for(turns);
            turns = (turns * 2).min(LONGEST_PAUSE);
        }
    }

    /// Replaces the whole row if nobody has changed it since it was looked at; tells whether it did.
    #[inline]
    pub fn replace(&self, spare: &mut Spare, row: u32, Header(header): Header, next: &Words) -> bool {
        let buffer = &self.buffers[spare.buffer as usize];
        for (word, value) in buffer.0.iter().zip(next) {
            // ORDERING: relaxed; published by the release of the swap below, kept apart from old readers of this
            // buffer by the release fence that followed taking it (in `claim`, or after the swap below).
            word.store(*value, Ordering::Relaxed);
        }
        let new = (header >> INDEX_BITS).wrapping_add(1) << INDEX_BITS | spare.buffer as u64;
        // ORDERING: release publishes the words just written to the acquire load in `snapshot`. Failure is relaxed: who
        // wants to go on looks again, with that load.
        let swapped = self.headers[row as usize].compare_exchange(header, new, Ordering::Release, Ordering::Relaxed);
        if swapped.is_err() {
            return false;
        }
        spare.buffer = index(header);
        // ORDERING: release fence, as in `claim`: what is written into the old buffer from here on comes with the new
        // header.
        fence(Ordering::Release);
        true
    }
}

fn index(header: u64) -> u32 {
    (header & ((1 << INDEX_BITS) - 1)) as u32
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    #[test]
    fn changes_are_whole_or_not_at_all() {
        let rows = Rows::new(4);
        let mut spare = rows.claim();
        assert_eq!(rows.update(&mut spare, 2, |w| (w[1], w[1] = 7).into()), Some((0, ())));
        assert_eq!(
            rows.update(&mut spare, 2, |w| -> Option<()> {
                w[1] = 9;
                None
            }),
            None
        );
        rows.release(spare);
        assert_eq!(rows.read(2)[1], 7);
        assert_eq!(rows.read(3), [0; WIDTH + 1]);
    }

    #[test]
    fn many_threads_lose_nothing() {
        let rows = Rows::new(2);
        let (threads, turns) = (4, 20_000);
        std::thread::scope(|scope| {
            for _ in 0..threads {
                scope.spawn(|| {
                    for turn in 0..turns {
                        let mut spare = rows.claim();
                        rows.update(&mut spare, 1, |w| {
                            // All words of a row stay equal: a torn read would break this.
                            assert!(w.iter().all(|word| *word == w[0]), "{w:?}");
                            w.iter_mut().for_each(|word| *word += 1);
                            Some(())
                        });
                        rows.release(spare);
                        if turn % 16 == 0 {
                            let w = rows.read(1);
                            assert!(w.iter().all(|word| *word == w[0]), "{w:?}");
                        }
                    }
                });
            }
        });
        assert_eq!(rows.read(1), [threads * turns; WIDTH + 1]);
    }

    #[test]
    fn identities_and_pins() {
        let identity = Identity::new(5).unwrap();
        let mut words = [0; WIDTH + 1];
        words[0] = unpinned(identity);
        assert!(owns(identity, &words) && !is_pinned(&words));
        assert!(pin(&mut words) && is_pinned(&words) && owns(identity, &words));
        unpin(&mut words);
        unpin(&mut words);
        assert_eq!(words[0], unpinned(identity));
        words[0] |= (1 << PIN_BITS) - 1;
        assert!(!pin(&mut words) && owns(identity, &words));
        assert!(Identity::new(0).is_none() && Identity::new(1 << 40).is_none());
    }
}
