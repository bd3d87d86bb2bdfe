//! OpenAI's dialects: the parts that a report details are inside its totals.
//!
//! Floor 1. Invariant: the input total is the reported one, and so is the output total, except where the grand total
//! shows that thinking was counted outside it.

use super::Usage;
use super::report::{Counts, Split, Unusable};

/// Chat completions: `prompt_tokens`, `completion_tokens`.
///
/// Takes the details of compatible servers too: DeepSeek's `prompt_cache_hit_tokens`, a `cached_tokens` or
/// `reasoning_tokens` at the top level, and Anthropic's names of cache counts, which a proxy in this format leaves as
/// details *inside* `prompt_tokens`.
pub(super) fn chat(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let (prompt, completion) = (report.need("prompt_tokens")?, report.need("completion_tokens")?);
    let details = report.inner("prompt_tokens_details")?;
    let cached = match details.may("cached_tokens")?.unwrap_or(0) {
        0 => report.any(&["prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens"])?,
        cached => cached,
    };
    let mut usage = Usage::default();
    let mut input = Split::of(prompt);
    usage.input_cache_read = input.take(cached);
    match details.may("cache_write_tokens")?.unwrap_or(0) {
        0 => usage.input_cache_write_5m = input.take(report.any(&["cache_creation_input_tokens"])?),
        written => usage.input_cache_write_other = input.take(written),
    }
    usage.input_audio = input.take(details.any(&["audio_tokens"])?);
    usage.input_image = input.take(details.any(&["image_tokens"])?);
    let details = report.inner("completion_tokens_details")?;
    let reasoning = match details.may("reasoning_tokens")?.unwrap_or(0) {
        0 => report.any(&["reasoning_tokens"])?,
        reasoning => reasoning,
    };
    finish(usage, input, report, [prompt, completion, reasoning], &details)
}

/// Responses, realtime, images and transcriptions: `input_tokens`, `output_tokens`, with details inside; or `seconds`.
pub(super) fn responses(report: &Counts<'_>) -> Result<Usage, Unusable> {
    if report.text("type") == Some("duration") {
        return Ok(Usage { audio_millis: report.millis("seconds")?, ..Usage::default() });
    }
    let (prompt, completion) = (report.need("input_tokens")?, report.need("output_tokens")?);
    let details = either(report, "input_tokens_details", "input_token_details")?;
    // Realtime reports which part of each modality was cached; elsewhere a modality counts uncached tokens.
    let cached = details.inner("cached_tokens_details")?;
    let uncached =
        |field| -> Result<u64, Unusable> { Ok(details.any(&[field])?.saturating_sub(cached.any(&[field])?)) };
    let mut usage = Usage::default();
    let mut input = Split::of(prompt);
    usage.input_cache_read = input.take(details.any(&["cached_tokens"])?);
    usage.input_cache_write_other = input.take(details.any(&["cache_write_tokens"])?);
    usage.input_audio = input.take(uncached("audio_tokens")?);
    usage.input_image = input.take(uncached("image_tokens")?);
    let details = either(report, "output_tokens_details", "output_token_details")?;
    let reasoning = details.any(&["reasoning_tokens"])?;
    finish(usage, input, report, [prompt, completion, reasoning], &details)
}

/// Embeddings: `prompt_tokens`, or `total_tokens` alone.
pub(super) fn embeddings(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let total = report.may("total_tokens")?;
    let prompt = match (report.may("prompt_tokens")?, total) {
        (None, Some(total)) => total,
        _ => report.need("prompt_tokens")?,
    };
    let anomalies = total.is_some_and(|total| total != prompt) as u32;
    Ok(Usage { input_uncached: prompt, anomalies, ..Usage::default() })
}

fn either<'a>(report: &Counts<'a>, one: &'static str, other: &'static str) -> Result<Counts<'a>, Unusable> {
    report.inner(if report.has(&[one]) { one } else { other })
}

/// Splits the output and compares the grand total, which also tells where thinking was counted.
fn finish(
    mut usage: Usage,
    input: Split,
    report: &Counts<'_>,
    [prompt, completion, reasoning]: [u64; 3],
    details: &Counts<'_>,
) -> Result<Usage, Unusable> {
    let total = report.may("total_tokens")?;
    let outside = reasoning > 0 && total == Some(prompt + completion + reasoning);
    let mut output = Split::of(if outside { completion + reasoning } else { completion });
    usage.output_reasoning = output.take(reasoning);
    usage.output_audio = output.take(details.any(&["audio_tokens"])?);
    usage.output_image = output.take(details.any(&["image_tokens"])?);
    let (uncached, input_cuts) = input.rest();
    let (text, output_cuts) = output.rest();
    usage.input_uncached = uncached;
    usage.output_text = text;
    let odd = total.is_some_and(|total| !outside && total != prompt + completion);
    usage.anomalies = input_cuts + output_cuts + odd as u32;
    Ok(usage)
}
