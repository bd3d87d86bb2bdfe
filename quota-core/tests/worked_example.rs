//! The worked example, to the digit: $1.00 left today, $20 this month, one free slot.

use std::sync::Arc;

use quota_core::usage::Outcome;
use quota_core::{Decision, Gate, ManualClock, Meter, Name, Policy, Principal, Reason, Request, Usage, Usd};

/// $1 a million tokens either way: 60,000 tokens cost $0.06.
const POLICY: &str = "
models: {m: {price: {input: 1, output: 1}}}
tenants:
  acme:
    tokens_per_day: 1000000
    daily_budget_usd: 1.00
    monthly_budget_usd: 20
    max_inflight: 1
    models: {m: {}}
";

fn usd(text: &str) -> u64 {
    text.parse::<Usd>().unwrap().units()
}

#[test]
fn the_worked_example() {
    let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
    let gate = Gate::builder(Policy::from_yaml(POLICY).unwrap()).clock(clock.clone()).build();
    let who = Principal::builder("acme").build();
    let left = |limit: &str| {
        let balances = gate.balances(&who, false);
        balances.iter().find(|balance| &*balance.limit == limit).unwrap().remaining
    };

    // It reserves $0.06: 40,000 tokens in, at most 20,000 out.
    let request = Request::chat("m").id("r1").input_tokens(40_000).max_output_tokens(20_000);
    let Decision::Allow(lease) = gate.admit(&who, &request) else { panic!("not allowed") };
    assert_eq!(left("daily_budget_usd"), usd("0.94"));
    assert_eq!(left("monthly_budget_usd"), usd("19.94"));
    assert_eq!(left("max_inflight"), 0);

    // A simultaneous request sees $0.94 and the slot taken.
    let other = Request::chat("m").id("r2").input_tokens(40_000).max_output_tokens(20_000);
    let Decision::Reject(refusal) = gate.admit(&who, &other) else { panic!("not refused") };
    assert_eq!(refusal.reason, Reason::ConcurrencyExceeded);
    assert_eq!(left("daily_budget_usd"), usd("0.94"));

    // The verified cost is $0.04: $0.02 comes back, once.
    lease.sent();
    let receipt = lease.settle(Usage::tokens(30_000, 10_000)).unwrap();
    assert_eq!(receipt.returned(Meter::Money), usd("0.02"));
    assert_eq!(receipt.cost().to_string(), "0.04");
    assert_eq!(left("daily_budget_usd"), usd("0.96"));
    assert_eq!(left("monthly_budget_usd"), usd("19.96"));
    assert_eq!(left("max_inflight"), 1);

    // Settling again gives nothing back, by the lease or by the request's id.
    let again = lease.settle(Usage::tokens(30_000, 10_000)).unwrap();
    assert!(again.is_repeat() && !receipt.is_repeat());
    assert_eq!(again.charged(), receipt.charged());
    let by_id = gate.finalize(Name::Request("r1".into()), Outcome::Final(Usage::tokens(30_000, 10_000))).unwrap();
    assert!(by_id.is_repeat());
    let conflict = lease.settle(Usage::tokens(30_000, 9_000)).unwrap_err();
    assert_eq!(conflict.code(), "lease_conflict");
    assert!(conflict.to_string().contains("output_text = 10000; 9000 differs"), "{conflict}");
    drop(lease);
    assert_eq!(left("daily_budget_usd"), usd("0.96"));
    assert_eq!(left("tpd"), 960_000);

    // Replaying the journal gives the same.
    let replayed = quota_core::journal::replay(gate.journal());
    let period = quota_core::time::Calendar::new(quota_core::time::Unit::Day, "UTC").unwrap().period(gate.now().wall);
    assert_eq!(replayed.used("tenant:acme", "daily_budget_usd", gate.now(), period), Some(usd("0.04")));
    assert_eq!(replayed.used("tenant:acme", "max_inflight", gate.now(), period), Some(0));
    let story: Vec<_> = gate.explain("r1").iter().map(|entry| entry.event.name()).collect();
    assert_eq!(story, ["admitted", "settled"]);
    let bill = gate.explain("r1")[1].to_json();
    assert_eq!(
        bill["lines"],
        serde_json::json!([
            {"item": "input", "units": 30_000, "usd": "0.03"},
            {"item": "output", "units": 10_000, "usd": "0.01"},
        ])
    );
}

/// The lines of a bill are those of the tier that was charged: of the standard one and the one asked for, the dearer.
#[test]
fn the_lines_of_a_bill_sum_to_it() {
    let policy = "
models: {m: {price: {input: 1, output: 1, services: {priority: {input: 2, output: 3}, flex: {input: 0.5, output: 0.5}}}}}
tenants: {acme: {models: {m: {}}}}";
    let gate = Gate::new(Policy::from_yaml(policy).unwrap());
    for (asked, cost, lines) in [("priority", "0.05", ["0.02", "0.03"]), ("flex", "0.02", ["0.01", "0.01"])] {
        let request = Request::chat("m").id(asked).input_tokens(10_000).max_output_tokens(10_000).service_tier(asked);
        let Decision::Allow(lease) = gate.admit(&Principal::builder("acme").build(), &request) else { panic!() };
        assert_eq!(lease.settle(Usage::tokens(10_000, 10_000)).unwrap().cost().to_string(), cost, "{asked}");
        let bill = gate.explain(asked)[1].to_json();
        let found: Vec<_> =
            bill["lines"].as_array().unwrap().iter().map(|line| line["usd"].as_str().unwrap()).collect();
        assert_eq!(found, lines, "{asked}");
    }
}
