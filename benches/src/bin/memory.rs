//! Measures memory against the targets of row S5: rows, open leases, and tenants that have asked once, in all that is
//! remembered of them.
//!
//! ```text
//! memory                  all of it
//! memory tenants <n>      so many tenants alone
//! ```

use std::alloc::System;

use benches::table::{self, Target, line};
use benches::{Gated, LeasesOpen};
use quota_core::store::memory::Rows;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What something takes.
#[derive(Clone, Copy, Default)]
struct Taken {
    /// Bytes that were asked for and not given back.
    bytes: f64,
    /// In so many allocations.
    allocations: f64,
    /// Bytes by which the process has grown, as the system counts its pages; with what the allocator takes for itself and
    /// what it keeps of what was given back. 0 where the system doesn't tell.
    resident: f64,
}

impl Taken {
    fn of<T>(make: impl FnOnce() -> T) -> (T, Taken) {
        let before = resident();
        let region = Region::new(ALLOCATOR);
        let made = make();
        let change = region.change();
        // What was reallocated is in both already.
        let bytes = change.bytes_allocated as f64 - change.bytes_deallocated as f64;
        let allocations = change.allocations as f64 - change.deallocations as f64;
        (made, Taken { bytes, allocations, resident: resident() - before })
    }
}

/// The memory of the process that is in use, in bytes.
fn resident() -> f64 {
    status("VmRSS:")
}

/// A figure of the process, in bytes; 0 where the system doesn't tell.
fn status(name: &str) -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix(name));
    let kilobytes = line.and_then(|line| line.split_whitespace().next()?.parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) * 1024.0
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    table::head();
    match args.iter().map(String::as_str).collect::<Vec<_>>()[..] {
        ["tenants", count] => tenants(count.parse().expect("a number of tenants")),
        _ => {
            // First, while the process has held nothing else.
            tenants(1_000_000);
            rows();
            leases();
        }
    }
}

fn rows() {
    let rows = 1_000_000;
    let (_rows, taken) = Taken::of(|| Rows::new(rows));
    line("S5", "a row of seven accounts", taken.bytes / f64::from(rows), "B", Target::AtMost(128.0));
}

fn leases() {
    let leases = 50_000;
    let world = LeasesOpen::new(leases);
    let (_open, taken) = Taken::of(|| world.open(leases));
    let each = taken.bytes / leases as f64;
    line("S5", "an open lease on eight limits, with its journal entry", each, "B", Target::AtMost(256.0));
}

/// Tenants with eight limits in three scopes, and a principal of each: loaded, and once each has asked.
fn tenants(count: usize) {
    let before = resident();
    let (gated, loaded) = Taken::of(|| Gated::tenants(count));
    let (_, asked) = Taken::of(|| {
        let gate = gated.handle();
        (0..count).for_each(|tenant| gated.turn(&gate, tenant));
    });
    let highest = status("VmHWM:") - before;
    let none = || Target::None;
    let each = |of: f64| of / count as f64;
    for (when, taken) in [
        ("a tenant with eight limits, loaded: policy, principal, rows", loaded),
        ("  and once it has asked: names, accounts, figures", asked),
    ] {
        line("S5", when, each(taken.bytes), "B", none());
        line("S5", "    in so many allocations", each(taken.allocations), "", none());
        line("S5", "    as the process grows", each(taken.resident), "B", none());
    }
    let gib = |bytes: f64| bytes / f64::from(1 << 30);
    line("S5", &format!("{count} such tenants, as allocated"), gib(loaded.bytes + asked.bytes), "GiB", none());
    line("S5", "  as the process grows", gib(loaded.resident + asked.resident), "GiB", Target::AtMost(1.0));
    line("S5", "  at the highest, while they were loaded or asked", gib(highest), "GiB", none());
}
