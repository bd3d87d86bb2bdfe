//! Benchmarks of quota-core, each beside a floor or a peer that is measured in the same run.
//!
//! ```text
//! cargo bench -p benches                      everything, some five minutes
//! cargo bench -p benches --bench admit        admit + settle over eight limits
//! cargo bench -p benches --bench row          one row's update
//! cargo bench -p benches --bench estimate     counting input
//! cargo bench -p benches --bench journal      appending to the ring
//! cargo bench -p benches --bench stream       reading usage from a stream
//! make counts                                 instructions and allocations of admit + settle
//! make memory                                 bytes of rows, leases and tenants
//! make speed                                  admit + settle against its targets
//! make text                                   what a request's text costs on its way, see README.md
//! cargo run --release -p benches --bin fairness  the scheduler beside the published orders, see README.md
//! ```
//!
//! Times depend on the machine and on what else it runs; the ratios that each group prints at its end depend on them
//! less. Where two threads run, the time is that of one turn on each of them, so twice as much was done in it.

mod pairs;
mod peers;
pub mod table;

use std::path::PathBuf;
use std::sync::Barrier;
use std::time::{Duration, Instant};

pub use crate::pairs::{Floor, Gated, LeasesOpen, Peer, TENANTS, USERS};
pub use crate::peers::{SixChecks, SixReservations};
use criterion::Criterion;

/// Criterion as all benchmarks here use it, with its results under `target`.
pub struct Runner {
    /// The measuring itself.
    pub criterion: Criterion,
    results: PathBuf,
}

impl Runner {
    /// A runner that keeps its results in this folder: the target's own (`CARGO_TARGET_TMPDIR`).
    pub fn new(folder: &str) -> Runner {
        let results = PathBuf::from(folder).join("criterion");
        let criterion = Criterion::default()
            .output_directory(&results)
            .warm_up_time(Duration::from_millis(500))
            .measurement_time(Duration::from_secs(2))
            .sample_size(20)
            .configure_from_args();
        Runner { criterion, results }
    }

    /// Prints each of a group's results as a multiple of one of them.
    pub fn ratios(&self, group: &str, floor: &str) {
        let Some(base) = self.nanos(group, floor) else { return };
        println!("{group}, as multiples of {floor} ({base:.1} ns):");
        let mut names: Vec<String> = std::fs::read_dir(self.results.join(group))
            .map(|entries| entries.filter_map(|e| e.ok()?.file_name().into_string().ok()).collect())
            .unwrap_or_default();
        names.sort_unstable();
        for name in names {
            if let Some(nanos) = self.nanos(group, &name) {
                println!("  {name:<28} {nanos:>10.1} ns  {:>7.2}", nanos / base);
            }
        }
    }

    /// The median of the last run; nothing when the benchmarks only ran as a test.
    fn nanos(&self, group: &str, name: &str) -> Option<f64> {
        let text = std::fs::read_to_string(self.results.join(group).join(name).join("new/estimates.json")).ok()?;
        let estimates: serde_json::Value = serde_json::from_str(&text).ok()?;
        estimates["median"]["point_estimate"].as_f64()
    }
}

/// The time in which each of so many threads, started together, does `turns` turns of the work that `make` gives it.
pub fn together<W: FnMut()>(threads: usize, turns: u64, make: impl Fn(usize) -> W + Sync) -> Duration {
    let (ready, done) = (Barrier::new(threads + 1), Barrier::new(threads + 1));
    std::thread::scope(|scope| {
        for thread in 0..threads {
            let (ready, done, make) = (&ready, &done, &make);
            scope.spawn(move || {
                let mut work = make(thread);
                // Caches, lazily made parts and branch predictors are not what is measured.
                (0..turns.min(1000)).for_each(|_| work());
                ready.wait();
                (0..turns).for_each(|_| work());
                done.wait();
            });
        }
        ready.wait();
        let start = Instant::now();
        done.wait();
        start.elapsed()
    })
}

/// Numbers of which a few come much more often than most: the nth as often as 1/n (Zipf's law).
pub struct Zipf(Vec<f64>);

impl Zipf {
    /// Numbers below this.
    pub fn new(below: usize) -> Zipf {
        let mut sum = 0.0;
        let mut sums: Vec<f64> = (1..=below)
            .map(|n| {
                sum += 1.0 / n as f64;
                sum
            })
            .collect();
        sums.iter_mut().for_each(|up_to| *up_to /= sum);
        Zipf(sums)
    }

    /// The next number. They are scattered, so that the frequent ones are not neighbours in memory.
    pub fn draw(&self, dice: &mut Dice) -> usize {
        let at = dice.roll(1 << 52) as f64 / (1u64 << 52) as f64;
        let rank = self.0.partition_point(|up_to| *up_to < at).min(self.0.len() - 1);
        rank.wrapping_mul(7919) % self.0.len()
    }
}

/// Numbers that look random, the same ones each time.
pub struct Dice(pub u64);

impl Dice {
    /// The next number below `below`.
    pub fn roll(&mut self, below: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % below as u64) as usize
    }
}
