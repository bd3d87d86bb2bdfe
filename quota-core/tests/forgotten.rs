//! Leases that a small store forgets: their endings are in the journal once.

use std::collections::HashMap;

use quota_core::store::memory::{Bounds, Memory};
use quota_core::{Decision, Gate, Policy, Principal, Request, Usage};

#[test]
fn an_ending_that_is_in_the_journal_is_not_told_again_when_its_lease_is_forgotten() {
    let policy = Policy::from_yaml("models: {m: {}}\ntenants: {t: {rpd: 1000, models: {m: {}}}}").unwrap();
    let gate = Gate::builder(policy).store(Memory::new(Bounds { rows: 8, open_leases: 2 })).build();
    let who = Principal::builder("t").build();
    for _ in 0..50 {
        match gate.admit(&who, &Request::chat("m").input_tokens(1).max_output_tokens(1)) {
            Decision::Allow(lease) => assert!(!lease.settle(Usage::tokens(1, 1)).unwrap().is_repeat()),
            other => panic!("{other:?}"),
        }
    }
    let mut entries: HashMap<&str, usize> = HashMap::new();
    gate.journal().scan(&mut |entry| {
        *entries.entry(entry.event.name()).or_default() += 1;
        true
    });
    assert_eq!((entries["admitted"], entries["settled"]), (50, 50));
}
