//! S7: exact counts, beside the crate whose vocabularies are used; hostile texts of 100 kB.

use std::hint::black_box;

use quota_core::estimate::{Tokenizer, count_text};
use tiktoken_rs::o200k_base_singleton;

use crate::row::{Figure, Target, on_cpu, quick};
use crate::texts::{HOSTILE, hostile, ordinary};

const ROUNDS: usize = 100;
/// Of hostile texts, and how long these are.
const HOSTILE_ROUNDS: u32 = 20;
const HOSTILE_BYTES: usize = 100_000;
/// What is counted in the time that a request may take for it.
const PROMPT: usize = 2000;

fn count(text: &str) -> u64 {
    count_text(text, Tokenizer::O200kBase, "gpt-4o").expected
}

pub fn run() {
    let bpe = o200k_base_singleton();
    for (name, text) in ordinary() {
        assert_eq!(count(&text), bpe.count_ordinary(&text) as u64, "{name}");
        let [own, other] = quick(
            ROUNDS,
            [
                &mut || {
                    black_box(count(black_box(&text)));
                },
                &mut || {
                    black_box(bpe.count_ordinary(black_box(&text)));
                },
            ],
        );
        let speed = |nanos: f64| text.len() as f64 / nanos * 1000.0;
        Figure {
            row: "S7",
            what: format!("exact count, {name}"),
            value: speed(own),
            unit: "MB/s",
            target: Target::AtLeast(0.95 * speed(other)),
            beside: Some(("tiktoken-rs", speed(other))),
        }
        .print();
    }
    let [(_, prose), ..] = ordinary();
    let prompt = &prose[..PROMPT];
    let [own, other] = quick(
        10 * ROUNDS,
        [
            &mut || {
                black_box(count(black_box(prompt)));
            },
            &mut || {
                black_box(bpe.count_ordinary(black_box(prompt)));
            },
        ],
    );
    Figure {
        row: "S7",
        what: "exact count, 2 kB of prose".into(),
        value: own / 1000.0,
        unit: "us",
        target: Target::AtMost(120.0),
        beside: Some(("tiktoken-rs", other / 1000.0)),
    }
    .print();
    for (name, piece) in HOSTILE {
        let text = hostile(piece, HOSTILE_BYTES);
        let own = on_cpu(HOSTILE_ROUNDS, || {
            black_box(count(black_box(&text)));
        });
        let value = own / 1e6 * HOSTILE_BYTES as f64 / text.len() as f64;
        let target = Target::AtMost(40.0);
        Figure { row: "S7", what: format!("exact count, {name}"), value, unit: "ms/100 kB", target, beside: None }
            .print();
    }
}
