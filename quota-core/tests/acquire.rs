//! Waiting at the gate: pools with a valve, tickets, and what becomes of a turn, whatever happens to its lease.

use std::future::Future;
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use quota_core::gate::{Counter, Queued, Target};
use quota_core::gpu::{FixedPool, ReplicaLoad, Reported};
use quota_core::journal::Event;
use quota_core::keeper::Keeper;
use quota_core::lease::Cause;
use quota_core::store::memory::Memory;
use quota_core::testkit::{Yielding, block_on};
use quota_core::time::SECOND;
use quota_core::usage::Outcome;
use quota_core::{Decision, Gate, Lease, ManualClock, Name, Policy, Principal, Reason, Request, Store, Usage};

const POLICY: &str = "
settings: {lease_ttl_ms: 60000}
models: {m: {pool: h200}, small: {}}
queues: {chat: {max_wait_ms: 3000}, jobs: {max_wait_ms: 60000, max_queue: 2}}
tenants:
  blue: {models: {m: {max_inflight: {hard: 2, on_exceed: queue}}, small: {}}}
  red: {models: {m: {}}}";

fn gate_of(policy: &str, requests: u64) -> (Gate, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1 << 60));
    let policy = Policy::from_yaml(policy).unwrap();
    let gate = Gate::builder(policy).clock(clock.clone()).pool("h200", FixedPool::new(1, requests, None)).build();
    (gate, clock)
}

fn gate(requests: u64) -> (Gate, Arc<ManualClock>) {
    gate_of(POLICY, requests)
}

fn who(tenant: &str) -> Principal {
    Principal::builder(tenant).build()
}

fn request() -> Request {
    Request::chat("m").input_tokens(100).max_output_tokens(50)
}

fn allowed(gate: &Gate, tenant: &str, request: &Request) -> Lease {
    match gate.admit(&who(tenant), request) {
        Decision::Allow(lease) => lease,
        other => panic!("{other:?}"),
    }
}

fn queued(gate: &Gate, tenant: &str, request: &Request) -> Queued {
    match gate.admit(&who(tenant), request) {
        Decision::Queue(queued) => queued,
        other => panic!("{other:?}"),
    }
}

fn in_flight(gate: &Gate) -> u64 {
    gate.scheduler("h200").unwrap().valve().in_flight
}

fn waiting(gate: &Gate) -> u64 {
    gate.snapshot().waiting_lanes().values().sum()
}

#[test]
fn a_full_pool_is_waited_for_and_the_next_in_turn_is_woken() {
    let (gate, _) = gate(1);
    let first = allowed(&gate, "red", &request());
    let (blue, asked) = (who("blue"), request().id("r2"));
    let mut ticket = pin!(gate.acquire(&blue, &asked));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(ticket.as_mut().poll(&mut cx).is_pending());
    assert_eq!((in_flight(&gate), waiting(&gate)), (1, 1));
    assert_eq!(gate.balances(&blue, true)[0].used, 0, "it holds no account while it waits");
    first.settle(Usage::tokens(100, 20)).unwrap();
    let Poll::Ready(Ok(lease)) = ticket.as_mut().poll(&mut cx) else { panic!("its turn has not come") };
    assert_eq!((in_flight(&gate), waiting(&gate)), (1, 0));
    assert_eq!(gate.balances(&blue, true)[0].used, 1);
    lease.settle(Usage::tokens(100, 20)).unwrap();
    assert_eq!(in_flight(&gate), 0);
    let story: Vec<_> = gate.explain("r2").iter().map(|entry| entry.event.name()).collect();
    assert_eq!(story, ["queued", "admitted", "settled"]);
    let Event::Queued(refusal, _) = &gate.explain("r2")[0].event else { panic!("not queued") };
    assert_eq!(refusal.reason, Reason::ModelPoolOverloaded);
}

#[test]
fn whatever_ends_a_lease_gives_its_room_back() {
    type Ending = fn(&Gate, Lease, &ManualClock);
    let endings: [(&str, Ending); 8] = [
        ("settle", |_, lease, _| drop(lease.settle(Usage::tokens(1, 1)).unwrap())),
        ("cancel", |_, lease, _| drop(lease.cancel().unwrap())),
        ("unresolved", |_, lease, _| drop(lease.unresolved(Cause::NoUsage, None).unwrap())),
        ("drop", |_, lease, _| drop(lease)),
        ("finish", |_, lease, _| drop(lease.finish(Outcome::NotRun).unwrap())),
        ("by id", |gate, lease, _| {
            gate.finalize(Name::Lease(lease.id()), Outcome::Final(Usage::tokens(1, 1))).unwrap();
            assert_eq!(in_flight(gate), 0, "though the handle is still there");
        }),
        ("expiry", |gate, lease, clock| {
            clock.advance(Duration::from_secs(120));
            assert_eq!(gate.sweep(10), 1);
            assert_eq!(in_flight(gate), 0);
            drop(lease);
        }),
        ("a stream that is dropped", |_, lease, _| drop(lease.stream(quota_core::usage::Dialect::OpenAiChat))),
    ];
    for (name, end) in endings {
        let (gate, clock) = gate(1);
        let lease = allowed(&gate, "red", &request());
        assert_eq!(in_flight(&gate), 1, "{name}");
        end(&gate, lease, &clock);
        assert_eq!(in_flight(&gate), 0, "{name}");
        assert!(gate.admit(&who("red"), &request()).lease().is_some(), "{name}");
    }
}

#[test]
fn a_refusal_by_the_limits_takes_no_turn() {
    let policy = "
models: {m: {pool: h200}}
tenants: {red: {rpm: 1, models: {m: {}}}, blue: {models: {m: {}}}}";
    let (gate, _) = gate_of(policy, 1);
    let lease = allowed(&gate, "red", &request());
    assert_eq!(gate.admit(&who("red"), &request()).action(), "reject", "not queued for a pool that it could not use");
    lease.settle(Usage::tokens(1, 1)).unwrap();
    assert_eq!(gate.admit(&who("red"), &request()).reason(), Some(Reason::RequestRateExceeded));
    assert_eq!((in_flight(&gate), waiting(&gate)), (0, 0));
    drop(allowed(&gate, "blue", &request()));
}

#[test]
fn who_gives_up_leaves_no_trace() {
    let (gate, _) = gate(1);
    let first = allowed(&gate, "red", &request());
    let (blue, asked) = (who("blue"), request());
    {
        let mut ticket = pin!(gate.acquire(&blue, &asked));
        assert!(ticket.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    }
    assert_eq!(waiting(&gate), 0);
    let second = queued(&gate, "blue", &asked);
    first.cancel().unwrap();
    assert!(second.is_due());
    assert_eq!(in_flight(&gate), 1, "the turn waits to be picked up");
    drop(second);
    assert_eq!((in_flight(&gate), waiting(&gate)), (0, 0));
}

#[test]
fn who_has_waited_too_long_is_told_what_for() {
    let (gate, clock) = gate(1);
    let _first = allowed(&gate, "red", &request());
    let (blue, asked) = (who("blue"), request().id("late"));
    let mut ticket = pin!(gate.acquire(&blue, &asked));
    let mut cx = Context::from_waker(Waker::noop());
    assert!(ticket.as_mut().poll(&mut cx).is_pending());
    assert_eq!(gate.next_due(), Some(gate.now().mono + 3_000_000_000));
    clock.advance(Duration::from_millis(2999));
    gate.sweep(10);
    assert!(ticket.as_mut().poll(&mut cx).is_pending());
    clock.advance(Duration::from_millis(1));
    gate.sweep(10);
    let Poll::Ready(Err(refusal)) = ticket.as_mut().poll(&mut cx) else { panic!("still waits") };
    assert_eq!((refusal.reason, refusal.reason.status()), (Reason::QueueTimeout, 503));
    assert_eq!(refusal.detail.as_deref(), Some("waited in lane `chat` for pool `h200`"));
    let story: Vec<_> = gate.explain("late").iter().map(|entry| entry.event.name()).collect();
    assert_eq!(story, ["queued", "refused"]);
    let lane = &gate.snapshot().lanes["chat"];
    assert_eq!((lane.get(Counter::Rejected), lane.reason(Reason::QueueTimeout)), (1, 1));
}

#[test]
fn a_tenant_at_its_own_ceiling_is_out_of_turn_and_the_others_go() {
    let (gate, _) = gate(4);
    let one = allowed(&gate, "blue", &request());
    let _two = allowed(&gate, "blue", &request());
    let third = queued(&gate, "blue", &request());
    assert_eq!((third.refusal.reason, &*third.pool), (Reason::ConcurrencyExceeded, "h200"));
    assert_eq!(in_flight(&gate), 2, "a turn that can't be used is not kept");
    let _red = allowed(&gate, "red", &request());
    assert!(!third.is_due());
    one.settle(Usage::tokens(1, 1)).unwrap();
    assert!(third.is_due(), "the release lets it try again");
    let Decision::Allow(_third) = gate.admit_again(third, &who("blue"), &request()) else { panic!("not allowed") };
    assert_eq!((in_flight(&gate), waiting(&gate)), (3, 0));
}

#[test]
fn what_changes_while_a_request_waits_counts_when_its_turn_has_come() {
    for (change, reason) in [
        ((|gate| gate.freeze(Target::Tenant("blue".into()), "incident", "ops")) as fn(&Gate), Reason::Frozen),
        (
            |gate| gate.reload(&Policy::from_yaml(&POLICY.replace("  blue:", "  green:")).unwrap()),
            Reason::TenantUnknown,
        ),
    ] {
        let (gate, _) = gate(1);
        let first = allowed(&gate, "red", &request());
        let waits = queued(&gate, "blue", &request());
        change(&gate);
        first.settle(Usage::tokens(1, 1)).unwrap();
        let decision = gate.admit_again(waits, &who("blue"), &request());
        assert_eq!(decision.reason(), Some(reason));
        assert_eq!((in_flight(&gate), waiting(&gate)), (0, 0));
    }
}

#[test]
fn a_repeat_of_an_open_request_finds_its_lease_though_the_pool_is_full() {
    let (gate, _) = gate(1);
    let lease = allowed(&gate, "red", &request().id("r"));
    let Decision::Allow(again) = gate.admit(&who("red"), &request().id("r")) else { panic!("not found") };
    assert_eq!((again.id(), again.is_repeat(), in_flight(&gate)), (lease.id(), true, 1));
    drop(again);
    assert_eq!(in_flight(&gate), 1);
    drop(lease);
    assert_eq!(in_flight(&gate), 0);
}

#[test]
fn a_lesser_model_is_counted_in_its_own_pool() {
    let policy = "
models: {big: {pool: large}, small: {pool: h200}}
degrade: [{when: {pool_above: 50}, model: small}]
tenants: {red: {models: {big: {}, small: {}}}}";
    let policy = Policy::from_yaml(policy).unwrap();
    let pools =
        Gate::builder(policy).pool("h200", FixedPool::new(1, 1, None)).pool("large", FixedPool::new(1, 2, None));
    let gate = pools.build();
    let big = Request::chat("big").max_output_tokens(10);
    let in_large = |gate: &Gate| gate.scheduler("large").unwrap().valve().in_flight;
    let _one = allowed(&gate, "red", &big);
    let _two = allowed(&gate, "red", &big);
    assert_eq!((in_large(&gate), gate.pressure("large")), (2, Some(100)));
    drop(_two);
    let third = allowed(&gate, "red", &big);
    let Decision::Queue(waits) = gate.admit(&who("red"), &big) else { panic!("the asked pool is full") };
    drop(third);
    gate.set_pressure("large", 90);
    let Decision::Degrade(lease, lesser) = gate.admit_again(waits, &who("red"), &big) else { panic!("not degraded") };
    assert_eq!((&*lesser.model, lease.degradation()), ("small", Some(&lesser)));
    assert_eq!((in_large(&gate), in_flight(&gate)), (1, 1), "the turn for the other pool was given back");
    drop(lease);
    assert_eq!(in_flight(&gate), 0);
}

#[test]
fn a_preview_says_that_the_pool_is_full() {
    let (gate, _) = gate(1);
    assert_eq!(gate.preview(&who("red"), &request()).action(), "allow");
    let lease = allowed(&gate, "red", &request());
    let preview = gate.preview(&who("red"), &request());
    assert_eq!((preview.action(), preview.reason()), ("queue", Some(Reason::ModelPoolOverloaded)));
    drop(lease);
    assert_eq!(gate.preview(&who("red"), &request()).action(), "allow");
    assert_eq!((in_flight(&gate), waiting(&gate)), (0, 0));
}

#[test]
fn the_valve_follows_what_the_pool_reports() {
    let clock = Arc::new(ManualClock::at(1 << 60));
    let pool = Arc::new(Reported::new(1, Duration::from_secs(5)).declaring(Some(100), None));
    let policy = Policy::from_yaml(&POLICY.replace("60000}", "60000, stale_pools: close}")).unwrap();
    let gate = Gate::builder(policy).clock(clock.clone()).pool("h200", pool.clone()).build();
    let most = || gate.scheduler("h200").unwrap().valve().most;
    assert_eq!(most(), 25, "a quarter at first");
    gate.sweep(1);
    assert_eq!(most(), 0, "it has not reported, and the policy says to close");
    let report = |waiting| {
        clock.advance(Duration::from_secs(1));
        pool.report(0, ReplicaLoad { waiting: Some(waiting), ..ReplicaLoad::default() }, gate.now());
        gate.sweep(1);
        most()
    };
    assert_eq!([report(0), report(5), report(40)], [25, 24, 17]);
    let _leases: Vec<_> = (0..17).map(|_| gate.admit(&who("red"), &request()).lease()).collect();
    let _waits = queued(&gate, "red", &request());
    assert_eq!(report(0), 17, "it kept someone out");
    let staleness = || gate.pools().into_iter().find(|pool| &*pool.pool == "h200").unwrap().queue.staleness;
    clock.advance(Duration::from_secs(3));
    gate.sweep(1);
    assert_eq!(staleness(), Some(Duration::from_secs(3)));
    clock.advance(Duration::from_secs(3));
    gate.sweep(1);
    assert_eq!(most(), 0);
    assert_eq!(report(0), 18, "as before, and a step more");
}

#[test]
fn a_reload_changes_the_lanes_of_those_that_wait() {
    let (gate, clock) = gate(1);
    let first = allowed(&gate, "red", &request());
    let waits = queued(&gate, "red", &request().lane("jobs"));
    gate.reload(&Policy::from_yaml(&POLICY.replace("jobs: {max_wait_ms: 60000, max_queue: 2}", "night: {}")).unwrap());
    assert_eq!((in_flight(&gate), waiting(&gate)), (1, 1), "what waits stays");
    assert_eq!(gate.admit(&who("red"), &request().lane("jobs")).reason(), Some(Reason::RequestInvalid));
    let _night = queued(&gate, "red", &request().lane("night"));
    first.settle(Usage::tokens(1, 1)).unwrap();
    assert!(waits.is_due());
    // Its lane is gone: it is told so, and the turn goes on to the next.
    let decision = gate.admit_again(waits, &who("red"), &request().lane("jobs"));
    assert_eq!(decision.reason(), Some(Reason::RequestInvalid));
    assert_eq!(in_flight(&gate), 1);
    clock.advance(Duration::from_secs(1));
}

/// The keeper's interval is far longer than the wait: it is woken for it.
#[test]
fn the_keeper_ends_a_wait_in_time() {
    let policy = Policy::from_yaml(&POLICY.replace("max_wait_ms: 3000", "max_wait_ms: 50")).unwrap();
    let gate = Gate::builder(policy).pool("h200", FixedPool::new(1, 1, None)).build();
    let _keeper = Keeper::start(gate.clone(), Duration::from_secs(3600)).unwrap();
    let _first = allowed(&gate, "red", &request());
    let waits = queued(&gate, "red", &request());
    let began = gate.now().mono;
    while !waits.is_due() {
        assert!(gate.now().mono - began < 60 * SECOND, "it was never ended");
        std::thread::yield_now();
    }
    assert_eq!(gate.admit_again(waits, &who("red"), &request()).reason(), Some(Reason::QueueTimeout));
}

fn crowd<S: Store>(gate: Gate<S>) {
    let admitted = Arc::new(AtomicU64::new(0));
    let running = Arc::new(AtomicU64::new(0));
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let (gate, admitted, running) = (gate.clone(), admitted.clone(), running.clone());
            scope.spawn(move || {
                let who = who(["blue", "red"][thread % 2]);
                for at in 0..100 {
                    let asked = request();
                    let lease = block_on(gate.acquire(&who, &asked)).unwrap();
                    assert!(running.fetch_add(1, Ordering::SeqCst) < 3, "more than the pool takes");
                    admitted.fetch_add(1, Ordering::SeqCst);
                    running.fetch_sub(1, Ordering::SeqCst);
                    match at % 3 {
                        0 => drop(block_on(S::future(lease.settle(Usage::tokens(100, 5))))),
                        1 => drop(block_on(S::future(lease.cancel()))),
                        _ => drop(lease),
                    }
                    if at % 7 == 0 {
                        // One that asks and leaves at once, whether its turn comes or not.
                        let mut ticket = pin!(gate.acquire(&who, &asked));
                        let _ = ticket.as_mut().poll(&mut Context::from_waker(Waker::noop()));
                    }
                    block_on(S::future(gate.sweep(1)));
                }
            });
        }
    });
    assert_eq!(admitted.load(Ordering::SeqCst), 400);
    // A store that is awaited may still have an ending under way.
    block_on(S::future(gate.sweep(1)));
    let valve = gate.scheduler("h200").unwrap().valve();
    assert_eq!((valve.in_flight, valve.kept), (0, 0));
    assert_eq!(gate.snapshot().waiting_lanes().values().sum::<u64>(), 0);
}

/// Real time, real threads: all get their turn, none is lost, and nothing is left.
#[test]
fn a_crowd_of_threads_gets_its_turns() {
    let policy = || Policy::from_yaml(&POLICY.replace("3000", "60000")).unwrap();
    crowd(Gate::builder(policy()).pool("h200", FixedPool::new(1, 3, None)).store(Memory::default()).build());
    crowd(Gate::builder(policy()).pool("h200", FixedPool::new(1, 3, None)).store(Yielding::default()).build());
}
