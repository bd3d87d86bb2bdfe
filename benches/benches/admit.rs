//! Admit + settle over eight limits, beside a mutex around eight words and eight limiters of `governor`.

use std::hint::black_box;

use benches::{Dice, Floor, Gated, Peer, Runner, TENANTS, USERS, together};

fn main() {
    let mut runner = Runner::new(env!("CARGO_TARGET_TMPDIR"));
    threads(&mut runner, "admit-one-thread", 1, |_| 0);
    threads(&mut runner, "admit-two-threads-same-user", 2, |_| 0);
    threads(&mut runner, "admit-two-threads-other-tenants", 2, |thread| thread);
    cold(&mut runner);
    runner.criterion.final_summary();
}

fn threads(runner: &mut Runner, name: &str, threads: usize, user: fn(usize) -> usize) {
    let (floor, peer, gated) = (Floor::new(TENANTS), Peer::new(), Gated::new(TENANTS));
    let mut group = runner.criterion.benchmark_group(name);
    group.bench_function("floor", |b| {
        b.iter_custom(|turns| {
            together(threads, turns, |thread| {
                let (floor, mut turn) = (&floor, 0);
                move || {
                    turn += 1;
                    floor.turn(user(thread), turn);
                }
            })
        });
    });
    group.bench_function("governor", |b| {
        b.iter_custom(|turns| {
            together(threads, turns, |thread| {
                let peer = &peer;
                move || peer.turn(user(thread) % TENANTS, user(thread))
            })
        });
    });
    group.bench_function("gate", |b| {
        b.iter_custom(|turns| {
            together(threads, turns, |thread| {
                let (gated, gate) = (&gated, gated.handle());
                move || gated.turn(&gate, user(thread))
            })
        });
    });
    group.bench_function("gate-with-request-id", |b| {
        b.iter_custom(|turns| {
            together(threads, turns, |thread| {
                let (gated, gate, mut turn) = (&gated, gated.handle(), 0u64);
                move || {
                    turn += 1;
                    gated.turn_with_id(&gate, user(thread), &format!("{thread}-{turns}-{turn}"));
                }
            })
        });
    });
    group.finish();
    runner.ratios(name, "floor");
}

fn cold(runner: &mut Runner) {
    let name = "admit-100k-users";
    let (floor, peer, gated) = (Floor::new(USERS), Peer::new(), Gated::new(USERS));
    let gate = gated.handle();
    (0..USERS).for_each(|user| gated.turn(&gate, user));
    let mut group = runner.criterion.benchmark_group(name);
    let mut dice = Dice(1 << 40 | 12345);
    let mut turn = 0;
    group.bench_function("floor", |b| {
        b.iter(|| {
            turn += 1;
            floor.turn(black_box(dice.roll(USERS)), turn);
        });
    });
    group.bench_function("governor", |b| {
        b.iter(|| {
            let user = dice.roll(USERS);
            peer.turn(user % TENANTS, user);
        });
    });
    group.bench_function("gate", |b| b.iter(|| gated.turn(&gate, dice.roll(USERS))));
    group.finish();
    runner.ratios(name, "floor");
}
