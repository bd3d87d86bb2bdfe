//! Lesser answers: what calls for a step, in which order, and what a degraded request holds.

use std::sync::Arc;

use quota_core::gate::Degradation;
use quota_core::policy::ErrorKind;
use quota_core::{Decision, Gate, Lease, ManualClock, Policy, Principal, Reason, Request, Usage};

fn gate(policy: &str) -> Gate {
    let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
    Gate::builder(Policy::from_yaml(policy).unwrap()).clock(clock).build()
}

fn who(tenant: &str) -> Principal {
    Principal::builder(tenant).build()
}

fn degraded(decision: Decision<Lease>) -> (Lease, Degradation) {
    match decision {
        Decision::Degrade(lease, degradation) => (lease, degradation),
        other => panic!("not degraded: {other:?}"),
    }
}

/// The place of the step that was taken, `None` if it went as asked.
fn step(gate: &Gate, who: &Principal, request: &Request) -> Option<u16> {
    match gate.admit(who, request) {
        Decision::Allow(_) => None,
        decision => Some(degraded(decision).1.step),
    }
}

fn ask() -> Request {
    Request::chat("large").input_tokens(100).max_output_tokens(1000)
}

const PRESSED: &str = "
models: {large: {pool: h200}, small: {pool: l4}, alias: {upstream: large}}
tenants:
  gold: {priority: high, models: {large: {}, small: {}, alias: {}}}
  plain: {models: {large: {}, small: {}}}
  bronze: {priority: low, models: {large: {}, small: {}}}
queues: {interactive: {}, batch: {}, low: {}}
degrade:
  - when: {pool_above: 80, priority: low}
    max_output_tokens: 256
    disable_tools: [web_search]
    lane: batch
  - when: {pool_above: 95}
    model: small
";

#[test]
fn pressure_takes_the_first_step_that_holds_and_does_not_try_the_request_as_asked() {
    let gate = gate(PRESSED);
    assert_eq!(gate.pressure("h200"), Some(0));
    for (percent, gold, plain, bronze) in [
        (80, None, None, None),
        (81, None, None, Some(0)),
        (95, None, None, Some(0)),
        (96, Some(1), Some(1), Some(0)),
        (100, Some(1), Some(1), Some(0)),
        (250, Some(1), Some(1), Some(0)),
        (0, None, None, None),
    ] {
        assert!(gate.set_pressure("h200", percent));
        for (tenant, want) in [("gold", gold), ("plain", plain), ("bronze", bronze)] {
            assert_eq!(step(&gate, &who(tenant), &ask()), want, "{tenant} at {percent}");
        }
        // A request for another pool's model has nothing to do with it; an alias has its model's pool.
        gate.set_pressure("l4", 100);
        let small = Request { model: "small".into(), ..ask() };
        assert_eq!(step(&gate, &who("plain"), &small), None);
        let alias = Request { model: "alias".into(), ..ask() };
        assert_eq!(step(&gate, &who("gold"), &alias), gold);
    }
    assert!(!gate.set_pressure("no such pool", 99) && gate.pressure("no such pool").is_none());
}

#[test]
fn a_step_is_told_and_held_whole() {
    let gate = gate(PRESSED);
    gate.set_pressure("h200", 90);
    let (lease, degradation) = degraded(gate.admit(&who("bronze"), &ask()));
    assert_eq!((degradation.reason, &*degradation.limit), (Reason::PoolPressure, "h200"));
    assert_eq!((&*degradation.model, degradation.max_output_tokens, &*degradation.lane), ("large", 256, "batch"));
    assert_eq!(degradation.disable_tools, ["web_search".into()]);
    assert_eq!((lease.model(), lease.max_output_tokens(), lease.lane()), ("large", 256, "batch"));
    let Decision::Degrade(offer, shown) = gate.preview(&who("bronze"), &ask()) else { panic!() };
    assert_eq!((shown, offer.max_output_tokens), (degradation, 256));
    let entry = gate.recent("bronze", u64::MAX).pop().unwrap().to_json();
    assert_eq!((&entry["event"], &entry["degrade_step"]), (&"degraded".into(), &0.into()));
}

#[test]
fn the_lane_speaks_where_the_tenant_has_no_priority() {
    let gate = gate(PRESSED);
    gate.set_pressure("h200", 90);
    assert_eq!(step(&gate, &who("plain"), &ask().lane("low")), Some(0));
    assert_eq!(step(&gate, &who("plain"), &ask().lane("batch")), None);
    assert_eq!(step(&gate, &who("gold"), &ask().lane("low")), None, "the tenant's own word comes first");
}

#[test]
fn pressure_outlives_a_reload_and_a_pool_that_is_gone_does_not() {
    let gate = gate(PRESSED);
    gate.set_pressure("h200", 90);
    gate.reload(&Policy::from_yaml(&PRESSED.replace("l4", "l40")).unwrap());
    assert_eq!((gate.pressure("h200"), gate.pressure("l40"), gate.pressure("l4")), (Some(90), Some(0), None));
    assert_eq!(step(&gate, &who("bronze"), &ask()), Some(0));
}

#[test]
fn pressure_alone_refuses_nothing() {
    // The lesser model has room for one request.
    let text = PRESSED.replace("small: {pool: l4}", "small: {pool: l4, max_inflight: 1}");
    let gate = gate(&text);
    gate.set_pressure("h200", 99);
    let (held, degradation) = degraded(gate.admit(&who("plain"), &ask()));
    assert_eq!((degradation.step, held.model()), (1, "small"));
    let Decision::Allow(lease) = gate.admit(&who("plain"), &ask()) else { panic!("goes as asked") };
    assert_eq!(lease.model(), "large");
}

const SOFT: &str = "
models: {large: {price: {input: 10, output: 10}, pool: p}, small: {price: {input: 1, output: 1}}, tiny: {}}
settings: {unknown_price: shadow}
tenants:
  acme:
    daily_budget_usd: {soft: 0.05, hard: 0.10}
    rpm: {soft: 3, hard: 100}
    max_inflight: {hard: 6, on_exceed: degrade}
    models: {large: {}, small: {}}
degrade:
  - {when: {soft: daily_budget_usd, model: large}, model: tiny}
  - {when: {soft: daily_budget_usd, pool_above: 50}, model: small, max_output_tokens: 10}
  - {when: {soft: daily_budget_usd}, model: small}
  - {when: {soft: rpm}, max_output_tokens: 100}
";

#[test]
fn a_step_is_taken_only_if_what_it_names_calls_for_it() {
    let gate = gate(SOFT);
    let who = who("acme");
    // $0.011 each as asked, $0.002 with short answers.
    for _ in 0..3 {
        assert_eq!(step(&gate, &who, &ask()), None);
    }
    // The fourth in a minute: short answers, though steps for the budget stand before that one.
    let (lease, degradation) = degraded(gate.admit(&who, &ask()));
    assert_eq!((degradation.step, &*degradation.limit, lease.max_output_tokens()), (3, "rpm", 100));
    drop(lease);
}

#[test]
fn steps_are_tried_in_order_and_one_that_can_not_be_taken_is_passed_over() {
    let gate = gate(&SOFT.replace("rpm: {soft: 3, hard: 100}", "rpm: 100"));
    let who = who("acme");
    let mut leases = Vec::new();
    for _ in 0..4 {
        let Decision::Allow(lease) = gate.admit(&who, &ask()) else { panic!() };
        leases.push(lease);
    }
    // $0.044 are held. The tenant may not use `tiny`, the pool is not full: the third step.
    let (lease, degradation) = degraded(gate.admit(&who, &ask()));
    assert_eq!((degradation.step, degradation.reason, lease.model()), (2, Reason::SoftLimitPassed, "small"));
    assert_eq!(lease.max_output_tokens(), 1000);
    leases.push(lease);
    // Soft amount and pressure both hold: the second, which comes first. With a soft amount named it is not taken at once.
    gate.set_pressure("p", 51);
    let (lease, degradation) = degraded(gate.admit(&who, &ask()));
    assert_eq!((degradation.step, lease.model(), lease.max_output_tokens()), (1, "small", 10));
    leases.push(lease);
    // All slots are taken, whatever the form: refused, with the shortage of the request as asked.
    let Decision::Reject(refusal) = gate.admit(&who, &ask()) else { panic!("not refused") };
    assert_eq!((refusal.reason, refusal.shortages.len()), (Reason::ConcurrencyExceeded, 1));
    leases.pop().unwrap().settle(Usage::tokens(100, 1)).unwrap();
    leases[0].settle(Usage::tokens(1, 1)).unwrap();
    assert_eq!(step(&gate, &who, &ask()), None, "room below the soft amount again");
}

#[test]
fn a_hard_shortage_is_degraded_only_where_its_limit_says_so() {
    let text = |exceed: &str| {
        format!(
            "models: {{large: {{price: {{input: 10, output: 10}}}}}}
tenants: {{acme: {{daily_budget_usd: {{hard: 0.015, on_exceed: {exceed}}}, models: {{large: {{}}}}}}}}
degrade: [{{max_output_tokens: 200}}]"
        )
    };
    let gate_of = |exceed| gate(&text(exceed));
    let who = who("acme");
    let gate = gate_of("degrade");
    assert_eq!(step(&gate, &who, &ask()), None);
    // $0.004 are left.
    let (lease, degradation) = degraded(gate.admit(&who, &ask()));
    assert_eq!((degradation.reason, &*degradation.limit), (Reason::BudgetExceeded, "daily_budget_usd"));
    assert_eq!(lease.max_output_tokens(), 200);
    // $0.001 is left: not even that fits, and the refusal says what does: 100 in leave nothing.
    let Decision::Reject(refusal) = gate.admit(&who, &ask()) else { panic!() };
    assert_eq!((refusal.reason, refusal.fits.max_output_tokens), (Reason::BudgetExceeded, None));
    let small = Request::chat("large").input_tokens(10).max_output_tokens(500);
    let Decision::Reject(refusal) = gate.admit(&who, &small) else { panic!() };
    assert_eq!(refusal.fits.max_output_tokens, Some(90));
    assert_eq!(step(&gate, &who, &small.max_output_tokens(90)), None, "what it says fits");
    let gate = gate_of("reject");
    assert_eq!(step(&gate, &who, &ask()), None);
    let Decision::Reject(refusal) = gate.admit(&who, &ask()) else { panic!("not refused") };
    assert_eq!(refusal.fits.max_output_tokens, Some(300));
}

#[test]
fn conditions_that_can_not_be_are_told() {
    let load = |steps: &str| {
        let text = format!(
            "models: {{a: {{pool: p}}, b: {{}}, c: {{}}}}\ntenants: {{t: {{rpm: {{soft: 1, hard: 2}}, models: [a, b, c]}}}}\ndegrade: [{steps}]"
        );
        Policy::from_yaml(&text)
    };
    let kind = |steps: &str| load(steps).err().map(|errors| errors.errors[0].kind);
    for (steps, want) in [
        ("{when: {model: a}, model: b}, {when: {model: b}, model: c}", None),
        ("{when: {model: a}, model: b}, {when: {model: b}, model: a}", Some(ErrorKind::Cycle)),
        ("{when: {model: a}, model: a}", Some(ErrorKind::Cycle)),
        // A step for every model leads back to where another began.
        ("{when: {model: a}, model: b}, {when: {pool_above: 90}, model: a}", Some(ErrorKind::Cycle)),
        ("{when: {model: a}, model: b}, {when: {pool_above: 90}, model: b}", None),
        ("{when: {soft: rpm}, model: b}, {when: {pool_above: 90}, model: c}", None),
        ("{when: {pool_above: 100}, model: b}", Some(ErrorKind::BadValue)),
        ("{when: {pool_above: 0.9}, model: b}", Some(ErrorKind::BadValue)),
        ("{when: {priority: lowest}, model: b}", Some(ErrorKind::BadValue)),
        ("{when: {pool: 90}, model: b}", Some(ErrorKind::UnknownKey)),
    ] {
        assert_eq!(kind(steps), want, "{steps}");
    }
    let text = "tenants: {t: {rpm: 1, models: [a]}}\ndegrade: [{when: {pool_above: 90}, max_output_tokens: 9}]";
    let policy = Policy::from_yaml(text).unwrap();
    let warnings: Vec<_> = policy.warnings().iter().map(|w| (w.kind, w.message.as_str())).collect();
    assert_eq!(warnings, [(ErrorKind::NoEffect, "no model has a pool")]);
}
