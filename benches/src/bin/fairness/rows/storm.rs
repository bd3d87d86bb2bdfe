//! Row 7: a storm of senders that give up and come back.

use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::{Lab, SEEDS};
use crate::table::{Line, anchor, goal, pair};
use crate::world::Setup;

/// Goodput, failed light requests, light requests, p50 and p99 of the light.
fn figures(lab: &Lab, contender: Contender, seed: u64) -> (f64, u64, u64, (f64, f64)) {
    let setup = Setup::plain(seed);
    let lights = lab.load("retry_storm").lights();
    let run = lab.run("retry_storm", contender, &setup);
    let (failed, all) = run.failures(&lights);
    (run.goodput(setup.prices), failed, all, run.ttft(&lights))
}

pub fn retry_storm(lab: &Lab) -> Vec<Line> {
    let (mut gain, mut failures, mut slowest) = (f64::INFINITY, 0, 0.0_f64);
    for seed in SEEDS {
        let (good, failed, _, (_, p99)) = figures(lab, Contender::OURS.expiring().refusing(), seed);
        let (plain, ..) = figures(lab, Contender::baseline(Baseline::Fcfs), seed);
        gain = gain.min(good / plain);
        failures = failures.max(failed);
        slowest = slowest.max(p99);
    }
    let mut lines = vec![
        goal(7, "retry storm: goodput over FCFS, worst seed", format!("{gain:.2}x"), ">= 1.4x", gain >= 1.4),
        goal(7, "retry storm: light failures, worst seed", failures.to_string(), "0", failures == 0),
        goal(7, "retry storm: light p99, worst seed", format!("{slowest:.2} s"), "<= 2.3 s", slowest <= 2.3),
    ];
    for (contender, was) in [
        (Contender::baseline(Baseline::Fcfs), "-"),
        (Contender::baseline(Baseline::Fcfs).expiring(), "loses 31 % of light"),
        (Contender::baseline(Baseline::Vtc), "-"),
        (Contender::baseline(Baseline::Vtc).expiring(), "-"),
        (Contender::OURS, "-"),
        (Contender::OURS.expiring(), "-"),
    ] {
        let (good, failed, all, waits) = figures(lab, contender, 101);
        let expiring = if contender.max_wait.is_some() { " + expiry" } else { "" };
        let figure = format!("{:.1} k/s, {:.1} %, {}", good / 1e3, failed as f64 * 100.0 / all as f64, pair(waits));
        lines.push(anchor(7, format!("  {}{expiring}: goodput, light lost", contender.name()), figure, was));
    }
    lines
}
