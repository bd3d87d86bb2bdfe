//! Ollama's own dialect: counts stand in the answer itself, and a count of zero is left out.
//!
//! Floor 1. Invariant: an answer that is not done has no usage.

use serde_json::Value;

use super::Usage;
use super::report::{Counts, Unusable};
use super::wire::Wire;

/// The names by one of which the dialect is known.
pub(super) const NAMES: [&str; 2] = ["prompt_eval_count", "eval_count"];

/// Lines of JSON, the last with `done`.
pub(super) const WIRE: Wire = Wire {
    lines: true,
    visible: &[b"content", b"response", b"thinking"],
    usage: &[b"prompt_eval_count", b"eval_count"],
    closes,
    ..Wire::SSE
};

/// Generate, chat and embed: `prompt_eval_count` and `eval_count`.
///
/// A prompt that was in the cache whole may be left out too: then the input is missing.
pub(super) fn generate(report: &Counts<'_>) -> Result<Usage, Unusable> {
    if !report.has(&NAMES) || report.has(&["done"]) && !report.says("done") {
        return Err(Unusable::Missing);
    }
    let (input, output) = (report.any(&["prompt_eval_count"])?, report.any(&["eval_count"])?);
    Ok(Usage { input_uncached: input, output_text: output, ..Usage::default() })
}

fn closes(event: &Value) -> bool {
    event.get("done").and_then(Value::as_bool) == Some(true)
}
