//! Policy: the document that people write, checked and compiled.
//!
//! Floor 1. Invariant: a policy either loads whole or reports everything that is wrong with it.

pub mod plan;
pub mod price;
pub mod price_list;
