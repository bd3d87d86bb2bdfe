//! The gate: where a request is decided.
//!
//! Floor 3. Invariant: a refused request leaves every account as it was.

pub mod refusal;
