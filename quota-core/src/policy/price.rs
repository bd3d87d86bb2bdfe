//! Prices: integers of picodollars, the cost of a usage, and the worst case of a request.
//!
//! Floor 1. Invariant: no floating point between a price's text and the cost.

/// What a model costs.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Price {}
