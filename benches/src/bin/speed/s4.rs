//! S4: refusing a tenant that is over its limit.

use benches::Gated;

use super::measure::medians;
use benches::table::{Target, line};
use quota_core::time::SystemClock;

pub fn run() {
    let (gated, spent) = (Gated::new(1), Gated::exhausted(0, SystemClock::new()).0);
    let (gate, over) = (gated.handle(), spent.handle());
    let times =
        medians(&mut [("settle", Box::new(|| gated.turn(&gate, 0))), ("refuse", Box::new(|| spent.refusal(&over, 0)))]);
    line("S4", "refusal of a tenant over its daily budget", times[1], "ns", Target::None);
    line("S4", "  beside admit + settle", times[1] / times[0], "x", Target::AtMost(0.5));
}
