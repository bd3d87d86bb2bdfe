//! Measuring: medians of short stretches of work, taken in turn.
//!
//! A stretch lasts some 100 µs, so that most are not interrupted by whatever else the machine does; those that are, the
//! median leaves out. What is compared is measured stretch by stretch in turn, so that it meets the same machine.

use std::sync::Barrier;
use std::time::{Duration, Instant};

/// Stretches of each contender.
const STRETCHES: usize = 301;

const STRETCH: Duration = Duration::from_micros(100);

/// One thing to measure: its name, and one turn of it.
pub type Contender<'a> = (&'a str, Box<dyn FnMut() + 'a>);

/// The median nanoseconds of a turn of each.
pub fn medians(contenders: &mut [Contender<'_>]) -> Vec<f64> {
    let turns: Vec<u32> = contenders.iter_mut().map(|(_, turn)| turns_in(STRETCH, turn)).collect();
    let mut taken: Vec<Vec<f64>> = vec![Vec::new(); contenders.len()];
    for _ in 0..STRETCHES {
        for (at, (_, turn)) in contenders.iter_mut().enumerate() {
            taken[at].push(nanos(turns[at], turn));
        }
    }
    taken.into_iter().map(median).collect()
}

/// The median nanoseconds of a turn on each of two threads that take turns at the same time, the slower of the two.
pub fn two_threads<'a, T: FnMut()>(make: impl Fn(usize) -> T + Sync + 'a) -> f64 {
    let turns = turns_in(STRETCH, &mut make(0));
    let barrier = Barrier::new(2);
    let run = |thread: usize| {
        let mut turn = make(thread);
        (0..1000).for_each(|_| turn());
        let stretch = |_| {
            barrier.wait();
            nanos(turns, &mut turn)
        };
        (0..STRETCHES).map(stretch).collect::<Vec<f64>>()
    };
    let (first, second) = std::thread::scope(|scope| {
        let other = scope.spawn(|| run(1));
        (run(0), other.join().expect("it measures"))
    });
    median(first.into_iter().zip(second).map(|(a, b)| a.max(b)).collect())
}

fn turns_in(stretch: Duration, turn: &mut impl FnMut()) -> u32 {
    (0..2000).for_each(|_| turn());
    let one = (0..9).map(|_| nanos(50, turn)).fold(f64::INFINITY, f64::min);
    (stretch.as_nanos() as f64 / one).clamp(1.0, 100_000.0) as u32
}

fn nanos(turns: u32, turn: &mut impl FnMut()) -> f64 {
    let start = Instant::now();
    (0..turns).for_each(|_| turn());
    start.elapsed().as_nanos() as f64 / f64::from(turns)
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}
