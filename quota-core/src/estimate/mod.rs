//! Estimation: tokens before the call.
//!
//! Floor 1. Invariant: linear time on any input, and never below the stated error of the method that counted.

pub mod body;
pub mod calibration;
mod chat;
mod family;
mod heuristic;
pub mod history;
mod image;
mod output;
mod pairs;
mod plain;
#[cfg(feature = "tiktoken")]
mod tiktoken;

pub use family::Family;
pub use heuristic::SLACK;
pub use image::{header_size, image_tokens};
pub use output::{DEFAULT_OUTPUT, output_ceiling};

use crate::request::{Input, Kind, Part, Request};

/// Tokens predicted for a request's input.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InputEstimate {
    /// The best guess.
    pub expected: u64,
    /// What to reserve: the guess plus the method's stated error. Equal to `expected` for an exact count.
    pub reserve: u64,
    /// Whether the count is the tokenizer's own.
    pub exact: bool,
}

/// How a model's input is counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Tokenizer {
    /// The heuristic, with the weights of the family that the model's name belongs to.
    #[default]
    Heuristic,
    /// OpenAI's `o200k_base`; the heuristic with its weights without the feature `tiktoken`.
    O200kBase,
    /// OpenAI's `cl100k_base`; the heuristic with its weights without the feature `tiktoken`.
    Cl100kBase,
}

impl Tokenizer {
    /// All of them.
    pub const ALL: [Tokenizer; 3] = [Tokenizer::Heuristic, Tokenizer::O200kBase, Tokenizer::Cl100kBase];

    /// The name in documents.
    pub const fn name(self) -> &'static str {
        match self {
            Tokenizer::Heuristic => "heuristic",
            Tokenizer::O200kBase => "o200k_base",
            Tokenizer::Cl100kBase => "cl100k_base",
        }
    }

    /// The tokenizer of a name.
    pub fn from_name(name: &str) -> Option<Tokenizer> {
        Tokenizer::ALL.into_iter().find(|tokenizer| tokenizer.name() == name)
    }

    /// Whether this build has it. Where it has not, the heuristic stands in, and a policy that names it is warned of.
    pub const fn is_built_in(self) -> bool {
        matches!(self, Tokenizer::Heuristic) || cfg!(feature = "tiktoken")
    }

    /// The family whose weights and framing hold for a model counted so.
    fn family(self, model: &str) -> Family {
        match self {
            Tokenizer::Heuristic => Family::of(model),
            Tokenizer::O200kBase => Family::O200k,
            Tokenizer::Cl100kBase => Family::Cl100k,
        }
    }
}

/// Counts the input of a request; one of the five seams.
pub trait Estimator: Send + Sync + 'static {
    /// Tokens of the request's input as `tokenizer` and the model's family count it. Never fails: what can't be counted
    /// exactly is bounded from above.
    fn estimate(&self, request: &Request, tokenizer: Tokenizer) -> InputEstimate;
}

/// The estimator of a gate that is given no other: text by tokenizer or heuristic, framing, tools, pictures, sound
/// and documents by the rules of the model's family.
#[derive(Debug, Clone, Copy, Default)]
pub struct Standard;

impl Estimator for Standard {
    fn estimate(&self, request: &Request, tokenizer: Tokenizer) -> InputEstimate {
        match &request.input {
            Input::Counted(tokens) => InputEstimate { expected: *tokens, reserve: *tokens, exact: true },
            Input::Parts(parts) => chat::count(parts, request.kind, tokenizer, &request.model),
        }
    }
}

/// Tokens of a text by itself, without any framing; special tokens spelled in it are plain text.
///
/// Cost: linear in the text. The heuristic takes 1 to 3 ns per byte, an exact tokenizer 10 to 20 ns, on hostile texts
/// up to 300 ns.
pub fn count_text(text: &str, tokenizer: Tokenizer, model: &str) -> InputEstimate {
    let mut sum = Sum::new(tokenizer, model);
    sum.text(text);
    sum.estimate()
}

/// The most output tokens that a request can use: [`output_ceiling`] of what it asks for; 0 for embeddings.
pub fn output_of(request: &Request, per_choice: &[Option<u64>], total: &[Option<u64>]) -> u64 {
    match request.kind {
        Kind::Embeddings => 0,
        Kind::Chat => output_ceiling(request.max_output_tokens, request.choices, per_choice, total),
    }
}

/// The tokens of each picture of a request, in its order.
pub fn images_of(request: &Request) -> Vec<u64> {
    let parts = match &request.input {
        Input::Counted(_) => &[],
        Input::Parts(parts) => parts.as_slice(),
    };
    let tokens = |part: &Part| match part {
        Part::Image(image) => Some(image_tokens(*image, &request.model)),
        _ => None,
    };
    parts.iter().filter_map(tokens).collect()
}

/// The most text of one request that is counted exactly, in bytes; the rest is guessed, so that counting takes bounded time.
const MOST_EXACT: usize = 512 * 1024;

/// A sum of texts and of counts by rule.
struct Sum {
    tokenizer: Tokenizer,
    family: Family,
    /// Bytes that may still be counted exactly.
    exact_left: usize,
    /// Counted by the tokenizer.
    counted: u64,
    /// Not counted by it: guessed.
    guessed: heuristic::Tally,
    /// By rules that are upper bounds.
    by_rule: u64,
    /// Reserved beyond the guess.
    in_reserve: u64,
}

impl Sum {
    fn new(tokenizer: Tokenizer, model: &str) -> Sum {
        let family = tokenizer.family(model);
        let guessed = heuristic::Tally::default();
        Sum { tokenizer, family, exact_left: MOST_EXACT, counted: 0, guessed, by_rule: 0, in_reserve: 0 }
    }

    fn text(&mut self, text: &str) {
        let left = self.exact_left.checked_sub(text.len());
        match left.and_then(|left| Some((left, exact(text, self.tokenizer)?))) {
            Some((left, tokens)) => {
                self.exact_left = left;
                self.counted = self.counted.saturating_add(tokens);
            }
            None => self.guessed.text(text, self.family),
        }
    }

    /// Tokens that the family is known to add.
    fn known(&mut self, tokens: u64) {
        self.counted = self.counted.saturating_add(tokens);
    }

    /// Tokens by a rule that is an upper bound.
    fn rule(&mut self, tokens: u64) {
        self.by_rule = self.by_rule.saturating_add(tokens);
    }

    /// Tokens that may be added, reserved but not expected.
    fn may_add(&mut self, tokens: u64) {
        self.in_reserve = self.in_reserve.saturating_add(tokens);
    }

    fn estimate(&self) -> InputEstimate {
        let guess = self.guessed.estimate(self.family);
        let sure = self.counted.saturating_add(self.by_rule);
        InputEstimate {
            expected: guess.expected.saturating_add(sure),
            reserve: guess.reserve.saturating_add(sure).saturating_add(self.in_reserve),
            exact: self.tokenizer != Tokenizer::Heuristic
                && self.guessed == heuristic::Tally::default()
                && self.by_rule == 0
                && self.in_reserve == 0,
        }
    }
}

/// The tokenizer's own count, where it is at hand.
#[cfg(feature = "tiktoken")]
fn exact(text: &str, tokenizer: Tokenizer) -> Option<u64> {
    tiktoken::count(text, tokenizer)
}

#[cfg(not(feature = "tiktoken"))]
fn exact(text: &str, tokenizer: Tokenizer) -> Option<u64> {
    (text.is_empty() && tokenizer != Tokenizer::Heuristic).then_some(0)
}
