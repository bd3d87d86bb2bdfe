//! Rows 15 and 16, which look at all runs of ours: that nothing waited that could have gone, and that the bound holds.

use crate::contender::Contender;
use crate::dice::Dice;
use crate::lab::Lab;
use crate::load::{Recipe, Source};
use crate::table::{Line, goal};
use crate::world::Setup;

pub fn conservation(lab: &Lab) -> Vec<Line> {
    // If this row is run alone there is a run to look at.
    lab.run("three_hogs", Contender::OURS, &Setup::plain(101));
    let idled = lab.idled();
    vec![goal(15, "moments with the valve open, a fit, and nothing sent", idled.to_string(), "0", idled == 0)]
}

/// Random loads that are played for row 16.
const RANDOM: u64 = 40;

/// Tenants of any kind and weight, over half a minute or so.
fn anything(seed: u64) -> crate::load::Load {
    let mut dice = Dice::new(seed);
    let tenants = 2 + dice.roll() % 8;
    let sources = (0..tenants).map(|n| {
        let input = 10.0 * 10f64.powf(3.0 * dice.unit());
        let output = 10.0 * 10f64.powf(2.2 * dice.unit());
        // Each sends about a third of what the pool can do.
        let rate = (15_000.0 / (input + 2.0 * output)).min(200.0);
        Source::program(&format!("t{n}"), rate, input, output)
    });
    let mut load = Recipe(sources.collect()).draw(&format!("random {seed}"), 40, seed);
    for tenant in &mut load.tenants {
        tenant.weight = 1 + dice.roll() % 5;
    }
    load
}

pub fn bound(lab: &Lab) -> Vec<Line> {
    for seed in 0..RANDOM {
        let setup = Setup { noise: seed % 2 == 0, progress: seed % 3 != 0, ..Setup::plain(seed) };
        lab.play(&anything(seed), Contender::OURS, &setup);
    }
    let bounds = lab.bounds();
    let worst =
        bounds.iter().fold(("none".to_owned(), 0.0), |worst, run| if run.1 > worst.1 { run.clone() } else { worst });
    let what = format!("difference over the bound, {} runs, most: {}", bounds.len(), worst.0);
    vec![goal(16, what, format!("{:.2}", worst.1), "<= 1", worst.1 <= 1.0 && !bounds.is_empty())]
}
