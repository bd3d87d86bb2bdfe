//! Row 20: whether the simulated A10G agrees with the published runs on a real one.

use quota_core::gpu::simulated::Shape;

use super::quick::modest;
use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::Lab;
use crate::load::{Job, Load, SECOND, Tenant};
use crate::measure::published_difference;
use crate::outcome::Outcome;
use crate::table::{Line, anchor, goal};
use crate::valve::Width;
use crate::world::Setup;

/// Tenants that send prompts of 256 tokens for answers of 256 at even distances: each at a rate, from a moment that the
/// published runs have, because counts in a window depend on it.
fn even(name: &str, tenants: &[(f64, f64)], sends_for: f64, until: u64) -> Load {
    let mut load = Load { name: name.into(), tenants: vec![], jobs: vec![], until: until * SECOND };
    for (tenant, (rate, first)) in tenants.iter().enumerate() {
        load.tenants.push(Tenant::new(&format!("t{tenant}")));
        let moments = (0..(rate * sends_for) as u64).map(|n| first + n as f64 / rate);
        load.jobs.extend(moments.map(|at| Job { at: (at * 1e9) as u64, tenant, input: 256, output: 256 }));
    }
    load.jobs.sort_by_key(|job| job.at);
    load
}

/// Two tenants that both ask for more than their half.
const TWO: [(f64, f64); 2] = [(1.5, 0.916), (3.0, 0.65)];

/// Eight that together ask for two and a half times what there is.
const EIGHT: [(f64, f64); 8] =
    [(0.4, 3.436), (0.4, 4.877), (0.4, 4.33), (0.6, 2.664), (0.6, 1.927), (0.6, 1.927), (0.6, 1.763), (0.6, 3.11)];

fn setup() -> Setup {
    Setup { shape: Shape { progress_every: 8, ..Shape::A10G }, ..Setup::plain(101) }
}

/// The server's own scheduler is what is compared, so nothing may wait inside the pool: the valve lets in what the memory
/// holds, 19 requests of 512 tokens in 10 000.
///
/// The server admits in lumps, which the recorded first tokens show to be of eleven and of eight requests. The pool's
/// constants and the lump are calibrated on these very runs, so the row says that the model can agree, not that it foresees:
/// of eight tenants, lumps of 4 and 8 are within 6 %; of 1 (222 / 207), 9 and 11 are not. Two tenants agree with lumps of 1 to 9.
fn run(lab: &Lab, load: &Load, baseline: Baseline) -> Outcome {
    let width = Width { requests: 19, tokens: u64::MAX, lump: 8 };
    lab.play(load, Contender::baseline(baseline).behind(width), &setup())
}

fn within(figure: f64, of: f64) -> bool {
    (figure / of - 1.0).abs() <= 0.06
}

pub fn hardware(lab: &Lab) -> Vec<Line> {
    let mut lines = Vec::new();
    let two = even("two tenants", &TWO, 600.0, 1700);
    let eight = even("eight tenants", &EIGHT, 360.0, 1000);
    for (load, most, mean, target) in
        [(&two, 455.0, 428.0, "within 6 % of 455 / 428"), (&eight, 248.0, 233.0, "within 6 % of 248 / 233")]
    {
        let outcome = run(lab, load, Baseline::Fcfs);
        let served = outcome.served(setup().prices);
        let (max, avg) = published_difference(&served, load.tenants.len());
        let last = served.iter().map(|request| request.last).fold(0.0, f64::max);
        let tokens = served.len() as f64 * 512.0 / last;
        let what = format!("A10G, FCFS, {}: max / avg ({tokens:.0} tok/s)", load.name);
        lines.push(goal(20, what, format!("{max:.0} / {avg:.0}"), target, within(max, most) && within(avg, mean)));
        let vtc = run(lab, load, Baseline::Vtc);
        let (max, avg) = published_difference(&vtc.served(setup().prices), load.tenants.len());
        let was = if load.tenants.len() == 2 { "200 / 114, oracle 88 / 10" } else { "oracle 125 / 44" };
        lines.push(anchor(20, format!("  VTC, {}", load.name), format!("{max:.0} / {avg:.0}"), was));
    }
    let arena = lab.load("arena27");
    let demand = arena.demand(1, 2);
    for (baseline, was) in [(Baseline::Fcfs, "57.8 s"), (Baseline::Vtc, "1.33 s")] {
        // Lengths differ, so the valve counts the memory: what is set aside is prompt and whole answer, which it does not
        // know; by the expectation it lets in about what fits.
        let width = Width { requests: 64, tokens: 7000, lump: 1 };
        let outcome = lab.play(&arena, Contender::baseline(baseline).behind(width), &setup());
        let lights = modest(&arena, &demand, outcome.service.iter().sum());
        let p50 = outcome.ttft_between(&lights, 0, arena.until).0;
        lines.push(anchor(20, format!("  {}, 27 tenants: light p50", baseline.name()), format!("{p50:.2} s"), was));
    }
    lines
}
