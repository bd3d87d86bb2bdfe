//! Tests of what only the store's inside shows.
//!
//! Floor 2. Invariant: see [`memory`](super).

use super::*;
use crate::estimate::InputEstimate;
use crate::lease::{Deal, Draft};
use crate::principal::Principal;
use crate::units::{Pico, Usd};

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
        rare: None,
        input_guess: 0,
        input: InputEstimate { expected: 0, reserve: 0, exact: true },
        output_ceiling: 0,
        output_expected: 0,
        expected_cost: Usd::ZERO,
        worst_cost: Pico(0),
        max_output_tokens: None,
        stream: false,
        text_only: true,
        choices: 1,
    };
    Choice { terms: Draft::new(terms), when: None }
}

/// A late settle can be counted before the abandonment that it corrects: the tenant's count is below zero meanwhile, and
/// another lease that is abandoned then is not taken as used in full.
#[test]
fn a_count_below_zero_is_no_crowd() {
    let store = Memory::new(Bounds { rows: 1, open_leases: 8 });
    let (Reserved::Taken(record, ..), _) = store.reserve_now(Reservation { choices: [unlimited()].into() }, START)
    else {
        panic!("there is room");
    };
    store.unresolved.pin().insert("t".into(), AtomicU64::new(0u64.wrapping_sub(1)));
    let ended = store.end_now(Name::Claim(record.claim), |_| End::Abandon(Cause::Dropped, None), START).unwrap();
    assert!(is_unresolved(&ended.record), "{:?}", ended.record.state());
    assert_eq!(store.unresolved_of(&ended.record), 0);
}

/// A thread that stands still between opening a lease and naming it can be overtaken by the same request and by the sweeper:
/// its lease is charged nothing in the end.
#[test]
fn a_lease_that_never_was_is_charged_nothing_though_it_was_swept() {
    let store = Memory::new(Bounds { rows: 1, open_leases: 8 });
    let mut choice = unlimited();
    choice.terms.request_id = Some("r".into());
    choice.terms.worst_cost = Pico(70_000);
    let (claim, _) = store.insert(store.slab.place().unwrap(), choice.terms.clone(), &mut Holds::new(), START);
    let (Reserved::Taken(first, ..), _) = store.reserve_now(Reservation { choices: [choice].into() }, START) else {
        panic!("there is room");
    };
    let late = Now::at(START.mono + (1 << 41));
    store.end_now(Name::Claim(claim.clone()), |_| End::Abandon(Cause::Expired, None), late).unwrap();
    let mut swept = Swept::new();
    let answer = store.open_lease(claim.clone(), 0, Vec::new(), &mut swept, late);
    assert!(matches!(answer, Reserved::Open(record) if record.claim.id == first.claim.id));
    let [record] = &swept[..] else { panic!("{swept:?}") };
    assert_eq!((record.claim.id, record.state_name(), record.cost()), (claim.id, "settled", Pico(0)));
    assert_eq!((record.charged(), store.unresolved_of(record), store.slab.open()), (Amounts::default(), 0, 1));
}

/// One thread may have all spare buffers, and looks for each no longer than it takes to pass those that are in use.
#[test]
fn spares_are_found_however_many_are_in_use() {
    let rows = Rows::new(1);
    let mut spares: Vec<_> = (0..256).map(|_| rows.claim()).collect();
    for spare in &mut spares {
        rows.update(spare, 0, |words| {
            words[1] += 1;
            Some(())
        });
    }
    spares.into_iter().for_each(|spare| rows.release(spare));
    assert_eq!(rows.read(0)[1], 256);
}
