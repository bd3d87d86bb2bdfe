//! Prints the nanoseconds of admit + settle over eight limits beside a floor and a peer; the best of five rounds.

use benches::{Dice, Floor, Gated, Peer, TENANTS, USERS, together};

const ROUNDS: usize = 5;

/// The best of several rounds, in nanoseconds a turn.
fn best(threads: usize, turns: u64, mut round: impl FnMut(usize, u64) -> std::time::Duration) -> f64 {
    let times = (0..ROUNDS).map(|_| round(threads, turns).as_nanos() as f64 / turns as f64);
    times.fold(f64::INFINITY, f64::min)
}

fn main() {
    let turns: u64 = std::env::args().nth(1).and_then(|turns| turns.parse().ok()).unwrap_or(300_000);
    println!("nanoseconds of taking from eight limits and settling, best of {ROUNDS} rounds of {turns} turns a thread");
    println!("{:<34}{:>10}{:>14}{:>9}{:>9}", "", "ns a turn", "turns/s", "/floor", "/peer");
    // The second thread's user is so many after the first one's.
    for (name, threads, apart, users) in [
        ("1 thread", 1, 0, TENANTS),
        ("2 threads, same tenant and user", 2, 0, TENANTS),
        ("2 threads, different tenants", 2, 1, TENANTS),
        ("1 thread, 100,000 users at random", 1, 0, USERS),
    ] {
        let (floor, peer, gated) = (Floor::new(users), Peer::new(), Gated::new(users));
        let cold = users == USERS;
        let user = |thread: usize| {
            let mut dice = Dice(0x9E37_79B9_7F4A_7C15);
            move || if cold { dice.roll(USERS) } else { thread * apart }
        };
        let floor = best(threads, turns, |threads, turns| {
            together(threads, turns, |thread| {
                let (mut user, mut turn) = (user(thread), 0);
                let floor = &floor;
                move || {
                    turn += 1;
                    floor.turn(user(), turn);
                }
            })
        });
        let peer = best(threads, turns, |threads, turns| {
            together(threads, turns, |thread| {
                let (mut user, peer) = (user(thread), &peer);
                move || {
                    let user = user();
                    peer.turn(user % TENANTS, user);
                }
            })
        });
        let gate = best(threads, turns, |threads, turns| {
            together(threads, turns, |thread| {
                let (mut user, gated, gate) = (user(thread), &gated, gated.handle());
                move || gated.turn(&gate, user())
            })
        });
        println!("{name}");
        for (what, nanos) in [("floor", floor), ("peer", peer), ("gate", gate)] {
            let rate = threads as f64 * 1e9 / nanos;
            println!("  {what:<32}{nanos:>10.1}{rate:>14.0}{:>9.2}{:>9.2}", nanos / floor, nanos / peer);
        }
    }
}
