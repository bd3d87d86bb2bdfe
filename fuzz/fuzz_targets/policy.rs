//! A policy of any text: an error with a place, or a policy that a gate can be made of and asked.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quota_core::store::memory::{Bounds, Memory};
use quota_core::{Decision, Gate, ManualClock, Policy, Principal, Request, Usage};

/// 2026-11-30T00:00:00Z.
const NOW: u64 = 1_795_996_800_000_000_000;

fuzz_target!(|text: &str| {
    let policy = match Policy::from_yaml(text) {
        Ok(policy) => policy,
        Err(errors) => {
            assert!(!errors.to_string().is_empty());
            return;
        }
    };
    let plan = policy.plan().clone();
    let store = Memory::new(Bounds { rows: 256, open_leases: 4 });
    let gate = Gate::builder(policy).store(store).clock(ManualClock::at(NOW)).build();
    for (name, tenant) in plan.tenants.iter().take(4) {
        let who = Principal::builder(name.clone()).user("u").build();
        for model in tenant.models.keys().take(4) {
            let request = Request::chat(model.clone()).input_tokens(100).max_output_tokens(10).stream(true);
            match gate.admit(&who, &request) {
                Decision::Allow(lease) | Decision::Degrade(lease, _) => {
                    lease.settle(Usage::tokens(90, 20)).expect("the first ending");
                }
                Decision::Queue(queued) => assert!(!queued.refusal.message().is_empty()),
                Decision::Reject(refusal) => assert!(!refusal.message().is_empty()),
            }
        }
    }
});
