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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::baseline::Baseline;
    use crate::load::{Folder, three_hogs};

    #[test]
    fn the_bound_holds_and_nothing_idles() {
        let lab = Lab::new(Folder::find(101));
        for seed in 0..3 {
            let setup = Setup { noise: seed == 1, progress: seed != 2, ..Setup::plain(seed) };
            lab.play(&anything(seed), Contender::OURS, &setup);
        }
        lab.play(&three_hogs(40, 101), Contender::OURS, &Setup::plain(101));
        assert!(lab.bounds().iter().all(|(_, part)| (0.0..=1.0).contains(part)), "{:?}", lab.bounds());
        assert_eq!((lab.bounds().len(), lab.idled()), (4, 0));
    }

    #[test]
    fn a_run_is_the_same_each_time_and_serves_all_that_it_says() {
        let lab = Lab::new(Folder::find(101));
        let load = three_hogs(20, 202);
        for contender in [Contender::OURS.expiring().refusing(), Contender::baseline(Baseline::Vtc).expiring()] {
            let [first, second] = [0, 1].map(|_| lab.play(&load, contender, &Setup::plain(303)));
            assert_eq!((&first.service, &first.engine_waits), (&second.service, &second.engine_waits));
            // What was completed was served, and what was served beyond it was begun.
            let prices = Setup::plain(303).prices;
            let finished: u64 = first.records.iter().filter_map(|r| Some(prices.work(r.input, r.finished?.1))).sum();
            let served: u64 = first.service.iter().sum();
            assert!(finished > 0 && finished <= served, "{finished} of {served}");
        }
    }
}
