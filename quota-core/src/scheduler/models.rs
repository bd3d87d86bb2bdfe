//! Models of the scheduler's lock-free parts: loom runs each of them in every order that its threads could take.
//!
//! Floor 2. Invariant: what a model asserts holds in every interleaving with at most as many preemptions as it says.
//!
//! Run with the store's, see `store/memory/models.rs`. A thread that waits for its turn and is not woken ends a model as a deadlock.

use std::future::{Future, poll_fn};
use std::pin::pin;

use loom::future::block_on;
use loom::thread;

use super::inbox::Inbox;
use super::*;

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    builder.check(run);
}

fn scheduler(requests: u64) -> Scheduler {
    let settings = Settings { max_flows: 4, max_requests: 4, sparse_percent: 0, ..Settings::default() };
    Scheduler::new(&settings, Capacity::requests(requests))
}

fn arrival() -> Arrival {
    Arrival::new("acme", "default", Tokens::new(1, 0, 0))
}

/// Waits for a turn.
fn turn(place: Place) -> Turn {
    let mut place = pin!(place);
    block_on(poll_fn(|cx| place.as_mut().poll(cx))).unwrap()
}

#[test]
fn loom_inbox_leaves_no_message() {
    model(3, || {
        let inbox = Arc::new(Inbox::new(0u32));
        let rested = Arc::new(AtomicU64::new(0));
        let send = |inbox: &Inbox<u32, u32>, rested: &AtomicU64, message| {
            let act = |state: &mut u32, message| *state += message;
            // ORDERING: relaxed; passes don't overlap, and what the last one stores is asked for after the joins.
            let rest = |state: &mut u32| rested.store(u64::from(*state), Ordering::Relaxed);
            inbox.send(message, act, rest, |()| {});
        };
        let threads: Vec<_> = [1, 10]
            .map(|message| {
                let (inbox, rested) = (inbox.clone(), rested.clone());
                thread::spawn(move || send(&inbox, &rested, message))
            })
            .into();
        inbox.leave(1000);
        send(&inbox, &rested, 100);
        threads.into_iter().for_each(|thread| thread.join().unwrap());
        // ORDERING: relaxed, as above.
        assert_eq!(rested.load(Ordering::Relaxed), 1111);
    });
}

#[test]
fn loom_who_waits_is_woken_by_the_end_of_a_turn() {
    model(3, || {
        let scheduler = scheduler(1);
        let first = scheduler.enter(arrival(), 1).unwrap();
        let other = scheduler.clone();
        let waits = thread::spawn(move || turn(other.arrive(arrival(), 1).unwrap()).end(End::NeverStarted, 1));
        assert!(first.end(End::NeverStarted, 1));
        assert!(waits.join().unwrap());
        assert_eq!(scheduler.valve().in_flight, 0);
    });
}

#[test]
fn loom_who_leaves_beside_the_grant_gives_the_room_back() {
    model(3, || {
        let scheduler = scheduler(1);
        let first = scheduler.enter(arrival(), 1).unwrap();
        let place = scheduler.arrive(arrival(), 1).unwrap();
        let leaves = thread::spawn(move || drop(place));
        first.end(End::NeverStarted, 1);
        leaves.join().unwrap();
        assert_eq!(scheduler.valve().in_flight, 0);
        assert!(scheduler.enter(arrival(), 1).is_some(), "nobody is left in the queue");
    });
}

#[test]
fn loom_the_room_of_two_that_leave_and_end_goes_to_the_third() {
    model(2, || {
        let scheduler = scheduler(1);
        let first = scheduler.enter(arrival(), 1).unwrap();
        let second = scheduler.arrive(arrival(), 1).unwrap();
        let third = scheduler.arrive(arrival(), 1).unwrap();
        let leaves = thread::spawn(move || drop(second));
        let waits = thread::spawn(move || turn(third).end(End::NeverStarted, 1));
        first.end(End::NeverStarted, 1);
        leaves.join().unwrap();
        assert!(waits.join().unwrap());
        assert_eq!(scheduler.valve().in_flight, 0);
    });
}

#[test]
fn loom_a_turn_ends_once() {
    model(3, || {
        let scheduler = scheduler(1);
        let turn = Arc::new(scheduler.enter(arrival(), 1).unwrap());
        let other = turn.clone();
        let ends = thread::spawn(move || other.end(End::Left, 1));
        let first = turn.end(End::NeverStarted, 1);
        assert!(first != ends.join().unwrap());
        assert_eq!(scheduler.valve().in_flight, 0);
    });
}

#[test]
fn loom_the_valve_lets_in_no_more_than_fit() {
    model(3, || {
        let scheduler = scheduler(1);
        let other = scheduler.clone();
        let enters = thread::spawn(move || other.enter(arrival(), 1));
        let turns = [scheduler.enter(arrival(), 1), enters.join().unwrap()];
        assert_eq!(turns.iter().flatten().count(), 1);
        assert_eq!(scheduler.valve().in_flight, 1);
    });
}

#[test]
fn loom_a_look_takes_no_room() {
    model(3, || {
        let scheduler = scheduler(1);
        let first = scheduler.enter(arrival(), 1).unwrap();
        let other = scheduler.clone();
        let looks = thread::spawn(move || other.would_wait(&arrival()));
        let second = scheduler.arrive(arrival(), 1).unwrap();
        first.end(End::NeverStarted, 1);
        looks.join().unwrap();
        assert!(second.is_due(), "the end of the first is the only word that it gets");
    });
}
