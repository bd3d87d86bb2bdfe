//! Rows 1, 2, 4 and 8: how far tenants drift apart.

use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::{Lab, SEEDS};
use crate::load::{Load, three_hogs as draw};
use crate::table::{Line, anchor, goal, pair, thousands};
use crate::world::Setup;

pub fn three_hogs(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let ours = lab.run("three_hogs", Contender::OURS, &setup);
    let mut lines = vec![
        goal(1, "three hogs: difference", thousands(ours.difference), "<= 130 k", ours.difference <= 130e3),
        goal(1, "three hogs: Jain over 10 s", format!("{:.4}", ours.jain), ">= 0.995", ours.jain >= 0.995),
    ];
    for (baseline, was) in
        [(Baseline::Vtc, "73 k, 0.999"), (Baseline::DrrInput, "8162 k, 0.555"), (Baseline::Las, "539 k, 0.741")]
    {
        let run = lab.run("three_hogs", Contender::baseline(baseline), &setup);
        let figure = format!("{}, {:.3}", thousands(run.difference), run.jain);
        lines.push(anchor(1, format!("  {}", run.name), figure, was));
    }
    lines
}

/// The growth of the difference from five minutes to forty, and Jain's index of the long run; the worst seed.
fn grown(lab: &Lab, contender: Contender, loads: &[(Load, Load)]) -> (f64, f64) {
    let (mut growth, mut jain) = (0.0_f64, 1.0_f64);
    for ((short, long), seed) in loads.iter().zip(SEEDS) {
        let setup = Setup { noise: true, ..Setup::plain(seed) };
        let (short, long) = (lab.play(short, contender, &setup), lab.play(long, contender, &setup));
        growth = growth.max(long.difference / short.difference);
        jain = jain.min(long.jain);
    }
    (growth, jain)
}

pub fn growth(lab: &Lab) -> Vec<Line> {
    let loads = SEEDS.map(|seed| (draw(300, seed), draw(2400, seed)));
    let (growth, jain) = grown(lab, Contender::OURS, &loads);
    let mut lines = vec![
        goal(
            2,
            "growth of the difference, 300 to 2400 s, worst seed",
            format!("{growth:.2}x"),
            "<= 1.5x",
            growth <= 1.5,
        ),
        goal(2, "Jain over 10 s, 2400 s, worst seed", format!("{jain:.4}"), ">= 0.985", jain >= 0.985),
    ];
    let (growth, jain) = grown(lab, Contender::baseline(Baseline::DrrUnsettled), &loads);
    lines.push(anchor(2, "  DRR unsettled", format!("{growth:.1}x, {jain:.2}"), "8.1x, 0.85"));
    lines
}

pub fn decode_bomb(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let lights = lab.load("decode_bomb").lights();
    let ours = lab.run("decode_bomb", Contender::OURS, &setup);
    let (_, p99) = ours.ttft(&lights);
    let mut lines = vec![
        goal(4, "decode bomb: difference", thousands(ours.difference), "<= 250 k", ours.difference <= 250e3),
        goal(4, "decode bomb: light p99", format!("{p99:.2} s"), "<= 2.5 s", p99 <= 2.5),
    ];
    for (baseline, was) in
        [(Baseline::Vtc, "112 k, p99 1.9 s"), (Baseline::Las, "p99 36 s"), (Baseline::DrrInput, "p99 547 s")]
    {
        let run = lab.run("decode_bomb", Contender::baseline(baseline), &setup);
        let figure = format!("{}, {}", thousands(run.difference), pair(run.ttft(&lights)));
        lines.push(anchor(4, format!("  {}", run.name), figure, was));
    }
    lines
}

pub fn production(lab: &Lab) -> Vec<Line> {
    let setup = Setup::plain(101);
    let mut lines = Vec::new();
    for (load, most, target, was) in [
        ("m-large x6", 40e3, "<= 40 k", "31 k"),
        ("r1 x2.4", 200e3, "<= 200 k", "105 k"),
        ("mixed", 220e3, "<= 220 k", "161 k"),
    ] {
        let ours = lab.run(load, Contender::OURS, &setup);
        let vtc = lab.run(load, Contender::baseline(Baseline::Vtc), &setup);
        let what = format!("{load}: difference");
        lines.push(goal(8, what, thousands(ours.difference), target, ours.difference <= most));
        lines.push(anchor(8, "  VTC", thousands(vtc.difference), was));
    }
    lines
}
