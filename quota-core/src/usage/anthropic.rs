//! Anthropic's dialect: fresh input, cache reads and cache writes stand side by side.
//!
//! Floor 1. Invariant: the input total is the sum of the three; thinking is inside the output.

use serde_json::{Map, Value};

use super::Usage;
use super::report::{Counts, Split, Unusable};
use super::wire::Wire;

/// Messages: the input is in `message_start`, the output in `message_delta`.
pub(super) const WIRE: Wire = Wire { visible: &[b"text", b"partial_json", b"thinking"], closes, ..Wire::SSE };

/// The fields of a usage that are kept from event to event.
const FIELDS: [&str; 9] = [
    "input_tokens",
    "output_tokens",
    "cache_read_input_tokens",
    "cache_creation_input_tokens",
    "cache_creation",
    "output_tokens_details",
    "server_tool_use",
    "iterations",
    "service_tier",
];

/// Puts an event's usage over the one so far: the last value of every field counts, also where it is smaller.
pub(super) fn overwrite(so_far: &mut Map<String, Value>, event: &mut Value) {
    let holder = match event.get("message") {
        Some(_) => &mut event["message"],
        None => event,
    };
    let Some(Value::Object(usage)) = holder.get_mut("usage") else {
        return;
    };
    for field in FIELDS {
        if let Some(value) = usage.remove(field).filter(|value| !value.is_null()) {
            so_far.insert(field.to_owned(), value);
        }
    }
}

fn closes(event: &Value) -> bool {
    event.get("delta").is_some_and(|delta| !delta["stop_reason"].is_null())
}

/// Messages: `input_tokens`, `cache_read_input_tokens`, `cache_creation_input_tokens`, `output_tokens`.
///
/// Compactions that the server ran on the way (`iterations`) are not in the top numbers and are added.
pub(super) fn messages(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let mut usage = one(report)?;
    for iteration in report.list(&["iterations"])? {
        if iteration.text("type") == Some("compaction") {
            usage.add(&one(&iteration)?);
        }
    }
    Ok(usage)
}

fn one(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let mut usage = Usage { input_uncached: report.need("input_tokens")?, ..Usage::default() };
    usage.input_cache_read = report.any(&["cache_read_input_tokens"])?;
    let written = report.any(&["cache_creation_input_tokens"])?;
    let retention = report.inner("cache_creation")?;
    usage.input_cache_write_5m = retention.any(&["ephemeral_5m_input_tokens"])?;
    usage.input_cache_write_1h = retention.any(&["ephemeral_1h_input_tokens"])?;
    // What is written without a word about how long has the default retention. Parts above their total stay: they name
    // more exactly what was done.
    let named = usage.input_cache_write_5m + usage.input_cache_write_1h;
    usage.input_cache_write_5m += written.saturating_sub(named);
    let mut output = Split::of(report.need("output_tokens")?);
    usage.output_reasoning = output.take(report.inner("output_tokens_details")?.any(&["thinking_tokens"])?);
    let (text, cuts) = output.rest();
    usage.output_text = text;
    usage.anomalies = cuts + (written > 0 && named > written) as u32;
    usage.web_searches = report.inner("server_tool_use")?.any(&["web_search_requests"])?;
    Ok(usage)
}
