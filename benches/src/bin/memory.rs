//! Measures memory, as allocated, against the targets of row S5: by rows, by open leases, and by tenants that have asked once.

use std::alloc::System;

use benches::table::{self, Target, line};
use benches::{Gated, LeasesOpen};
use quota_core::store::memory::Rows;
use stats_alloc::{INSTRUMENTED_SYSTEM, Region, StatsAlloc};

#[global_allocator]
static ALLOCATOR: &StatsAlloc<System> = &INSTRUMENTED_SYSTEM;

/// What `make` leaves allocated.
fn kept<T>(make: impl FnOnce() -> T) -> (T, f64) {
    let region = Region::new(ALLOCATOR);
    let made = make();
    let change = region.change();
    // What was reallocated is in both already.
    (made, change.bytes_allocated as f64 - change.bytes_deallocated as f64)
}

fn main() {
    table::head();
    let rows = 1_000_000;
    let (_rows, bytes) = kept(|| Rows::new(rows));
    line("S5", "a row of seven accounts", bytes / f64::from(rows), "B", Target::AtMost(128.0));
    let leases = 50_000;
    let world = LeasesOpen::new(leases);
    let (_open, bytes) = kept(|| world.open(leases));
    line(
        "S5",
        "an open lease on eight limits, with its journal entry",
        bytes / leases as f64,
        "B",
        Target::AtMost(256.0),
    );
    let tenants = 1_000_000;
    let (gated, policy) = kept(|| Gated::tenants(tenants));
    let (_, asked) = kept(|| {
        let gate = gated.handle();
        (0..tenants).for_each(|tenant| gated.turn(&gate, tenant));
    });
    let each = |bytes: f64| bytes / tenants as f64;
    line("S5", "a tenant with eight limits: policy, names, rows", each(policy), "B", Target::None);
    line("S5", "  and once it has asked: routes, figures, accounts", each(asked), "B", Target::None);
    line("S5", "a million such tenants", (policy + asked) / f64::from(1 << 30), "GiB", Target::AtMost(1.0));
}
