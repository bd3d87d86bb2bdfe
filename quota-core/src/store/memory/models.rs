//! Models of the memory store's lock-free parts: loom runs each of them in every order that its threads could take.
//!
//! Floor 2. Invariant: what a model asserts holds in every interleaving with at most as many preemptions as it says.
//!
//! Run with `RUSTFLAGS="--cfg quota_loom" cargo test -p quota-core --lib --target-dir target/loom loom_`.
//! Under `cfg(quota_loom)` a row has one account, a wheel four buckets and a store three spare buffers. The number of
//! preemptions is bounded because all orders of three threads are too many; `LOOM_MAX_PREEMPTIONS` sets another bound.

use std::sync::Mutex;

use loom::thread;

use super::taking::Looked;
use super::*;
use crate::account::Clause;
use crate::estimate::InputEstimate;
use crate::lease::{Deal, Draft, Terms};
use crate::meter::{Gauge, Rule};
use crate::policy::plan::{Hold, Window};
use crate::principal::Principal;
use crate::sync::{AtomicU32, Ordering, TryCell};
use crate::units::{Meter, Pico, Usd};

const START: Now = Now::at(1 << 40);
const TICK: u64 = 1 << 30;

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

fn model(preemptions: usize, run: impl Fn() + Send + Sync + 'static) {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 10_000;
    builder.check(run);
}

fn store(rows: u32) -> Arc<Memory> {
    Arc::new(Memory::new(Bounds { rows, open_leases: 1 }))
}

/// A limit, as a lineup is made of it.
type Limited = (Account, Arc<str>, Clause);

/// A limit of `hard` total tokens in a scope of its own; a gauge, so that its word is the sum of what is held and used.
fn bound(store: &Memory, scope: &str, hard: u64) -> Limited {
    let scope: Arc<str> = scope.into();
    let column = Column { meter: Meter::Total, window: Window::Held, nth: 0 };
    let account = store.bind(&scope, std::slice::from_ref(&column), false, START).unwrap()[0];
    let clause = Clause {
        limit: scope.clone(),
        meter: Meter::Total,
        column,
        rule: Rule::Gauge(Gauge::new(hard)),
        hold: Hold::WorstCase,
        period: Period::default(),
        shadow: false,
        soft: None,
        passing: false,
    };
    (account, scope, clause)
}

fn terms(limits: Vec<Limited>) -> Terms {
    let deal = Deal {
        principal: Principal::builder("t").build(),
        model: "m".into(),
        group: "m".into(),
        lane: "".into(),
        price: None,
        ttl: 1,
        unresolved_ttl: u64::MAX,
        lineup: Arc::new(Lineup::new(limits)),
        tallies: Default::default(),
    };
    Terms {
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
    }
}

fn choice(limits: Vec<Limited>, amount: u64) -> Choice {
    Choice { terms: Draft::new(Terms { output_ceiling: amount, ..terms(limits) }), when: None }
}

/// Takes what a choice asks; the bound on open leases is not what these models are about.
fn take(store: &Memory, choice: &Choice) -> Result<(), Miss> {
    store.try_rows(Asking::Choice(choice), || true, &mut blank(choice), START)
}

fn blank(choice: &Choice) -> Holds {
    Holds::blank(choice.terms.deal.lineup.len())
}

fn admits(store: &Memory, limits: Vec<Limited>, amount: u64) -> bool {
    take(store, &choice(limits, amount)).is_ok()
}

/// A scope's word, and the leases that it counts.
fn state(store: &Memory, bound: &Limited) -> (u64, u64) {
    let words = store.rows.read(bound.0.row);
    (words[1], words[0] & 0xFF_FFFF)
}

#[test]
fn loom_row_is_read_whole_and_loses_no_update() {
    model(3, || {
        let rows = Arc::new(Rows::new(1));
        let writers = [(); 2].map(|()| {
            let rows = rows.clone();
            thread::spawn(move || {
                let mut spare = rows.claim();
                for _ in 0..2 {
                    rows.update(&mut spare, 0, |words| {
                        assert!(words.iter().all(|word| *word == words[0]), "a writer saw a mixture: {words:?}");
                        words.iter_mut().for_each(|word| *word += 1);
                        Some(())
                    });
                }
                rows.release(spare);
            })
        });
        let words = rows.read(0);
        assert!(words.iter().all(|word| *word == words[0]), "a reader saw a mixture: {words:?}");
        writers.into_iter().for_each(|writer| writer.join().unwrap());
        assert_eq!(rows.read(0), [4; row::WIDTH + 1], "an update was lost");
        let mut buffers = rows.buffers_in_use();
        buffers.sort_unstable();
        buffers.dedup();
        assert_eq!(buffers.len(), rows.buffers_in_use().len(), "a buffer has two owners");
    });
}

/// No account is taken past its hard amount, and where two take in the same order one of them is always admitted.
#[test]
fn loom_reserve_never_admits_too_much() {
    model(3, || {
        let store = store(2);
        let (a, b) = (bound(&store, "a", 3), bound(&store, "b", 5));
        let other = {
            let (store, limits) = (store.clone(), vec![a.clone(), b.clone()]);
            thread::spawn(move || admits(&store, limits, 2))
        };
        let mine = admits(&store, vec![a.clone(), b.clone()], 2);
        let other = other.join().unwrap();
        assert!(mine ^ other, "of two that don't fit together one is admitted: {mine} {other}");
        assert_eq!((state(&store, &a), state(&store, &b)), ((2, 1), (2, 1)));
    });
}

/// A request that fits in the end is refused only while another's partial taking is being undone, and such a refusal is
/// not given before trying again.
#[test]
fn loom_reserve_refuses_too_much_only_beside_an_undo() {
    static REFUSED_BESIDE_UNDO: Seen = Seen::NEVER;
    static ALL_THAT_FIT: Seen = Seen::NEVER;
    model(2, || {
        let store = store(2);
        let (a, b) = (bound(&store, "a", 1), bound(&store, "b", 1));
        let take = |limits: Vec<Limited>| {
            let store = store.clone();
            thread::spawn(move || admits(&store, limits, 1))
        };
        let both = take(vec![a.clone(), b.clone()]);
        let second = take(vec![b.clone()]);
        let first = admits(&store, vec![a.clone()], 1);
        let (both, second) = (both.join().unwrap(), second.join().unwrap());
        assert!(!(both && (first || second)), "never past a hard amount");
        assert_eq!(state(&store, &a).0, (both || first) as u64, "what was taken and undone leaves nothing");
        assert_eq!(state(&store, &b).0, (both || second) as u64);
        assert_eq!(state(&store, &a).1 + state(&store, &b).1, both as u64 * 2 + first as u64 + second as u64, "pins");
        assert!(both || second, "nobody but `both` undoes, and only for `second`");
        if !both && !first {
            assert!(second, "`both` undoes only because `second` came between");
            REFUSED_BESIDE_UNDO.again();
        }
        if !both && first && second {
            ALL_THAT_FIT.again();
        }
    });
    assert!(ALL_THAT_FIT.ever() && REFUSED_BESIDE_UNDO.ever(), "both ends are reached");
}

/// A taking that loses its room to a partial taking which is undone is tried again, and admitted.
#[test]
fn loom_reserve_tries_again_after_an_undo() {
    static TRIED_AGAIN: Seen = Seen::NEVER;
    model(3, || {
        let store = store(2);
        let (a, b) = (bound(&store, "a", 1), bound(&store, "b", 0));
        let other = {
            // A look that found room on `b` before it went: it takes `a`, misses `b`, and gives `a` back.
            let (store, a, b) = (store.clone(), a.clone(), b.clone());
            thread::spawn(move || {
                let choice = choice(vec![a, b], 1);
                let took = store.take(Asking::Choice(&choice), &Looked::new(), &mut blank(&choice), START);
                assert!(took.is_err());
            })
        };
        let mine = choice(vec![a.clone()], 1);
        let (asking, mut rows, mut holds) = (Asking::Choice(&mine), Looked::new(), blank(&mine));
        let looked = store.look(asking, &mut rows, &mut holds, START);
        let first = looked.and_then(|()| store.take(asking, &rows, &mut holds, START));
        let raced = matches!(first, Err(Miss::Raced(_)));
        if first.is_err() && take(&store, &mine).is_ok() && raced {
            TRIED_AGAIN.again();
        }
        other.join().unwrap();
        let (word, pins) = state(&store, &a);
        assert!(word == pins && word <= 1, "{word} held by {pins}");
        assert_eq!(state(&store, &b), (0, 0));
    });
    assert!(TRIED_AGAIN.ever(), "a taking that had raced was admitted at its second try");
}

/// Two requests of one id at once: one is admitted, the other finds that lease, and what it took meanwhile is given back.
#[test]
fn loom_duplicates_are_taken_once() {
    static OTHER_TOOK: Seen = Seen::NEVER;
    model(2, || {
        let store = Arc::new(Memory::new(Bounds { rows: 1, open_leases: 2 }));
        let limit = bound(&store, "a", 10);
        let ask = |limit: Limited| {
            let mut choice = choice(vec![limit], 1);
            choice.terms.request_id = Some("r".into());
            Reservation { choices: [choice].into() }
        };
        let other = {
            let (store, asked) = (store.clone(), ask(limit.clone()));
            thread::spawn(move || store.reserve_now(asked, START).0)
        };
        let answers = [store.reserve_now(ask(limit.clone()), START).0, other.join().unwrap()];
        let (taken, found) = match &answers {
            [Reserved::Taken(taken, ..), Reserved::Open(found)] => (taken, found),
            [Reserved::Open(found), Reserved::Taken(taken, ..)] => (taken, found),
            other => panic!("{other:?}"),
        };
        assert!(Arc::ptr_eq(&taken.claim, &found.claim));
        assert_eq!((state(&store, &limit), store.slab.open()), ((1, 1), 1), "what was taken twice is given back");
        let opened = (0..store.slab.slots()).filter(|slot| store.slab.at(*slot).is_some()).count();
        if opened == 2 {
            OTHER_TOOK.again();
        }
    });
    assert!(OTHER_TOOK.ever(), "both have opened a lease somewhere");
}

/// Settling, expiring and cancelling at once: the lease leaves the held state once, what it held is corrected once, and
/// a repeat is given what the first ending did.
#[test]
fn loom_lease_ends_once() {
    static OUTCOMES: [Seen; 3] = [Seen::NEVER; 3];
    model(2, || {
        let store = store(1);
        let limit = bound(&store, "a", 10);
        let choices = [choice(vec![limit.clone()], 10)].into();
        let (Reserved::Taken(record, ..), _) = store.reserve_now(Reservation { choices }, START) else { panic!() };
        let name = Name::Lease(record.claim.id);
        let settle = || End::Settle { usage: Usage::tokens(3, 1), cost: Pico(4) };
        let end = |end: End| {
            let (store, name) = (store.clone(), name.clone());
            thread::spawn(move || store.end_now(name.clone(), |_| end, START).is_ok_and(|ended| !ended.repeat))
        };
        let (settled, cancelled) = (end(settle()), end(End::Cancel));
        let swept = store.sweep_now(Now::at(START.mono + 2 * TICK), 8);
        let (settled, cancelled) = (settled.join().unwrap(), cancelled.join().unwrap());
        let expired = !swept.is_empty();
        let (outcome, word, pins) = match (settled, cancelled, expired) {
            (true, false, false) => (0, 4, 0),
            (false, true, false) => (1, 0, 0),
            // Late.
            (true, false, true) => (2, 4, 0),
            other => panic!("(settled, cancelled, expired): {other:?}"),
        };
        OUTCOMES[outcome].again();
        assert_eq!(state(&store, &limit), (word, pins), "corrected once");
        let first = store.lookup(name.clone()).unwrap();
        let again = if cancelled { End::Cancel } else { settle() };
        let again = store.end_now(name.clone(), |_| again, START).unwrap();
        assert!(again.repeat && again.record.state() == first.state(), "the first receipt");
        assert_eq!(state(&store, &limit), (word, pins), "a repeat corrects nothing");
        assert_eq!(store.slab.open(), 0);
    });
    assert!(OUTCOMES.iter().all(Seen::ever), "each of the three wins somewhere");
}

fn held(id: LeaseId) -> Arc<Claim> {
    Draft::new(terms(Vec::new())).open(id, START, Holds::default())
}

fn open(slab: &Slab) -> Arc<Claim> {
    slab.insert(slab.place().unwrap(), held).0
}

fn close(slab: &Slab, claim: &Arc<Claim>) {
    let record = claim.clone().now();
    let Ok(Ending::Next(next)) = record.end(&End::Cancel, START) else { panic!() };
    assert!(slab.step(record, next).is_ok(), "nobody else ends it");
}

/// Four slots; one thread goes a whole round while another keeps a lease, reads it, and ends it.
#[test]
fn loom_slab_keeps_what_is_open() {
    model(3, || {
        let slab = Arc::new(Slab::new(2));
        let kept = open(&slab);
        let other = {
            let slab = slab.clone();
            thread::spawn(move || {
                for _ in 0..4 {
                    let claim = open(&slab);
                    assert!(slab.get(claim.id).is_some_and(|found| Arc::ptr_eq(&found, &claim)));
                    close(&slab, &claim);
                }
            })
        };
        let id = kept.id;
        assert!(slab.get(id).is_some_and(|found| found.is_open()), "an open lease is never forgotten");
        close(&slab, &kept);
        assert!(slab.get(id).is_none_or(|found| found.id == id), "an old id never finds a new lease");
        other.join().unwrap();
        assert_eq!(slab.open(), 0);
    });
}

/// Four slots; one thread is held up between finding a free slot and putting its lease there, another goes round.
#[test]
fn loom_slab_gives_a_slot_to_one_of_two() {
    model(2, || {
        let slab = Arc::new(Slab::new(2));
        let other = {
            let slab = slab.clone();
            thread::spawn(move || {
                for _ in 0..3 {
                    close(&slab, &open(&slab));
                }
                open(&slab)
            })
        };
        let mine = open(&slab);
        let other = other.join().unwrap();
        for claim in [mine, other] {
            assert!(slab.get(claim.id).is_some_and(|found| found.is_open()), "an open lease is never forgotten");
        }
        assert_eq!(slab.open(), 2);
        assert!(slab.place().is_none(), "no more than two are open");
        assert_eq!(slab.open(), 2, "a refused place does not count");
    });
}

/// A look beside a replacement: of two that meet, the one that was there first goes on, the other is told so, and what is
/// there then is whole.
#[test]
fn loom_cell_tells_who_would_have_to_wait() {
    static LOOK_TOLD: Seen = Seen::NEVER;
    static REPLACEMENT_TOLD: Seen = Seen::NEVER;
    static NEITHER: Seen = Seen::NEVER;
    model(3, || {
        let cell = Arc::new(TryCell::empty());
        assert_eq!(cell.try_room().map(|room| room.replace(Arc::new(1))), Some(None));
        let looks = cell.clone();
        let looker = thread::spawn(move || looks.try_load().map(|found| *found));
        let replaced = cell.try_room().map(|room| *room.replace(Arc::new(2)).expect("it is never empty"));
        let found = looker.join().unwrap();
        match (found, replaced) {
            (Some(1), None) => REPLACEMENT_TOLD.again(),
            (None, Some(1)) => LOOK_TOLD.again(),
            (Some(1 | 2), Some(1)) => NEITHER.again(),
            other => panic!("(found, replaced): {other:?}"),
        }
        let there = cell.try_load().map(|there| *there);
        assert_eq!(there, Some(1 + replaced.is_some() as u32), "nobody is in the way any more");
        assert!(cell.try_room().is_some());
    });
    let seen = [&LOOK_TOLD, &REPLACEMENT_TOLD, &NEITHER].map(Seen::ever);
    assert_eq!(seen, [true; 3], "(the look was told, the replacement was told, neither was)");
}

/// Two slots; somebody looks at an ended lease by its id while another needs its slot: the look finds that lease or
/// nothing, the new lease has a slot in any case, and whoever knows its id finds it.
#[test]
fn loom_slab_is_looked_at_beside_an_insertion() {
    static LOOKED_FIRST: Seen = Seen::NEVER;
    static LOOKED_LATER: Seen = Seen::NEVER;
    static PASSED_OVER: Seen = Seen::NEVER;
    model(3, || {
        let slab = Arc::new(Slab::new(1));
        let [ended, last] = [(); 2].map(|()| {
            let claim = open(&slab);
            close(&slab, &claim);
            claim.id
        });
        let looks = slab.clone();
        let looker = thread::spawn(move || {
            let found = looks.get(ended);
            assert!(found.as_ref().is_none_or(|found| found.id == ended && !found.is_open()));
            found.is_some()
        });
        let new = open(&slab);
        let passed_over = new.id.generation > ended.generation + 1;
        let found = looker.join().unwrap();
        assert!(slab.get(new.id).is_some_and(|found| Arc::ptr_eq(&found, &new)), "it has a slot");
        assert_eq!(new.id.slot, ended.slot, "the other slot's lease is the last that ended");
        assert!(slab.get(last).is_some_and(|found| found.id == last), "and is remembered");
        assert!(slab.get(ended).is_none(), "an old id never finds a new lease");
        assert_eq!(slab.open(), 1, "what was tried twice counts once");
        match (passed_over, found) {
            (true, found) => {
                assert!(found, "who was in the way has seen what it looked for");
                PASSED_OVER.again();
            }
            (false, true) => LOOKED_FIRST.again(),
            (false, false) => LOOKED_LATER.again(),
        }
        close(&slab, &new);
        assert_eq!(slab.open(), 0);
        close(&slab, &open(&slab));
    });
    let seen = [&LOOKED_FIRST, &LOOKED_LATER, &PASSED_OVER].map(Seen::ever);
    assert_eq!(seen, [true; 3], "(the look was first, the insertion was first, the insertion found a look in its way)");
}

/// Four slots: whoever is held up between finding one free and taking it keeps nobody from the lease that is in it meanwhile.
#[test]
fn loom_slab_finds_what_is_open_beside_who_comes_too_late() {
    model(3, || {
        let slab = Arc::new(Slab::new(2));
        let late = {
            let slab = slab.clone();
            thread::spawn(move || open(&slab))
        };
        for _ in 0..3 {
            close(&slab, &open(&slab));
        }
        let last = open(&slab);
        assert!(slab.get(last.id).is_some(), "an open lease is always found");
        late.join().unwrap();
    });
}

/// Two ways on from the held state at once, an extension and an ending: one of them is the first step, and the other
/// goes on from there or is told so.
#[test]
fn loom_lease_takes_one_first_step() {
    static ORDERS: [Seen; 2] = [Seen::NEVER; 2];
    model(3, || {
        let claim = held(LeaseId { slot: 0, generation: 0, tag: 0 });
        let other = {
            let claim = claim.clone();
            thread::spawn(move || {
                let record = claim.now();
                let more = record.raised(std::iter::empty());
                record.is_held() && record.step(more).is_ok()
            })
        };
        let ended = loop {
            let record = claim.clone().now();
            let Ok(Ending::Next(next)) = record.end(&End::Abandon(Cause::Dropped, None), START) else { panic!() };
            if let Ok(record) = record.step(next) {
                break record;
            }
        };
        let extended = other.join().unwrap();
        ORDERS[extended as usize].again();
        assert!(matches!(&*ended.state(), State::Unresolved(_)));
        assert_eq!(claim.now().state(), ended.state(), "nothing follows an extension that came too late");
    });
    assert!(ORDERS.iter().all(Seen::ever), "each of the two is first somewhere");
}

/// Endings in the lease's own words and in a box at once: one counts, whoever made another is told so, and who looks meanwhile
/// finds the lease held or that ending whole.
#[test]
fn loom_brief_ending_is_whole_or_does_not_count() {
    static ENDINGS: [Seen; 3] = [Seen::NEVER; 3];
    model(3, || {
        let claim = held(LeaseId { slot: 0, generation: 0, tag: 0 });
        let ends = |end: End, claim: &Arc<Claim>| {
            let record = claim.clone().now();
            match record.end(&end, START) {
                Ok(Ending::Next(next)) => record.step(next).is_ok(),
                Ok(Ending::Repeat) | Err(_) => false,
            }
        };
        let usage = Usage { output_reasoning: 5, ..Usage::tokens(3, 4) };
        let settle = |cost| End::Settle { usage: usage.clone(), cost: Pico(cost) };
        // The last costs too much for a word, so it always ends in a box.
        let costs = [6, 7, 1 << 70];
        let others: Vec<_> = [costs[0], costs[2]]
            .map(|cost| {
                let (claim, end) = (claim.clone(), settle(cost));
                thread::spawn(move || ends(end, &claim))
            })
            .into();
        let mine = ends(settle(costs[1]), &claim);
        let seen = claim.clone().now();
        let cost_of = |record: &Record| match &*record.state() {
            State::Settled(settled) => {
                assert_eq!((settled.at, settled.usage().unwrap()), (START, usage.clone()), "whole");
                Some(settled.cost.0)
            }
            other => panic!("{other:?}"),
        };
        let seen = (!seen.is_held()).then(|| cost_of(&seen)).flatten();
        let others: Vec<bool> = others.into_iter().map(|other| other.join().unwrap()).collect();
        let won = [others[0], mine, others[1]];
        assert_eq!(won.iter().filter(|won| **won).count(), 1, "{won:?}");
        let first = won.iter().position(|won| *won).unwrap();
        let last = claim.now();
        assert_eq!(cost_of(&last), Some(costs[first]));
        assert!(seen.is_none_or(|seen| seen == costs[first]), "what was found ended stays");
        ENDINGS[first].again();
    });
    assert!(ENDINGS.iter().all(Seen::ever), "each of the three wins somewhere");
}

/// A lease filed while a sweep passes its bucket is found by that sweep or by the next.
#[test]
fn loom_wheel_finds_what_is_filed_beside_a_sweep() {
    model(3, || {
        let (wheel, open) = (Arc::new(Wheel::new(2)), Arc::new(AtomicU32::new(0)));
        // Because of this one the sweep may take the other's bit before its hint is there.
        wheel.file(0, 5 * TICK, 4 * TICK);
        let filer = {
            let (wheel, open) = (wheel.clone(), open.clone());
            thread::spawn(move || {
                // ORDERING: relaxed; that the sweeper sees it is what filing promises.
                open.store(1, Ordering::Relaxed);
                wheel.file(1, 5 * TICK, 4 * TICK);
            })
        };
        let mut found = 0;
        let mut sweep = |now| {
            wheel.sweep(now, 8, |slot| {
                // ORDERING: relaxed, as above.
                assert!(slot == 0 || open.load(Ordering::Relaxed) == 1, "the lease is there");
                found += slot;
                wheel::Look::Ended
            });
        };
        sweep(6 * TICK);
        filer.join().unwrap();
        sweep(7 * TICK);
        assert!(found > 0, "lost for a round");
    });
}

/// A lease filed by a thread that was held up, after the wheel has turned past its bucket, is found by the next sweep.
#[test]
fn loom_wheel_finds_what_is_filed_late() {
    model(3, || {
        let wheel = Arc::new(Wheel::new(1));
        wheel.sweep(6 * TICK, 8, |_| unreachable!());
        wheel.sweep(7 * TICK, 8, |_| unreachable!());
        let filer = {
            let wheel = wheel.clone();
            thread::spawn(move || wheel.file(0, 5 * TICK, 4 * TICK))
        };
        filer.join().unwrap();
        let mut found = false;
        wheel.sweep(8 * TICK, 8, |_| {
            found = true;
            wheel::Look::Ended
        });
        assert!(found, "lost for a round");
    });
}

/// Two sweeps that may look at one lease each leave the rest to the next.
#[test]
fn loom_wheel_leaves_the_rest_to_the_next_sweep() {
    model(3, || {
        let wheel = Arc::new(Wheel::new(3));
        (0..3).for_each(|slot| wheel.file(slot, 5 * TICK, 4 * TICK));
        let found = Arc::new(Mutex::new([false; 3]));
        let sweep = |now, at_most| {
            let (wheel, found) = (wheel.clone(), found.clone());
            move || {
                wheel.sweep(now, at_most, |slot| {
                    found.lock().unwrap()[slot as usize] = true;
                    wheel::Look::Ended
                });
            }
        };
        let other = thread::spawn(sweep(5 * TICK, 1));
        sweep(6 * TICK, 1)();
        sweep(7 * TICK, 1)();
        other.join().unwrap();
        sweep(8 * TICK, 8)();
        assert_eq!(*found.lock().unwrap(), [true; 3], "lost for a round");
    });
}
