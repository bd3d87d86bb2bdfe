//! S6: the heuristic, beside a scan of the same bytes; its instructions a byte on hostile texts of growing length.

use std::hint::black_box;

use quota_core::estimate::{Tokenizer, count_text};

use crate::count::instructions;
use crate::row::{Figure, Target, quick};
use crate::texts::{HOSTILE, hostile, ordinary};

const ROUNDS: usize = 200;
/// Lengths of hostile texts, in bytes.
const LENGTHS: [usize; 4] = [10_000, 100_000, 1_000_000, 10_000_000];
/// By how much a byte of the longest text may cost more than one of the shortest.
const LINEAR: f64 = 1.25;

pub fn run() {
    for (name, text) in ordinary() {
        let [heuristic, scan] = quick(
            ROUNDS,
            [
                &mut || {
                    black_box(count_text(black_box(&text), Tokenizer::Heuristic, "gpt-4o"));
                },
                &mut || {
                    black_box(black_box(&text).bytes().fold(0u64, |sum, byte| sum.rotate_left(1) ^ byte as u64));
                },
            ],
        );
        let speed = |nanos: f64| text.len() as f64 / nanos * 1000.0;
        let target = if name == "mixed" { 300.0 } else { 1000.0 };
        Figure {
            row: "S6",
            what: format!("heuristic, {name}"),
            value: speed(heuristic),
            unit: "MB/s",
            target: Target::AtLeast(target),
            beside: Some(("a scan", speed(scan))),
        }
        .print();
    }
    for (name, _) in HOSTILE {
        let count = |bytes: usize| instructions(&["count", "S6", name, &bytes.to_string()]);
        let cost = |bytes: usize, none: u64| Some((count(bytes)? - none) as f64 / bytes as f64);
        let costs = |none| LENGTHS.iter().map(|bytes| cost(*bytes, none)).collect::<Option<Vec<f64>>>();
        let Some(costs) = count(0).and_then(costs) else {
            return println!("S6   no valgrind: instructions are not counted");
        };
        Figure {
            row: "S6",
            what: format!("heuristic, {name}: a byte of 10 MB"),
            value: costs[3],
            unit: "Ir",
            target: Target::AtMost((costs[0] * LINEAR).ceil()),
            beside: Some(("one of 10 kB", costs[0])),
        }
        .print();
    }
}

/// What callgrind counts.
pub fn count(name: &str, bytes: usize) {
    let (_, piece) = HOSTILE.into_iter().find(|(known, _)| *known == name).expect("a hostile text");
    black_box(count_text(&hostile(piece, bytes), Tokenizer::Heuristic, "gpt-4o"));
}
