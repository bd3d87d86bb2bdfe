//! Faults that the queue must not have: requests that starve behind others' tries, rooms and wake-ups that are lost,
//! settings that are not followed. Each test failed before its fault was mended.

use std::collections::VecDeque;
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::mpsc::channel;
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use quota_core::gate::Queued;
use quota_core::gpu::{FixedPool, Load, ReplicaLoad};
use quota_core::scheduler::drr::{End, MAX_LANES, Mode};
use quota_core::scheduler::{Arrival, Capacity, Lane, Place, Scheduler, Settings, Turn, Why};
use quota_core::time::SECOND;
use quota_core::work::{Tokens, WorkRates};
use quota_core::{Decision, Gate, ManualClock, Policy, Principal, Request, Usage};

const MILLI: u64 = SECOND / 1000;

fn arrival(tenant: &str, lane: &str, work: u64) -> Arrival {
    let rates = WorkRates { input: 1000, cached: 0, output: 0, pairs: 0 };
    Arrival { rates, ..Arrival::new(tenant, lane, Tokens::new(work, 0, 0)) }
}

fn lanes(names: &[&str], mode: Mode) -> Settings {
    let lane = |name: &&str| Lane { max_wait: Duration::from_secs(1 << 30), ..Lane::new(name.to_string()) };
    Settings { lanes: names.iter().map(lane).collect(), mode, sparse_percent: 0, ..Settings::default() }
}

fn one_lane() -> Settings {
    lanes(&["default"], Mode::Weighted)
}

/// A waker that does something.
struct Call<F>(F);

impl<F: Fn() + Send + Sync + 'static> Wake for Call<F> {
    fn wake(self: Arc<Self>) {
        (self.0)();
    }
}

fn waker(act: impl Fn() + Send + Sync + 'static) -> Waker {
    Waker::from(Arc::new(Call(act)))
}

fn turn(place: &mut Place) -> Option<Turn> {
    place.try_turn().map(|turn| turn.unwrap())
}

fn who(tenant: &str) -> Principal {
    Principal::builder(tenant).build()
}

fn request() -> Request {
    Request::chat("m").input_tokens(100).max_output_tokens(50)
}

fn gate_of(policy: &str, pools: &[(&str, u64)]) -> (Gate, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at(1 << 60));
    let mut builder = Gate::builder(Policy::from_yaml(policy).unwrap()).clock(clock.clone());
    for (name, requests) in pools {
        builder = builder.pool(*name, FixedPool::new(1, *requests, None));
    }
    (builder.build(), clock)
}

fn queued(gate: &Gate, tenant: &str) -> Queued {
    match gate.admit(&who(tenant), &request()) {
        Decision::Queue(queued) => queued,
        other => panic!("{other:?}"),
    }
}

fn in_flight(gate: &Gate, pool: &str) -> u64 {
    gate.scheduler(pool).unwrap().valve().in_flight
}

/// 2000 requests of one user are held; each of their tries takes a millisecond of the only room and fails.
#[test]
fn tries_of_one_user_do_not_starve_the_others() {
    let scheduler = Scheduler::new(&one_lane(), Capacity::requests(1));
    let mut now = SECOND;
    let mut held: Vec<Place> = Vec::new();
    for _ in 0..2000 {
        let turn = scheduler.enter_anyway(arrival("blue", "default", 1000), now);
        held.push(turn.put_back("user:u".into(), false, u64::MAX, now).unwrap());
    }
    now += SECOND;
    scheduler.tick(now);
    let mut others = ["red", "blue"].map(|tenant| scheduler.arrive(arrival(tenant, "default", 1000), now).unwrap());
    let (mut served, mut tries) = (0, 0);
    while served < 2 {
        for other in &mut others {
            if let Some(turn) = turn(other) {
                served += 1;
                turn.end(End::NeverStarted, now);
            }
        }
        if let Some(at) = held.iter().position(Place::is_due) {
            let turn = turn(&mut held.remove(at)).unwrap();
            now += MILLI;
            tries += 1;
            assert!(tries < 20, "they starve behind tries that fail");
            held.push(turn.put_back("user:u".into(), false, u64::MAX, now).unwrap());
        } else {
            now += MILLI;
            scheduler.tick(now);
        }
    }
}

/// A tenant at its ceiling has 40 waiting. What comes free is tried for by two, in the order of arrival, and the pool
/// stays open for others.
#[test]
fn a_release_lets_few_try_and_the_oldest_go() {
    let policy = "
models: {m: {pool: h200}}
queues: {chat: {max_wait_ms: 600000}}
tenants: {blue: {max_inflight: {hard: 1, on_exceed: queue}, models: {m: {}}}, red: {models: {m: {}}}}";
    let (gate, clock) = gate_of(policy, &[("h200", 8)]);
    let mut running = gate.admit(&who("blue"), &request()).lease();
    let mut waiting: VecDeque<Queued> = (0..40).map(|_| queued(&gate, "blue")).collect();
    let mut polls = 0;
    for round in 0..40 {
        drop(running.take().unwrap().settle(Usage::tokens(100, 5)).unwrap());
        let tries: Vec<usize> = (0..waiting.len()).filter(|at| waiting[*at].is_due()).collect();
        assert!(tries.len() <= 2 && tries[0] == 0, "round {round}: {tries:?} try");
        assert!(gate.admit(&who("red"), &request()).lease().is_some(), "the pool is not full of tries");
        // The newest is looked at first: the order of looking must not become the order of waiting.
        while let Some(at) = (0..waiting.len()).rev().find(|at| waiting[*at].is_due()) {
            polls += 1;
            let asked = waiting.remove(at).unwrap();
            match gate.admit_again(asked, &who("blue"), &request()) {
                Decision::Allow(lease) => assert!(at <= 1 && running.replace(lease).is_none(), "{at} went"),
                Decision::Queue(again) => waiting.insert(at, again),
                other => panic!("{other:?}"),
            }
        }
        clock.advance(Duration::from_millis(1));
    }
    assert!(waiting.is_empty() && polls <= 160, "{polls} looks for 40 admissions");
}

#[test]
fn a_waker_may_ask_for_figures() {
    let (tell, told) = channel();
    std::thread::spawn(move || {
        let scheduler = Scheduler::new(&one_lane(), Capacity::requests(1));
        let first = scheduler.enter(arrival("a", "default", 1), 1).unwrap();
        let place = scheduler.arrive(arrival("b", "default", 1), 1).unwrap();
        let other = scheduler.clone();
        place.wake_by(&waker(move || assert!(other.figures().is_some())));
        tell.send(first.end(End::NeverStarted, 2)).unwrap();
    });
    assert_eq!(told.recv_timeout(Duration::from_secs(60)), Ok(true), "it waits for itself");
}

#[test]
fn a_waker_that_panics_keeps_no_other_from_being_called() {
    let scheduler = Scheduler::new(&one_lane(), Capacity::requests(1));
    let first = scheduler.enter(arrival("a", "default", 1), 1).unwrap();
    let places = ["b", "c"].map(|tenant| scheduler.arrive(arrival(tenant, "default", 1), 1).unwrap());
    let woken = Arc::new(AtomicU64::new(0));
    let count = woken.clone();
    places[0].wake_by(&waker(|| panic!("the host's own")));
    places[1].wake_by(&waker(move || {
        count.fetch_add(1, Ordering::Relaxed);
    }));
    let open = || scheduler.report(Load::default(), Some(Capacity::requests(4)), 2);
    assert!(catch_unwind(AssertUnwindSafe(open)).is_err(), "it is the caller's to know");
    assert_eq!(woken.load(Ordering::Relaxed), 1);
    first.end(End::NeverStarted, 3);
    assert!(scheduler.enter(arrival("d", "default", 1), 4).is_some(), "and it goes on");
}

#[test]
fn lanes_follow_the_order_and_the_mode_in_force() {
    let scheduler = Scheduler::new(&lanes(&["batch", "chat"], Mode::PriorityWithFloor), Capacity::requests(1));
    scheduler.configure(lanes(&["chat", "batch"], Mode::PriorityWithFloor));
    let first = scheduler.enter(arrival("a", "chat", 1), 1).unwrap();
    let batch = scheduler.arrive(arrival("a", "batch", 1), 1).unwrap();
    let chat = scheduler.arrive(arrival("a", "chat", 1), 1).unwrap();
    first.end(End::NeverStarted, 2);
    assert!(chat.is_due() && !batch.is_due(), "chat is the first of the order in force");
    drop((batch, chat));
    // What chat took by its priority it does not owe by weight.
    for at in 0..1000 {
        let turn = scheduler.enter(arrival("a", "chat", 1000), 3 + at).unwrap();
        turn.end(End::Served(turn.arrival().tokens), 3 + at);
    }
    let now = 2000;
    let running = scheduler.enter(arrival("x", "batch", 1), now).unwrap();
    let mut batch: Vec<Place> = (0..20).map(|_| scheduler.arrive(arrival("b", "batch", 1000), now).unwrap()).collect();
    let mut chat = scheduler.arrive(arrival("a", "chat", 1000), now).unwrap();
    scheduler.configure(lanes(&["chat", "batch"], Mode::Weighted));
    running.end(End::NeverStarted, now);
    let mut served = 0;
    while !chat.is_due() {
        let at = batch.iter().position(Place::is_due).unwrap();
        let turn = turn(&mut batch.remove(at)).unwrap();
        turn.end(End::Served(turn.arrival().tokens), now);
        served += 1;
    }
    assert!(turn(&mut chat).is_some() && served < 12, "batch was served {served} times before chat");
}

#[test]
fn lanes_come_and_go_without_end() {
    let scheduler = Scheduler::new(&one_lane(), Capacity::unlimited());
    for at in 0..2 * MAX_LANES {
        let name = format!("lane{at}");
        scheduler.configure(lanes(&["default", &name], Mode::Weighted));
        let turn = turn(&mut scheduler.arrive(arrival("a", &name, 1), 1).unwrap()).unwrap();
        turn.end(End::NeverStarted, 1);
        // Its tenant is forgotten, and its place can be another's.
        scheduler.tick(SECOND * 100 * (at as u64 + 1));
        scheduler.tick(SECOND * 100 * (at as u64 + 1) + SECOND * 61);
    }
}

#[test]
fn what_would_not_wait_is_not_refused_for_waiting() {
    let none = Lane { max_wait: Duration::ZERO, ..Lane::new("default") };
    let scheduler = Scheduler::new(&Settings { lanes: vec![none], ..Settings::default() }, Capacity::requests(1));
    let running = turn(&mut scheduler.arrive(arrival("a", "default", 1), 1).unwrap()).expect("there is room");
    assert_eq!(scheduler.arrive(arrival("a", "default", 1), 1).unwrap_err().why, Why::TimedOut);
    running.end(End::NeverStarted, 2);
    // A pool of which a slow pace is known, in which nothing runs.
    let short = Lane { max_wait: Duration::from_secs(3), ..Lane::new("default") };
    let scheduler = Scheduler::new(&Settings { lanes: vec![short], ..Settings::default() }, Capacity::requests(1));
    let mut now = SECOND;
    let mut running = scheduler.enter(arrival("a", "default", 1000), now);
    for _ in 0..4 {
        let mut next = scheduler.arrive(arrival("a", "default", 1000), now).unwrap();
        now += SECOND;
        running.take().unwrap().end(End::Served(Tokens::new(1000, 0, 0)), now);
        running = turn(&mut next);
    }
    running.unwrap().end(End::Served(Tokens::new(1000, 0, 0)), now);
    for _ in 0..10 {
        now += 10 * SECOND;
        let turn = turn(&mut scheduler.arrive(arrival("a", "default", 100_000), now).expect("it is idle")).unwrap();
        turn.end(End::Served(turn.arrival().tokens), now);
    }
}

#[test]
fn work_done_elsewhere_is_owed_here_though_the_tenant_was_idle() {
    let scheduler = Scheduler::new(&one_lane(), Capacity::requests(1));
    let mut now = SECOND;
    for tenant in ["a", "b"].repeat(200) {
        now += MILLI;
        let turn = scheduler.enter(arrival(tenant, "default", 1000), now).unwrap();
        turn.end(End::Served(turn.arrival().tokens), now);
    }
    scheduler.charge_external(&"a".into(), &"default".into(), 1, 100 * 1000 * 1000);
    let running = scheduler.enter(arrival("c", "default", 1), now).unwrap();
    let mut places: Vec<(&str, Place)> = Vec::new();
    let line_up = |places: &mut Vec<(&'static str, Place)>, tenant| {
        places.push((tenant, scheduler.arrive(arrival(tenant, "default", 1000), SECOND).unwrap()));
    };
    (0..3).for_each(|_| ["a", "b"].iter().for_each(|tenant| line_up(&mut places, tenant)));
    running.end(End::NeverStarted, now);
    let mut served = [0, 0];
    for _ in 0..300 {
        let at = places.iter().position(|(_, place)| place.is_due()).unwrap();
        let (tenant, mut place) = places.remove(at);
        served[usize::from(tenant == "b")] += 1;
        line_up(&mut places, tenant);
        let turn = turn(&mut place).unwrap();
        turn.end(End::Served(turn.arrival().tokens), now);
    }
    assert!((90..=110).contains(&(served[1] - served[0])), "{served:?}: 100 were served elsewhere");
}

#[test]
fn absurd_figures_do_no_harm() {
    let scheduler = Scheduler::new(&one_lane(), Capacity::requests(1));
    for _ in 0..5 {
        scheduler.charge_external(&"a".into(), &"default".into(), u32::MAX, u64::MAX);
    }
    let most = ReplicaLoad {
        waiting: Some(u64::MAX),
        kv_tokens: Some(u64::MAX),
        max_running: Some(u64::MAX),
        as_of: Some(1),
        ..ReplicaLoad::default()
    };
    let load = Load { replicas: vec![most; 5] };
    scheduler.report(load.clone(), Some(Capacity::of(&load, u64::MAX)), u64::MAX);
    let turn = scheduler.enter(arrival("a", "default", u64::MAX), u64::MAX).unwrap();
    turn.progress(u64::MAX);
    turn.end(End::Served(Tokens::new(u64::MAX, u64::MAX, u64::MAX)), 0);
    assert_eq!(scheduler.valve().in_flight, 0);
}

#[test]
fn who_waits_in_a_pool_that_a_reload_drops_is_not_forgotten() {
    let policy = |pool: &str| {
        format!(
            "
models: {{m: {{pool: {pool}}}}}
queues: {{chat: {{max_wait_ms: 3000}}}}
tenants: {{blue: {{models: {{m: {{max_inflight: {{hard: 1, on_exceed: queue}}}}}}}}}}"
        )
    };
    let (gate, clock) = gate_of(&policy("a"), &[]);
    let first = gate.admit(&who("blue"), &request()).lease().unwrap();
    let (blue, asked) = (who("blue"), request());
    let mut tickets = [(); 2].map(|()| Box::pin(gate.acquire(&blue, &asked)));
    let mut cx = Context::from_waker(Waker::noop());
    tickets.iter_mut().for_each(|ticket| assert!(ticket.as_mut().poll(&mut cx).is_pending()));
    gate.reload(&Policy::from_yaml(&policy("b")).unwrap());
    gate.reload(&Policy::from_yaml(&policy("c")).unwrap());
    first.settle(Usage::tokens(1, 1)).unwrap();
    let admitted = tickets[0].as_mut().poll(&mut cx);
    assert!(admitted.is_ready(), "the release is told to the pool that it waits in");
    assert!(tickets[1].as_mut().poll(&mut cx).is_pending());
    assert!(gate.next_due().is_some());
    clock.advance(Duration::from_secs(4));
    gate.sweep(10);
    assert!(tickets[1].as_mut().poll(&mut cx).is_ready(), "its wait has an end");
    drop((admitted, tickets));
    gate.reload(&Policy::from_yaml(&policy("d")).unwrap());
    assert_eq!(gate.pools().len(), 2, "and then the pool is forgotten");
}

#[test]
fn a_turn_is_one_of_the_pool_that_the_request_runs_in() {
    let policy = |pool: &str| {
        format!(
            "models: {{m: {{pool: {pool}}}}}\ntenants: {{red: {{models: {{m: {{}}}}}}, blue: {{models: {{m: {{}}}}}}}}"
        )
    };
    let (gate, _) = gate_of(&policy("a"), &[("a", 1), ("b", 1)]);
    let first = gate.admit(&who("red"), &request()).lease().unwrap();
    let waits = queued(&gate, "red");
    gate.reload(&Policy::from_yaml(&policy("b")).unwrap());
    first.settle(Usage::tokens(1, 1)).unwrap();
    let lease = gate.admit_again(waits, &who("red"), &request()).lease().unwrap();
    assert_eq!((in_flight(&gate, "a"), in_flight(&gate, "b")), (0, 1));
    // And of its tenant: another's request lines up by itself.
    let waits = queued(&gate, "red");
    drop(lease);
    let Decision::Allow(_blue) = gate.admit_again(waits, &who("blue"), &request()) else { panic!("not allowed") };
    let figures = gate.pools().into_iter().find(|pool| &*pool.pool == "b").unwrap();
    let runs = figures.queue.lanes[0].tenants.iter().find(|tenant| &*tenant.tenant == "blue").unwrap();
    assert_eq!((in_flight(&gate, "b"), runs.flow.in_flight), (1, 1));
}

#[test]
fn a_lesser_form_does_not_go_past_another_pools_valve() {
    let policy = "
models: {big: {pool: large}, small: {pool: little}}
degrade: [{when: {pool_above: 50}, model: small}]
tenants: {red: {models: {big: {}, small: {}}}}";
    let (gate, _) = gate_of(policy, &[("large", 10), ("little", 1)]);
    gate.set_pressure("large", 90);
    let big = Request::chat("big").max_output_tokens(10);
    let decisions: Vec<_> = (0..5).map(|_| gate.admit(&who("red"), &big)).collect();
    assert_eq!((in_flight(&gate, "little"), in_flight(&gate, "large")), (1, 4));
    let actions: Vec<_> = decisions.iter().map(Decision::action).collect();
    assert_eq!(actions, ["degrade", "allow", "allow", "allow", "allow"]);
}
