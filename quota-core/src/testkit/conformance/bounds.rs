//! Checks of what happens at a store's bounds, and of its sweeping.
//!
//! Floor 5. Invariant: see [`conformance`](super).

use std::time::Duration;

use super::scene::{AGE, LIFE, ROOMY, Scene, policy, request};
use crate::gate::{Decision, Lease};
use crate::lease::State;
use crate::principal::Principal;
use crate::reason::Reason;
use crate::refusal::Wait;
use crate::store::memory::Bounds;
use crate::testkit::TestStore;
use crate::time::{Calendar, Unit};

/// With as many leases open as the store may have, a request is refused for that; all that are open stay, and each
/// that ends makes room.
pub fn l9_full_of_leases_refuses_and_forgets_nothing_open<S: TestStore>() {
    let scene = Scene::<S>::bounded(policy("rpd: 1000000, max_inflight: 1000"), Bounds { rows: 16, open_leases: 8 });
    let mut leases: Vec<_> = (0..8).map(|nth| scene.lease(&request(&format!("r{nth}"), 1, 1))).collect();
    let before = scene.balances();
    for nth in 0..50 {
        let refusal = scene.refusal(&request(&format!("more{nth}"), 1, 1));
        assert_eq!((refusal.reason, refusal.wait), (Reason::LeasesExhausted, Wait::Unknown));
    }
    assert_eq!(scene.balances(), before);
    assert!(leases.iter().all(|lease| scene.find(lease.id()).is_some_and(|record| *record.state() == State::Held)));
    scene.settle(&leases.remove(0), 1, 1).unwrap();
    leases.push(scene.lease(&request("again", 1, 1)));
    // An unresolved lease is open: its place comes free when it is resolved, or by its age.
    drop(leases.pop());
    assert_eq!(scene.refusal(&request("still", 1, 1)).reason, Reason::LeasesExhausted);
    scene.pass(AGE);
    leases.push(scene.lease(&request("at last", 1, 1)));
    // Many leases come and go; those that are open are not forgotten meanwhile.
    let kept = leases.pop().expect("a lease");
    drop(leases);
    scene.pass(AGE);
    scene.sweep();
    assert_eq!(scene.open(), 1);
    for nth in 0..200 {
        let lease = scene.lease(&request(&format!("passing{nth}"), 1, 1));
        scene.cancel(&lease).unwrap();
    }
    assert!(scene.find(kept.id()).is_some());
}

/// What is refused for the bound on leases has not even moved a budget on to its period: a clock that goes back finds it
/// as it was.
pub fn l4_full_of_leases_moves_no_budget<S: TestStore>() {
    let limits = "daily_budget_usd: 1, tpd: {hard: 10000, hold: worst_case}";
    let scene = Scene::<S>::bounded(policy(limits), Bounds { rows: 16, open_leases: 1 });
    let noon = scene.gate.now().wall;
    let _open = scene.lease(&request("open", 600, 400));
    let before = scene.balances();
    scene.clock.set_wall(Calendar::new(Unit::Day, "UTC").expect("UTC").period(noon).end);
    assert_eq!(scene.refusal(&request("more", 1, 1)).reason, Reason::LeasesExhausted);
    scene.clock.set_wall(noon);
    assert_eq!((scene.used("tpd"), scene.balances()), (1000, before));
}

/// A lease that ran for long is remembered from its end on, until half as many as may be open have ended after it: its
/// id does not run again.
pub fn l6_a_long_lease_is_remembered_once_it_has_ended<S: TestStore>() {
    let scene = Scene::<S>::bounded(policy("rpd: 1000000, max_inflight: 1000"), Bounds { rows: 16, open_leases: 8 });
    for short in 0..64 {
        let name = |what: &str, nth: u64| format!("{what} {short} {nth}");
        let pass = |what: &str, count: u64| {
            for nth in 0..count {
                let lease = scene.lease(&request(&name(what, nth), 1, 1));
                scene.settle(&lease, 1, 1).unwrap();
            }
        };
        let long = scene.lease(&request(&name("long", 0), 1, 1));
        pass("meanwhile", short);
        scene.settle(&long, 1, 1).unwrap();
        pass("after", 3);
        let used = scene.used("rpd");
        let refusal = scene.refusal(&request(&name("long", 0), 1, 1));
        assert_eq!((refusal.reason, refusal.receipt.is_some()), (Reason::RequestAlreadyEnded, true), "{short}");
        assert_eq!(scene.used("rpd"), used);
    }
}

/// The policy of the checks on accounts: each user has an account of its own.
const USERS: &str = "rpd: 1000000, users: {rpm: 60, max_inflight: 2}";

fn user(nth: usize) -> Principal {
    Principal::builder("acme").user(format!("user{nth}")).build()
}

/// With as many accounts in use as the store may have, a new scope is refused for that; those in use go on.
pub fn l9_full_of_accounts_refuses_and_forgets_nothing_in_use<S: TestStore>() {
    let scene = Scene::<S>::bounded(policy(USERS), Bounds { rows: 16, open_leases: 64 });
    let mut open: Vec<(usize, Lease<S>)> = Vec::new();
    let refused = (0..64).find_map(|nth| match scene.admit_as(&user(nth), &request(&format!("r{nth}"), 1, 1)) {
        Decision::Allow(lease) => {
            open.push((nth, lease));
            None
        }
        Decision::Reject(refusal) => Some(refusal),
        other => panic!("{other:?}"),
    });
    let refusal = refused.expect("a bound");
    assert_eq!((refusal.reason, refusal.wait), (Reason::AccountsExhausted, Wait::Unknown));
    assert!(!open.is_empty() && open.len() < 16, "users get a part of the rows: {}", open.len());
    for (nth, lease) in &open {
        let balances = S::wait(scene.gate.balances(&user(*nth), false));
        let held = balances.iter().find(|balance| &*balance.limit == "max_inflight").expect("a user's limit");
        assert_eq!(held.used, 1, "user {nth}");
        scene.cancel(lease).unwrap();
    }
    // They are at rest now and make room; looking for accounts at rest is not done more than once a second.
    scene.pass(Duration::from_secs(1));
    assert!(matches!(scene.admit_as(&user(99), &request("late", 1, 1)), Decision::Allow(_)));
}

/// A scope whose accounts were dropped at rest starts as it was, empty, and counts again.
pub fn l9_accounts_at_rest_make_room_and_come_back<S: TestStore>() {
    let scene = Scene::<S>::bounded(policy(USERS), Bounds { rows: 16, open_leases: 64 });
    for round in 0..3 {
        for nth in 0..40 {
            scene.pass(Duration::from_secs(2));
            let who = user(nth);
            let decision = scene.admit_as(&who, &request(&format!("r{round}-{nth}"), 1, 1));
            let Decision::Allow(lease) = decision else { panic!("{round} {nth}: {decision:?}") };
            let balances = S::wait(scene.gate.balances(&who, false));
            let used =
                |limit: &str| balances.iter().find(|balance| *balance.limit == *limit).map(|balance| balance.used);
            assert_eq!((used("rpm"), used("max_inflight")), (Some(1), Some(1)), "{round} {nth}");
            let full = [scene.admit_as(&who, &request(&format!("s{round}-{nth}"), 1, 1))];
            let preview = S::wait(scene.gate.preview(&who, &request("p", 1, 1)));
            assert_eq!(preview.reason(), Some(Reason::ConcurrencyExceeded), "{round} {nth}");
            scene.settle(&lease, 1, 1).unwrap();
            full.into_iter().filter_map(Decision::lease).for_each(|lease| {
                scene.cancel(&lease).unwrap();
            });
        }
    }
    assert_eq!(scene.used("rpd"), 120);
}

/// A reservation that finds no room ends what has expired, and takes its place; nobody has to sweep for it.
pub fn a_shortage_ends_what_has_expired<S: TestStore>() {
    let scene = Scene::<S>::new(policy("max_inflight: 1, rpd: 10"));
    let _lost = scene.lease(&request("r", 1, 1));
    scene.refusal(&request("early", 1, 1));
    scene.pass(LIFE);
    let lease = scene.lease(&request("in time", 1, 1));
    assert_eq!((scene.used("max_inflight"), scene.used("rpd")), (1, 2));
    scene.cancel(&lease).unwrap();
}

/// A sweep that may look at few leases leaves the rest to the next.
pub fn a_sweep_looks_at_no_more_than_it_may<S: TestStore>() {
    let scene = Scene::<S>::new(policy("max_inflight: 100, rpd: 100"));
    let leases: Vec<_> = (0..20).map(|nth| scene.lease(&request(&format!("r{nth}"), 1, 1))).collect();
    scene.pass(LIFE);
    let mut swept = 0;
    for _ in 0..40 {
        let now = S::wait(scene.gate.sweep(3));
        assert!(now <= 3);
        swept += now;
    }
    assert_eq!((swept, scene.used("max_inflight"), scene.used("rpd")), (20, 0, 20));
    drop(leases);
}

/// Open leases are shown, held and unresolved ones, and no others.
pub fn open_leases_can_be_looked_at<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let leases: Vec<_> = (0..4).map(|nth| scene.lease(&request(&format!("r{nth}"), 1, 1))).collect();
    assert_eq!(scene.open(), 4);
    scene.cancel(&leases[0]).unwrap();
    scene.settle(&leases[1], 1, 1).unwrap();
    let (unresolved, held) = (leases[2].id(), leases[3].id());
    S::wait(leases[2].unresolved(crate::lease::Cause::NoUsage, None)).unwrap();
    let mut open = S::wait(scene.gate.store().open(usize::MAX, |open| open));
    open.sort_by_key(|record| record.state_name());
    let shown: Vec<_> = open.iter().map(|record| (record.claim.id, record.state_name())).collect();
    assert_eq!(shown, [(held, "held"), (unresolved, "unresolved")]);
    assert_eq!(S::wait(scene.gate.store().open(1, |open| open.len())), 1);
}
