//! Runs the shared corpus: every file of `tests/vectors`, each case by the runner of its kind.
//!
//! The runners are thin, so that other languages run the same files. A file of a kind without a runner, a case that
//! no runner counted, or fewer cases than `COUNT` says, fails.

mod calendar;
mod config;
mod estimate;
mod keys;
mod metrics;
mod price;
mod queue;
mod respond;
mod scenario;
mod schedule;
mod sse;
mod tokens;
mod upstream;
mod usage;

use std::collections::BTreeMap;
use std::io::Write as _;
use std::path::Path;

use serde_json::Value;

/// Cases in the corpus; raised with every case that is added, so that none is skipped in silence.
const COUNT: usize = 789;

type Runner = fn(&Value) -> Result<(), String>;

const RUNNERS: &[(&str, Runner)] = &[
    ("calendar", calendar::run),
    ("config", config::run),
    ("estimate", estimate::run),
    ("keys", keys::run),
    ("metrics", metrics::run),
    ("price", price::run),
    ("queue", queue::run),
    ("respond", respond::run),
    ("scenario", scenario::run),
    ("schedule", schedule::run),
    ("sse", sse::run),
    ("tokens", tokens::run),
    ("upstream", upstream::run),
    ("usage", usage::run),
];

#[test]
fn corpus() {
    let dir = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/vectors");
    let mut files: Vec<_> = std::fs::read_dir(&dir).unwrap().map(|entry| entry.unwrap().path()).collect();
    files.sort();
    let (mut ran, mut failures, mut kinds) = (0, Vec::new(), BTreeMap::<String, usize>::new());
    for file in files.iter().filter(|file| file.extension().is_some_and(|e| e == "json")) {
        let name = file.file_name().unwrap().to_string_lossy().into_owned();
        let text = std::fs::read_to_string(file).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap_or_else(|e| panic!("{name}: {e}"));
        let kind = document["kind"].as_str().unwrap_or_else(|| panic!("{name}: no kind"));
        let (_, run) =
            RUNNERS.iter().find(|(k, _)| *k == kind).unwrap_or_else(|| panic!("{name}: no runner for {kind}"));
        for case in document["cases"].as_array().unwrap_or_else(|| panic!("{name}: no cases")) {
            let id = case["id"].as_str().unwrap_or_else(|| panic!("{name}: a case without id"));
            ran += 1;
            *kinds.entry(kind.to_owned()).or_default() += 1;
            if let Err(what) = run(case) {
                failures.push(format!("{name} {id}: {what}"));
            }
        }
    }
    assert!(failures.is_empty(), "{} of {ran} failed:\n{}", failures.len(), failures.join("\n"));
    assert_eq!(ran, COUNT, "COUNT is out of date");
    // The other languages print the same line. Past the test harness, which keeps what a passing test prints.
    let counts: Vec<String> = kinds.iter().map(|(kind, count)| format!("{kind} {count}")).collect();
    writeln!(std::io::stderr(), "corpus in Rust: {}; {ran} cases", counts.join(", ")).expect("standard error is there");
}
