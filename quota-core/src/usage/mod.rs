//! Usage: what a provider reports after a call, in one normal form of disjoint counts.
//!
//! Floor 1. Invariant: every field counts things that are in no other field; a missing number is never zero.

/// Disjoint counts of what a call used. Cost is the sum of field × price.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens at the full price.
    pub input_uncached: u64,
    /// Prompt tokens served from a cache.
    pub input_cache_read: u64,
    /// Prompt tokens written to a cache for five minutes.
    pub input_cache_write_5m: u64,
    /// Prompt tokens written to a cache for an hour.
    pub input_cache_write_1h: u64,
    /// Prompt tokens written to a cache for another time.
    pub input_cache_write_other: u64,
    /// Uncached audio tokens of the prompt.
    pub input_audio: u64,
    /// Uncached image tokens of the prompt.
    pub input_image: u64,
    /// Uncached video tokens of the prompt.
    pub input_video: u64,
    /// Tokens that server-side tools injected, where the provider counts them apart.
    pub input_tool: u64,
    /// Generated tokens that the caller sees.
    pub output_text: u64,
    /// Generated tokens of hidden or summarised thinking.
    pub output_reasoning: u64,
    /// Generated audio tokens.
    pub output_audio: u64,
    /// Generated image tokens.
    pub output_image: u64,
    /// Requests: 1, or 0 for a call that the provider never ran.
    pub requests: u64,
    /// Milliseconds of audio, where the call is priced by time.
    pub audio_millis: u64,
    /// Searches that the provider bills by the call.
    pub web_searches: u64,
    /// The service tier that served the call, as the provider names it.
    pub service_tier: Option<String>,
    /// Whether the input side is missing from the report; the reserved estimate is charged for it.
    pub input_missing: bool,
    /// How many times a subset was larger than its total and was cut.
    pub anomalies: u32,
}

impl Usage {
    /// TEMP
    pub fn first_difference(&self, other: &Usage) -> Option<(&'static str, String, String)> {
        (self != other).then(|| ("x", String::new(), String::new()))
    }
}
