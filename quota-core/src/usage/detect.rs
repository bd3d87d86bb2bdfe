//! Detection: which dialect a usage object of unknown origin is in, by its names.
//!
//! Floor 1. Invariant: an object with the names of two dialects is read only if the readings agree.

use super::report::{Counts, Unusable};
use super::{Usage, anthropic, bedrock, cohere, gemini, llama_cpp, ollama, openai, xai};

const ANTHROPIC: [&str; 4] =
    ["cache_read_input_tokens", "cache_creation_input_tokens", "cache_creation", "server_tool_use"];
const RESPONSES: [&str; 3] = ["input_tokens_details", "input_token_details", "output_token_details"];

/// Reads an object by its names; of two readings that agree, the finer.
pub(super) fn read(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let mut found: Option<Usage> = None;
    for (names, read) in FAMILIES {
        if !report.has(names) {
            continue;
        }
        let usage = read(report)?;
        found = match found {
            // Some proxies fill the names that they do not use with zeros.
            Some(other) if usage.is_nothing() => Some(other),
            Some(other) if !other.is_nothing() => Some(agree(other, usage)?),
            _ => Some(usage),
        };
    }
    found.ok_or(Unusable::Missing)
}

type Reading = fn(&Counts<'_>) -> Result<Usage, Unusable>;

const FAMILIES: [(&[&str], Reading); 6] = [
    (&["prompt_tokens", "completion_tokens", "total_tokens", "input_tokens", "output_tokens", "seconds"], openai_like),
    (&gemini::NAMES, gemini::generate_content),
    (&bedrock::NAMES, bedrock::converse),
    (&cohere::NAMES, cohere::billed),
    (&llama_cpp::NAMES, llama_cpp::timings),
    (&ollama::NAMES, ollama::generate),
];

/// The names of OpenAI and Anthropic.
///
/// A proxy may carry both `prompt_tokens` and `input_tokens`: then the second pair counts once, in whichever of its
/// readings (caches inside, or side by side) has the same totals as the first.
fn openai_like(report: &Counts<'_>) -> Result<Usage, Unusable> {
    if report.text("type") == Some("duration") {
        return openai::responses(report);
    }
    let named_chat = report.has(&["prompt_tokens", "completion_tokens"]);
    let named_pair = report.has(&["input_tokens", "output_tokens"]);
    let chat = if named_chat || !named_pair { Some(prompt_pair(report)?) } else { None };
    match chat {
        Some(chat) if !named_pair || !any_count(report, ["input_tokens", "output_tokens"])? => Ok(chat),
        Some(chat) if any_count(report, ["prompt_tokens", "completion_tokens"])? => {
            let readings = [anthropic::messages(report)?, openai::responses(report)?];
            agreeing(&chat, readings)
        }
        _ => input_pair(report),
    }
}

/// The finer of two readings, which have to agree.
fn agree(one: Usage, other: Usage) -> Result<Usage, Unusable> {
    match same_totals(&one, &other) {
        true if finer(&one, &other) => Ok(one),
        true if finer(&other, &one) => Ok(other),
        _ => Err(Unusable::Ambiguous { one: one.total(), other: other.total() }),
    }
}

fn any_count(report: &Counts<'_>, fields: [&'static str; 2]) -> Result<bool, Unusable> {
    Ok(report.any(&fields)? > 0)
}

/// `prompt_tokens`, with `completion_tokens` or as an embedding.
fn prompt_pair(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let (prompt, total) = (report.may("prompt_tokens")?, report.may("total_tokens")?);
    let no_output = !report.has(&["completion_tokens"]) && prompt.is_some() && prompt == total;
    match no_output {
        true => openai::embeddings(report),
        false if report.has(&xai::NAMES) => xai::chat(report),
        false => openai::chat(report),
    }
}

/// `input_tokens` and `output_tokens` alone: which names stand beside them decides.
fn input_pair(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let thinking = report.inner("output_tokens_details")?.has(&["thinking_tokens"]);
    let beside = thinking || report.has(&ANTHROPIC);
    let inside = report.has(&RESPONSES) || report.has(&["total_tokens"]);
    if !beside {
        return openai::responses(report);
    }
    let usage = anthropic::messages(report)?;
    if inside {
        let other = openai::responses(report)?;
        let told = report.may("total_tokens")?;
        if !same_totals(&usage, &other) && told != Some(usage.total()) {
            return Err(Unusable::Ambiguous { one: usage.total(), other: other.total() });
        }
        return Ok(if finer(&usage, &other) || !same_totals(&usage, &other) { usage } else { other });
    }
    Ok(usage)
}

/// The finest of the readings that agree with the first.
fn agreeing(chat: &Usage, readings: [Usage; 2]) -> Result<Usage, Unusable> {
    let mut best = None;
    for other in &readings {
        if !same_totals(chat, other) {
            continue;
        }
        if finer(other, chat) {
            best = best.or(Some(other));
        } else if finer(chat, other) {
            best = best.or(Some(chat));
        }
    }
    let [one, other] = &readings;
    let far = if same_totals(chat, one) { other } else { one };
    best.cloned().ok_or(Unusable::Ambiguous { one: chat.total(), other: far.total() })
}

fn same_totals(one: &Usage, other: &Usage) -> bool {
    one.input_total() == other.input_total() && one.output_total() == other.output_total()
}

/// Whether every part that `coarse` tells apart is the same in `fine`, which may tell more apart.
fn finer(fine: &Usage, coarse: &Usage) -> bool {
    let parts = |usage: &Usage| {
        [
            usage.input_cache_read,
            cache_writes(usage),
            usage.input_audio,
            usage.input_image,
            usage.output_reasoning,
            usage.output_audio,
            usage.output_image,
            usage.audio_millis,
            usage.web_searches,
            usage.search_units,
        ]
    };
    parts(fine).into_iter().zip(parts(coarse)).all(|(fine, coarse)| coarse == 0 || fine == coarse)
}

fn cache_writes(usage: &Usage) -> u64 {
    usage.input_cache_write_5m.saturating_add(usage.input_cache_write_1h).saturating_add(usage.input_cache_write_other)
}
