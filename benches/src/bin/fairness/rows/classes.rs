//! Rows 10, 11 and 12: weights inside a lane, and lanes beside each other.

use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::{Lab, SEEDS};
use crate::load::{BATCH, INTERACTIVE, Load, Recipe, Source};
use crate::table::{Line, anchor, goal, pair};
use crate::world::Setup;

/// Four tenants of weights 1 to 4, each of which sends more than the pool can take by itself.
fn weighted(seed: u64) -> Load {
    let sources = (1..=4).map(|n| Source::chat(&format!("weight{n}"), 40.0)).collect();
    let mut load = Recipe(sources).draw("weights 1:2:3:4", 600, seed);
    for (tenant, weight) in load.tenants.iter_mut().zip(1..) {
        tenant.weight = weight;
    }
    load
}

/// The largest error of a share, relative to what it should be, from the first minute to the end.
fn share_error(lab: &Lab, contender: Contender) -> f64 {
    SEEDS.into_iter().fold(0.0, |worst, seed| {
        let run = lab.play(&weighted(seed), contender, &Setup::plain(seed));
        let error = |(share, weight): (f64, f64)| (share / (weight / 10.0) - 1.0).abs();
        run.shares(60, 600).into_iter().zip([1.0, 2.0, 3.0, 4.0]).map(error).fold(worst, f64::max)
    })
}

pub fn weights(lab: &Lab) -> Vec<Line> {
    let error = share_error(lab, Contender::OURS);
    let vtc = share_error(lab, Contender::baseline(Baseline::Vtc));
    vec![
        goal(
            10,
            "weights 1:2:3:4: share error, worst seed",
            format!("{:.2} %", error * 100.0),
            "<= 0.5 %",
            error <= 0.005,
        ),
        anchor(10, "  VTC", format!("{:.2} %", vtc * 100.0), "0.1 %"),
    ]
}

pub fn steady(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let load = lab.load("classes_steady");
    let (people, batch) = (load.named("inter"), load.named("batch"));
    let contender = Contender::OURS.expiring();
    let ours = lab.run("classes_steady", contender, &setup);
    let (p50, p99) = ours.ttft(&people);
    // Batch has all the rest where the pool does as much as under a rule that wastes nothing on lanes.
    let vtc = lab.run("classes_steady", Contender::baseline(Baseline::Vtc), &setup);
    let weighted = lab.run(&lab.by_weights("classes_steady"), Contender::baseline(Baseline::Vtc), &setup);
    let rest = ours.work_rate() / weighted.work_rate();
    let share: f64 = batch.iter().map(|tenant| ours.shares(0, 600)[*tenant]).sum();
    vec![
        goal(11, "classes A: interactive p50 / p99", pair((p50, p99)), "<= 0.8 / 3.6 s", p50 <= 0.8 && p99 <= 3.6),
        goal(
            11,
            format!("classes A: batch has the rest ({:.0} % of the work): work / VTC's", share * 100.0),
            format!("{rest:.3}"),
            ">= 0.99",
            rest >= 0.99,
        ),
        anchor(11, "  VTC, which knows no lanes", pair(vtc.ttft(&people)), "strict 0.53 / 3.3 s"),
    ]
}

pub fn overload(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let batch = lab.load("classes_overload").named("batch");
    let share = |contender| {
        // From ten seconds after the overload begins to its end.
        let shares = lab.run("classes_overload", contender, &setup).shares(160, 450);
        batch.iter().map(|tenant| shares[*tenant]).sum::<f64>()
    };
    // Without expiry both lanes stay full, as a share needs it.
    let ours = share(Contender::OURS);
    let expiring = lab.run("classes_overload", Contender::OURS.expiring(), &setup);
    let beyond = (expiring.longest_wait(INTERACTIVE) - 3.0).max(expiring.longest_wait(BATCH) - 60.0) * 1e3;
    let vtc = share(Contender::baseline(Baseline::Vtc));
    vec![
        goal(
            12,
            "classes B: batch share in the overload",
            format!("{ours:.3}"),
            "0.19 - 0.21",
            (0.19..=0.21).contains(&ours),
        ),
        goal(12, "classes B: longest wait beyond max_wait", format!("{beyond:.1} ms"), "<= 10 ms", beyond <= 10.0),
        anchor(12, "  VTC, which knows no lanes", format!("{vtc:.3}"), "strict 0.000, aging 0.354"),
    ]
}
