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

/// What is left of a flow's tries must not block it later, when nobody is there to let it go.
#[test]
fn a_try_that_was_left_over_blocks_nobody() {
    let policy = "
models: {m: {pool: h200}}
queues: {chat: {max_wait_ms: 60000}}
tenants: {blue: {max_inflight: {hard: 2, on_exceed: queue}, models: {m: {}}}, red: {models: {m: {}}}}";
    let (gate, clock) = gate_of(policy, &[("h200", 3)]);
    let admit = |tenant| gate.admit(&who(tenant), &request()).lease().unwrap();
    let settle = |lease: quota_core::Lease| drop(lease.settle(Usage::tokens(1, 1)).unwrap());
    let again = |queued| gate.admit_again(queued, &who("blue"), &request()).lease();
    let (one, two) = (admit("blue"), admit("blue"));
    let waits = queued(&gate, "blue");
    settle(one);
    let three = again(waits).expect("there is room in its limit");
    [two, three].into_iter().for_each(settle);
    let full = [(); 3].map(|()| admit("red"));
    let waiting = [(); 2].map(|()| queued(&gate, "blue"));
    full.into_iter().for_each(settle);
    for waits in waiting {
        clock.advance(Duration::from_secs(1));
        gate.sweep(10);
        settle(again(waits).expect("nobody is held, and the pool is empty"));
    }
}

#[test]
fn who_is_held_again_tries_when_it_asked_to() {
    let scheduler = Scheduler::new(&one_lane(), Capacity::requests(5));
    let put_back = |turn: Turn, now| turn.put_back("tenant:a".into(), true, now + 10 * MILLI, now).unwrap();
    let turns = [(); 3].map(|()| scheduler.enter_anyway(arrival("a", "default", 10), SECOND));
    let mut places = turns.map(|turn| put_back(turn, SECOND));
    for round in 1..4 {
        let now = SECOND + round * 10 * MILLI;
        assert_eq!(scheduler.next_due(), Some(now));
        scheduler.tick(now);
        let due: Vec<usize> = (0..3).filter(|at| places[*at].is_due()).collect();
        assert!((1..=2).contains(&due.len()), "{due:?} of a limit that gave nothing back");
        for at in due {
            places[at] = put_back(turn(&mut places[at]).unwrap(), now);
        }
    }
}

#[test]
fn tries_do_not_pile_up_while_the_pool_is_full() {
    for whole_flow in [true, false] {
        let scheduler = Scheduler::new(&one_lane(), Capacity::requests(20));
        let held = || scheduler.enter_anyway(arrival("blue", "default", 10), SECOND);
        let places = [(); 40].map(|()| held().put_back("x".into(), whole_flow, u64::MAX, SECOND).unwrap());
        let full = [(); 20].map(|()| scheduler.enter(arrival("red", "default", 10), SECOND).unwrap());
        for second in 2..20 {
            scheduler.tick(second * SECOND);
        }
        full.iter().for_each(|turn| assert!(turn.end(End::NeverStarted, 20 * SECOND)));
        let due = places.iter().filter(|place| place.is_due()).count();
        assert!((1..=4).contains(&due), "{due} turns at once for a limit that gave nothing back");
    }
}

#[test]
fn who_is_put_back_keeps_its_deadline() {
    let short = Lane { max_wait: Duration::from_secs(1), ..Lane::new("default") };
    let settings = Settings { lanes: vec![short], ..Settings::default() };
    let scheduler = Scheduler::new(&settings, Capacity::requests(1000));
    // So many entries of the same moment that the one put back has those of the others cleared away.
    let enter = |at: usize| scheduler.enter(arrival(&format!("t{at}"), "default", 1), SECOND).unwrap();
    let mut turns: VecDeque<Turn> = (0..136).map(enter).collect();
    let place = turns.pop_front().unwrap().put_back("x".into(), false, u64::MAX, SECOND).unwrap();
    drop(turns);
    scheduler.report(Load::default(), Some(Capacity::requests(0)), SECOND);
    scheduler.tick(2 * SECOND);
    assert!(place.is_due(), "its wait has an end");
}

#[test]
fn who_was_behind_one_that_left_at_the_last_moment_goes() {
    let short = Lane { max_wait: Duration::from_secs(1), ..Lane::new("default") };
    let settings = Settings { lanes: vec![short], sparse_percent: 0, ..Settings::default() };
    let scheduler = Scheduler::new(&settings, Capacity { requests: 5, kept: Some(100), replicas: 1 });
    let _runs = scheduler.enter(arrival("red", "default", 60), SECOND).unwrap();
    let mut large = scheduler.arrive(arrival("blue", "default", 80), SECOND).unwrap();
    let small = scheduler.arrive(arrival("green", "default", 30), SECOND + 5).unwrap();
    assert!(!small.is_due(), "nothing goes past the one whose turn it is");
    scheduler.tick(scheduler.next_due().unwrap());
    assert_eq!(large.try_turn().unwrap().unwrap_err().why, Why::TimedOut);
    assert!(small.is_due(), "there is room for it, and nobody before it");
}

/// Everything that can be done to a scheduler, at random: nothing is lost, and in the end nothing is left.
#[test]
fn whatever_happens_all_get_an_answer_and_nothing_is_left() {
    for seed in 0..300u64 {
        let mut state = seed * 7919 + 1;
        let mut roll = move |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) % below
        };
        let names = ["a", "b", "c"];
        let settings = |roll: &mut dyn FnMut(u64) -> u64| {
            let lane = |name: &&str| Lane {
                max_wait: Duration::from_millis(50 + roll(5000)),
                weight: 1 + roll(5) as u32,
                floor_percent: roll(50) as u8,
                age_after: (roll(2) == 0).then_some(Duration::from_millis(20)),
                max_queued: (roll(3) == 0).then(|| roll(6)),
                ..Lane::new(name.to_string())
            };
            let lanes = names.iter().map(lane).collect();
            let mode = if roll(2) == 0 { Mode::Weighted } else { Mode::PriorityWithFloor };
            let (max_flows, max_requests) = (6, 40);
            Settings { lanes, mode, early_refusal: roll(2) == 0, max_flows, max_requests, ..Settings::default() }
        };
        let capacity = |requests| Capacity { requests, kept: Some(3000), replicas: 1 };
        let scheduler = Scheduler::new(&settings(&mut roll), capacity(5));
        let (mut places, mut turns): (Vec<Place>, Vec<Turn>) = Default::default();
        let mut now = SECOND;
        for _ in 0..400 {
            now += roll(20) * MILLI;
            let tenant = ["t1", "t2", "t3", "t4"][roll(4) as usize];
            let asked =
                Arrival { weight: 1 + roll(4) as u32, ..arrival(tenant, names[roll(3) as usize], 1 + roll(900)) };
            let some = |roll: &mut dyn FnMut(u64) -> u64, of: usize| (of > 0).then(|| roll(of as u64) as usize);
            match roll(16) {
                0..5 => places.extend(scheduler.arrive(asked, now)),
                5 => turns.extend(scheduler.enter(asked, now)),
                6 => turns.push(scheduler.enter_anyway(asked, now)),
                7 => drop(some(&mut roll, places.len()).map(|at| places.swap_remove(at))),
                8 | 9 => {
                    if let Some(at) = some(&mut roll, turns.len()) {
                        let turn = turns.swap_remove(at);
                        let tokens = turn.arrival().tokens;
                        let ends = [End::Served(tokens), End::Left, End::NeverStarted, End::Unknown];
                        turn.end(ends[roll(4) as usize], now);
                    }
                }
                10 | 11 => {
                    if let Some(at) = some(&mut roll, turns.len()) {
                        let due = if roll(2) == 0 { u64::MAX } else { now + roll(100) * MILLI };
                        let scope = ["x", "y"][roll(2) as usize].into();
                        places.extend(turns.swap_remove(at).put_back(scope, roll(2) == 0, due, now));
                    }
                }
                12 => scheduler.released([["x", "y"][roll(2) as usize].into()], now),
                13 => turns.iter().for_each(|turn| {
                    turn.used();
                    turn.progress(roll(3000));
                }),
                14 if roll(6) == 0 => scheduler.configure(settings(&mut roll)),
                14 => scheduler.report(Load::default(), Some(capacity(roll(6))), now),
                _ => scheduler.tick(now),
            }
            for mut place in std::mem::take(&mut places) {
                match if roll(3) == 0 { place.try_turn() } else { None } {
                    None => places.push(place),
                    Some(turn) => turns.extend(turn),
                }
            }
        }
        scheduler.report(Load::default(), Some(capacity(5)), now);
        let mut rounds = 0;
        while !(places.is_empty() && turns.is_empty()) {
            now += 200 * MILLI;
            scheduler.tick(now);
            turns.drain(..).for_each(|turn| assert!(turn.end(End::NeverStarted, now)));
            for mut place in std::mem::take(&mut places) {
                match place.try_turn() {
                    None => places.push(place),
                    Some(turn) => turns.extend(turn),
                }
            }
            rounds += 1;
            assert!(rounds < 400, "seed {seed}: somebody waits for ever");
        }
        let figures = scheduler.figures().unwrap();
        assert_eq!((figures.valve.in_flight, figures.valve.kept), (0, 0), "seed {seed}");
        assert_eq!((scheduler.next_due(), scheduler.is_in_use()), (None, false), "seed {seed}");
        let tenants = figures.lanes.iter().flat_map(|lane| &lane.tenants);
        assert_eq!(tenants.filter(|tenant| tenant.flow.blocked).count(), 0, "seed {seed}: blocked for ever");
    }
}
