//! Tests of the simulated pool: what goes in comes out once, memory is never over, the same calls give the same events.
//!
//! Floor 2. Invariant: right times are computed here by hand from the shape.

use std::collections::BTreeMap;

use super::{Event, Shape, SimulatedPool, Simulator, SubmitError};
use crate::gpu::GpuBackend;
use crate::time::Now;

const MS: u64 = 1_000_000;

/// Numbers that look random, the same ones each time.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0 % below
    }
}

/// Goes from event to event until nothing is left; looks at the books after each.
fn drain(pool: &mut Simulator) -> Vec<Event> {
    let mut events = Vec::new();
    while let Some(at) = pool.next_event() {
        pool.advance(at, &mut |event| events.push(event));
        pool.check();
    }
    events
}

/// A pool whose memory is short, so that sequences are thrown back.
fn tight() -> Shape {
    Shape { replicas: 2, max_running: 8, kv_tokens: 3000, prefill_chunk: 256, ..Shape::P4 }
}

/// What was told of each request: prompt tokens, first tokens, whether progress only grew, and the answer's length.
fn sums(events: &[Event]) -> BTreeMap<u64, (u64, u64, u64, u64)> {
    let mut sums: BTreeMap<u64, (u64, u64, u64, u64)> = BTreeMap::new();
    for event in events {
        match *event {
            Event::Prefilled { id, tokens, .. } => sums.entry(id).or_default().0 += tokens,
            Event::FirstToken { id, .. } => sums.entry(id).or_default().1 += 1,
            Event::Progress { id, out, .. } => {
                let sum = sums.entry(id).or_default();
                assert!(out > sum.2, "progress fell");
                sum.2 = out;
            }
            Event::Finished { id, out, .. } => sums.entry(id).or_default().3 += out,
            Event::Preempted { .. } | Event::Lost { .. } => {}
        }
    }
    sums
}

#[test]
fn one_request_takes_the_steps_of_its_shape() {
    let mut pool = Simulator::new(Shape { progress_every: 1, ..Shape::P4 });
    pool.submit(5 * MS, 1, 3000, 3).unwrap();
    let first = 12 * MS + 2048 * 60_000;
    let second = 12 * MS + 952 * 60_000 + 2048 * 30;
    let third = 12 * MS + 100_000 + 3000 * 30;
    let fourth = 12 * MS + 100_000 + 3001 * 30;
    let at = 5 * MS + first + second;
    assert_eq!(
        drain(&mut pool),
        [
            Event::Prefilled { id: 1, tokens: 2048, at: 5 * MS + first },
            Event::Prefilled { id: 1, tokens: 952, at },
            Event::FirstToken { id: 1, at },
            Event::Progress { id: 1, out: 1, at },
            Event::Progress { id: 1, out: 2, at: at + third },
            Event::Finished { id: 1, out: 3, at: at + third + fourth },
        ]
    );
    assert!(pool.is_empty());
}

#[test]
fn every_token_comes_out_once_in_spite_of_preemption() {
    for reserve_in_full in [false, true] {
        let mut pool = Simulator::new(Shape { reserve_in_full, ..tight() });
        let (mut dice, mut events, mut asked) = (Dice(101), Vec::new(), BTreeMap::new());
        for id in 0..600 {
            let (input, output) = (1 + dice.roll(900), 1 + dice.roll(700));
            let now = id * 40 * MS;
            pool.advance(now, &mut |event| events.push(event));
            pool.submit(now, id, input, output).unwrap();
            pool.check();
            asked.insert(id, (input, 1, output / 16 * 16 - if output % 16 == 0 { 16 } else { 0 }, output));
        }
        events.extend(drain(&mut pool));
        assert_eq!(sums(&events), asked);
        let thrown_back = events.iter().filter(|event| matches!(event, Event::Preempted { .. })).count() as u64;
        assert_eq!(thrown_back > 0, !reserve_in_full);
        assert_eq!(pool.load(0).replicas.iter().filter_map(|replica| replica.preemptions).sum::<u64>(), thrown_back);
        assert!(pool.load(0).replicas.iter().all(|replica| replica.kv_used_ppm == Some(0)));
    }
}

#[test]
fn the_newest_is_thrown_back_and_goes_on_where_it_was() {
    // Two prompts of 40 fit into 100, two answers of 30 do not.
    let shape = Shape { replicas: 1, kv_tokens: 100, progress_every: 1, ..Shape::P4 };
    let mut pool = Simulator::new(shape);
    pool.submit(0, 1, 40, 30).unwrap();
    pool.submit(0, 2, 40, 30).unwrap();
    let events = drain(&mut pool);
    let thrown: Vec<_> = events.iter().filter(|event| matches!(event, Event::Preempted { .. })).collect();
    assert!(matches!(thrown[..], [Event::Preempted { id: 2, .. }]), "{thrown:?}");
    let ends: Vec<_> = events.iter().filter(|event| matches!(event, Event::Finished { .. })).collect();
    assert!(matches!(ends[..], [Event::Finished { id: 1, out: 30, .. }, Event::Finished { id: 2, out: 30, .. }]));
    assert_eq!(sums(&events)[&2], (40, 1, 29, 30));
}

#[test]
fn the_same_calls_give_the_same_events() {
    let run = || {
        let (mut pool, mut dice, mut events) = (Simulator::new(tight()), Dice(202), Vec::new());
        for id in 0..500 {
            let now = id * 30 * MS;
            pool.advance(now, &mut |event| events.push(event));
            pool.submit(now, id, 1 + dice.roll(900), 1 + dice.roll(700)).unwrap();
            if id % 7 == 0 {
                pool.cancel(now, id / 2);
            }
        }
        events.extend(drain(&mut pool));
        events
    };
    assert_eq!(run(), run());
}

#[test]
fn how_often_it_is_advanced_makes_no_difference() {
    let run = |stride: u64| {
        let (mut pool, mut events) = (Simulator::new(tight()), Vec::new());
        (0..40).for_each(|id| pool.submit(0, id, 300 + id, 50 + id).unwrap());
        let mut now = 0;
        while pool.next_event().is_some() {
            now += stride;
            pool.advance(now, &mut |event| events.push(event));
        }
        events
    };
    assert_eq!(run(MS), run(977 * MS));
}

#[test]
fn a_cancelled_request_is_gone_and_its_memory_free() {
    let mut pool = Simulator::new(Shape { replicas: 1, max_running: 2, progress_every: 1, ..Shape::P4 });
    (0..4).for_each(|id| pool.submit(0, id, 100, 1000).unwrap());
    let mut events = Vec::new();
    pool.advance(MS * 1000, &mut |event| events.push(event));
    let out = sums(&events)[&0].2;
    assert!(out > 0);
    assert_eq!(pool.cancel(MS * 1000, 0), Some(out));
    // One of the queue has given no token yet.
    assert_eq!(pool.cancel(MS * 1000, 3), Some(0));
    assert_eq!((pool.cancel(MS * 1000, 3), pool.cancel(MS * 1000, 99)), (None, None));
    pool.check();
    assert_eq!(pool.len(), 2);
    let events = drain(&mut pool);
    assert_eq!(sums(&events).keys().copied().collect::<Vec<_>>(), [1, 2]);
    // A pool that was emptied by cancelling alone comes to rest.
    pool.submit(MS * 90_000, 8, 100, 100).unwrap();
    pool.cancel(MS * 90_000, 8);
    assert_eq!((drain(&mut pool), pool.next_event()), (vec![], None));
}

#[test]
fn replicas_come_and_go() {
    let mut pool = Simulator::new(Shape { replicas: 2, max_running: 1, ..Shape::P4 });
    (0..6).for_each(|id| pool.submit(0, id, 100, 10).unwrap());
    let mut lost = Vec::new();
    pool.remove_replica(MS, 1, &mut |event| lost.push(event));
    let gone: Vec<_> = [1, 3, 5].map(|id| Event::Lost { id, out: 0, at: MS }).into();
    assert_eq!((lost, pool.replicas(), pool.len()), (gone, 1, 3));
    pool.remove_replica(MS, 1, &mut |_| panic!("it was gone"));
    pool.add_replica();
    assert_eq!(pool.replicas(), 2);
    pool.submit(MS, 6, 100, 10).unwrap();
    let load = pool.load(MS);
    assert_eq!(
        load.replicas.iter().map(|r| (r.running, r.waiting)).collect::<Vec<_>>(),
        [(Some(1), Some(2)), (Some(1), Some(0))]
    );
    assert_eq!(sums(&drain(&mut pool)).len(), 4);
    pool.remove_replica(MS, 0, &mut |_| {});
    pool.remove_replica(MS, 1, &mut |_| {});
    assert_eq!(pool.submit(MS, 7, 1, 1), Err(SubmitError::NoReplica));
}

#[test]
fn what_can_not_be_taken_in_is_refused() {
    let mut pool = Simulator::new(Shape::A10G);
    assert_eq!(pool.submit(0, 1, 9000, 1001), Err(SubmitError::TooLong));
    assert_eq!(pool.submit(0, 1, u64::MAX, u64::MAX), Err(SubmitError::TooLong));
    assert_eq!(pool.submit(0, 1, 9000, 1000), Ok(()));
    assert_eq!(pool.submit(0, 1, 1, 1), Err(SubmitError::Duplicate));
    // No prompt and no answer are one token each.
    assert_eq!(pool.submit(0, 2, 0, 0), Ok(()));
    assert_eq!(sums(&drain(&mut pool))[&2], (1, 1, 0, 1));
}

#[test]
fn the_pool_tells_each_event_once_whoever_looks() {
    let pool = SimulatedPool::new(Shape { replicas: 1, progress_every: 0, ..Shape::P4 });
    pool.submit(Now::at(0), 1, 100, 2).unwrap();
    assert_eq!(pool.next_event(), Some(18 * MS));
    let load = pool.load(Now::at(20 * MS));
    assert_eq!((load.replicas[0].running, load.replicas[0].as_of), (Some(1), Some(20 * MS)));
    let mut events = Vec::new();
    assert_eq!(pool.next_event(), Some(0));
    pool.advance(Now::at(20 * MS), |event| events.push(event));
    pool.advance(Now::at(20 * MS), |event| events.push(event));
    assert_eq!(
        events,
        [Event::Prefilled { id: 1, tokens: 100, at: 18 * MS }, Event::FirstToken { id: 1, at: 18 * MS }]
    );
    pool.add_replica(Now::at(20 * MS));
    pool.remove_replica(Now::at(20 * MS), 0);
    pool.advance(Now::at(20 * MS), |event| assert_eq!(event, Event::Lost { id: 1, out: 1, at: 20 * MS }));
    assert_eq!(pool.cancel(Now::at(20 * MS), 1), None);
}
