//! A model without a price where money is limited: refused, reckoned at the dearest price as a guess, or let pass.

use quota_core::gate::Counter;
use quota_core::{Decision, Gate, Meter, Policy, Principal, Reason, Request, Usage, Usd};
use serde_json::Value;

fn gate(choice: &str) -> (Gate, Principal) {
    let text = format!(
        "models: {{cheap: {{price: {{input: 1, output: 1}}}}, dear: {{price: {{input: 20, output: 50}}}}, new: {{}}}}
tenants:
  acme: {{daily_budget_usd: 1, models: [cheap, dear, new]}}
  free: {{rpm: 60, models: [new]}}
settings: {{unknown_price: {choice}}}"
    );
    (Gate::new(Policy::from_yaml(&text).unwrap()), Principal::builder("acme").build())
}

fn ask() -> Request {
    Request::chat("new").id("r").input_tokens(1000).max_output_tokens(1000)
}

/// What settling a request comes to: what was held and charged, and its entries.
fn settle(gate: &Gate, who: &Principal, request: &Request) -> (u64, u64, Vec<Value>) {
    let Decision::Allow(lease) = gate.admit(who, request) else { panic!("not allowed") };
    let receipt = lease.settle(Usage::tokens(1000, 500)).unwrap();
    let entries = gate.explain("r").iter().map(|entry| entry.to_json()).collect();
    (receipt.held().get(Meter::Money), receipt.charged().get(Meter::Money), entries)
}

fn usd(text: &str) -> u64 {
    text.parse::<Usd>().unwrap().units()
}

fn count(gate: &Gate, tenant: &str, counter: Counter) -> u64 {
    gate.snapshot().models[&(tenant.into(), "new".into())].get(counter)
}

#[test]
fn deny_refuses_where_money_is_limited_and_only_there() {
    let (gate, who) = gate("deny");
    let Decision::Reject(refusal) = gate.admit(&who, &ask()) else { panic!("not refused") };
    assert_eq!(refusal.reason, Reason::PriceUnknown);
    let free = Principal::builder("free").build();
    let (held, charged, entries) = settle(&gate, &free, &ask());
    assert_eq!((held, charged), (0, 0));
    let last = entries.last().unwrap();
    assert_eq!((&last["unpriced"], &last["price_is_guess"]), (&true.into(), &false.into()));
    assert_eq!(count(&gate, "free", Counter::Unpriced), 1);
}

#[test]
fn ceiling_holds_and_charges_the_dearest_price_and_says_that_it_is_a_guess() {
    let (gate, who) = gate("ceiling");
    let (held, charged, entries) = settle(&gate, &who, &ask());
    // $20 and $50 a million.
    assert_eq!((held, charged), (usd("0.07"), usd("0.045")));
    assert_eq!((&entries[0]["price_is_guess"], &entries[1]["price_is_guess"]), (&true.into(), &true.into()));
    assert_eq!(entries[1]["unpriced"], false);
    assert_eq!((count(&gate, "acme", Counter::GuessedPrice), count(&gate, "acme", Counter::Unpriced)), (1, 0));
    // A price of its own is no guess.
    let request = Request { id: None, model: "cheap".into(), ..ask() };
    let Decision::Allow(lease) = gate.admit(&who, &request) else { panic!() };
    assert!(!lease.claim().terms.price_is_guess());
    // Where nothing has a price, there is none to reckon with: never zero.
    let text = "tenants: {acme: {daily_budget_usd: 1, models: [new]}}\nsettings: {unknown_price: ceiling}";
    let gate = Gate::new(Policy::from_yaml(text).unwrap());
    assert_eq!(gate.admit(&who, &ask()).reason(), Some(Reason::PriceUnknown));
}

#[test]
fn shadow_lets_it_pass_and_says_that_it_was_not_priced() {
    let (gate, who) = gate("shadow");
    let (held, charged, entries) = settle(&gate, &who, &ask());
    assert_eq!((held, charged), (0, 0));
    assert_eq!((&entries[1]["unpriced"], &entries[1]["cost_usd"]), (&true.into(), &"0".into()));
    assert_eq!((count(&gate, "acme", Counter::Unpriced), count(&gate, "acme", Counter::GuessedPrice)), (1, 0));
}

#[test]
fn money_of_runs_needs_a_price_too() {
    let text = "tenants: {acme: {rpm: 9, agent_runs: {max_usd: 1}, models: [new]}}";
    let policy = Policy::from_yaml(text).unwrap();
    assert!(policy.warnings()[0].message.contains("`new`, which has no price"), "{:?}", policy.warnings());
    let (gate, who) = (Gate::new(policy), Principal::builder("acme").build());
    assert_eq!(gate.admit(&who, &ask().run_id("r")).reason(), Some(Reason::PriceUnknown));
    assert_eq!(gate.admit(&who, &ask()).reason(), None);
}

#[test]
fn a_price_that_lacks_what_was_used_is_told_too() {
    let text = "models: {new: {price: {input: 1, output: 1}}}\ntenants: {acme: {daily_budget_usd: 1, models: [new]}}";
    let gate = Gate::new(Policy::from_yaml(text).unwrap());
    let who = Principal::builder("acme").build();
    let settled = |usage: Usage| {
        let Decision::Allow(lease) = gate.admit(&who, &Request { id: None, ..ask() }) else { panic!() };
        lease.settle(usage).unwrap();
        gate.recent("acme", u64::MAX).pop().unwrap().to_json()["unpriced"].clone()
    };
    assert_eq!(settled(Usage::tokens(9, 9)), false);
    assert_eq!(settled(Usage { web_searches: 2, ..Usage::tokens(9, 9) }), true);
    assert_eq!(settled(Usage::not_run()), false);
    assert_eq!(count(&gate, "acme", Counter::Unpriced), 1);
}

#[test]
fn what_never_ran_is_not_unpriced() {
    let policy = Policy::from_yaml("models: {m: {}}\ntenants: {t: {rpd: 9, models: {m: {}}}}").unwrap();
    let (gate, who) = (Gate::new(policy), Principal::builder("t").build());
    let request = Request::chat("m").input_tokens(1).max_output_tokens(1);
    gate.admit(&who, &request).lease().unwrap().finish(quota_core::usage::Outcome::NotRun).unwrap();
    gate.admit(&who, &request).lease().unwrap().settle(Usage::tokens(1, 1)).unwrap();
    let mut unpriced = Vec::new();
    gate.journal().scan(&mut |entry| {
        if let quota_core::journal::Event::Ended(record) = &entry.event {
            unpriced.push(record.is_unpriced());
        }
        true
    });
    assert_eq!(unpriced, [false, true]);
}
