//! Fairness: the scheduler and the published orders on the same loads before the same simulated pool.
//!
//! ```text
//! cargo run --release -p benches --bin fairness              every row, then the plots
//! cargo run --release -p benches --bin fairness -- 1 3 20    these rows only
//! cargo run --release -p benches --bin fairness -- runs hog  all figures of one load, for each rule
//! ```

mod baseline;
mod contender;
mod dice;
mod expect;
mod lab;
mod load;
mod measure;
mod ours;
mod outcome;
mod plot;
mod prices;
mod rows;
mod rule;
mod table;
mod valve;
mod world;

use std::path::Path;
use std::process::ExitCode;

use baseline::Baseline;
use contender::Contender;
use lab::Lab;
use load::Folder;
use world::Setup;

/// The loads that are drawn.
const PLOTTED: [&str; 4] = ["three_hogs", "hog", "decode_bomb", "multi_spike"];

/// The rules that are drawn.
const DRAWN: [Baseline; 5] = [Baseline::Fcfs, Baseline::Wrr, Baseline::DrrInput, Baseline::Las, Baseline::Vtc];

fn main() -> ExitCode {
    let folder = Folder::find(lab::SEEDS[0]);
    println!("{}", folder.describe());
    let lab = Lab::new(folder);
    let words: Vec<String> = std::env::args().skip(1).collect();
    if words.first().is_some_and(|word| word == "runs") {
        words[1..].iter().for_each(|load| runs(&lab, load));
        return ExitCode::SUCCESS;
    }
    let wanted: Vec<u32> = words.iter().filter_map(|word| word.parse().ok()).collect();
    if wanted.len() < words.len() {
        eprintln!("rows are numbers from 1 to {}; or `runs` and names of loads", rows::ROWS.len());
        return ExitCode::FAILURE;
    }
    let mut all = Vec::new();
    for (number, name, row) in rows::ROWS.iter().filter(|row| wanted.is_empty() || wanted.contains(&row.0)) {
        let start = std::time::Instant::now();
        let lines = row(&lab);
        println!("\nrow {number}, {name} ({:.1} s)", start.elapsed().as_secs_f64());
        table::print(&lines);
        all.extend(lines);
    }
    table::sum(&all);
    if wanted.is_empty() {
        let plots = Path::new(env!("CARGO_MANIFEST_DIR")).join("plots");
        if let Err(error) = draw(&lab, &plots) {
            eprintln!("{}: {error}", plots.display());
            return ExitCode::FAILURE;
        }
        println!("plots are in {}", plots.display());
    }
    ExitCode::SUCCESS
}

/// Draws the plots of all [`PLOTTED`] loads.
fn draw(lab: &Lab, folder: &Path) -> std::io::Result<()> {
    std::fs::create_dir_all(folder)?;
    for load in PLOTTED {
        let contenders = std::iter::once(Contender::OURS).chain(DRAWN.map(Contender::baseline));
        let runs: Vec<_> = contenders.map(|contender| lab.run(load, contender, &Setup::plain(101))).collect();
        let runs: Vec<_> = runs.iter().map(|run| &**run).collect();
        plot::difference(&folder.join(format!("{load}-difference.svg")), &runs)?;
        plot::first_tokens(&folder.join(format!("{load}-first-token.svg")), &runs)?;
    }
    Ok(())
}

/// Prints everything that is measured of a load, a line for each rule.
fn runs(lab: &Lab, name: &str) {
    let setup = Setup::plain(101);
    let load = lab.load(name);
    let (lights, demand) = (load.lights(), load.demand(setup.prices.input, setup.prices.output));
    println!("\n{name}: {} tenants, {} requests", load.tenants.len(), load.jobs.len());
    println!(
        "{:<22}{:>10}{:>7}{:>7}{:>18}{:>9}{:>9}{:>8}{:>8}{:>16}{:>9}{:>8}{:>8}",
        "",
        "difference",
        "Jain",
        "jsat",
        "light p50/p99",
        "work/s",
        "out/s",
        "refused",
        "expired",
        "longest waits",
        "engine99",
        "thrown",
        "visits"
    );
    let baselines = Baseline::ALL.map(Contender::baseline);
    let ours = [Contender::OURS, Contender::OURS.expiring().refusing(), Contender::OURS.adaptive()];
    for contender in baselines.into_iter().chain(ours) {
        let run = lab.run(name, contender, &setup);
        println!(
            "{:<22}{:>10}{:>7.3}{:>7.3}{:>18}{:>9.0}{:>9.0}{:>8}{:>8}{:>16}{:>9.2}{:>8}{:>8.2}{:>7}",
            run.name,
            table::thousands(run.difference),
            run.jain,
            run.jsat(&demand),
            table::pair(run.ttft(&lights)),
            run.work_rate(),
            run.output_rate(),
            run.refused.iter().sum::<u64>(),
            run.expired.iter().sum::<u64>(),
            table::pair((run.longest_wait(0), run.longest_wait(1))),
            run.engine_wait(),
            run.preemptions,
            run.visits_per_pick(),
            run.widths.last().copied().unwrap_or(0),
        );
    }
}
