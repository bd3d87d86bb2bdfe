//! What operators see and do in an incident: frozen tenants, keys and models; retry storms; alerts.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use quota_core::gate::Target;
use quota_core::store::Memory;
use quota_core::testkit::{Failing, Fault};
use quota_core::{Decision, Gate, ManualClock, Policy, Principal, Reason, Request, Usage, Wait};

fn gate(policy: &str) -> (Gate, Arc<ManualClock>) {
    let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
    (Gate::builder(Policy::from_yaml(policy).unwrap()).clock(clock.clone()).build(), clock)
}

fn reason(gate: &Gate, who: &Principal, request: &Request) -> Option<Reason> {
    match gate.admit(who, request) {
        Decision::Allow(lease) | Decision::Degrade(lease, _) => {
            lease.cancel().unwrap();
            None
        }
        decision => decision.reason(),
    }
}

#[test]
fn what_is_frozen_is_refused_at_once_and_goes_on_when_thawed() {
    let (gate, _) = gate("tenants: {acme: {models: {a: {}, b: {}}}, other: {models: {a: {}}}}");
    let acme = Principal::builder("acme").key("k1").build();
    let other = Principal::builder("other").build();
    let (a, b) = (Request::chat("a"), Request::chat("b"));
    let Decision::Allow(open) = gate.admit(&acme, &a) else { panic!("not allowed") };
    let key = Target::Key { tenant: "acme".into(), key: "k1".into() };
    for (target, acme_a, acme_b, other_a) in [
        (Target::Tenant("acme".into()), true, true, false),
        (key.clone(), true, true, false),
        (Target::Model("a".into()), true, false, true),
    ] {
        gate.freeze(target.clone(), "leaked key", "ops@example.org");
        for (who, request, frozen) in [(&acme, &a, acme_a), (&acme, &b, acme_b), (&other, &a, other_a)] {
            assert_eq!(reason(&gate, who, request), frozen.then_some(Reason::Frozen), "{target:?}");
        }
        assert_eq!(gate.frozen().len(), 1);
        assert!(gate.thaw(&target, "ops@example.org"));
        assert!(!gate.thaw(&target, "ops@example.org"), "the second time there is nothing to thaw");
        assert_eq!(reason(&gate, &acme, &a), None);
    }
    gate.freeze(key, "leaked key", "ops@example.org");
    assert!(open.settle(Usage::tokens(1, 1)).is_ok(), "what was admitted before settles");
    let Decision::Reject(refusal) = gate.admit(&acme, &b) else { panic!("not refused") };
    assert!(refusal.message().contains("leaked key") && !refusal.message().contains("ops@"), "{}", refusal.message());
    assert_eq!((refusal.wait, refusal.reason.status()), (Wait::Never, 403));
}

#[test]
fn freezing_a_model_freezes_its_aliases_and_a_key_only_its_tenant() {
    let policy = "models: {big: {}, alias: {upstream: big}}\ntenants: {acme: {models: {alias: {}}}, other: {models: {alias: {}}}}";
    let (gate, _) = gate(policy);
    let (acme, other) = (Principal::builder("acme").key("k1").build(), Principal::builder("other").key("k1").build());
    gate.freeze(Target::Key { tenant: "acme".into(), key: "k1".into() }, "leaked", "ops");
    assert_eq!(reason(&gate, &acme, &Request::chat("alias")), Some(Reason::Frozen));
    assert_eq!(reason(&gate, &other, &Request::chat("alias")), None);
    gate.freeze(Target::Model("big".into()), "wrong answers", "ops");
    assert_eq!(reason(&gate, &other, &Request::chat("alias")), Some(Reason::Frozen));
}

#[test]
fn a_retry_storm_is_told_to_wait_longer_and_harms_nobody() {
    let policy = "global: {rpm: {hard: 600, burst: 10}}\ntenants: {storm: {rpm: {hard: 60, burst: 1}, models: {m: {}}}, calm: {models: {m: {}}}}";
    let served = |storming: bool| {
        let (gate, clock) = gate(policy);
        let (storm, calm) = (Principal::builder("storm").build(), Principal::builder("calm").build());
        let (mut good, mut reasons) = (0, Vec::new());
        for step in 0..600 {
            if storming {
                for _ in 0..20 {
                    match gate.admit(&storm, &Request::chat("m").text("again")) {
                        Decision::Allow(lease) => drop(lease.settle(Usage::tokens(5, 5)).unwrap()),
                        decision => reasons.extend(decision.reason()),
                    }
                }
            }
            let Decision::Allow(lease) = gate.admit(&calm, &Request::chat("m").text(step.to_string())) else {
                continue;
            };
            lease.settle(Usage::tokens(5, 5)).unwrap();
            good += 1;
            clock.advance(Duration::from_millis(200));
        }
        (good, reasons)
    };
    let (alone, _) = served(false);
    let (beside, reasons) = served(true);
    assert_eq!(alone, 600);
    assert_eq!(beside, alone, "the storm takes nothing from others");
    let stormy = reasons.iter().filter(|reason| **reason == Reason::RetryStorm).count();
    assert!(stormy * 10 > reasons.len() * 9, "{stormy} of {} refusals are the storm's own", reasons.len());
}

#[test]
fn the_first_early_retry_is_decided_as_usual_and_the_wait_then_grows() {
    let (gate, clock) = gate("tenants: {acme: {rpm: {hard: 60, burst: 1}, models: {m: {}}}}");
    let who = Principal::builder("acme").build();
    let request = Request::chat("m").text("hello");
    let Decision::Allow(first) = gate.admit(&who, &request) else { panic!("not allowed") };
    drop(first);
    let mut waits = Vec::new();
    for _ in 0..5 {
        let Decision::Reject(refusal) = gate.admit(&who, &request) else { panic!("not refused") };
        waits.push((refusal.reason, refusal.wait.millis().unwrap()));
    }
    let (rate, storm) = (Reason::RequestRateExceeded, Reason::RetryStorm);
    assert_eq!(waits, [(rate, 1000), (rate, 1000), (storm, 1000), (storm, 2000), (storm, 4000)]);
    assert_eq!(reason(&gate, &who, &Request::chat("m").text("another")), Some(rate), "another request is no retry");
    clock.advance(Duration::from_secs(4));
    assert_eq!(reason(&gate, &who, &request), None, "exactly then it passes, and is forgotten");
}

#[test]
fn a_repeat_of_an_open_request_is_no_storm() {
    let (gate, _) = gate("tenants: {acme: {rpm: {hard: 60, burst: 1}, models: {m: {}}}}");
    let who = Principal::builder("acme").build();
    let open = Request::chat("m").text("go on").id("open");
    let Decision::Allow(lease) = gate.admit(&who, &open) else { panic!("not allowed") };
    let other = Request::chat("m").text("go on").id("other");
    let reasons: Vec<_> = (0..4).map(|_| gate.admit(&who, &other).reason().unwrap()).collect();
    assert_eq!(reasons[3], Reason::RetryStorm);
    let Decision::Allow(again) = gate.admit(&who, &open) else { panic!("its lease is hidden") };
    assert_eq!((again.id(), again.is_repeat()), (lease.id(), true));
}

#[test]
fn who_waits_keeps_the_place_when_it_asks_again() {
    let policy = "
queues: {interactive: {max_wait_ms: 5000}}
tenants: {acme: {max_queue: 1, max_inflight: {hard: 1, on_exceed: queue}, models: {m: {}}}}";
    let (gate, _) = gate(policy);
    let (who, request) = (Principal::builder("acme").build(), Request::chat("m"));
    let Decision::Allow(lease) = gate.admit(&who, &request) else { panic!("not allowed") };
    let Decision::Queue(queued) = gate.admit(&who, &request) else { panic!("not queued") };
    assert_eq!(gate.admit(&who, &request).reason(), Some(Reason::QueueFull));
    let Decision::Queue(queued) = gate.admit_again(queued, &who, &request) else { panic!("it lost its place") };
    lease.settle(Usage::tokens(1, 1)).unwrap();
    let Decision::Allow(_next) = gate.admit_again(queued, &who, &request) else { panic!("not allowed") };
    let Decision::Queue(_) = gate.admit(&who, &request) else { panic!("the place is free again") };
    let queued = gate.recent("acme", u64::MAX).iter().filter(|entry| entry.event.name() == "queued").count();
    assert_eq!(queued, 2, "asking again is not told again");
}

#[test]
fn what_a_settlement_has_crossed_is_told_by_the_next_admission() {
    let policy = "
tenants: {acme: {tpm: {hard: 1000, soft: 500}, max_inflight: {hard: 9, soft: 1}, models: {m: {}}}}";
    let (gate, clock) = gate(policy);
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    gate.subscribe(move |alert| sink.lock().unwrap().push((alert.limit.to_string(), alert.used)));
    let who = Principal::builder("acme").build();
    let small = Request::chat("m").input_tokens(10).max_output_tokens(10);
    let admit = || gate.admit(&who, &small).lease().unwrap();
    let rate = |used| ("tpm".to_owned(), used);
    admit().settle(Usage::tokens(10, 690)).unwrap();
    assert_eq!(*told.lock().unwrap(), [], "no admission has seen it");
    let seen = admit();
    assert_eq!(*told.lock().unwrap(), [rate(720)]);
    let second = admit();
    assert_eq!(*told.lock().unwrap(), [rate(720), ("max_inflight".to_owned(), 2)], "the rate is told once");
    drop((seen, second));
    clock.advance(Duration::from_secs(60));
    admit().settle(Usage::tokens(10, 10)).unwrap();
    admit().settle(Usage::tokens(10, 590)).unwrap();
    admit().settle(Usage::tokens(10, 10)).unwrap();
    assert_eq!(told.lock().unwrap().len(), 3, "crossed once more: {told:?}");
}

#[test]
fn a_soft_amount_and_a_percentage_are_told_once_a_period() {
    let policy = "
models: {m: {price: {input: 1, output: 1}}}
tenants: {acme: {daily_budget_usd: {hard: 1, soft: 0.5, alert_percent: 80}, models: {m: {}}}}";
    let (gate, clock) = gate(policy);
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    gate.subscribe(move |alert| sink.lock().unwrap().push((alert.soft, alert.crossed, alert.used)));
    let who = Principal::builder("acme").build();
    let spend = || {
        let Decision::Allow(lease) = gate.admit(&who, &Request::chat("m").input_tokens(200_000).max_output_tokens(0))
        else {
            panic!("not allowed")
        };
        assert_eq!(
            lease.soft_passed().count(),
            (lease.claim().used_after(&lease.claim().holds().next().unwrap()) > 50_000_000) as usize
        );
        lease.settle(Usage::tokens(200_000, 0)).unwrap();
    };
    (0..5).for_each(|_| spend());
    let day = [(true, 50_000_000, 60_000_000), (false, 80_000_000, 80_000_000)];
    assert_eq!(*told.lock().unwrap(), day);
    clock.advance(Duration::from_secs(86_400));
    (0..5).for_each(|_| spend());
    assert_eq!(*told.lock().unwrap(), [day, day].concat());
    let alerts = gate.recent("acme", u64::MAX).iter().filter(|entry| entry.event.name() == "alerted").count();
    assert_eq!(alerts, 4);
}

/// The first answer is lost; the repeat of the request, which is told of the lease, comes under a policy of fewer limits.
#[test]
fn an_admission_that_is_met_under_other_limits_is_told_with_the_next() {
    let limits = |more: &str| format!("tenants: {{acme: {{rpm: {{hard: 9, soft: 1}}, models: {{m: {{{more}}}}}}}}}");
    let read = |more| Policy::from_yaml(&limits(more)).unwrap();
    let store = Failing::new(Memory::default(), [Fault::After]);
    let gate = Gate::builder(read("rpd: {hard: 9, soft: 1}")).store(store).build();
    let told = Arc::new(Mutex::new(Vec::new()));
    let sink = told.clone();
    gate.subscribe(move |alert| sink.lock().unwrap().push((alert.limit.to_string(), alert.used)));
    let who = Principal::builder("acme").build();
    let admit = |id: &'static str| gate.admit(&who, &Request::chat("m").id(id));
    assert_eq!(admit("1").reason(), Some(Reason::StoreUnavailable));
    gate.reload(&read(""));
    let lease = admit("1").lease().unwrap();
    assert!(!lease.is_repeat() && lease.claim().holds().len() == 2, "{lease:?}");
    assert_eq!(*told.lock().unwrap(), []);
    admit("2").lease().unwrap().cancel().unwrap();
    assert_eq!(*told.lock().unwrap(), [("rpm".to_owned(), 2)]);
}
