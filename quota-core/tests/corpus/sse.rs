//! Streams: what a streamed answer comes to, and which of its bytes pass, however they are cut.

use std::path::Path;

use quota_core::usage::{Dialect, Outcome, StreamEnd, StreamReader};
use serde_json::{Map, Value, json};

use crate::usage::normalized;

/// A case has `dialect`; `stream` (a text, or a list of texts with `repeat`ed ones) or `file` (of `fixtures/sse`);
/// perhaps `strip` and `max_event`; and `state`, with `normalized` if final, `code` if unresolved, `seen` if something is
/// known of it, `passed` if not all passes, and `failed`, `done`, `anomalies` where they are not false or 0. `output`, where
/// it is given, is the output so far before the stream was ended. `estimate` stands in for an input that is missing.
pub fn run(case: &Value) -> Result<(), String> {
    let bytes = stream(case)?;
    let whole = read(case, &bytes, &[bytes.len()])?;
    let mut cuts: Vec<Vec<usize>> = [1, 2, 3, 7, 64].iter().map(|size| vec![*size]).collect();
    if bytes.len() < 4096 {
        cuts.extend((1..bytes.len()).map(|at| vec![at, bytes.len()]));
    }
    for cut in cuts {
        let got = read(case, &bytes, &cut)?;
        if got != whole {
            return Err(format!("cut {cut:?}: got {got}, whole {whole}"));
        }
    }
    let mut wanted = case.as_object().ok_or("not an object")?.clone();
    for key in ["id", "about", "dialect", "stream", "file", "strip", "max_event", "estimate"] {
        wanted.remove(key);
    }
    match whole == Value::from(wanted.clone()) {
        true => Ok(()),
        false => Err(format!("got {whole}, wanted {}", Value::from(wanted))),
    }
}

fn stream(case: &Value) -> Result<Vec<u8>, String> {
    if let Some(file) = case["file"].as_str() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/sse").join(file);
        return std::fs::read(path).map_err(|error| format!("{file}: {error}"));
    }
    let mut bytes = Vec::new();
    for part in case["stream"].as_array().unwrap_or(&vec![case["stream"].clone()]) {
        match part {
            Value::String(text) => bytes.extend_from_slice(text.as_bytes()),
            part => {
                let text = part["repeat"].as_str().ok_or("stream")?;
                let times = part["times"].as_u64().ok_or("times")?;
                bytes.extend_from_slice(text.repeat(times as usize).as_bytes());
            }
        }
    }
    Ok(bytes)
}

/// What is read when the stream comes in slices of these sizes, the last size over and over.
fn read(case: &Value, bytes: &[u8], sizes: &[usize]) -> Result<Value, String> {
    let dialect = case["dialect"].as_str().and_then(Dialect::from_name).ok_or("no such dialect")?;
    let mut reader = StreamReader::new(dialect).strip_usage(case["strip"] == true);
    if let Some(bound) = case["max_event"].as_u64() {
        reader = reader.max_event(bound as usize);
    }
    let (mut passed, mut rest, mut at) = (Vec::new(), bytes, 0);
    while !rest.is_empty() {
        let size = sizes[at.min(sizes.len() - 1)].clamp(1, rest.len());
        reader.feed(&rest[..size], |segment| passed.extend_from_slice(segment));
        (rest, at) = (&rest[size..], at + 1);
    }
    let output = reader.output_so_far();
    let end = reader.finish(|segment| passed.extend_from_slice(segment));
    let estimate = case["estimate"].as_u64().unwrap_or(0);
    let mut got = shown(end, estimate);
    if case.get("output").is_some() {
        got.insert("output".into(), output.into());
    }
    if passed != bytes {
        got.insert("passed".into(), String::from_utf8(passed).map_err(|error| error.to_string())?.into());
    }
    Ok(got.into())
}

fn shown(end: StreamEnd, estimate: u64) -> Map<String, Value> {
    let mut got = Map::new();
    match end.outcome {
        Outcome::Final(usage) => {
            got.insert("state".into(), json!("final"));
            got.insert("normalized".into(), normalized(&usage.or_input(estimate)));
        }
        Outcome::Unresolved(why) => {
            got.insert("state".into(), json!("unresolved"));
            got.insert("code".into(), json!(why.code()));
        }
        Outcome::FailedWithoutUsage => {
            got.insert("state".into(), json!("failed_without_usage"));
        }
        Outcome::NotRun => {
            got.insert("state".into(), json!("not_run"));
        }
    }
    if let Some(seen) = end.seen {
        got.insert("seen".into(), normalized(&seen.or_input(estimate)));
    }
    for (key, flag) in [("failed", end.failed), ("done", end.done)] {
        if flag {
            got.insert(key.into(), true.into());
        }
    }
    if end.anomalies > 0 {
        got.insert("anomalies".into(), end.anomalies.into());
    }
    got
}
