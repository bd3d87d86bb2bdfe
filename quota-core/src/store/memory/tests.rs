//! Tests of what only the store's inside shows.
//!
//! Floor 2. Invariant: see [`memory`](super).

use super::*;
use crate::account::Clause;
use crate::estimate::InputEstimate;
use crate::lease::{Deal, Draft};
use crate::meter::{Gauge, Rule};
use crate::policy::plan::{Hold, Window};
use crate::principal::Principal;
use crate::units::{Meter, Pico, Usd};

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
    assert!(ended.record.is_unresolved(), "{:?}", ended.record.state());
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
    let (claim, _) = store.insert(store.slab.place().unwrap(), choice.terms.clone(), Holds::default(), START);
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

/// One thread may have all spare buffers, wherever it begins to look for them: several threads begin at different ones.
#[test]
fn spares_are_found_however_many_are_in_use() {
    let rows = Rows::new(1);
    let all = || {
        let mut spares: Vec<_> = (0..256).map(|_| rows.claim()).collect();
        for spare in &mut spares {
            rows.update(spare, 0, |words| {
                words[1] += 1;
                Some(())
            });
        }
        spares.into_iter().for_each(|spare| rows.release(spare));
    };
    for turn in 1..=4 {
        std::thread::scope(|scope| scope.spawn(all).join().unwrap());
        assert_eq!(rows.read(0)[1], 256 * turn);
    }
}

/// A slab for two open leases has four slots and takes them by turns; a lease's id tells how often its slot was taken before.
#[test]
fn an_id_tells_the_round_and_the_slab_how_many_are_open() {
    let slab = Slab::new(2);
    let mut ids = Vec::new();
    for turn in 0..10 {
        assert_eq!(slab.open(), 0);
        let new = |id| unlimited().terms.open(id, START, Holds::default());
        let (claim, forgotten) = slab.insert(slab.place().expect("nothing is open"), new);
        assert_eq!((claim.id.generation, slab.open()), (turn / 4, 1));
        assert_eq!(forgotten.is_some(), turn >= 4, "those before are remembered");
        let second = slab.place().expect("one is open");
        assert!(slab.place().is_none(), "two are open");
        assert_eq!(slab.open(), 2, "a refused place does not count");
        drop(second);
        assert_eq!(slab.open(), 1, "nor one that was given up");
        let record = claim.now();
        let Ok(Ending::Next(next)) = record.end(&End::Cancel, START) else { panic!("it is held") };
        ids.push(slab.step(record, next).expect("nobody else ends it").claim.id);
    }
    let remembered = ids.iter().filter(|id| slab.get(**id).is_some()).count();
    assert_eq!(remembered, 4);
}

fn taken(store: &Memory, choice: Choice) -> (Record, Swept) {
    let (Reserved::Taken(record, ..), swept) = store.reserve_now(Reservation { choices: [choice].into() }, START)
    else {
        panic!("there is room");
    };
    (record, swept)
}

/// A lease that is forgotten is handed over unless both its admission and its ending are in the journal.
#[test]
fn a_forgotten_lease_is_handed_over_unless_it_is_told_whole() {
    let store = Memory::new(Bounds { rows: 1, open_leases: 2 });
    let mut untold = Vec::new();
    for (admission, ending) in [(false, false), (true, false), (false, true), (true, true)] {
        let (record, _) = taken(&store, unlimited());
        if admission {
            assert_eq!(record.claim.noted.first_and_owner(), (true, true));
        }
        let ended = store.end_now(Name::Claim(record.claim), |_| End::Cancel, START).unwrap().record;
        if ending {
            // Whoever tells an ending tells the admission before it, where nobody has.
            assert_eq!(ended.first_to_note_ending(), (true, !admission));
            assert_eq!(ended.first_to_note_ending(), (false, false));
        } else {
            untold.push(ended.claim.id);
        }
    }
    let mut swept = Vec::new();
    for _ in 0..4 {
        let (record, forgotten) = taken(&store, unlimited());
        swept.extend(forgotten.into_iter().map(|record| record.claim.id));
        store.end_now(Name::Claim(record.claim), |_| End::Cancel, START).unwrap();
    }
    assert_eq!(swept, untold);
}

/// A name that leads to a lease which is forgotten is free, also where nobody has taken it out.
#[test]
fn the_name_of_a_forgotten_lease_is_free() {
    let store = Memory::new(Bounds { rows: 1, open_leases: 2 });
    store.requests.pin().insert("r".into(), LeaseId { slot: 1, generation: 9, tag: 9 });
    let mut choice = unlimited();
    choice.terms.request_id = Some("r".into());
    let (record, _) = taken(&store, choice);
    assert_eq!(store.requests.pin().get("r"), Some(&record.claim.id));
}

/// A lineup that was bound to a row which has been dropped at rest reads the row that its scope has now.
#[test]
fn a_scope_is_read_where_it_is() {
    let store = Memory::new(Bounds { rows: 1, open_leases: 2 });
    let lineup = |scope: &str, now| {
        let (scope, column): (Arc<str>, _) =
            (scope.into(), Column { meter: Meter::Total, window: Window::Held, nth: 0 });
        let account = store.bind(&scope, std::slice::from_ref(&column), false, now).unwrap()[0];
        let clause = Clause {
            limit: "l".into(),
            meter: Meter::Total,
            column,
            rule: Rule::Gauge(Gauge::new(10)),
            hold: Hold::WorstCase,
            period: Period::default(),
            shadow: false,
            soft: None,
            passing: false,
        };
        Arc::new(Lineup::new([(account, scope, clause)]))
    };
    let later = |seconds: u64| Now::at(START.mono + seconds * 1_000_000_000);
    let before = lineup("a", START);
    lineup("b", later(2));
    assert_eq!(store.read_now(&before)[..], [0], "nowhere");
    let now = lineup("a", later(4));
    let mut choice = unlimited();
    choice.terms.deal = Arc::new(choice.terms.deal.on(now.clone()));
    choice.terms.output_ceiling = 7;
    taken(&store, choice);
    assert_eq!((store.read_now(&now)[0], store.read_now(&before)[0]), (7, 7));
}
