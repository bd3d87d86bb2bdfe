//! Counts what admit + settle costs in figures that do not vary with what else the machine does: allocations and bytes,
//! and, under callgrind, instructions.
//!
//! ```text
//! counts                  starts itself under valgrind and prints the table
//! counts turns <n> <row>  does n turns of a row; what callgrind counts
//! ```

use std::alloc::System;
use std::process::{Command, ExitCode};

use benches::Gated;
use quota_core::time::SystemClock;
use quota_core::{Lease, ManualClock};
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// Turns before anything is counted: caches and rings are full then.
const WARM: usize = 60_000;

/// What is counted: a name, and a world in which to do its turns.
const ROWS: [(&str, World); 6] = [
    ("admit-settle", || settle(Gated::new(2))),
    ("with-request-id", with_id),
    ("on-1-limit", || settle(Gated::limits(1))),
    ("on-32-limits", || settle(Gated::limits(32))),
    ("refuse", || refuse(Gated::exhausted(0, SystemClock::new()))),
    ("refuse-beside-60k", || refuse(Gated::exhausted(60_000, ManualClock::at(1 << 60)))),
];

type World = fn() -> Box<dyn FnMut()>;

fn settle(gated: Gated) -> Box<dyn FnMut()> {
    let gate = gated.handle();
    Box::new(move || gated.turn(&gate, 0))
}

fn with_id() -> Box<dyn FnMut()> {
    let gated = Gated::new(2);
    let (gate, mut id) = (gated.handle(), 0u64);
    Box::new(move || {
        id += 1;
        gated.turn_with_id(&gate, 0, &format!("request-{id}"));
    })
}

/// Beside leases that are open. Where there are many, what looked at them one by one would show; the clock stands then, or
/// every half minute a refusal that turns the wheel would look at them all, in some runs and not in others.
fn refuse((gated, open): (Gated, Vec<Lease>)) -> Box<dyn FnMut()> {
    let gate = gated.handle();
    Box::new(move || {
        std::hint::black_box(&open);
        gated.refusal(&gate, 0);
    })
}

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["turns", turns, row] => {
            let turns = turns.parse().expect("a number of turns");
            let (_, world) = ROWS.iter().find(|(name, _)| *name == row).expect("a row");
            let mut turn = world();
            (0..turns).for_each(|_| turn());
            ExitCode::SUCCESS
        }
        _ => table(),
    }
}

fn table() -> ExitCode {
    println!("{:<18}{:>14}{:>14}{:>10}", "a turn", "instructions", "allocations", "bytes");
    for (name, world) in ROWS {
        let mut turn = world();
        (0..WARM).for_each(|_| turn());
        let turns = 10_000;
        let region = Region::new(ALLOCATOR);
        (0..turns).for_each(|_| turn());
        let change = region.change();
        let instructions =
            instructions(name, 44_000).zip(instructions(name, 40_000)).map(|(more, less)| (more - less) / 4000);
        println!(
            "{name:<18}{:>14}{:>14.2}{:>10.0}",
            instructions.map_or("no valgrind".into(), |n| n.to_string()),
            change.allocations as f64 / turns as f64,
            change.bytes_allocated as f64 / turns as f64,
        );
    }
    ExitCode::SUCCESS
}

/// The instructions of this program with so many turns; `None` without valgrind.
fn instructions(row: &str, turns: u64) -> Option<u64> {
    let own = std::env::current_exe().ok()?;
    let run = Command::new("valgrind")
        .args(["--tool=callgrind", "--callgrind-out-file=/dev/null"])
        .arg(own)
        .args(["turns", &turns.to_string(), row])
        .output()
        .ok()?;
    let said = String::from_utf8_lossy(&run.stderr).into_owned();
    let line = said.lines().find_map(|line| line.split_once("Collected :"))?.1;
    line.trim().parse().ok()
}
