//! S2: two threads on one hot tenant; and the rows alone, beside a mutex around each.

use std::sync::Mutex;

use benches::Gated;
use quota_core::store::memory::Rows;

use super::measure::{medians, two_threads};
use benches::table::{Target, line};

/// Rows that a pair of reservation and settlement changes, twice.
const ROWS: u32 = 3;

fn change(words: &mut [u64; 8]) -> Option<()> {
    words.iter_mut().for_each(|word| *word += 1);
    Some(())
}

fn swap(rows: &Rows) {
    for _ in 0..2 {
        let mut spare = rows.claim();
        (0..ROWS).for_each(|row| rows.update(&mut spare, row, change).unwrap_or_default());
        rows.release(spare);
    }
}

fn lock(rows: &[Mutex<[u64; 8]>]) {
    for _ in 0..2 {
        rows.iter().for_each(|row| change(&mut row.lock().expect("nobody panics here")).unwrap_or_default());
    }
}

pub fn run() {
    let gated = Gated::new(1);
    let gate = gated.handle();
    let one = medians(&mut [("gate", Box::new(|| gated.turn(&gate, 0)))])[0];
    let two = two_threads(|_| {
        let (gated, gate) = (&gated, gated.handle());
        move || gated.turn(&gate, 0)
    });
    let rows = Rows::new(ROWS);
    let swapped = two_threads(|_| || swap(&rows));
    let mutexes: Vec<Mutex<[u64; 8]>> = (0..ROWS).map(|_| Mutex::default()).collect();
    let locked = two_threads(|_| || lock(&mutexes));
    line("S2", "admit + settle on one tenant, each of two threads", two, "ns", Target::None);
    line("S2", "  what two do together beside one alone", 2.0 * one / two, "x", Target::AtLeast(1.0));
    line("S2", "  six changes of its rows by swap, each of two threads", swapped, "ns", Target::None);
    line("S2", "  the same by mutex, each of two threads", locked, "ns", Target::None);
    line("S2", "  by swap beside by mutex", swapped / locked, "x", Target::AtMost(1.0));
}
