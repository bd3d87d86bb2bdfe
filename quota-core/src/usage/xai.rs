//! xAI's dialect: OpenAI's names, with thinking outside the completion.
//!
//! Floor 1. Invariant: thinking is added to the completion unless the grand total shows that it is inside.

use super::openai::{self, Thinking};
use super::report::{Counts, Unusable};
use super::{Usage, wire::Wire};

/// The names by one of which the messages of gRPC are known; chat completions have OpenAI's names.
pub(super) const NAMES: [&str; 3] = ["prompt_text_tokens", "prompt_image_tokens", "cached_prompt_text_tokens"];

/// As OpenAI's chat; every event may have the usage so far.
pub(super) const WIRE: Wire = openai::CHAT;

/// Chat completions and gRPC. Live search is billed by the source, which count as searches.
pub(super) fn chat(report: &Counts<'_>) -> Result<Usage, Unusable> {
    let mut usage = openai::chat_with(report, Thinking::Outside)?;
    usage.web_searches = usage.web_searches.saturating_add(report.any(&["num_sources_used"])?);
    Ok(usage)
}
