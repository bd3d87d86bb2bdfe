//! Seeds of the simulation: a few of each load, with everything that can be asked of a run.
//!
//! Thousands are run by `make simulate`.

use quota_core::testkit::simulation::{Broken, Load, Setup, Summary, Trace, run};

/// Requests a seed here, where nothing is optimised.
const REQUESTS: u64 = 400;

fn seed(seed: u64, requests: u64) -> (Summary, Trace) {
    let mut trace = Trace::default();
    match run(&Setup { requests, ..Setup::new(seed) }, &mut trace) {
        Ok(summary) => (summary, trace),
        Err(Broken { seed, found }) => panic!(
            "seed {seed}: {found}\n{trace}again: cargo run --release -p benches --bin simulate -- --seed {seed} \
             --requests {requests}"
        ),
    }
}

#[test]
fn every_load_keeps_its_books() {
    let (mut all, mut replayed) = (Summary::default(), [0; Load::ALL.len()]);
    for nth in 0..96 {
        let (summary, _) = seed(nth, REQUESTS);
        assert_eq!(summary.load, Some(Load::ALL[nth as usize % Load::ALL.len()]));
        assert!(summary.admitted > 0 && summary.balances > 0, "seed {nth}: {summary:?}");
        all.queued += summary.queued;
        all.left += summary.left;
        all.repeats += summary.repeats;
        all.conflicts += summary.conflicts;
        all.expired += summary.expired;
        all.extended += summary.extended;
        all.letters += summary.letters;
        all.lost += summary.lost;
        all.outages += summary.outages;
        all.reloads += summary.reloads;
        all.corrections += summary.corrections;
        replayed[nth as usize % Load::ALL.len()] += summary.replayed;
        all.refused += summary.refused;
    }
    // Nothing is proved of what did not happen.
    let happened = [
        ("queued", all.queued),
        ("left", all.left),
        ("repeats", all.repeats),
        ("conflicts", all.conflicts),
        ("expired", all.expired),
        ("extended", all.extended),
        ("letters", all.letters),
        ("lost", all.lost),
        ("outages", all.outages),
        ("reloads", all.reloads),
        ("corrections", all.corrections),
        ("refused", all.refused),
    ];
    for (what, count) in happened {
        assert!(count >= 5, "{what}: {count} in all seeds");
    }
    assert!(replayed.iter().all(|accounts| *accounts > 0), "accounts replayed by load: {replayed:?}");
}

#[test]
fn a_seed_is_the_same_run_each_time() {
    for nth in 0..12 {
        let ((first, trace), (again, same)) = (seed(nth, REQUESTS), seed(nth, REQUESTS));
        assert_eq!((&first, trace.digest(), trace.noted()), (&again, same.digest(), same.noted()), "seed {nth}");
        assert_ne!(trace.digest(), seed(nth + 100, REQUESTS).1.digest());
    }
}
