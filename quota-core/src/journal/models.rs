//! Models of the journal's ring: loom runs each of them in every order that its threads could take.
//!
//! Floor 2. Invariant: what a model asserts holds in every interleaving with at most as many preemptions as it says.
//!
//! Run with the store's, see `store/memory/models.rs`. Under `cfg(quota_loom)` a ring has two shards. An append that waits for
//! somebody who never leaves runs into the bound on steps, and its model fails.

use std::sync::Arc;

use loom::thread;

use super::{Entry, Event, Journal, Ring};
use crate::time::Now;

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    builder.check(run);
}

/// What a thread writes as its `nth` entry: every part of it says whose it is and which.
fn event(thread: u64, nth: u64) -> Event {
    let label = || Arc::from(name(thread, nth));
    Event::Frozen(label(), label(), label())
}

fn name(thread: u64, nth: u64) -> String {
    format!("{thread}.{nth}")
}

fn moment(thread: u64, nth: u64) -> Now {
    Now::at(10 * thread + nth)
}

fn append(ring: &Ring, thread: u64, entries: u64) {
    (0..entries).for_each(|nth| ring.append(event(thread, nth), moment(thread, nth)));
}

fn appending(ring: &Arc<Ring>, thread: u64, entries: u64) -> thread::JoinHandle<()> {
    let ring = ring.clone();
    thread::spawn(move || append(&ring, thread, entries))
}

/// What a scan shows: the number of each entry and whose it is, once it was looked at whether it is whole.
fn scanned(ring: &Ring) -> Vec<(u64, String)> {
    let mut seen = Vec::new();
    ring.scan(&mut |entry: &Entry| {
        if let Event::Frozen(what, by, why) = &entry.event {
            assert!(what == by && by == why, "a mixture: {entry:?}");
            let (thread, nth) = what.split_once('.').expect("two numbers");
            assert_eq!(entry.at, moment(thread.parse().unwrap(), nth.parse().unwrap()), "a mixture: {entry:?}");
            seen.push((entry.seq, what.to_string()));
        }
        true
    });
    assert!(seen.is_sorted_by(|a, b| a.0 < b.0), "oldest first, each once: {seen:?}");
    seen
}

/// How many entries besides refusals a ring for four keeps here: two a shard.
const ENTRIES: u64 = 4;

/// A ring without room, full of thread 0's entries.
fn full() -> Arc<Ring> {
    let ring = Arc::new(Ring::new(4));
    append(&ring, 0, ENTRIES);
    assert_eq!(ring.dropped(), 0);
    ring
}

fn names(scanned: &[(u64, String)]) -> Vec<&str> {
    let mut names: Vec<&str> = scanned.iter().map(|(_, name)| name.as_str()).collect();
    names.sort_unstable();
    names
}

#[test]
fn loom_ring_has_every_append_once() {
    model(3, || {
        let ring = Arc::new(Ring::new(16));
        let other = appending(&ring, 1, 2);
        append(&ring, 2, 2);
        other.join().unwrap();
        let seen = scanned(&ring);
        assert_eq!(names(&seen), ["1.0", "1.1", "2.0", "2.1"], "lost or doubled");
        assert!(seen.iter().map(|(seq, _)| *seq).eq(0..4), "each number once: {seen:?}");
        assert_eq!(ring.dropped(), 0);
    });
}

/// The reader leaves its shard only when both appends are through: one that waits for it never is.
#[test]
fn loom_ring_goes_on_while_a_reader_holds_a_shard() {
    model(3, || {
        let ring = Arc::new(Ring::new(16));
        for shard in 0..2 {
            ring.hold(shard, || {
                let other = appending(&ring, 2 * shard as u64 + 1, 2);
                append(&ring, 2 * shard as u64 + 2, 1);
                other.join().unwrap();
            });
        }
        assert_eq!(names(&scanned(&ring)), ["1.0", "1.1", "2.0", "3.0", "3.1", "4.0"], "lost or doubled");
    });
}

/// A scan beside appends that make room: what it shows is whole, in order, and never more than the ring may hold.
#[test]
fn loom_ring_is_read_whole() {
    model(3, || {
        let ring = full();
        let other = appending(&ring, 1, 2);
        let seen = scanned(&ring);
        assert_eq!(seen.len() as u64, ENTRIES, "an entry leaves when another takes its place: {seen:?}");
        other.join().unwrap();
        assert_eq!(scanned(&ring).len() as u64, ENTRIES);
    });
}

/// Two that append to a full ring at once: its length stays, what made room is counted, and it was the oldest.
#[test]
fn loom_ring_counts_what_made_room() {
    model(3, || {
        let ring = full();
        let other = appending(&ring, 1, 2);
        append(&ring, 2, 1);
        other.join().unwrap();
        let seen = scanned(&ring);
        assert_eq!((seen.len() as u64, ring.dropped()), (ENTRIES, 3), "{seen:?}");
        let new = names(&seen).into_iter().filter(|name| !name.starts_with("0.")).count();
        assert_eq!(new, 3, "the oldest made room: {seen:?}");
    });
}
