//! S1: admit + settle over eight limits in three scopes, on one thread, beside a floor and two peers.

use benches::{Floor, Gated, SixChecks, SixReservations};

use super::measure::medians;
use benches::table::{Target, line};

pub fn run() {
    let (gated, floor, checks, reservations) = (Gated::new(1), Floor::new(1), SixChecks::new(), SixReservations::new());
    let (gate, again) = (gated.handle(), gated.handle());
    let (mut turn, mut id) = (0u64, 0u64);
    let times = medians(&mut [
        ("gate", Box::new(|| gated.turn(&gate, 0))),
        (
            "with id",
            Box::new(|| {
                id += 1;
                gated.turn_with_id(&again, 0, &format!("request-{id}"));
            }),
        ),
        (
            "floor",
            Box::new(|| {
                turn += 1;
                floor.turn(0, turn);
            }),
        ),
        ("governor", Box::new(|| checks.turn(0))),
        ("limitador", Box::new(|| reservations.turn(0))),
    ]);
    let [gate, with_id, floor, governor, limitador] = times[..] else { unreachable!("five contenders") };
    line("S1", "admit + settle, eight limits", gate, "ns", Target::AtMost(300.0));
    line("S1", "  the same under a request id", with_id, "ns", Target::None);
    line("S1", "  a mutex around the words alone, no lease, no journal", floor, "ns", Target::None);
    line("S1", "  six checks of governor in a row, not atomic, not settled", governor, "ns", Target::None);
    line("S1", "  limitador's reservation and commit under six limits", limitador, "ns", Target::None);
    line("S1", "  admit + settle beside governor's six checks", gate / governor, "x", Target::AtMost(1.0));
    line("S1", "  limitador's six beside admit + settle", limitador / gate, "x", Target::AtLeast(100.0));
}
