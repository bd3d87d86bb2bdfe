//! One update of a row of eight words, beside a mutex around the same words.

use std::sync::Mutex;

use benches::{Dice, Runner, together};
use quota_core::store::memory::Rows;

const COLD: usize = 100_000;

fn main() {
    let mut runner = Runner::new(env!("CARGO_TARGET_TMPDIR"));
    threads(&mut runner, "row-one-thread", 1, |_| 0);
    threads(&mut runner, "row-two-threads-same-row", 2, |_| 0);
    threads(&mut runner, "row-two-threads-two-rows", 2, |thread| thread);
    cold(&mut runner);
    runner.criterion.final_summary();
}

fn change(words: &mut [u64; 8]) -> Option<()> {
    words.iter_mut().for_each(|word| *word += 1);
    Some(())
}

fn update(rows: &Rows, row: usize) {
    let mut spare = rows.claim();
    rows.update(&mut spare, row as u32, change);
    rows.release(spare);
}

fn lock(rows: &[Mutex<[u64; 8]>], row: usize) {
    change(&mut rows[row].lock().expect("nobody panics here"));
}

fn threads(runner: &mut Runner, name: &str, threads: usize, row: fn(usize) -> usize) {
    let rows = Rows::new(2);
    let mutexes: Vec<Mutex<[u64; 8]>> = (0..2).map(|_| Mutex::default()).collect();
    let mut group = runner.criterion.benchmark_group(name);
    group.bench_function("mutex", |b| {
        b.iter_custom(|turns| {
            together(threads, turns, |thread| {
                let mutexes = &mutexes;
                move || lock(mutexes, row(thread))
            })
        });
    });
    group.bench_function("row", |b| {
        b.iter_custom(|turns| {
            together(threads, turns, |thread| {
                let rows = &rows;
                move || update(rows, row(thread))
            })
        });
    });
    group.finish();
    runner.ratios(name, "mutex");
}

fn cold(runner: &mut Runner) {
    let name = "row-100k-rows";
    let rows = Rows::new(COLD as u32);
    let mutexes: Vec<Mutex<[u64; 8]>> = (0..COLD).map(|_| Mutex::default()).collect();
    let mut dice = Dice(1 << 40 | 12345);
    let mut group = runner.criterion.benchmark_group(name);
    group.bench_function("mutex", |b| b.iter(|| lock(&mutexes, dice.roll(COLD))));
    group.bench_function("row", |b| b.iter(|| update(&rows, dice.roll(COLD))));
    group.finish();
    runner.ratios(name, "mutex");
}
