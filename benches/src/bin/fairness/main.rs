//! Fairness: the scheduler and the published orders on the same loads before the same simulated pool.
#![allow(dead_code)]

mod baseline;
mod dice;
mod expect;
mod load;
mod measure;
mod outcome;
mod prices;
mod rule;
mod valve;
mod world;

use baseline::Baseline;
use load::Folder;
use valve::Width;
use world::{Setup, play};

fn main() {
    let folder = Folder::find(101);
    println!("{}", folder.describe());
    for name in std::env::args().skip(1) {
        let load = folder.synthetic(&name);
        let lights = load.lights();
        let setup = Setup::plain(101);
        let demand = load.demand(1, 2);
        for baseline in Baseline::ALL {
            let start = std::time::Instant::now();
            let rule = baseline.rule(setup.prices, Width::of(&setup.shape), None);
            let o = play(&load, &setup, &baseline.name(), rule);
            let (p50, p99) = o.ttft(&lights);
            println!(
                "{:<14}{:<18} diff {:>9.0} jain {:.3} jsat {:.3} light {:>7.2}/{:<7.2} work/s {:>6.0} out/s {:>5.0} pre {} engine {:.2} visits {:.2} cpu {:?}",
                load.name,
                o.name,
                o.difference,
                o.jain,
                o.jsat(&demand),
                p50,
                p99,
                o.work_rate(),
                o.output_rate(),
                o.preemptions,
                o.engine_wait(),
                o.visits_per_pick(),
                start.elapsed()
            );
        }
    }
}
