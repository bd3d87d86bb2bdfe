//! OpenAI's dialects: the parts that a report details are inside its totals.
//!
//! Floor 1. Invariant: the input total is the reported one, and so is the output total, except where the grand total
//! shows that thinking was counted outside it.

use serde_json::Value;

use super::Usage;
use super::report::{Counts, Split, Unusable};
use super::wire::Wire;

/// Chat completions and completions. Servers name thinking in two ways, some in both at once.
pub(super) const CHAT: Wire = Wire {
    visible: &[b"content", b"refusal", b"arguments", b"transcript"],
    repeats: &[b"reasoning_content", b"reasoning", b"text"],
    usage: &[b"usage", b"timings"],
    closes: chat_closes,
    optional: true,
    ..Wire::SSE
};

/// Responses, and streams of transcriptions and images.
pub(super) const RESPONSES: Wire = Wire { visible: &[b"delta"], closes: response_closes, ..Wire::SSE };

/// The extra chunk after all choices, or a chunk in which every choice ends.
fn chat_closes(event: &Value) -> bool {
    let choices = event.get("choices").and_then(Value::as_array);
    choices.is_none_or(|choices| choices.iter().all(|choice| !choice["finish_reason"].is_null()))
}

/// A response that is not in progress.
fn response_closes(event: &Value) -> bool {
    let status = event.get("response").and_then(|response| response["status"].as_str());
    !matches!(status, Some("in_progress" | "queued"))
}

/// Where thinking is counted if the grand total does not tell.
#[derive(Clone, Copy)]
pub(super) enum Thinking {
    Inside,
    Outside,
}

/// Chat completions: `prompt_tokens`, `completion_tokens`.
///
/// Takes the details of compatible servers too: DeepSeek's `prompt_cache_hit_tokens`, a `cached_tokens` or
/// `reasoning_tokens` at the top level, vLLM's `multimodal_tokens`, Mistral's `prompt_audio_seconds`, and Anthropic's
/// names of cache counts, which a proxy in this format leaves as details *inside* `prompt_tokens`.
pub(super) fn chat(report: &Counts<'_>) -> Result<Usage, Unusable> {
    chat_with(report, Thinking::Inside)
}

/// The same, with thinking where the provider is known to count it.
pub(super) fn chat_with(report: &Counts<'_>, thinking: Thinking) -> Result<Usage, Unusable> {
    let (prompt, completion) = (report.need("prompt_tokens")?, report.need("completion_tokens")?);
    let details = report.inner("prompt_tokens_details")?;
    let mut usage = Usage::default();
    let mut input = Split::of(prompt);
    usage.input_cache_read = input.take(cached(report, &details)?);
    cache_writes(report, &details, &mut input, &mut usage)?;
    let modalities = details.inner("multimodal_tokens")?;
    usage.input_audio = input.take(either_count(&details, "audio_tokens", &modalities, "audio")?);
    usage.input_image = input.take(match either_count(&details, "image_tokens", &modalities, "image")? {
        0 => report.any(&["prompt_image_tokens"])?,
        image => image,
    });
    usage.input_video = input.take(either_count(&details, "video_tokens", &modalities, "video")?);
    usage.audio_millis = report.may_millis("prompt_audio_seconds")?.unwrap_or(0);
    usage.web_searches = report.inner("server_tool_use")?.any(&["web_search_requests"])?;
    let details = report.inner("completion_tokens_details")?;
    let reasoning = either_count(&details, "reasoning_tokens", report, "reasoning_tokens")?;
    finish(usage, input, report, [prompt, completion, reasoning], &details, thinking)
}

fn cached(report: &Counts<'_>, details: &Counts<'_>) -> Result<u64, Unusable> {
    const SPELLINGS: [&str; 4] =
        ["prompt_cache_hit_tokens", "cached_tokens", "cache_read_input_tokens", "cached_prompt_text_tokens"];
    match details.any(&["cached_tokens"])? {
        0 => report.any(&SPELLINGS),
        cached => Ok(cached),
    }
}

/// What was written to a cache: `cache_write_tokens` for a time that is not told, and Anthropic's counts, as a proxy
/// spells them, for the times that they name.
fn cache_writes(
    report: &Counts<'_>,
    details: &Counts<'_>,
    input: &mut Split,
    usage: &mut Usage,
) -> Result<(), Unusable> {
    let written = either_count(details, "cache_creation_tokens", report, "cache_creation_input_tokens")?;
    if written == 0 {
        usage.input_cache_write_other = input.take(details.any(&["cache_write_tokens"])?);
        return Ok(());
    }
    let retention = match details.inner("cache_creation_token_details")? {
        named if named.has(&["ephemeral_1h_input_tokens"]) => named,
        _ => report.inner("cache_creation")?,
    };
    let hour = retention.any(&["ephemeral_1h_input_tokens"])?.min(written);
    usage.input_cache_write_1h = input.take(hour);
    usage.input_cache_write_5m = input.take(written - hour);
    Ok(())
}

/// A count by its first name, or where that is zero by its second.
fn either_count(
    one: &Counts<'_>,
    first: &'static str,
    other: &Counts<'_>,
    second: &'static str,
) -> Result<u64, Unusable> {
    match one.any(&[first])? {
        0 => other.any(&[second]),
        count => Ok(count),
    }
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
    finish(usage, input, report, [prompt, completion, reasoning], &details, Thinking::Inside)
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
    thinking: Thinking,
) -> Result<Usage, Unusable> {
    let total = report.may("total_tokens")?;
    let whole = prompt + completion;
    let outside = match thinking {
        Thinking::Inside => reasoning > 0 && total == Some(whole + reasoning),
        Thinking::Outside => total != Some(whole) || reasoning == 0,
    };
    let mut output = Split::of(if outside { completion + reasoning } else { completion });
    usage.output_reasoning = output.take(reasoning);
    usage.output_audio = output.take(details.any(&["audio_tokens"])?);
    usage.output_image = output.take(details.any(&["image_tokens"])?);
    let (uncached, input_cuts) = input.rest();
    let (text, output_cuts) = output.rest();
    usage.input_uncached = uncached;
    usage.output_text = text;
    let odd = total.is_some_and(|total| total != if outside { whole + reasoning } else { whole });
    usage.anomalies = input_cuts + output_cuts + odd as u32;
    Ok(usage)
}
