//! The simulation by the thousand: seeds in their order, one a thread at a time, until one is broken.
//!
//! ```text
//! cargo run --release -p benches --bin simulate -- --seeds 5000            seeds 0 to 4999, on every core
//! cargo run --release -p benches --bin simulate -- --seeds 5000 --jobs 1   the same on one
//! cargo run --release -p benches --bin simulate -- --seed 17               one seed, and the last that happened in it
//! cargo run --release -p benches --bin simulate -- --seeds 300 --cost      what the gate takes, and the harness
//! ```

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use quota_core::testkit::simulation::{Load, Setup, Summary, Trace, run};
use quota_core::time::{Clock, SystemClock};

/// The arguments.
struct Args {
    first: u64,
    seeds: u64,
    /// Requests a seed.
    requests: u64,
    /// Threads.
    jobs: u64,
    /// Whether one seed is looked at by itself.
    alone: bool,
    /// Whether the time within the gate is measured.
    cost: bool,
}

impl Args {
    fn read(mut words: impl Iterator<Item = String>) -> Result<Args, String> {
        let jobs = std::thread::available_parallelism().map_or(1, |cores| cores.get() as u64);
        let requests = Setup::new(0).requests;
        let mut args = Args { first: 0, seeds: 1000, requests, jobs, alone: false, cost: false };
        while let Some(word) = words.next() {
            let mut number = || {
                let value = words.next().unwrap_or_default();
                value.parse::<u64>().map_err(|_| format!("{word} {value}: a number is needed"))
            };
            match word.as_str() {
                "--seed" => (args.first, args.seeds, args.alone) = (number()?, 1, true),
                "--from" => args.first = number()?,
                "--seeds" => args.seeds = number()?,
                "--requests" => args.requests = number()?.max(1),
                "--jobs" => args.jobs = number()?.max(1),
                "--cost" => args.cost = true,
                _ => return Err(format!("{word}: there are --seed, --from, --seeds, --requests, --jobs and --cost")),
            }
        }
        Ok(args)
    }
}

/// The sums of a load's seeds.
#[derive(Default)]
struct Sums {
    seeds: u64,
    all: Summary,
    /// The time of the threads, together.
    took: Duration,
}

/// What is told of a seed that is broken.
struct Failure {
    setup: Setup,
    found: String,
    trace: Trace,
}

/// What all threads have come to.
#[derive(Default)]
struct Found {
    sums: BTreeMap<&'static str, Sums>,
    /// The lowest seed that is broken.
    failure: Option<Failure>,
}

fn main() -> ExitCode {
    let args = match Args::read(std::env::args().skip(1)) {
        Ok(args) => args,
        Err(why) => {
            eprintln!("{why}");
            return ExitCode::FAILURE;
        }
    };
    let stopwatch = args.cost.then(|| Arc::new(SystemClock::new()) as Arc<dyn Clock>);
    let (next, end) = (AtomicU64::new(args.first), args.first + args.seeds);
    let (found, start) = (Mutex::new(Found::default()), Instant::now());
    let jobs = args.jobs.min(args.seeds.max(1));
    std::thread::scope(|scope| {
        for _ in 0..jobs {
            scope.spawn(|| work(&args, stopwatch.as_ref(), &next, end, &found));
        }
    });
    let took = start.elapsed();
    let found = found.into_inner().unwrap_or_else(PoisonError::into_inner);
    match found.failure {
        Some(failure) => failed(&failure),
        None => {
            table(&found.sums, took, jobs, stopwatch.as_deref());
            ExitCode::SUCCESS
        }
    }
}

/// Runs seeds until there are none, or one is broken. They are handed out in their order, and who has one ends it: of all
/// that would be broken the lowest is found, however many threads there are.
fn work(args: &Args, stopwatch: Option<&Arc<dyn Clock>>, next: &AtomicU64, end: u64, found: &Mutex<Found>) {
    loop {
        // ORDERING: relaxed; the number is all that is handed over.
        let seed = next.fetch_add(1, Ordering::Relaxed);
        if seed >= end {
            return;
        }
        let setup = Setup { seed, requests: args.requests, stopwatch: stopwatch.cloned() };
        let (mut trace, start) = (Trace::default(), Instant::now());
        // A panic of the gate is a finding like any other; its message is on stderr already.
        let result = match catch_unwind(AssertUnwindSafe(|| run(&setup, &mut trace))) {
            Ok(result) => result.map_err(|broken| broken.to_string()),
            Err(_) => Err(format!("seed {seed}: it panicked")),
        };
        let took = start.elapsed();
        let mut found = found.lock().unwrap_or_else(PoisonError::into_inner);
        match result {
            Ok(summary) => {
                if args.alone {
                    let (noted, digest) = (trace.noted(), trace.digest());
                    println!("{summary:#?}\nthe last of {noted} things that happened, digest {digest:016x}:\n{trace}");
                }
                found.sums.entry(summary.load.map_or("", Load::name)).or_default().add(&summary, took);
            }
            Err(why) => {
                // ORDERING: relaxed, as above.
                next.store(end, Ordering::Relaxed);
                if found.failure.as_ref().is_none_or(|other| seed < other.setup.seed) {
                    found.failure = Some(Failure { setup, found: why, trace });
                }
            }
        }
    }
}

fn failed(Failure { setup, found, trace }: &Failure) -> ExitCode {
    eprintln!("{found}\nthe last that happened:");
    eprint!("{trace}");
    let of = if setup.requests == Setup::new(0).requests {
        String::new()
    } else {
        format!(" --requests {}", setup.requests)
    };
    eprintln!("again: cargo run --release -p benches --bin simulate -- --seed {}{of}", setup.seed);
    ExitCode::FAILURE
}

impl Sums {
    fn add(&mut self, of: &Summary, took: Duration) {
        let all = &mut self.all;
        self.seeds += 1;
        self.took += took;
        all.asked += of.asked;
        all.admitted += of.admitted;
        all.refused += of.refused;
        all.queued += of.queued;
        all.left += of.left;
        all.ended += of.ended;
        all.repeats += of.repeats;
        all.conflicts += of.conflicts;
        all.dropped += of.dropped;
        all.expired += of.expired;
        all.extended += of.extended;
        all.letters += of.letters;
        all.faults += of.faults;
        all.lost += of.lost;
        all.outages += of.outages;
        all.reloads += of.reloads;
        all.corrections += of.corrections;
        all.balances += of.balances;
        all.replayed += of.replayed;
        all.longest_wait = all.longest_wait.max(of.longest_wait);
        all.simulated += of.simulated;
        all.in_gate += of.in_gate;
        all.calls += of.calls;
    }
}

/// What two readings of the clock around a call take, in nanoseconds: half of that within what they measure.
fn cost_of(stopwatch: &dyn Clock) -> f64 {
    let (start, rounds) = (stopwatch.now().mono, 1_000_000);
    for _ in 0..rounds {
        std::hint::black_box((stopwatch.now(), stopwatch.now()));
    }
    (stopwatch.now().mono - start) as f64 / f64::from(rounds)
}

fn table(sums: &BTreeMap<&str, Sums>, took: Duration, jobs: u64, stopwatch: Option<&dyn Clock>) {
    let mut total = Sums::default();
    println!(
        "{:<14}{:>7}{:>11}{:>11}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>10}{:>9}",
        "load",
        "seeds",
        "requests",
        "admitted",
        "refused",
        "waited",
        "expired",
        "repeats",
        "late",
        "dropped",
        "faults",
        "reloads",
        "hours",
        "ns each"
    );
    let line = |name: &str, of: &Sums| {
        let all = &of.all;
        println!(
            "{name:<14}{:>7}{:>11}{:>11}{:>11}{:>9}{:>9}{:>9}{:>9}{:>9}{:>8}{:>8}{:>10.1}{:>9.0}",
            of.seeds,
            all.asked,
            all.admitted,
            all.refused,
            all.queued,
            all.expired,
            all.repeats,
            all.letters,
            all.dropped,
            all.faults + all.outages,
            all.reloads,
            all.simulated as f64 / 3.6e12,
            of.took.as_nanos() as f64 / all.asked.max(1) as f64,
        );
    };
    for (name, of) in sums {
        line(name, of);
        total.add(&of.all, of.took);
        total.seeds += of.seeds - 1;
    }
    line("all", &total);
    let all = &total.all;
    println!(
        "{} requests in {:.1} s on {jobs} threads: {:.0} requests/s of wall time",
        all.asked,
        took.as_secs_f64(),
        all.asked as f64 / took.as_secs_f64(),
    );
    println!(
        "{} balances and {} replayed accounts compared, {} reservations lost on the way, {} corrections of the wall clock; \
         the longest wait {:.1} s",
        all.balances,
        all.replayed,
        all.lost,
        all.corrections,
        all.longest_wait as f64 / 1e9
    );
    let Some(stopwatch) = stopwatch else { return };
    let (asked, calls, clock) = (all.asked as f64, all.calls as f64, cost_of(stopwatch));
    let gate = all.in_gate as f64 - calls * clock / 2.0;
    let rest = total.took.as_nanos() as f64 - all.in_gate as f64 - calls * clock / 2.0;
    println!(
        "in the gate {:.0} ns a request ({:.2} calls of {:.0} ns), besides {:.0} ns: pool, agenda, ledger, and the calls \
         of the gate that are not measured (progress, heartbeats, views)",
        gate / asked,
        calls / asked,
        gate / calls,
        rest / asked
    );
}
