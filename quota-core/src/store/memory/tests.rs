//! Tests of what only the store's inside shows.
//!
//! Floor 2. Invariant: see [`memory`](super).

use super::*;
use crate::estimate::InputEstimate;
use crate::lease::Deal;
use crate::principal::Principal;
use crate::units::{Meter, Pico};

const START: Now = Now::at(1 << 40);

fn unlimited() -> Choice {
    let deal = Deal {
        principal: Principal::builder("t").build(),
        model: "m".into(),
        group: "m".into(),
        lane: "".into(),
        price: None,
        ttl: 1 << 40,
        unresolved_ttl: u64::MAX,
        lineup: Arc::new(Lineup::new([])),
        tallies: Default::default(),
    };
    let terms = Terms {
        deal: Arc::new(deal),
        request_id: None,
        run_id: None,
        tool_calls: 0,
        input_guess: 0,
        input: InputEstimate { expected: 0, reserve: 0, exact: true },
        output_ceiling: 0,
        output_expected: 0,
        worst_cost: Pico(0),
        max_output_tokens: None,
        lesser: None,
        guessed_price: None,
        stream: false,
        text_only: true,
        choices: 1,
        service_tier: None,
    };
    let measures = [0; Meter::ALL.len()];
    Choice { terms, worst: measures, likely: measures, after: None, within_soft: SmallVec::new(), yields: None }
}

/// A late settle can be counted before the abandonment that it corrects: the tenant's count is below zero meanwhile, and
/// another lease that is abandoned then is not taken as used in full.
#[test]
fn a_count_below_zero_is_no_crowd() {
    let store = Memory::new(Bounds { rows: 1, open_leases: 8 });
    let (Reserved::Taken(record, ..), _) = store.reserve_now(Reservation { choices: vec![unlimited()] }, START) else {
        panic!("there is room");
    };
    store.unresolved.pin().insert("t".into(), AtomicU64::new(0u64.wrapping_sub(1)));
    let ended = store.end_now(&Name::Claim(record.claim), |_| End::Abandon(Cause::Dropped, None), START).unwrap();
    assert!(is_unresolved(&ended.record), "{:?}", ended.record.state());
    assert_eq!(store.unresolved_of(&ended.record), 0);
}
