//! Cohere's dialect: units that are billed beside tokens that the model saw.
//!
//! Floor 1. Invariant: what is billed counts; tokens count only where nothing says what is billed.

use serde_json::Value;

use super::Usage;
use super::report::{Counts, Split, Unusable};
use super::wire::Wire;

/// The name by which the dialect is known.
pub(super) const NAMES: [&str; 1] = ["billed_units"];

/// Chat: the usage is in `message-end`.
pub(super) const WIRE: Wire =
    Wire { visible: &[b"text", b"thinking", b"tool_plan", b"arguments"], closes, ..Wire::SSE };

/// `billed_units` of chat, embed and rerank, or else `tokens`.
///
/// The tokens that the model saw are more than those billed: the template is among them. `cached_tokens` is not taken
/// out of the input, as nothing says whether the billed tokens contain it.
pub(super) fn billed(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let billed = report.inner("billed_units")?;
    let mut usage = Usage::default();
    if !report.has(&NAMES) {
        let tokens = report.inner("tokens")?;
        if !tokens.has(&["input_tokens", "output_tokens"]) {
            return Err(Unusable::Missing);
        }
        usage.input_uncached = tokens.any(&["input_tokens"])?;
        usage.output_text = tokens.any(&["output_tokens"])?;
        return Ok(usage);
    }
    let (text, image) = (billed.any(&["text_tokens"])?, billed.any(&["image_tokens"])?);
    let mut input = Split::of(billed.may("input_tokens")?.unwrap_or(text.saturating_add(image)));
    usage.input_image = input.take(image);
    (usage.input_uncached, usage.anomalies) = input.rest();
    usage.output_text = billed.any(&["output_tokens"])?;
    usage.search_units = billed.any(&["search_units"])?;
    usage.pages = billed.any(&["pages"])?;
    usage.images = billed.any(&["images"])?;
    Ok(usage)
}

fn closes(_: &Value) -> bool {
    true
}
