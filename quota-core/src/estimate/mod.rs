//! Estimation: tokens before the call.
//!
//! Floor 1. Invariant: linear time on any input, and never below the stated error of the method that counted.

use crate::request::Request;

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
    /// OpenAI's `o200k_base`.
    O200kBase,
    /// OpenAI's `cl100k_base`.
    Cl100kBase,
}

/// Counts the input of a request; one of the five seams.
pub trait Estimator: Send + Sync + 'static {
    /// Tokens of the request's input as `tokenizer` and the model's family count it. Never fails: what can't be counted
    /// exactly is bounded from above.
    fn estimate(&self, request: &Request, tokenizer: Tokenizer) -> InputEstimate;
}
