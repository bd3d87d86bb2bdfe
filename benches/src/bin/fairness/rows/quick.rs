//! Rows 3, 5, 6 and 9: how soon light tenants get their first token beside heavy ones.

use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::Lab;
use crate::load::Load;
use crate::measure::entitlements;
use crate::table::{Line, anchor, goal, pair};
use crate::world::Setup;

pub fn hog(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let lights = lab.load("hog").lights();
    let (p50, p99) = lab.run("hog", Contender::OURS, &setup).ttft(&lights);
    let mut lines =
        vec![goal(3, "hog: light p50 / p99", pair((p50, p99)), "<= 0.40 / 1.8 s", p50 <= 0.40 && p99 <= 1.8)];
    for (baseline, was) in [
        (Baseline::Vtc, "0.33 / 1.56 s"),
        (Baseline::Rpm(180), "22.9 / 51 s"),
        (Baseline::Fcfs, "169 / 311 s"),
        (Baseline::Rpm(60), "-"),
        (Baseline::Wrr, "-"),
    ] {
        let run = lab.run("hog", Contender::baseline(baseline), &setup);
        lines.push(anchor(3, format!("  {}", run.name), pair(run.ttft(&lights)), was));
    }
    lines
}

pub fn decode_bomb_untold(lab: &Lab) -> Vec<Line> {
    let setup = Setup { progress: false, ..Setup::plain(101) };
    let load = lab.load("decode_bomb");
    let (lights, demand) = (load.lights(), load.demand(setup.prices.input, setup.prices.output));
    let ours = lab.run("decode_bomb", Contender::OURS, &setup);
    let (jsat, (p50, _)) = (ours.jsat(&demand), ours.ttft(&lights));
    let other = |baseline| {
        let run = lab.run("decode_bomb", Contender::baseline(baseline), &setup);
        format!("{:.3}, {:.2} s", run.jsat(&demand), run.ttft(&lights).0)
    };
    vec![
        goal(5, "decode bomb, no progress told: jsat", format!("{jsat:.4}"), ">= 0.998", jsat >= 0.998),
        goal(5, "decode bomb, no progress told: light p50", format!("{p50:.2} s"), "<= 0.5 s", p50 <= 0.5),
        anchor(5, "  DRR on 95th percentile", other(Baseline::DrrPercentile), "0.960, 1.45 s"),
        anchor(5, "  VTC", other(Baseline::Vtc), "-"),
    ]
}

pub fn storms(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let mut lines = Vec::new();
    for (load, most, target, was) in [
        ("short_storm", (0.20, 1.3), "0.20 / 1.3 s", "0.17 / 1.2 s"),
        ("longctx_spike", (0.40, 6.5), "0.40 / 6.5 s", "0.41 / 6.3 s"),
        ("multi_spike", (0.20, 2.4), "0.20 / 2.4 s", "0.17 / 2.2 s"),
    ] {
        let lights = lab.load(load).lights();
        let (p50, p99) = lab.run(load, Contender::OURS, &setup).ttft(&lights);
        let vtc = lab.run(load, Contender::baseline(Baseline::Vtc), &setup);
        let what = format!("{load}: light p50 / p99");
        lines.push(goal(6, what, pair((p50, p99)), target, p50 <= most.0 && p99 <= most.1));
        lines.push(anchor(6, "  VTC", pair(vtc.ttft(&lights)), was));
    }
    lines
}

/// Tenants that ask for less than half of what the largest entitlement is.
pub fn modest(load: &Load, demand: &[u64], served: u64) -> Vec<usize> {
    let weights: Vec<u64> = load.tenants.iter().map(|tenant| tenant.weight).collect();
    let most = entitlements(demand, &weights, served).into_iter().fold(0.0, f64::max);
    (0..demand.len()).filter(|tenant| (demand[*tenant] as f64) < most / 2.0).collect()
}

pub fn zipf(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let load = lab.load("zipf300");
    let demand = load.demand(setup.prices.input, setup.prices.output);
    let figures = |contender| {
        let run = lab.run("zipf300", contender, &setup);
        let lights = modest(&load, &demand, run.service.iter().sum());
        (run.jsat(&demand), run.ttft(&lights).0)
    };
    let (jsat, p50) = figures(Contender::OURS);
    let vtc = figures(Contender::baseline(Baseline::Vtc));
    vec![
        goal(9, "Zipf 300: jsat", format!("{jsat:.4}"), ">= 0.998", jsat >= 0.998),
        goal(9, "Zipf 300: p50 of those below half a share", format!("{p50:.2} s"), "<= 1.3 s", p50 <= 1.3),
        anchor(9, "  VTC", format!("{:.3}, {:.2} s", vtc.0, vtc.1), "0.999, 0.93 s"),
    ]
}
