//! A store that loses requests and answers: the gate refuses, nothing leaks, and every operation can be repeated.

use std::time::Duration;

use quota_core::gate::Gate;
use quota_core::journal::replay;
use quota_core::lease::EndError;
use quota_core::policy::Policy;
use quota_core::store::memory::Bounds;
use quota_core::testkit::conformance::Scene;
use quota_core::testkit::{Failing, Fault, TestStore, Yielding};
use quota_core::time::Period;
use quota_core::usage::Outcome;
use quota_core::{Decision, Meter, Name, Reason, Request, Usage};

const POLICY: &str = "
settings: {lease_ttl_ms: 60000, unresolved_after_ms: 3600000}
models: {m: {price: {input: 1, output: 1}}}
tenants:
  acme:
    tpd: {hard: 10000, hold: worst_case}
    daily_budget_usd: 1
    max_inflight: 2
    models: {m: {}}
";

fn scene<S: TestStore>(faults: &[Fault]) -> Scene<Failing<S>> {
    let store = Failing::new(S::fresh(Bounds { rows: 64, open_leases: 64 }), faults.iter().copied());
    Scene::on(store, Policy::from_yaml(POLICY).unwrap())
}

fn request(id: &str) -> Request {
    Request::chat("m").id(id).input_tokens(600).max_output_tokens(400)
}

/// Tokens and slots in use.
fn used<S: TestStore>(scene: &Scene<S>) -> (u64, u64) {
    (scene.used("tpd"), scene.used("max_inflight"))
}

fn fail<S: TestStore>(gate: &Gate<Failing<S>>, fault: Fault) {
    gate.store().fail([fault]);
}

fn lost_reservations<S: TestStore>() {
    for (fault, taken) in [(Fault::Before, 0), (Fault::After, 1)] {
        let scene = scene::<S>(&[fault]);
        let refusal = scene.refusal(&request("r"));
        assert_eq!((refusal.reason, refusal.wait.millis()), (Reason::StoreUnavailable, None));
        assert_eq!(used(&scene), (1000 * taken, taken), "{fault:?}");
        // The retry finds the lease that nobody learned of, takes nothing twice, and is its owner.
        let lease = scene.lease(&request("r"));
        assert!(!lease.is_repeat());
        assert!(scene.lease(&request("r")).is_repeat());
        assert_eq!(used(&scene), (1000, 1), "{fault:?}");
        scene.settle(&lease, 100, 50).unwrap();
        assert_eq!(used(&scene), (150, 0));
        assert_eq!(scene.story("r"), ["refused", "admitted", "settled"]);
    }
}

fn the_owner_of_a_found_lease_ends_it_by_dropping_it<S: TestStore>() {
    let scene = scene::<S>(&[Fault::After]);
    scene.refusal(&request("r"));
    drop(scene.lease(&request("r")));
    assert_eq!(used(&scene), (1000, 0));
    assert_eq!(scene.open(), 1, "unresolved");
}

fn a_lease_that_nobody_learned_of_expires<S: TestStore>() {
    let scene = scene::<S>(&[Fault::After]);
    scene.refusal(&request("r"));
    scene.pass(Duration::from_secs(60));
    assert_eq!(scene.sweep(), 1);
    assert_eq!(used(&scene), (1000, 0));
    // Its admission is written when its ending is, so that the journal adds up.
    assert_eq!(scene.story("r"), ["refused", "admitted", "unresolved"]);
    scene.pass(Duration::from_secs(3600));
    assert_eq!((scene.sweep(), scene.open()), (1, 0));
}

fn lost_endings_are_repeated<S: TestStore>() {
    for fault in [Fault::Before, Fault::After] {
        let scene = scene::<S>(&[]);
        let lease = scene.lease(&request("r"));
        assert!(scene.sent(&lease));
        fail(&scene.gate, fault);
        let error = scene.settle(&lease, 100, 50).unwrap_err();
        assert_eq!((&error, error.is_retryable()), (&EndError::StoreUnavailable, true));
        let receipt = scene.settle(&lease, 100, 50).unwrap();
        assert_eq!((receipt.is_repeat(), receipt.charged().get(Meter::Total)), (fault == Fault::After, 150));
        let again = scene.settle(&lease, 100, 50).unwrap();
        assert!(again.is_repeat());
        assert_eq!((again.charged(), again.cost(), again.held()), (receipt.charged(), receipt.cost(), receipt.held()));
        drop(lease);
        assert_eq!(used(&scene), (150, 0));
        assert_eq!(scene.story("r"), ["admitted", "settled"], "{fault:?}");
    }
}

/// An ending that nobody repeats is in the journal at the latest when the lease is forgotten.
fn a_lost_ending_that_is_forgotten_is_written<S: TestStore>() {
    let store = Failing::new(S::fresh(Bounds { rows: 64, open_leases: 4 }), []);
    let scene = Scene::on(store, Policy::from_yaml(POLICY).unwrap());
    let lease = scene.lease(&request("r"));
    fail(&scene.gate, Fault::After);
    scene.settle(&lease, 100, 50).unwrap_err();
    assert_eq!((used(&scene), scene.story("r")), ((150, 0), vec!["admitted"]));
    for nth in 0..8 {
        let lease = scene.lease(&request(&format!("other {nth}")));
        scene.settle(&lease, 0, 0).unwrap();
    }
    assert!(scene.find(lease.id()).is_none(), "it is forgotten");
    assert_eq!((used(&scene), scene.story("r")), ((150, 0), vec!["admitted", "settled"]));
    // Once: whoever still has the lease at hand is told of the first ending.
    assert!(scene.settle(&lease, 100, 50).unwrap().is_repeat());
    assert_eq!(scene.story("r"), ["admitted", "settled"]);
}

fn a_lease_whose_ending_was_lost_is_ended_by_its_drop<S: TestStore>() {
    for (fault, tokens) in [(Fault::Before, 1000), (Fault::After, 150)] {
        let scene = scene::<S>(&[]);
        let lease = scene.lease(&request("r"));
        fail(&scene.gate, fault);
        scene.settle(&lease, 100, 50).unwrap_err();
        drop(lease);
        assert_eq!(used(&scene), (tokens, 0), "{fault:?}");
        let outcome = Outcome::Final(Usage::tokens(100, 50));
        let receipt = Failing::<S>::wait(scene.gate.finalize(Name::Request("r".into()), outcome)).unwrap();
        assert_eq!((receipt.is_late(), receipt.is_repeat()), (fault == Fault::Before, fault == Fault::After));
        assert_eq!(used(&scene), (150, 0));
    }
}

fn a_lost_drop_expires<S: TestStore>() {
    for (fault, swept) in [(Fault::Before, 1), (Fault::After, 0)] {
        let scene = scene::<S>(&[]);
        let lease = scene.lease(&request("r"));
        fail(&scene.gate, fault);
        drop(lease);
        assert_eq!(used(&scene), (1000, swept));
        scene.pass(Duration::from_secs(60));
        assert_eq!(scene.sweep() as u64, swept);
        assert_eq!(used(&scene), (1000, 0));
    }
}

fn lost_marks_hold_the_request_back<S: TestStore>() {
    for (fault, cancels) in [(Fault::Before, true), (Fault::After, false)] {
        let scene = scene::<S>(&[]);
        let lease = scene.lease(&request("r"));
        fail(&scene.gate, fault);
        assert!(!scene.sent(&lease), "an unknown mark must not be sent on");
        assert_eq!(scene.cancel(&lease).is_ok(), cancels, "{fault:?}");
    }
}

fn a_lost_extension_is_repeated_and_holds_once<S: TestStore>() {
    for (fault, held) in [(Fault::Before, 1100), (Fault::After, 1100)] {
        let scene = scene::<S>(&[]);
        let lease = scene.lease(&request("r"));
        fail(&scene.gate, fault);
        let refusal = Failing::<S>::wait(lease.extend(100)).unwrap_err();
        assert_eq!(refusal.reason, Reason::StoreUnavailable);
        Failing::<S>::wait(lease.extend(100)).unwrap();
        assert_eq!(used(&scene), (held, 1), "{fault:?}");
        scene.settle(&lease, 600, 450).unwrap();
        assert_eq!(used(&scene), (1050, 0));
        let replayed = replay(scene.gate.journal());
        assert_eq!(replayed.used("tenant:acme", "max_inflight", scene.gate.now(), Period::default()), Some(0));
        let day = quota_core::time::Calendar::new(quota_core::time::Unit::Day, "UTC").unwrap();
        let period = day.period(scene.gate.now().wall);
        assert_eq!(replayed.used("tenant:acme", "tpd", scene.gate.now(), period), Some(1050), "{fault:?}");
    }
}

fn views_of_a_lost_store_tell_nothing<S: TestStore>() {
    let scene = scene::<S>(&[Fault::Before, Fault::Before]);
    let preview = Failing::<S>::wait(scene.gate.preview(&scene.who, &request("r")));
    assert_eq!(preview.reason(), Some(Reason::StoreUnavailable));
    assert!(scene.balances().is_empty());
    assert_eq!(scene.balances().len(), 3);
}

/// Every schedule of up to three faults over reserve, mark and settle, each repeated until it is answered.
fn any_schedule_comes_to_the_same<S: TestStore>() {
    let faults = [Fault::None, Fault::Before, Fault::After];
    for code in 0..3usize.pow(5) {
        let schedule: Vec<Fault> = (0..5).map(|at| faults[code / 3usize.pow(at) % 3]).collect();
        let scene = scene::<S>(&schedule);
        let lease = (0..6).find_map(|_| scene.admit(&request("r")).lease()).expect("an answer");
        assert!(!lease.is_repeat());
        assert!((0..6).any(|_| scene.sent(&lease)));
        let receipt = (0..6).find_map(|_| scene.settle(&lease, 100, 50).ok()).expect("an answer");
        assert_eq!(receipt.charged().get(Meter::Total), 150);
        drop(lease);
        let lease = (0..6).find_map(|_| match scene.admit(&request("s")) {
            Decision::Reject(refusal) if refusal.reason == Reason::StoreUnavailable => None,
            other => other.lease(),
        });
        drop(lease);
        // A drop that was lost is made up for at the deadline.
        scene.pass(Duration::from_secs(60));
        scene.sweep();
        assert_eq!(used(&scene), (1150, 0), "{schedule:?}");
        assert_eq!(scene.story("r").iter().filter(|name| **name != "refused").count(), 2, "{schedule:?}");
    }
}

macro_rules! on_both {
    ($($name:ident)*) => {
        mod memory {
            $(#[test] fn $name() { super::$name::<quota_core::store::Memory>(); })*
        }
        mod yielding {
            $(#[test] fn $name() { super::$name::<super::Yielding>(); })*
        }
    };
}

on_both! {
    lost_reservations
    the_owner_of_a_found_lease_ends_it_by_dropping_it
    a_lease_that_nobody_learned_of_expires
    lost_endings_are_repeated
    a_lost_ending_that_is_forgotten_is_written
    a_lease_whose_ending_was_lost_is_ended_by_its_drop
    a_lost_drop_expires
    lost_marks_hold_the_request_back
    a_lost_extension_is_repeated_and_holds_once
    views_of_a_lost_store_tell_nothing
    any_schedule_comes_to_the_same
}

/// An answer that nobody waits for is a trip that never began, or one whose lease is found by the retry.
#[test]
fn a_future_that_is_given_up_leaks_nothing() {
    use std::task::{Context, Waker};

    let scene = Scene::<Yielding>::new(Policy::from_yaml(POLICY).unwrap());
    let asked = request("r");
    drop(scene.gate.admit(&scene.who, &asked));
    let mut polled = scene.gate.admit(&scene.who, &asked);
    assert!(polled.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_pending());
    drop(polled);
    assert_eq!(used(&scene), (0, 0));
    let lease = scene.lease(&asked);
    drop(lease.settle(Usage::tokens(1, 1)));
    drop(lease);
    assert_eq!(used(&scene), (1000, 0), "the drop ended it");
}
