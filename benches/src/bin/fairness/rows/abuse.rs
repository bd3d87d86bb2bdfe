//! Row 17: what a tenant gains by not behaving.

use crate::baseline::Baseline;
use crate::contender::Contender;
use crate::lab::{Lab, SEEDS};
use crate::load::{Habit, Load, Recipe, Source};
use crate::table::{Line, anchor, goal};
use crate::world::Setup;

/// Tenants that behave, each with more to do than its share.
const HONEST: usize = 4;

/// Four honest tenants and one more of these sources, which comes first.
fn beside(name: &str, abuser: Vec<Source>, seed: u64) -> Load {
    let mut sources = abuser;
    sources.extend((1..=HONEST).map(|n| Source::chat(&format!("honest{n}"), 12.0)));
    Recipe(sources).draw(name, 600, seed)
}

/// The share of the first tenant over that of the mean of the others, between these seconds, less one.
fn extra(lab: &Lab, contender: Contender, load: &Load, setup: &Setup, spans: &[(usize, usize)]) -> f64 {
    let run = lab.play(load, contender, setup);
    let mut gained = vec![0.0; load.tenants.len()];
    for (from, until) in spans {
        for (gained, tenant) in gained.iter_mut().zip(0..) {
            *gained += (run.timeline[*until][tenant] - run.timeline[*from][tenant]) as f64;
        }
    }
    gained[0] / (gained[1..].iter().sum::<f64>() / HONEST as f64) - 1.0
}

/// What is done, and what it brings with a contender and a seed.
type Trick = (&'static str, fn(&Lab, Contender, u64) -> f64);

/// The moments at which the tenant that returns is there.
const RETURNS: [(usize, usize); 5] = [(60, 90), (180, 210), (300, 330), (420, 450), (540, 570)];

const TRICKS: [Trick; 5] = [
    ("is idle and returns with a burst", |lab, contender, seed| {
        let bursts = RETURNS.map(|(from, until)| Source::chat("abuser", 40.0).during(from as f64, until as f64));
        let load = beside("idle and return", bursts.into(), seed);
        extra(lab, contender, &load, &Setup::plain(seed), &RETURNS)
    }),
    ("splits into ten ids", |lab, contender, seed| {
        // Ten senders of one tenant, each of which sends as much as an honest tenant does.
        let ids = (0..10).map(|_| Source::chat("abuser", 12.0)).collect();
        let load = beside("ten ids", ids, seed);
        extra(lab, contender, &load, &Setup::plain(seed), &[(60, 600)])
    }),
    ("cancels after dispatch", |lab, contender, seed| {
        let mut load = beside("cancels", vec![Source::chat("abuser", 40.0)], seed);
        load.tenants[0].habit = Habit::CancelsAtFirstToken;
        extra(lab, contender, &load, &Setup::plain(seed), &[(60, 600)])
    }),
    ("declares an answer of one token", |lab, contender, seed| {
        let mut load = beside("one token", vec![Source::chat("abuser", 12.0)], seed);
        load.tenants[0].declares = Some(1);
        extra(lab, contender, &load, &Setup::plain(seed), &[(60, 600)])
    }),
    ("has one large request open at any time", |lab, contender, seed| {
        let mut load = beside("closed loop", vec![], seed);
        let mut abuser = crate::load::Tenant::new("abuser");
        abuser.habit = Habit::Closed { depth: 1, input: 12_000, output: 60 };
        load.tenants.insert(0, abuser);
        load.jobs.iter_mut().for_each(|job| job.tenant += 1);
        extra(lab, contender, &load, &Setup::plain(seed), &[(60, 600)])
    }),
];

pub fn abuse(lab: &Lab) -> Vec<Line> {
    let worst = |trick: &Trick, contender| {
        SEEDS.map(|seed| trick.1(lab, contender, seed)).into_iter().fold(f64::NEG_INFINITY, f64::max) * 100.0
    };
    let mut lines = Vec::new();
    for trick in &TRICKS {
        let gain = worst(trick, Contender::OURS);
        lines.push(goal(
            17,
            format!("{}: extra share, worst seed", trick.0),
            format!("{gain:.1} %"),
            "<= 5 %",
            gain <= 5.0,
        ));
    }
    for (baseline, was) in [(Baseline::VtcUnlifted, "83 % to the returner"), (Baseline::Vtc, "-")] {
        let gain = worst(&TRICKS[0], Contender::baseline(baseline));
        // Of all that is served while it is there.
        let share = (1.0 + gain / 100.0) / (1.0 + gain / 100.0 + HONEST as f64) * 100.0;
        let what = format!("  {}: {}", baseline.name(), TRICKS[0].0);
        lines.push(anchor(17, what, format!("{gain:.0} %, share {share:.0} %"), was));
    }
    lines
}
