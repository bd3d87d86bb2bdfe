//! Usage: what a provider reports after a call, in one normal form of disjoint counts.
//!
//! Floor 1. Invariant: every field counts things that are in no other field; a missing number is never zero.

use crate::units::{Amounts, Meter, Usd};

/// Disjoint counts of what a call used. Cost is the sum of field × price.
///
/// Sums saturate at `u64::MAX`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens at the full price.
    pub input_uncached: u64,
    /// Prompt tokens served from a cache.
    pub input_cache_read: u64,
    /// Prompt tokens written to a cache for five minutes, the default retention.
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
    /// Whether the input side is missing from the report: [`or_input`](Usage::or_input) puts the reserved estimate there.
    pub input_missing: bool,
    /// How many times a report contradicted itself: a subset larger than its total, which was cut, or a total that is
    /// not the sum of its parts.
    pub anomalies: u32,
}

impl Usage {
    /// The usage of one request whose tokens the host has counted itself.
    pub fn tokens(input: u64, output: u64) -> Usage {
        Usage { input_uncached: input, output_text: output, requests: 1, ..Usage::default() }
    }

    /// The usage of a request that the provider refused to run (429, 401, a refused connection): nothing, not even the
    /// request.
    pub fn not_run() -> Usage {
        Usage::default()
    }

    /// Input tokens, cached ones included.
    pub fn input_total(&self) -> u64 {
        saturating_sum(&[
            self.input_uncached,
            self.input_cache_read,
            self.input_cache_write_5m,
            self.input_cache_write_1h,
            self.input_cache_write_other,
            self.input_audio,
            self.input_image,
            self.input_video,
            self.input_tool,
        ])
    }

    /// Output tokens, thinking included.
    pub fn output_total(&self) -> u64 {
        saturating_sum(&[self.output_text, self.output_reasoning, self.output_audio, self.output_image])
    }

    /// Input plus output tokens.
    pub fn total(&self) -> u64 {
        self.input_total().saturating_add(self.output_total())
    }

    /// The same with `estimate` tokens as its input if the report has none; `input_missing` stays, as a record of it.
    pub fn or_input(mut self, estimate: u64) -> Usage {
        if self.input_missing && self.input_total() == 0 {
            self.input_uncached = estimate;
        }
        self
    }

    /// What is charged on the meters of requests, tokens and money; gauges are zero.
    pub fn amounts(&self, cost: Usd) -> Amounts {
        Amounts::default()
            .with(Meter::Requests, self.requests)
            .with(Meter::Input, self.input_total())
            .with(Meter::Output, self.output_total())
            .with(Meter::Total, self.total())
            .with(Meter::Money, cost.units())
    }
}

fn saturating_sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}
