//! The heuristic's error by script: how its reserve and its guess stand to the exact count, over pieces of texts.
//!
//! A folder holds a text in each file; the name up to the first `.` is the script's or the language's in the table.

use std::collections::BTreeMap;
use std::path::Path;

use quota_core::estimate::{Tokenizer, count_text};

use crate::row::at_part;

/// Characters of a piece.
const PIECE: usize = 1500;

/// Guess and reserve by the exact count, of each piece.
#[derive(Default)]
struct Ratios {
    guess: Vec<f64>,
    reserve: Vec<f64>,
}

pub fn run(folders: &[&str]) {
    let mut all: BTreeMap<String, [Ratios; 2]> = BTreeMap::new();
    for folder in folders {
        for entry in std::fs::read_dir(folder).unwrap_or_else(|why| panic!("{folder}: {why}")) {
            let path = entry.unwrap_or_else(|why| panic!("{folder}: {why}")).path();
            let text = std::fs::read_to_string(&path).unwrap_or_else(|why| panic!("{}: {why}", path.display()));
            let name = name(&path);
            let ratios = all.entry(name).or_default();
            let characters: Vec<char> = text.chars().collect();
            for piece in characters.chunks_exact(PIECE) {
                add(ratios, &piece.iter().collect::<String>());
            }
        }
    }
    println!("{:<22}{:>7}  {:>22}  {:>22}", "", "pieces", "o200k_base", "cl100k_base");
    println!("{:<29}  {:>11}{:>11}  {:>11}{:>11}", "", "guess", "reserve", "guess", "reserve");
    for (name, ratios) in &mut all {
        print!("{name:<22}{:>7}", ratios[0].guess.len());
        for Ratios { guess, reserve } in ratios {
            if guess.is_empty() {
                continue;
            }
            let range = |values: &mut Vec<f64>| {
                let percent = |part, values: &mut Vec<f64>| (at_part(values, part) - 1.0) * 100.0;
                format!("{:+.0}..{:+.0} %", percent(0.05, values), percent(0.95, values))
            };
            print!("  {:>11}{:>11}", range(guess), range(reserve));
        }
        println!();
    }
}

fn name(path: &Path) -> String {
    let name = path.file_name().map(|name| name.to_string_lossy().into_owned()).unwrap_or_default();
    name.split('.').next().unwrap_or_default().to_owned()
}

fn add(ratios: &mut [Ratios; 2], text: &str) {
    for (ratios, (model, tokenizer)) in
        ratios.iter_mut().zip([("gpt-4o", Tokenizer::O200kBase), ("gpt-4", Tokenizer::Cl100kBase)])
    {
        let exact = count_text(text, tokenizer, model).expected as f64;
        let estimate = count_text(text, Tokenizer::Heuristic, model);
        ratios.guess.push(estimate.expected as f64 / exact);
        ratios.reserve.push(estimate.reserve as f64 / exact);
    }
}
