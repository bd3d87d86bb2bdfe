//! Rows 13 and 14: how much the pool gets done, and whether the valve finds its size.

use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::{LOADS, Lab};
use crate::load::SECOND;
use crate::table::{Line, anchor, goal, pair};
use crate::valve::Width;
use crate::world::Setup;

pub fn throughput(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let mut lines = Vec::new();
    for load in LOADS {
        let ours = lab.run(load, Contender::OURS, &setup);
        // Lanes change the mix of what is served; tenants weighted as the lanes are have the same mix.
        let vtc = lab.run(&lab.by_weights(load), Contender::baseline(Baseline::Vtc), &setup);
        let rate = ours.output_rate() / vtc.output_rate();
        let what = format!("{load}: output over VTC's {:.0} tok/s", vtc.output_rate());
        lines.push(goal(13, what, format!("{rate:.3}"), ">= 0.99", rate >= 0.99));
    }
    lines
}

/// The five loads of the row: one each of long prompts, a mix of all, long answers, a burst of very long prompts, and a burst of
/// many tenants.
const FIVE: [&str; 5] = ["hog", "three_hogs", "decode_bomb", "longctx_spike", "multi_spike"];

/// Sizes of the static valve that are tried, of that of the pool.
const SIZES: [f64; 7] = [0.25, 0.5, 0.75, 1.0, 1.5, 2.0, 4.0];

pub fn adaptive(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let width = Width::of(&setup.shape);
    let mut lines = Vec::new();
    for name in FIVE {
        let lights = lab.load(name).lights();
        let run = lab.run(name, Contender::OURS.adaptive(), &setup);
        let (p50, _) = run.ttft(&lights);
        let best = SIZES
            .map(|size| (lab.run(name, Contender::OURS.behind(width.times(size)), &setup).work_rate(), size))
            .into_iter()
            .fold((0.0, 0.0), |best, tried| if tried.0 > best.0 { tried } else { best });
        let rate = run.work_rate() / best.0;
        let what = format!("{name}: work over that of the best static valve ({}x)", best.1);
        lines.push(goal(14, what, format!("{rate:.3}"), ">= 0.97", rate >= 0.97));
        lines.push(goal(14, format!("{name}: light p50"), format!("{p50:.2} s"), "<= 1.0 s", p50 <= 1.0));
    }
    lines.push(oversized(lab, &setup));
    lines.push(replica_lost(lab, &setup));
    lines
}

/// One of four replicas is lost from 200 s to 400 s, with what is in it; what the light tenants wait meanwhile.
fn replica_lost(lab: &Lab, setup: &Setup) -> Line {
    let setup = Setup { changes: vec![(200 * SECOND, Some(1)), (400 * SECOND, None)], ..setup.clone() };
    let run = lab.run("hog", Contender::OURS, &setup);
    let waits = run.ttft_between(&lab.load("hog").lights(), 200 * SECOND, 400 * SECOND);
    let at = |second: usize| run.widths.get(second).copied().unwrap_or(0);
    let what = format!("  hog, a replica lost: {} -> {} -> {} requests, light meanwhile", at(199), at(201), at(401));
    anchor(14, what, pair(waits), "-")
}

/// A valve that starts four times too wide: ten seconds after it is first cut it has to be at most a quarter above the size
/// of the pool, and for who arrives ten seconds after that it is as if it had never been.
///
/// What had been let in by then is inside the pool and can't be called back; it has to be worked off.
fn oversized(lab: &Lab, setup: &Setup) -> Line {
    let width = Width::of(&setup.shape);
    let load = lab.load("three_hogs");
    // It starts at a quarter of what it is told, so told sixteen times the size it starts at four times.
    let run = lab.run("three_hogs", Contender::OURS.adaptive().behind(width.times(16.0)), setup);
    let start = run.widths.first().copied().unwrap_or(0);
    let felt = run.widths.iter().position(|width| *width < start).unwrap_or(run.widths.len());
    let after = run.widths.get(felt + 10).copied().unwrap_or(u64::MAX);
    let least = run.widths.iter().skip(felt).min().copied().unwrap_or(0);
    let from = (felt as u64 + 20) * SECOND;
    let (p50, _) = run.ttft_between(&load.lights(), from, from + 60 * SECOND);
    let met = after as f64 <= 1.25 * width.requests as f64 && p50 <= 1.0;
    let what = format!("three_hogs from {start} requests: 10 s after the first cut (least {least}), light p50");
    goal(14, what, format!("{after}, {p50:.2} s"), "<= 320, <= 1.0 s", met)
}
