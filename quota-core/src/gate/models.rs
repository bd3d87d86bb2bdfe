//! Models of the gate while its policy is replaced: loom runs each of them in every order that its threads could take.
//!
//! Floor 3. Invariant: what a model asserts holds in every interleaving with at most as many preemptions as it says.
//!
//! The pointer to what is in force is arc-swap's, in whose place loom has an ideal cell: what is explored is that everything
//! else is read through one look at it. The maps that remember names are papaya's and take one step each. Run by `make loom`.

use std::sync::Mutex;

use loom::thread;

use super::*;
use crate::store::memory::Bounds;
use crate::time::ManualClock;
use crate::usage::Usage;

/// 2026-11-30T00:00:00Z.
const NOW: u64 = 1_795_996_800_000_000_000;

/// How often something was seen, over all interleavings of a model; outside of what loom explores.
struct Seen(Mutex<usize>);

impl Seen {
    const NEVER: Seen = Seen(Mutex::new(0));

    fn again(&self) {
        *self.0.lock().unwrap() += 1;
    }

    fn ever(&self) -> bool {
        *self.0.lock().unwrap() > 0
    }
}

/// The stack of a thread, in words: an admission needs more than the one page that loom gives.
const STACK: usize = 1 << 16;

fn spawn<T: Send + 'static>(run: impl FnOnce() -> T + Send + 'static) -> thread::JoinHandle<T> {
    thread::Builder::new().stack_size(STACK).spawn(run).unwrap()
}

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 100_000;
    let run = Arc::new(run);
    builder.check(move || {
        let run = run.clone();
        spawn(move || run()).join().unwrap();
    });
}

/// A policy of one tenant with so many slots, and a price and a ceiling that say which of the two policies it is.
fn policy(slots: u64, price: u64, most: u64) -> Policy {
    let text = format!(
        "models: {{m: {{price: {{input: {price}, output: {price}}}}}}}
tenants: {{t: {{max_inflight: {slots}, max_output_tokens: {most}, daily_budget_usd: {price}, models: {{m: {{}}}}}}}}"
    );
    Policy::from_yaml(&text).unwrap()
}

fn gate(policy: &Policy) -> Gate {
    let store = Memory::new(Bounds { rows: 4, open_leases: 4 });
    Gate::builder(policy.clone()).store(store).clock(ManualClock::at(NOW)).build()
}

fn admit(gate: &Gate) -> Decision<Lease<Memory>> {
    gate.admit(&Principal::builder("t").build(), &Request::chat("m").input_tokens(100))
}

/// How many slots are taken.
fn in_flight(gate: &Gate) -> u64 {
    let balances = gate.balances(&Principal::builder("t").build(), true);
    balances.iter().find(|balance| balance.meter == Meter::InFlight).expect("the tenant's limit").used
}

/// What one policy would hold of money for a request: at its price, for its ceiling.
fn held(price: u64, most: u64) -> u64 {
    // A USD a million tokens is 100 units a token.
    (100 + most) * price * 100
}

/// Beside a reload a request is decided by one policy whole: whoever is let in by the limits of the one that has two slots is
/// held by its ceiling and its price too. What was held before stays held, and the next request meets the new limits.
#[test]
fn loom_a_request_beside_a_reload_meets_one_policy() {
    static BY_OLD: Seen = Seen::NEVER;
    static BY_NEW: Seen = Seen::NEVER;
    // Either policy is the one that lets in, for a second look at what is in force would mix them in one direction only.
    for [old_slots, new_slots] in [[1, 2], [2, 1]] {
        let (old, new) = (policy(old_slots, 1, 1000), policy(new_slots, 2, 2000));
        model(2, move || {
            let gate = gate(&old);
            let Decision::Allow(first) = admit(&gate) else { panic!("an empty gate") };
            let reload = {
                let (gate, new) = (gate.clone(), new.clone());
                spawn(move || gate.reload(&new))
            };
            let second = admit(&gate);
            reload.join().unwrap();
            let second = match second {
                Decision::Allow(lease) => Some(lease),
                Decision::Reject(refusal) => {
                    assert_eq!((refusal.reason, refusal.shortages[0].hard), (Reason::ConcurrencyExceeded, 1));
                    None
                }
                other => panic!("{other:?}"),
            };
            if second.is_some() == (new_slots == 2) {
                BY_NEW.again()
            } else {
                BY_OLD.again()
            }
            let taken = 1 + second.is_some() as u64;
            assert_eq!(in_flight(&gate), taken, "a reload neither refills nor takes");
            assert_eq!(admit(&gate).refusal().is_none(), taken < new_slots, "the new limits hold for the next");
            let receipt = first.settle(Usage::tokens(1, 1)).unwrap();
            assert_eq!(receipt.held().get(Meter::Money), held(1, 1000), "an open lease keeps its terms");
            if let Some(second) = second {
                let receipt = second.settle(Usage::tokens(1, 1)).unwrap();
                let whole = if old_slots == 2 { held(1, 1000) } else { held(2, 2000) };
                assert_eq!(receipt.held().get(Meter::Money), whole, "let in by one policy, held by another");
            }
            assert_eq!(in_flight(&gate), 0);
        });
    }
    assert!(BY_OLD.ever() && BY_NEW.ever(), "either policy decides somewhere");
}

/// A lease that ends beside a reload gives back to the account that it was taken from, which the new policy goes on with.
#[test]
fn loom_a_lease_that_ends_beside_a_reload_frees_its_slot() {
    let (old, new) = (policy(1, 1, 1000), policy(1, 2, 2000));
    model(2, move || {
        let gate = gate(&old);
        let Decision::Allow(lease) = admit(&gate) else { panic!("an empty gate") };
        let reload = {
            let (gate, new) = (gate.clone(), new.clone());
            spawn(move || gate.reload(&new))
        };
        let receipt = lease.settle(Usage::tokens(100, 100)).unwrap();
        reload.join().unwrap();
        assert_eq!(receipt.cost().to_usd().units(), 200 * 100, "at the price that it was admitted at");
        assert_eq!(in_flight(&gate), 0);
        assert!(matches!(admit(&gate), Decision::Allow(_)), "the slot is free under the new policy");
        let balances = gate.balances(&Principal::builder("t").build(), true);
        let money = balances.iter().find(|balance| balance.meter == Meter::Money).expect("the tenant's budget").used;
        assert_eq!(
            money,
            200 * 100 + held(2, 2000),
            "what was spent under the old one, and what the new one holds or keeps"
        );
    });
}
