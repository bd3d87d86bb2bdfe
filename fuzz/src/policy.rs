//! A policy of any text: an error with a place, or a policy that a gate can be made of and asked, and whose refusals are
//! sound answers.

use quota_core::respond::{Headers, Response, anthropic, headers, openai};
use quota_core::store::memory::{Bounds, Memory};
use quota_core::{Decision, Gate, ManualClock, Policy, Principal, Refusal, Request, Usage};

/// 2026-11-30T00:00:00Z.
const NOW: u64 = 1_795_996_800_000_000_000;

/// Reads a policy and asks a gate with it.
pub fn run(bytes: &[u8]) {
    let Ok(text) = std::str::from_utf8(bytes) else { return };
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
                Decision::Queue(queued) => answer(&queued.refusal),
                Decision::Reject(refusal) => answer(&refusal),
            }
        }
        let balances = gate.balances(&who, true);
        for headers in [headers::openai(&balances), headers::anthropic(&balances, NOW), headers::ietf(&balances)] {
            sound(&headers);
        }
    }
}

fn answer(refusal: &Refusal) {
    assert!(!refusal.message().is_empty());
    for Response { status, headers, .. } in [openai::response(refusal), anthropic::response(refusal)] {
        assert!((400..600).contains(&status), "{status}");
        sound(&headers);
    }
}

/// Whatever the policy's names hold, they don't break out of a header.
fn sound(headers: &Headers) {
    for (name, value) in headers {
        assert!(value.bytes().all(|byte| (b' '..=b'~').contains(&byte)), "{name}: {value:?}");
    }
}
