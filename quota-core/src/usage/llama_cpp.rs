//! llama.cpp's own dialect: `timings`, whose prompt leaves the cached tokens out.
//!
//! Floor 1. Invariant: the input total is what was evaluated plus what the cache held.

use serde_json::Value;

use super::report::{Counts, Unusable};
use super::wire::Wire;
use super::{Usage, openai};

/// The names by one of which the dialect is known.
pub(super) const NAMES: [&str; 2] = ["prompt_n", "predicted_n"];

/// `/completion` and the chat in OpenAI's form. With `timings_per_token` every event has timings.
pub(super) const WIRE: Wire = Wire { closes, ..openai::CHAT };

/// `prompt_n`, `cache_n` and `predicted_n`.
pub(super) fn timings(report: &Counts<'_>) -> Result<Usage, Unusable> {
    if !report.has(&NAMES) {
        return openai::chat(report);
    }
    let mut usage = Usage { input_uncached: report.need("prompt_n")?, ..Usage::default() };
    usage.input_cache_read = report.any(&["cache_n"])?;
    usage.output_text = report.need("predicted_n")?;
    Ok(usage)
}

fn closes(event: &Value) -> bool {
    match event.get("stop") {
        Some(stop) => stop.as_bool() == Some(true),
        None => (openai::CHAT.closes)(event),
    }
}
