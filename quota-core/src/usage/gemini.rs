//! Gemini's dialect: cached tokens are inside the prompt, thoughts and tool results outside their totals.
//!
//! Floor 1. Invariant: the parts add up to `totalTokenCount`, which also tells whether thoughts were counted inside.

use serde_json::Value;

use super::Usage;
use super::report::{Counts, Split, Unusable};
use super::wire::Wire;

/// `streamGenerateContent` with `alt=sse`: every event may have the usage so far.
pub(super) const WIRE: Wire =
    Wire { visible: &[b"text"], usage: &[b"usageMetadata", b"finishReason"], closes, ..Wire::SSE };

/// A candidate that ends, or a prompt that was blocked.
fn closes(event: &Value) -> bool {
    let candidates = event.get("candidates").and_then(Value::as_array);
    let ends = candidates.into_iter().flatten().any(|candidate| !candidate["finishReason"].is_null());
    ends || event.get("promptFeedback").is_some_and(|feedback| !feedback["blockReason"].is_null())
}

/// The names by one of which the dialect is known.
pub(super) const NAMES: [&str; 8] = [
    "promptTokenCount",
    "candidatesTokenCount",
    "responseTokenCount",
    "totalTokenCount",
    "prompt_token_count",
    "candidates_token_count",
    "response_token_count",
    "total_token_count",
];

/// Tokens by modality, text left out.
#[derive(Default)]
struct Modalities {
    audio: u64,
    image: u64,
    video: u64,
}

/// `usageMetadata` in JSON's or the SDK's spelling; fields that are zero may be left out.
pub(super) fn generate_content(report: &Counts<'_>) -> Result<Usage, Unusable> {
    if !report.has(&NAMES) {
        return Err(Unusable::Missing);
    }
    let prompt = report.any(&["promptTokenCount", "prompt_token_count"])?;
    let tool = report.any(&["toolUsePromptTokenCount", "tool_use_prompt_token_count"])?;
    let thoughts = report.any(&["thoughtsTokenCount", "thoughts_token_count"])?;
    let candidates = report.any(&[
        "candidatesTokenCount",
        "candidates_token_count",
        "responseTokenCount",
        "response_token_count",
    ])?;
    let total = report.any(&["totalTokenCount", "total_token_count"])?;
    let without_thoughts = prompt + tool + candidates;
    let inside = total == without_thoughts && thoughts <= candidates;
    let odd = total > 0 && !inside && total != without_thoughts + thoughts;

    let all = modalities(report, &["promptTokensDetails", "prompt_tokens_details"])?;
    let cached = modalities(report, &["cacheTokensDetails", "cache_tokens_details"])?;
    let mut usage = Usage { service_tier: service_tier(report).map(str::to_owned), ..Usage::default() };
    let mut input = Split::of(prompt);
    usage.input_cache_read = input.take(report.any(&["cachedContentTokenCount", "cached_content_token_count"])?);
    usage.input_audio = input.take(all.audio.saturating_sub(cached.audio));
    usage.input_image = input.take(all.image.saturating_sub(cached.image));
    usage.input_video = input.take(all.video.saturating_sub(cached.video));
    let (uncached, input_cuts) = input.rest();
    usage.input_uncached = uncached + tool;

    let generated = modalities(
        report,
        &["candidatesTokensDetails", "candidates_tokens_details", "responseTokensDetails", "response_tokens_details"],
    )?;
    let mut output = Split::of(if inside { candidates } else { candidates + thoughts });
    usage.output_reasoning = output.take(thoughts);
    usage.output_audio = output.take(generated.audio);
    usage.output_image = output.take(generated.image);
    let (text, output_cuts) = output.rest();
    usage.output_text = text;
    usage.anomalies = input_cuts + output_cuts + odd as u32;
    Ok(usage)
}

/// The service tier by which `trafficType` says the call was served.
fn service_tier(report: &Counts<'_>) -> Option<&'static str> {
    match report.text("trafficType").or_else(|| report.text("traffic_type"))? {
        "ON_DEMAND_PRIORITY" => Some("priority"),
        "ON_DEMAND_FLEX" => Some("flex"),
        _ => None,
    }
}

fn modalities(report: &Counts<'_>, spellings: &[&'static str]) -> Result<Modalities, Unusable> {
    let mut sums = Modalities::default();
    for item in report.list(spellings)? {
        let tokens = item.any(&["tokenCount", "token_count"])?;
        let sum = match item.text("modality") {
            Some("AUDIO") => &mut sums.audio,
            Some("IMAGE" | "DOCUMENT") => &mut sums.image,
            Some("VIDEO") => &mut sums.video,
            _ => continue,
        };
        *sum = sum.saturating_add(tokens);
    }
    Ok(sums)
}
