//! S3: 100,000 tenants, a few of them much more often than most (Zipf's law), on one thread and on two.

use benches::{Dice, Gated, Zipf};

use super::measure::{medians, two_threads};
use benches::table::{Target, line};

const TENANTS: usize = 100_000;

pub fn run() {
    let gated = Gated::tenants(TENANTS);
    let zipf = Zipf::new(TENANTS);
    let gate = gated.handle();
    (0..TENANTS).for_each(|tenant| gated.turn(&gate, tenant));
    let mut dice = Dice(1 << 40 | 12345);
    let one = medians(&mut [("gate", Box::new(|| gated.turn(&gate, zipf.draw(&mut dice))))])[0];
    let two = two_threads(|thread| {
        let (gated, gate, zipf) = (&gated, gated.handle(), &zipf);
        let mut dice = Dice((1 << 41) | (777 + thread as u64));
        move || gated.turn(&gate, zipf.draw(&mut dice))
    });
    line("S3", "admit + settle over 100,000 tenants, one thread", one, "ns", Target::AtMost(1200.0));
    line("S3", "  each of two threads", two, "ns", Target::AtMost(2000.0));
    line("S3", "  what two do together beside one alone", 2.0 * one / two, "x", Target::AtLeast(1.5));
}
