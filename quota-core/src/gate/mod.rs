//! The gate.
pub mod refusal;
