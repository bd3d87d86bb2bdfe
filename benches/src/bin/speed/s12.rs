//! S12: admit + settle by the number of limits, and by the number of leases that are open meanwhile.

use benches::{Gated, LeasesOpen};

use super::measure::medians;
use benches::table::{Target, line};

pub fn run() {
    let mut by_limits = Vec::new();
    for limits in [1, 2, 4, 8, 16, 32] {
        let gated = Gated::limits(limits);
        let gate = gated.handle();
        let time = medians(&mut [("gate", Box::new(|| gated.turn(&gate, 0)))])[0];
        line("S12", &format!("admit + settle on {limits} limits"), time, "ns", Target::None);
        by_limits.push(time);
    }
    line("S12", "  on 32 beside on 8", by_limits[5] / by_limits[3], "x", Target::AtMost(4.0));
    let mut by_leases = Vec::new();
    for leases in [1, 1000, 100_000, 1_000_000] {
        let world = LeasesOpen::new(leases);
        let _open = world.open(leases);
        let gate = world.gated.handle();
        let time = medians(&mut [("gate", Box::new(|| world.gated.turn(&gate, 0)))])[0];
        line("S12", &format!("admit + settle beside {leases} open leases"), time, "ns", Target::None);
        by_leases.push(time);
    }
    line("S12", "  beside a million beside one", by_leases[3] / by_leases[0], "x", Target::AtMost(1.5));
}
