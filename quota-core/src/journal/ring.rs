//! The ring: the last entries, in memory.
//!
//! Floor 2. Invariant: an append never waits while any shard is free; when full, the oldest entries of its kind make
//! room: however many requests are refused, what was admitted and charged stays.

use std::sync::Arc;

use crossbeam::utils::{Backoff, CachePadded};

use super::{Entry, Event, Journal};
use crate::sync::{AtomicU64, Ordering, TryLock};
use crate::time::Now;

/// Entries are dealt over so many shards, each with its own lock.
#[cfg(not(quota_loom))]
const SHARDS: usize = 16;
#[cfg(quota_loom)]
const SHARDS: usize = 2;

/// So many entries in a row go into the same shard where its capacity is a multiple of that, else a smaller power of two:
/// memory that is walked through in order is there before it is needed.
const RUN_BITS: u32 = if cfg!(quota_loom) { 0 } else { 5 };

/// A journal of bounded length in memory.
///
/// An append tries its shard's lock and goes on to the next if somebody is there, so it waits for a reader never, and
/// for other appends only while all sixteen shards are being written.
pub struct Ring {
    /// What moved an account, and what operators did.
    kept: Shards,
    /// Refusals and waits, which anybody can cause in any number.
    refused: Shards,
    /// Entries ever appended; the next one's number.
    next: AtomicU64,
    /// Who else is handed each entry.
    listener: Option<Listener>,
}

type Listener = Box<dyn Fn(&Entry) + Send + Sync>;

struct Shards {
    shards: Box<[CachePadded<TryLock<Shard>>; SHARDS]>,
    /// Entries of a run, as a power of two.
    run_bits: u32,
    /// Entries that were put in; the next one looks for a free shard from here on.
    put: AtomicU64,
}

struct Shard {
    /// Once there are `capacity`, a new one takes the oldest one's place.
    entries: Vec<Entry>,
    capacity: usize,
    /// Where the oldest is, once there are `capacity`.
    oldest: usize,
    /// Entries that made room for newer ones.
    dropped: u64,
}

impl Ring {
    /// A ring of at most so many entries (rounded up to a multiple of 64): three quarters for what was admitted,
    /// charged and operated, a quarter for refusals. Memory grows as entries come.
    pub fn new(entries: usize) -> Ring {
        let quarter = entries.div_ceil(4).max(1);
        Ring { kept: Shards::new(quarter * 3), refused: Shards::new(quarter), next: AtomicU64::new(0), listener: None }
    }

    /// Hands every entry to `listener` too, once it is in the ring, on the thread that wrote it: for a journal that is kept
    /// elsewhere. Of entries that are written at once the later number may come first.
    ///
    /// Nothing is held meanwhile, so it may call the gate; an admission or an ending waits for it.
    pub fn telling(mut self, listener: impl Fn(&Entry) + Send + Sync + 'static) -> Ring {
        self.listener = Some(Box::new(listener));
        self
    }

    /// Acts while nobody else can get at one of the shards.
    #[cfg(test)]
    pub(super) fn hold(&self, shard: usize, act: impl FnOnce()) {
        let held = self.kept.shards[shard].lock();
        act();
        drop(held);
    }
}

impl Default for Ring {
    /// 32,768 entries.
    fn default() -> Ring {
        Ring::new(1 << 15)
    }
}

impl Shards {
    fn new(entries: usize) -> Shards {
        let capacity = entries.div_ceil(SHARDS).max(1);
        let shard = || CachePadded::new(TryLock::new(Shard { entries: Vec::new(), capacity, oldest: 0, dropped: 0 }));
        let run_bits = capacity.trailing_zeros().min(RUN_BITS);
        Shards { shards: Box::new(std::array::from_fn(|_| shard())), run_bits, put: AtomicU64::new(0) }
    }

    #[inline]
    fn put(&self, entry: Entry) {
        // ORDERING: relaxed; where to begin looking for a free shard.
        let first = (self.put.fetch_add(1, Ordering::Relaxed) >> self.run_bits) as usize;
        let backoff = Backoff::new();
        let mut at = first;
        // What makes room is freed outside the lock.
        let _old = loop {
            if let Some(mut shard) = self.shards[at % SHARDS].try_lock() {
                break shard.put(entry);
            }
            at += 1;
            if (at - first).is_multiple_of(SHARDS) {
                crate::sync::pause(&backoff);
            }
        };
    }

    fn entries(&self) -> impl Iterator<Item = Entry> {
        self.shards.iter().flat_map(|shard| shard.lock().entries.clone())
    }
}

impl Shard {
    /// Gives the entry that made room.
    #[inline]
    fn put(&mut self, entry: Entry) -> Option<Entry> {
        let len = self.entries.len();
        if len < self.capacity {
            if len == self.entries.capacity() {
                self.entries.reserve_exact(len.max(4).min(self.capacity - len));
            }
            self.entries.push(entry);
            return None;
        }
        // Two requests ahead of where it makes room, what a record's letting go looks at is asked for: it is cold by then.
        if let Some(Event::Admitted(record) | Event::Ended(record)) =
            self.entries.get(self.oldest + 4).map(|entry| &entry.event)
        {
            std::hint::black_box(Arc::strong_count(&record.claim));
        }
        // In the place of the oldest: one place in memory is touched, not one that is left and one that is filled.
        let old = std::mem::replace(&mut self.entries[self.oldest], entry);
        self.oldest = if self.oldest + 1 == len { 0 } else { self.oldest + 1 };
        self.dropped += 1;
        Some(old)
    }
}

impl Journal for Ring {
    fn append(&self, event: Event, now: Now) {
        let shards = match event {
            Event::Refused(_) | Event::Queued(..) => &self.refused,
            _ => &self.kept,
        };
        // ORDERING: relaxed; only that every entry gets its own number matters.
        let seq = self.next.fetch_add(1, Ordering::Relaxed);
        let entry = Entry { seq, at: now, event };
        let told = self.listener.as_ref().map(|listener| (listener, entry.clone()));
        shards.put(entry);
        if let Some((listener, entry)) = told {
            listener(&entry);
        }
    }

    fn scan(&self, show: &mut dyn FnMut(&Entry) -> bool) {
        let mut entries: Vec<Entry> = self.kept.entries().chain(self.refused.entries()).collect();
        entries.sort_unstable_by_key(|entry| entry.seq);
        for entry in &entries {
            if !show(entry) {
                return;
            }
        }
    }

    fn dropped(&self) -> u64 {
        self.kept.shards.iter().map(|shard| shard.lock().dropped).sum()
    }
}

#[cfg(all(test, not(quota_loom)))]
mod tests {
    use super::*;

    #[test]
    fn keeps_the_last_and_counts_the_rest() {
        let ring = Ring::new(64);
        for n in 0..100 {
            ring.append(Event::Loaded(n.to_string().into()), Now::at(n));
        }
        let mut seen = Vec::new();
        ring.scan(&mut |entry| {
            seen.push(entry.seq);
            true
        });
        assert_eq!(seen, (52..100).collect::<Vec<_>>());
        assert_eq!(ring.dropped(), 52);
    }

    #[test]
    fn a_listener_is_handed_what_is_in_the_ring_and_may_read_it() {
        let (told, ring) =
            (std::sync::Arc::new(std::sync::Mutex::new(Vec::new())), std::sync::Arc::new(std::sync::OnceLock::new()));
        let (sink, reads): (_, std::sync::Arc<std::sync::OnceLock<Ring>>) = (told.clone(), ring.clone());
        let listening = Ring::new(64).telling(move |entry| {
            let mut held = 0;
            reads.get().into_iter().for_each(|ring| {
                ring.scan(&mut |_| {
                    held += 1;
                    true
                })
            });
            sink.lock().unwrap().push((entry.seq, held));
        });
        let ring = ring.get_or_init(|| listening);
        for n in 0..3 {
            ring.append(Event::Loaded("x".into()), Now::at(n));
        }
        assert_eq!(*told.lock().unwrap(), [(0, 1), (1, 2), (2, 3)]);
    }

    #[test]
    fn a_shard_takes_no_more_memory_than_its_entries() {
        let shards = Shards::new(100);
        let capacity = 100usize.div_ceil(SHARDS);
        for seq in 0..1000 {
            shards.put(Entry { seq, at: Now::at(seq), event: Event::Loaded("x".into()) });
            let shard = shards.shards[seq as usize % SHARDS].lock();
            assert!(shard.entries.capacity() <= capacity, "{} for {capacity}", shard.entries.capacity());
        }
        let kept = shards.shards.iter().map(|shard| shard.lock().entries.len()).sum::<usize>();
        assert_eq!(kept, SHARDS * capacity);
    }

    #[test]
    fn appends_go_on_while_a_reader_holds_a_shard() {
        let ring = Ring::new(128);
        ring.hold(0, || {
            for n in 0..20 {
                ring.append(Event::Loaded("x".into()), Now::at(n));
            }
        });
        let mut count = 0;
        ring.scan(&mut |_| {
            count += 1;
            true
        });
        assert_eq!(count, 20);
    }
}
