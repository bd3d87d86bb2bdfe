//! What settles corrects the guesses of the input, and how much output is held.

use std::sync::Arc;

use quota_core::gate::Counter;
use quota_core::{Decision, Gate, Lease, ManualClock, Meter, Policy, Principal, Request, Usage};

const TEXT: &str = "The quick brown fox jumps over the lazy dog while the committee considers its second proposal.";

struct Bench {
    gate: Gate,
    who: Principal,
}

impl Bench {
    fn new(policy: &str) -> Bench {
        let clock = Arc::new(ManualClock::at_instant("2026-11-30T12:00:00Z").unwrap());
        let gate = Gate::builder(Policy::from_yaml(policy).unwrap()).clock(clock).build();
        Bench { gate, who: Principal::builder("acme").build() }
    }

    fn admit(&self, request: &Request) -> Lease {
        match self.gate.admit(&self.who, request) {
            Decision::Allow(lease) => lease,
            decision => panic!("{decision:?}"),
        }
    }

    fn count(&self, counter: Counter) -> u64 {
        self.gate.snapshot().models[&("acme".into(), "m".into())].get(counter)
    }

    fn factor(&self) -> u64 {
        self.gate.snapshot().models[&("acme".into(), "m".into())].input_factor()
    }
}

const OPEN: &str = "tenants: {acme: {models: {m: {}, other: {}}}}";

/// A text of some length; what it takes upstream is a share of what the method alone guesses.
fn text(n: usize) -> Request {
    Request::chat("m").text(TEXT.repeat(1 + n % 7)).max_output_tokens(10)
}

#[test]
fn a_tokenizer_that_takes_more_is_learned_within_fifty_settlements() {
    let bench = Bench::new(OPEN);
    let (mut errors, mut covered) = (Vec::new(), Vec::new());
    for n in 0..100 {
        let lease = bench.admit(&text(n));
        let terms = &lease.claim().terms;
        let real = terms.input_guess * 8 / 5;
        errors.push(terms.input.expected.abs_diff(real) as f64 / real as f64);
        covered.push(terms.input.reserve >= real);
        lease.settle(Usage::tokens(real, 5)).unwrap();
    }
    let mean = |errors: &[f64]| errors.iter().sum::<f64>() / errors.len() as f64;
    assert!(mean(&errors[..5]) > 0.3, "it was wrong at first: {errors:?}");
    assert!(mean(&errors[40..50]) < 0.05, "{errors:?}");
    assert!(mean(&errors[..50]) < 0.15 && mean(&errors[50..]) < 0.02, "{errors:?}");
    assert!(covered[50..].iter().all(|covered| *covered), "the reserve covers what is learned");
    assert!((1590..=1600).contains(&bench.factor()), "{}", bench.factor());
    // What is exported is the corrected estimate.
    let (estimated, measured, error) = (
        bench.count(Counter::EstimatedInput),
        bench.count(Counter::MeasuredInput),
        bench.count(Counter::EstimateError),
    );
    assert!(error * 100 < measured * 10, "{error} of {measured}");
    assert!(estimated.abs_diff(measured) <= error);
    // Another model learns for itself.
    let lease = bench.admit(&Request { model: "other".into(), ..text(0) });
    assert_eq!(lease.claim().terms.input.expected, lease.claim().terms.input_guess);
}

#[test]
fn hostile_reports_move_it_to_its_bounds_and_no_further() {
    for (input, low, high) in [(u64::MAX, 2900, 3000), ((1 << 52) - 1, 2900, 3000), (1, 500, 520)] {
        let bench = Bench::new(OPEN);
        for n in 0..200 {
            bench.admit(&text(n)).settle(Usage::tokens(input, 1)).unwrap();
        }
        assert!((low..=high).contains(&bench.factor()), "{input}: {}", bench.factor());
        let lease = bench.admit(&text(0));
        let terms = &lease.claim().terms;
        let fresh = Bench::new(OPEN).admit(&text(0)).claim().terms.input;
        assert!(terms.input.expected <= fresh.expected * 3 && terms.input.reserve <= fresh.reserve * 3 + 1);
        assert!(terms.input.reserve >= fresh.reserve, "never below the method's own");
        assert_eq!(terms.input_guess, fresh.expected);
    }
}

#[test]
fn nothing_is_learned_from_exact_counts_or_from_usage_without_an_input_side() {
    let bench = Bench::new(OPEN);
    let exact = Request::chat("m").input_tokens(1000);
    for _ in 0..20 {
        bench.admit(&exact).settle(Usage::tokens(3000, 1)).unwrap();
        bench.admit(&text(3)).settle(Usage { input_missing: true, ..Usage::tokens(0, 9) }).unwrap();
        bench.admit(&text(3)).settle(Usage::not_run()).unwrap();
        bench.admit(&text(3)).cancel().unwrap();
        drop(bench.admit(&text(3)));
    }
    assert_eq!(bench.factor(), 1000);
    // Calls of one logical request that were added up count as their mean.
    let lease = bench.admit(&text(3));
    let guess = lease.claim().terms.input_guess;
    lease.settle(Usage { requests: 3, ..Usage::tokens(guess * 3, 9) }).unwrap();
    assert_eq!(bench.factor(), 1000);
}

#[test]
fn what_was_learned_refuses_no_input_that_the_method_lets_pass() {
    let bench = Bench::new("models: {m: {context: 120}}\ntenants: {acme: {models: {m: {}}}}");
    let request = Request::chat("m").text(TEXT.repeat(2)).max_output_tokens(10);
    for _ in 0..100 {
        bench.admit(&request).settle(Usage::tokens(1 << 40, 1)).unwrap();
    }
    let lease = bench.admit(&request);
    assert!(lease.claim().terms.input.expected > 100, "{:?}", lease.claim().terms.input);
}

/// Teaches a model answers of so many tokens.
fn teach(bench: &Bench, output: u64) {
    for _ in 0..32 {
        let lease = bench.admit(&Request::chat("m").input_tokens(0).max_output_tokens(1000));
        lease.settle(Usage::tokens(0, output)).unwrap();
    }
}

/// How many of the requests are admitted, how much the first and the last hold, and what the bound of the overshoot is
/// beside the debt that the worst case brings.
fn fill(hold: &str) -> (usize, u64, u64, u64, u64) {
    let policy = format!(
        "models: {{m: {{}}}}\ntenants: {{acme: {{windows: [{{name: w, meter: output_tokens, seconds: 3600, hard: 20000, window: fixed, hold: {hold}}}], models: {{m: {{}}}}}}}}"
    );
    let bench = Bench::new(&policy);
    teach(&bench, 100);
    let request = Request::chat("m").input_tokens(0).max_output_tokens(1000);
    let mut leases = Vec::new();
    while let Decision::Allow(lease) = bench.gate.admit(&bench.who, &request) {
        leases.push(lease);
    }
    let hold = |lease: &Lease| lease.claim().holds().next().unwrap().amount;
    let (first, last) = (hold(&leases[0]), hold(leases.last().unwrap()));
    let bound = bench.gate.overshoot().get(Meter::Output);
    for lease in &leases {
        lease.settle(Usage::tokens(0, 1000)).unwrap();
    }
    let balance = bench.gate.balances(&bench.who, false).remove(0);
    assert_eq!(bench.gate.overshoot().get(Meter::Output), 0, "nothing is open any more");
    (leases.len(), first, last, bound, balance.used.saturating_sub(balance.hard))
}

#[test]
fn the_overshoot_is_bounded_by_the_number_that_the_gate_gives() {
    // 32 answers of 100 leave 16,800.
    let (admitted, first, last, bound, debt) = fill("worst_case");
    assert_eq!((admitted, first, last, bound, debt), (16, 1000, 1000, 0, 0));
    // The learned length of 100 is 103: 163 of them fit, and each may take 897 more.
    let (admitted, first, last, bound, debt) = fill("p95");
    assert_eq!((admitted, first, last), (163, 103, 103));
    assert_eq!((bound, debt), (163 * 897, 163 * 1000 - 16_800));
    assert!(debt <= bound);
    // Far from the hard amount the learned length, from 6,000 (the worst case and a quarter) on the worst case.
    let (admitted, first, last, bound, debt) = fill("adaptive");
    let far = (16_800 - 6_000) / 103 + 1;
    let near = (16_800 - far * 103) / 1000;
    assert_eq!((admitted as u64, first, last), (far + near, 103, 1000));
    assert_eq!((bound, debt), (far * 897, (far + near) * 1000 - 16_800));
    assert!(debt <= bound);
}

#[test]
fn the_bound_is_that_of_the_limit_that_holds_least_and_lasts_until_the_usage_is_known() {
    let policy = "models: {m: {price: {input: 1, output: 1}}}
tenants: {acme: {tpd: {hard: 1000000, hold: worst_case}, tpm: {hard: 1000000, hold: p95}, daily_budget_usd: {hard: 1, hold: p95}, models: {m: {}}}}";
    let bench = Bench::new(policy);
    teach(&bench, 100);
    let lease = bench.admit(&Request::chat("m").input_tokens(50).max_output_tokens(1000));
    let bound = || [Meter::Output, Meter::Total, Meter::Money].map(|meter| bench.gate.overshoot().get(meter));
    // 897 tokens at a ten-thousandth of a cent.
    assert_eq!(bound(), [0, 897, 89_700]);
    lease.extend(500).unwrap();
    assert_eq!(bound(), [0, 897, 89_700], "what is held more can be used more");
    drop(lease);
    assert_eq!(bound(), [0, 897, 89_700], "a late settle can still charge it");
}
