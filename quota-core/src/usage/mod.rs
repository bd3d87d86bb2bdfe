//! Usage: what a provider reports after a call, in one normal form of disjoint counts.
//!
//! Floor 1. Invariant: every field counts things that are in no other field; a missing number is never zero.

mod anthropic;
mod bedrock;
mod cohere;
mod content;
mod detect;
mod difference;
mod gemini;
mod glance;
mod llama_cpp;
mod ollama;
mod openai;
pub mod outcome;
mod provider_cost;
mod report;
mod shape;
mod sse;
pub mod stream;
mod strip;
pub mod upstream;
mod wire;
mod xai;

use serde_json::Value;

use crate::units::{Amounts, Meter, Pico, Usd};

pub use content::without_content;
pub use outcome::{Outcome, outcome_of};
pub use report::Unusable;
pub use stream::{StreamEnd, StreamReader};

/// The manner in which a provider reports usage. It belongs to the wire format, not to the model's vendor: a Claude
/// behind an endpoint in OpenAI's format reports in OpenAI's manner.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[non_exhaustive]
pub enum Dialect {
    /// Whichever the object's names say; an object whose names can be read in two ways that differ is refused.
    #[default]
    Auto,
    /// OpenAI's chat completions and completions, and the many that copy them: Azure, DeepSeek, Groq, LiteLLM, Mistral,
    /// OpenRouter, SGLang, TGI, vLLM and others.
    OpenAiChat,
    /// OpenAI's Responses, realtime, images and transcriptions.
    OpenAiResponses,
    /// OpenAI's embeddings: input only.
    OpenAiEmbeddings,
    /// Anthropic's Messages.
    AnthropicMessages,
    /// Gemini's `generateContent`, by the Developer API or Vertex.
    Gemini,
    /// Amazon Bedrock's Converse.
    BedrockConverse,
    /// Cohere's chat, embed and rerank.
    Cohere,
    /// xAI's chat completions and its gRPC messages: thinking stands outside the completion.
    Xai,
    /// llama.cpp's `timings`; where an answer has a `usage` too, as [`OpenAiChat`](Dialect::OpenAiChat).
    LlamaCpp,
    /// Ollama's own API, whose streams are lines of JSON.
    Ollama,
}

impl Dialect {
    /// Every dialect.
    pub const ALL: [Dialect; 11] = [
        Dialect::Auto,
        Dialect::OpenAiChat,
        Dialect::OpenAiResponses,
        Dialect::OpenAiEmbeddings,
        Dialect::AnthropicMessages,
        Dialect::Gemini,
        Dialect::BedrockConverse,
        Dialect::Cohere,
        Dialect::Xai,
        Dialect::LlamaCpp,
        Dialect::Ollama,
    ];

    /// The name in vectors and in other languages.
    pub const fn name(self) -> &'static str {
        match self {
            Dialect::Auto => "auto",
            Dialect::OpenAiChat => "openai_chat",
            Dialect::OpenAiResponses => "openai_responses",
            Dialect::OpenAiEmbeddings => "openai_embeddings",
            Dialect::AnthropicMessages => "anthropic_messages",
            Dialect::Gemini => "gemini",
            Dialect::BedrockConverse => "bedrock_converse",
            Dialect::Cohere => "cohere",
            Dialect::Xai => "xai",
            Dialect::LlamaCpp => "llama_cpp",
            Dialect::Ollama => "ollama",
        }
    }

    /// The dialect of a [`name`](Dialect::name).
    pub fn from_name(name: &str) -> Option<Dialect> {
        Dialect::ALL.into_iter().find(|dialect| dialect.name() == name)
    }
}

/// Disjoint counts of what a call used. Cost is the sum of field × price.
///
/// Sums saturate at `u64::MAX`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Usage {
    /// Prompt tokens at the full price: text, what server-side tools injected, and whatever is not told apart.
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
    /// Searches that the provider bills by the call, or sources that it bills by the source.
    pub web_searches: u64,
    /// Rerank searches, each over up to a hundred documents.
    pub search_units: u64,
    /// Pages of documents.
    pub pages: u64,
    /// Pictures, where the call is priced by the picture.
    pub images: u64,
    /// What the provider itself says that the call cost, beside what prices make of the counts.
    pub provider_cost: Option<Pico>,
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

    /// Reads a provider's usage object, or the answer or stream event that holds it, as it stands.
    ///
    /// Counts are whole numbers from 0 to 2^52 − 1, also as integral floats. Details that a dialect leaves out are zero;
    /// a main count that is left out is an error, except that an input of zero beside output sets `input_missing`.
    /// Cost: linear in the object's keys; nothing of the answer's text is looked at.
    ///
    /// # Errors
    /// [`Unusable`] if there is no usage, if all of it is zero, if a number is not a count, or if two readings differ.
    pub fn read(dialect: Dialect, value: &Value) -> Result<Usage, Unusable> {
        let found = report::locate(value)?;
        let mut usage = match dialect {
            Dialect::Auto => detect::read(&found.counts),
            Dialect::OpenAiChat => openai::chat(&found.counts),
            Dialect::OpenAiResponses => openai::responses(&found.counts),
            Dialect::OpenAiEmbeddings => openai::embeddings(&found.counts),
            Dialect::AnthropicMessages => anthropic::messages(&found.counts),
            Dialect::Gemini => gemini::generate_content(&found.counts),
            Dialect::BedrockConverse => bedrock::converse(&found.counts),
            Dialect::Cohere => cohere::billed(&found.counts),
            Dialect::Xai => xai::chat(&found.counts),
            Dialect::LlamaCpp => llama_cpp::timings(&found.counts),
            Dialect::Ollama => ollama::generate(&found.counts),
        }?;
        // Searches of the Responses API stand beside the usage object.
        let searches = found.beside.inner("tool_usage")?.inner("web_search")?.may("num_requests")?.unwrap_or(0);
        usage.web_searches = usage.web_searches.saturating_add(searches);
        if usage.is_nothing() {
            return Err(Unusable::AllZero);
        }
        provider_cost::read(&found.counts, &mut usage);
        usage.requests = 1;
        usage.input_missing = usage.input_total() == 0 && usage.output_total() > 0;
        usage.service_tier = usage.service_tier.take().or_else(|| found.service_tier());
        Ok(usage)
    }

    /// The usage of a request that the provider refused to run (429, 401, a refused connection): nothing, not even the
    /// request.
    pub fn not_run() -> Usage {
        Usage::default()
    }

    /// Whether every count but that of requests is zero.
    fn is_nothing(&self) -> bool {
        self.total() == 0 && self.audio_millis == 0 && self.web_searches == 0 && !self.has_other_units()
    }

    /// Whether something was used that is neither tokens nor time nor searches of the web.
    pub(crate) fn has_other_units(&self) -> bool {
        [self.search_units, self.pages, self.images] != [0; 3]
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

    /// Adds another call's usage: field by field, the other's service tier only where this one has none. The sum of what
    /// the provider says is known only if both are.
    pub fn add(&mut self, other: &Usage) {
        for (mine, theirs) in [
            (&mut self.input_uncached, other.input_uncached),
            (&mut self.input_cache_read, other.input_cache_read),
            (&mut self.input_cache_write_5m, other.input_cache_write_5m),
            (&mut self.input_cache_write_1h, other.input_cache_write_1h),
            (&mut self.input_cache_write_other, other.input_cache_write_other),
            (&mut self.input_audio, other.input_audio),
            (&mut self.input_image, other.input_image),
            (&mut self.input_video, other.input_video),
            (&mut self.output_text, other.output_text),
            (&mut self.output_reasoning, other.output_reasoning),
            (&mut self.output_audio, other.output_audio),
            (&mut self.output_image, other.output_image),
            (&mut self.requests, other.requests),
            (&mut self.audio_millis, other.audio_millis),
            (&mut self.web_searches, other.web_searches),
            (&mut self.search_units, other.search_units),
            (&mut self.pages, other.pages),
            (&mut self.images, other.images),
        ] {
            *mine = mine.saturating_add(theirs);
        }
        let costs = self.provider_cost.zip(other.provider_cost);
        self.provider_cost = costs.map(|(mine, theirs)| Pico(mine.0.saturating_add(theirs.0)));
        self.service_tier = self.service_tier.take().or_else(|| other.service_tier.clone());
        self.input_missing |= other.input_missing;
        self.anomalies = self.anomalies.saturating_add(other.anomalies);
    }

    /// What is charged on the meters of requests, steps, tokens and money; slots, tool calls and time are zero.
    pub fn amounts(&self, cost: Usd) -> Amounts {
        Usage::amounts_of(self.requests, self.input_total(), self.output_total(), cost)
    }

    /// What so many requests and tokens come to per meter.
    pub(crate) fn amounts_of(requests: u64, input: u64, output: u64, cost: Usd) -> Amounts {
        let mut amounts = Amounts::default();
        amounts.set(Meter::Requests, requests);
        amounts.set(Meter::Input, input);
        amounts.set(Meter::Output, output);
        amounts.set(Meter::Total, input.saturating_add(output));
        amounts.set(Meter::Money, cost.units());
        amounts.set(Meter::Steps, requests);
        amounts
    }
}

fn saturating_sum(counts: &[u64]) -> u64 {
    counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    const KEYS: [&str; 48] = [
        "usage",
        "usageMetadata",
        "response",
        "type",
        "service_tier",
        "prompt_tokens",
        "completion_tokens",
        "total_tokens",
        "input_tokens",
        "output_tokens",
        "prompt_tokens_details",
        "completion_tokens_details",
        "input_tokens_details",
        "input_token_details",
        "output_tokens_details",
        "cached_tokens",
        "reasoning_tokens",
        "audio_tokens",
        "cache_read_input_tokens",
        "cache_creation_input_tokens",
        "cache_creation",
        "ephemeral_1h_input_tokens",
        "iterations",
        "promptTokenCount",
        "candidatesTokenCount",
        "thoughtsTokenCount",
        "promptTokensDetails",
        "seconds",
        "meta",
        "billed_units",
        "tokens",
        "search_units",
        "inputTokens",
        "outputTokens",
        "cacheReadInputTokens",
        "cacheDetails",
        "ttl",
        "timings",
        "prompt_n",
        "predicted_n",
        "cache_n",
        "prompt_eval_count",
        "eval_count",
        "done",
        "cost",
        "cost_in_usd_ticks",
        "prompt_text_tokens",
        "prompt_audio_seconds",
    ];

    fn report() -> impl Strategy<Value = Value> {
        let leaf = prop_oneof![
            4 => (0..3000u64).prop_map(Value::from),
            1 => Just(Value::Null),
            1 => any::<i64>().prop_map(Value::from),
            1 => Just(json!((1u64 << 52) - 1)),
            1 => any::<f64>().prop_map(Value::from),
            1 => prop_oneof![Just("duration"), Just("compaction"), Just("AUDIO")].prop_map(Value::from),
        ];
        leaf.prop_recursive(4, 64, 12, |inner| {
            let object = proptest::collection::vec((proptest::sample::select(&KEYS[..]), inner.clone()), 0..12);
            prop_oneof![
                6 => object.prop_map(|fields| fields.into_iter().map(|(k, v)| (k.to_owned(), v)).collect()),
                1 => proptest::collection::vec(inner, 0..4).prop_map(Value::from),
            ]
        })
    }

    proptest! {
        #[test]
        fn any_report_is_read_or_refused(report in report()) {
            for dialect in Dialect::ALL {
                if let Ok(usage) = Usage::read(dialect, &report) {
                    prop_assert!(!usage.is_nothing());
                    prop_assert_eq!(usage.requests, 1);
                }
                for status in [None, Some(200), Some(429), Some(500)] {
                    let ran = !matches!(outcome_of(status, dialect, Some(&report)), Outcome::NotRun);
                    prop_assert!(ran || matches!(status, None | Some(429)));
                }
            }
        }

        /// Whatever a report details, what is charged is the totals that it states.
        #[test]
        fn details_do_not_change_the_totals(n in proptest::array::uniform7(0..1000u64)) {
            let report = json!({
                "prompt_tokens": n[0], "completion_tokens": n[1] + 1,
                "prompt_tokens_details": {"cached_tokens": n[2], "cache_write_tokens": n[3], "audio_tokens": n[4]},
                "completion_tokens_details": {"reasoning_tokens": n[5], "audio_tokens": n[6]},
            });
            for dialect in [Dialect::OpenAiChat, Dialect::Auto] {
                let usage = Usage::read(dialect, &report).unwrap();
                prop_assert_eq!((usage.input_total(), usage.output_total()), (n[0], n[1] + 1));
            }
        }
    }

    #[test]
    fn names_are_read_back() {
        for dialect in Dialect::ALL {
            assert_eq!(Dialect::from_name(dialect.name()), Some(dialect));
        }
        assert_eq!(Dialect::from_name("openai"), None);
    }

    #[test]
    fn amounts_of_a_usage() {
        let amounts = Usage::tokens(100, 20).amounts(Usd::from_units(7));
        let got = Meter::ALL.map(|meter| amounts.get(meter));
        assert_eq!(got, [1, 100, 20, 120, 7, 0, 0, 1, 0, 0]);
        assert_eq!(Usage::not_run().amounts(Usd::ZERO), Amounts::default());
    }

    #[test]
    fn sums_saturate() {
        let mut usage = Usage::tokens(u64::MAX, u64::MAX);
        usage.add(&Usage { input_cache_read: 1, ..Usage::tokens(1, 1) });
        assert_eq!((usage.input_total(), usage.output_total(), usage.total()), (u64::MAX, u64::MAX, u64::MAX));
        assert_eq!(usage.requests, 2);
    }
}
