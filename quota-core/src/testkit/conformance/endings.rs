//! Checks of how leases end.
//!
//! Floor 5. Invariant: see [`conformance`](super).

use super::scene::{AGE, LIFE, ROOMY, Scene, TICK, policy, request};
use crate::gate::{Decision, Lease};
use crate::journal::{Journal, Replayed, Ring, replay};
use crate::lease::{Cause, EndError, State};
use crate::principal::Principal;
use crate::reason::Reason;
use crate::store::Name;
use crate::testkit::TestStore;
use crate::time::{Calendar, Unit};
use crate::units::Meter;
use crate::usage::{Outcome, Unusable, Usage};

/// Usage above the hold is charged; the account is in debt, and nothing more passes while it is.
pub fn l1_usage_beyond_the_hold_is_debt<S: TestStore>() {
    let scene = Scene::<S>::new(policy("tpd: {hard: 2000, hold: worst_case}, tpm: {hard: 2000, hold: worst_case}"));
    let lease = scene.lease(&request("r", 600, 400));
    assert!(scene.sent(&lease));
    let receipt = scene.settle(&lease, 600, 2000).unwrap();
    assert_eq!((receipt.overrun(Meter::Total), receipt.returned(Meter::Total)), (1600, 0));
    for limit in ["tpd", "tpm"] {
        let balance = scene.balance(limit);
        assert_eq!((balance.used, balance.remaining), (2600, 0), "{limit}");
    }
    let refusal = scene.refusal(&request("s", 1, 0));
    assert_eq!(refusal.shortages.len(), 2, "{refusal:?}");
    assert_eq!(scene.used("tpd"), 2600);
}

/// Every permutation of so many things.
fn permutations(of: usize) -> Vec<Vec<usize>> {
    if of == 0 {
        return vec![Vec::new()];
    }
    let shorter = permutations(of - 1);
    let insert = |at: usize| shorter.iter().map(move |order| [&order[..at], &[of - 1], &order[at..]].concat());
    (0..of).flat_map(insert).collect()
}

/// Settled, cancelled, dropped and settled late, expired and closed: in each order, with each ending repeated, the
/// accounts hold the sum of usage.
pub fn l2_every_order_of_endings_leaves_the_sum_of_usage<S: TestStore>() {
    for order in permutations(4) {
        let scene = Scene::<S>::new(policy(ROOMY));
        let mut leases: Vec<Option<Lease<S>>> =
            (0..4).map(|nth| Some(scene.lease(&request(&format!("r{nth}"), 100, 50)))).collect();
        let ids: Vec<_> = leases.iter().flatten().map(Lease::id).collect();
        for way in order.iter().copied() {
            let lease = leases[way].take().expect("each ends once");
            match way {
                0 => {
                    assert!(!scene.settle(&lease, 10, 5).unwrap().is_repeat());
                    assert!(scene.settle(&lease, 10, 5).unwrap().is_repeat());
                }
                1 => {
                    assert!(!scene.cancel(&lease).unwrap().is_repeat());
                    assert!(scene.cancel(&lease).unwrap().is_repeat());
                }
                2 => {
                    drop(lease);
                    assert!(scene.settle_late(ids[2], 20, 7).unwrap().is_late());
                    assert!(scene.settle_late(ids[2], 20, 7).unwrap().is_repeat());
                }
                _ => {
                    scene.pass(LIFE - TICK);
                    leases.iter().flatten().for_each(|other| assert!(S::wait(other.renew())));
                    scene.pass(TICK);
                    assert_eq!(scene.sweep(), 1, "{order:?}");
                    assert_eq!(scene.sweep(), 0);
                }
            }
        }
        scene.pass(AGE);
        scene.sweep();
        assert_eq!(scene.open(), 0, "{order:?}");
        let sum = 15 + 27 + 150;
        assert_eq!((scene.used("tpd"), scene.used("daily_budget_usd")), (sum, sum * 100), "{order:?}");
        assert_eq!((scene.used("max_inflight"), scene.used("tpm")), (0, 0), "{order:?}");
    }
}

/// Ending again with the same figures gives the first receipt, and changes nothing.
pub fn l3_an_ending_repeats_its_first_receipt<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    assert!(scene.sent(&lease));
    let first = scene.settle(&lease, 500, 300).unwrap();
    let before = scene.balances();
    let by_request = Outcome::Final(Usage::tokens(500, 300));
    for again in [
        scene.settle(&lease, 500, 300),
        scene.settle_late(lease.id(), 500, 300),
        S::wait(scene.gate.finalize(Name::Request("r".into()), by_request)),
        S::wait(lease.unresolved(Cause::NoUsage, None)),
    ] {
        let again = again.unwrap();
        assert!(again.is_repeat());
        assert_eq!(again.first(), first);
    }
    let other = scene.lease(&request("s", 600, 400));
    let first = scene.cancel(&other).unwrap();
    assert_eq!((first.outcome(), first.returned(Meter::Total)), ("cancelled", 1000));
    assert!(scene.cancel(&other).unwrap().is_repeat());
    drop((lease, other));
    assert_eq!(scene.balances(), before);
}

/// Ending again with other figures, or otherwise, changes nothing and names the first field that differs.
pub fn l3_other_figures_change_nothing<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let (settled, cancelled) = (scene.lease(&request("r", 600, 400)), scene.lease(&request("s", 600, 400)));
    scene.settle(&settled, 500, 300).unwrap();
    scene.cancel(&cancelled).unwrap();
    let before = scene.balances();
    let conflict = |result: Result<_, EndError>| match result {
        Err(EndError::Conflict { field, first, second, .. }) => (field, first, second),
        other => panic!("{other:?}"),
    };
    let told = |field, first: &str, second: &str| (field, first.to_owned(), second.to_owned());
    assert_eq!(conflict(scene.settle(&settled, 500, 301)), told("output_text", "300", "301"));
    assert_eq!(conflict(scene.settle_late(settled.id(), 1, 301)), told("input_uncached", "500", "1"));
    assert_eq!(conflict(scene.cancel(&settled)), told("outcome", "settled", "cancelled"));
    assert_eq!(conflict(scene.settle(&cancelled, 1, 1)), told("outcome", "cancelled", "settled"));
    assert_eq!(scene.balances(), before);
}

/// Without usage everything stays charged as reserved but the slots, however it came about.
pub fn l5_unknown_usage_is_never_free<S: TestStore>() {
    type End<S> = fn(&Scene<S>, Lease<S>);
    let ends: [(&str, End<S>); 5] = [
        ("dropped", |_, lease| drop(lease)),
        ("expired", |scene, lease| {
            scene.pass(LIFE);
            scene.sweep();
            drop(lease);
        }),
        ("no_usage", |_, lease| {
            S::wait(lease.finish(Outcome::Unresolved(Unusable::Missing))).unwrap();
        }),
        ("upstream_failed", |_, lease| {
            S::wait(lease.finish(Outcome::FailedWithoutUsage)).unwrap();
        }),
        ("no_usage", |_, lease| {
            S::wait(lease.unresolved(Cause::NoUsage, Some(Usage::tokens(1, 1)))).unwrap();
        }),
    ];
    for (cause, end) in ends {
        for sent in [false, true] {
            let scene = Scene::<S>::new(policy(ROOMY));
            let lease = scene.lease(&request("r", 600, 400).stream(true));
            let id = lease.id();
            if sent {
                assert!(scene.sent(&lease));
            }
            end(&scene, lease);
            assert_eq!((scene.used("tpd"), scene.used("daily_budget_usd")), (1000, 100_000), "{cause}");
            assert_eq!((scene.used("max_inflight"), scene.used("max_streams")), (0, 0), "{cause}");
            let record = scene.find(id).expect("an unresolved lease is kept");
            let state = record.state();
            let State::Unresolved(unresolved) = &*state else { panic!("{cause}: {record:?}") };
            assert_eq!(unresolved.cause.name(), cause);
            assert_eq!(S::wait(scene.gate.unresolved(10)).len(), 1, "{cause}");
        }
    }
}

/// Cancelling gives everything back before the request was sent, and is an error afterwards.
pub fn l5_what_was_sent_is_not_cancelled<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let clean = scene.balances();
    let lease = scene.lease(&request("r", 600, 400));
    let receipt = scene.cancel(&lease).unwrap();
    assert_eq!((receipt.outcome(), receipt.returned(Meter::Total), receipt.cost().0), ("cancelled", 1000, 0));
    assert_eq!(scene.balances(), clean);
    assert!(!scene.sent(&lease), "a lease that has ended must not be sent");
    let lease = scene.lease(&request("s", 600, 400));
    assert!(scene.sent(&lease) && scene.sent(&lease));
    let before = scene.balances();
    let error = scene.cancel(&lease).unwrap_err();
    assert_eq!((error.code(), error), ("cancel_after_sent", EndError::CancelAfterSent(lease.id())));
    assert_eq!(scene.balances(), before);
    // The lease is still open, and an answer that proves that nothing ran gives all of it back.
    assert_eq!(S::wait(lease.finish(Outcome::NotRun)).unwrap().charged().get(Meter::Money), 0);
    assert_eq!(scene.balances(), clean);
}

/// The same id again, while its lease is open: the same lease, nothing taken, and one owner.
pub fn l6_a_repeat_finds_the_open_lease<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    let before = scene.balances();
    for larger in [request("r", 700, 400), request("r", 600, 500), request("r", 600, 400).choices(2)] {
        assert_eq!(scene.refusal(&larger).reason, Reason::RequestIdConflict, "what it holds would not pay for it");
    }
    let repeat = scene.lease(&request("r", 500, 300));
    assert_eq!((repeat.id(), repeat.is_repeat(), lease.is_repeat()), (lease.id(), true, false));
    assert_eq!((repeat.input_tokens(), repeat.max_output_tokens()), (600, 400));
    assert_eq!(scene.balances(), before);
    drop(repeat);
    assert_eq!(scene.balances(), before, "dropping a repeat ends nothing");
    let repeat = scene.lease(&request("r", 600, 400));
    scene.settle(&repeat, 500, 300).unwrap();
    assert!(scene.settle(&lease, 500, 300).unwrap().is_repeat());
    assert_eq!((scene.used("tpd"), scene.used("max_inflight")), (800, 0));
    assert_eq!(scene.story("r"), ["admitted", "refused", "refused", "refused", "settled"]);
}

/// The same id again, after its lease has ended: refused, with what the first was charged.
pub fn l6_an_ended_id_is_refused_with_its_receipt<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let ids = ["settled", "cancelled", "unresolved"];
    let leases = ids.map(|id| scene.lease(&request(id, 600, 400)));
    let [settled, cancelled, unresolved] = leases;
    scene.settle(&settled, 500, 300).unwrap();
    scene.cancel(&cancelled).unwrap();
    drop(unresolved);
    let before = scene.balances();
    for id in ids {
        let refusal = scene.refusal(&request(id, 600, 400));
        assert_eq!(refusal.reason, Reason::RequestAlreadyEnded);
        let receipt = refusal.receipt.as_deref().unwrap_or_else(|| panic!("{id}: no receipt"));
        assert_eq!((receipt.outcome(), receipt.is_repeat()), (id, true));
    }
    assert_eq!(scene.balances(), before);
}

/// An id that another principal uses is refused, and tells nothing of the other's request.
pub fn l6_an_id_belongs_to_its_principal<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    let user = Principal::builder("acme").user("u").build();
    for who in [Principal::builder("other").build(), user] {
        for ended in [false, true] {
            if ended {
                let _ = scene.settle(&lease, 500, 300);
            }
            let decision = scene.admit_as(&who, &request("r", 600, 400));
            let Decision::Reject(refusal) = decision else { panic!("{decision:?}") };
            assert_eq!((refusal.reason, refusal.receipt.as_deref()), (Reason::RequestIdConflict, None));
        }
    }
}

/// Every admission, ending and refusal is one entry; repeats are none.
pub fn l7_each_decision_and_ending_is_written_once<S: TestStore>() {
    let scene = Scene::<S>::new(policy("max_inflight: 1"));
    let lease = scene.lease(&request("r", 6, 4));
    scene.refusal(&request("refused", 6, 4));
    drop(scene.lease(&request("r", 6, 4)));
    let _ = S::wait(lease.unresolved(Cause::NoUsage, None));
    let _ = S::wait(lease.unresolved(Cause::NoUsage, None));
    scene.settle(&lease, 1, 1).unwrap();
    scene.settle(&lease, 1, 1).unwrap();
    scene.settle(&lease, 1, 2).unwrap_err();
    scene.refusal(&request("r", 6, 4));
    drop(lease);
    assert_eq!(scene.story("r"), ["admitted", "unresolved", "settled", "refused"]);
    assert_eq!(scene.story("refused"), ["refused"]);
    let lease = scene.lease(&request("s", 6, 4));
    scene.pass(LIFE);
    // Whoever sweeps: here the reservation that needs the slot.
    drop((scene.lease(&request("t", 6, 4)), lease));
    assert_eq!(scene.story("s"), ["admitted", "unresolved"]);
    scene.pass(AGE);
    scene.sweep();
    assert_eq!(scene.story("s"), ["admitted", "unresolved", "settled"]);
}

/// The same entries, the latest first.
fn reversed(journal: &dyn Journal) -> Ring {
    let mut entries = Vec::new();
    journal.scan(&mut |entry| {
        entries.push(entry.clone());
        true
    });
    let ring = Ring::new(1 << 12);
    entries.into_iter().rev().for_each(|entry| ring.append(entry.event, entry.at));
    ring
}

/// Adding up the journal gives what the accounts show, at every moment of a history.
pub fn l7_the_replay_gives_the_live_balances<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let calendar = |limit: &str| {
        let unit = if limit.starts_with("monthly") { Unit::Month { start_day: 1 } } else { Unit::Day };
        Calendar::new(unit, "UTC").expect("UTC")
    };
    let compare = |step: &str| {
        // Asked for first: a drop may be on its way until the next trip.
        let balances = scene.balances();
        let replayed = replay(scene.gate.journal());
        assert_eq!(replayed.missing, 0);
        let backwards = replay(&reversed(scene.gate.journal()));
        let now = scene.gate.now();
        for balance in balances {
            let period = calendar(&balance.limit).period(now.wall);
            let used = |of: &Replayed| of.used(&balance.scope, &balance.limit, now, period).unwrap_or(0);
            assert_eq!(used(&replayed), balance.used, "{step}: {}", balance.limit);
            // Budgets and gauges do not depend on the order in which threads came to write.
            assert!(balance.rolling || used(&backwards) == balance.used, "{step} backwards: {}", balance.limit);
        }
    };
    let leases: Vec<_> =
        (0..5).map(|nth| scene.lease(&request(&format!("r{nth}"), 600, 400).stream(nth % 2 == 0))).collect();
    compare("admitted");
    S::wait(leases[0].extend(200)).unwrap();
    compare("extended");
    scene.settle(&leases[0], 600, 500).unwrap();
    scene.settle(&leases[1], 600, 5000).unwrap();
    scene.cancel(&leases[2]).unwrap();
    compare("ended");
    let late = leases[3].id();
    drop(leases);
    compare("dropped");
    scene.settle_late(late, 1, 1).unwrap();
    compare("settled late");
    scene.pass(AGE + LIFE);
    scene.sweep();
    compare("closed");
    let midnight = calendar("tpd").period(scene.gate.now().wall).end;
    scene.pass(std::time::Duration::from_nanos(midnight - scene.gate.now().wall));
    compare("the next day");
    let _lease = scene.lease(&request("next", 600, 400));
    compare("admitted again");
}

/// A correction that comes after its period is over changes no other period.
pub fn l8_a_correction_lands_in_its_period<S: TestStore>() {
    let scene = Scene::<S>::new(policy("tpd: {hard: 5000, hold: worst_case}, tokens_per_month: 5000, max_inflight: 4"));
    let (less, more) = (scene.lease(&request("less", 600, 400)), scene.lease(&request("more", 600, 400)));
    let open = scene.lease(&request("open", 600, 400));
    let midnight = Calendar::new(Unit::Day, "UTC").expect("UTC").period(scene.gate.now().wall).end;
    scene.clock.set_wall(midnight);
    assert_eq!(scene.used("tpd"), 0);
    scene.settle(&less, 1, 1).unwrap();
    assert_eq!(scene.used("tpd"), 0, "before anything is taken in the new period");
    let today = scene.lease(&request("today", 600, 400));
    assert_eq!(scene.used("tpd"), 1000);
    scene.settle(&more, 600, 1400).unwrap();
    assert_eq!(scene.used("tpd"), 1000, "neither gains nor loses");
    // Of a lease that was extended in the new period, the old hold is filled first.
    S::wait(open.extend(500)).unwrap();
    assert_eq!(scene.used("tpd"), 1500);
    scene.settle(&open, 600, 500).unwrap();
    assert_eq!(scene.used("tpd"), 1100);
    scene.settle(&today, 10, 10).unwrap();
    assert_eq!(scene.used("tpd"), 120);
    assert_eq!(scene.used("max_inflight"), 0);
}

/// A wall clock that is set back stays in the later period.
pub fn l8_a_spent_period_is_not_opened_again<S: TestStore>() {
    let scene = Scene::<S>::new(policy("rpd: 2"));
    let noon = scene.gate.now().wall;
    let midnight = Calendar::new(Unit::Day, "UTC").expect("UTC").period(noon).end;
    let _yesterday = scene.lease(&request("a", 1, 1));
    scene.clock.set_wall(midnight);
    let _today = [scene.lease(&request("b", 1, 1)), scene.lease(&request("c", 1, 1))];
    for wall in [midnight - 1, noon, midnight + 1] {
        scene.clock.set_wall(wall);
        assert_eq!(scene.refusal(&request("d", 1, 1)).reason, Reason::RequestQuotaExceeded);
        assert_eq!(scene.used("rpd"), 2);
    }
}

/// At its deadline a lease is unresolved: its slots are free, the rest stays charged. A nanosecond before it is open.
pub fn a_lease_expires_at_its_deadline_and_not_before<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    scene.pass(LIFE - TICK);
    assert_eq!((scene.sweep(), scene.used("max_inflight")), (0, 1));
    scene.pass(TICK);
    assert_eq!((scene.sweep(), scene.used("max_inflight"), scene.used("tpd")), (1, 0, 1000));
    let record = scene.find(lease.id()).expect("known");
    assert!(matches!(&*record.state(), State::Unresolved(at) if at.cause == Cause::Expired), "{record:?}");
    assert!(!scene.sent(&lease), "too late to be sent");
    assert!(scene.cancel(&lease).is_err());
}

/// A heartbeat gives the lease its whole life again, and never shortens it.
pub fn a_heartbeat_moves_the_deadline<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    scene.pass(LIFE - TICK);
    assert!(S::wait(lease.renew()));
    scene.pass(TICK);
    assert_eq!(scene.sweep(), 0);
    scene.pass(LIFE - TICK - TICK);
    assert_eq!(scene.sweep(), 0);
    scene.pass(TICK);
    assert_eq!(scene.sweep(), 1);
    assert!(!S::wait(lease.renew()), "nothing revives it");
}

/// An unresolved lease is settled once, by its own id or the request's.
pub fn a_late_settle_corrects_once<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let (lease, other) = (scene.lease(&request("r", 600, 400)), scene.lease(&request("other", 0, 0)));
    let id = lease.id();
    drop(lease);
    let outcome = || Outcome::Final(Usage::tokens(200, 100));
    let receipt = S::wait(scene.gate.finalize(Name::Request("r".into()), outcome())).unwrap();
    assert_eq!((receipt.is_late(), receipt.is_repeat(), receipt.returned(Meter::Total)), (true, false, 700));
    assert_eq!((scene.used("tpd"), scene.used("max_inflight")), (300, 1), "the other's slot is its own");
    assert!(S::wait(scene.gate.finalize(Name::Lease(id), outcome())).unwrap().is_repeat());
    assert_eq!(scene.settle_late(id, 200, 101).unwrap_err().code(), "lease_conflict");
    assert_eq!((scene.used("tpd"), scene.used("max_inflight"), scene.open()), (300, 1, 1));
    drop(other);
}

/// After its age an unresolved lease is closed as used in full; a settle after that is a conflict.
pub fn an_unresolved_lease_is_closed_after_its_age<S: TestStore>() {
    let scene = Scene::<S>::new(policy(ROOMY));
    let lease = scene.lease(&request("r", 600, 400));
    let id = lease.id();
    drop(lease);
    // A drop may be on its way until the next trip; its age counts from when it was dropped.
    assert_eq!(scene.used("max_inflight"), 0);
    scene.pass(AGE - TICK);
    assert_eq!((scene.sweep(), scene.open()), (0, 1));
    scene.pass(TICK);
    assert_eq!((scene.sweep(), scene.open()), (1, 0));
    assert_eq!((scene.used("tpd"), scene.used("daily_budget_usd")), (1000, 100_000));
    let record = scene.find(id).expect("known");
    let state = record.state();
    let State::Settled(settled) = &*state else { panic!("{record:?}") };
    assert!(settled.usage().is_none() && settled.late);
    assert_eq!((record.charged().get(Meter::Total), record.charged().get(Meter::InFlight)), (1000, 0));
    let error = scene.settle_late(id, 1, 1).unwrap_err();
    assert!(matches!(error, EndError::Conflict { field: "usage", .. }), "{error}");
}
