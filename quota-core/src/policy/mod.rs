//! Policy: the document that people write, checked and compiled.
//!
//! Floor 1. Invariant: a policy either loads whole or reports everything that is wrong with it.

pub mod plan;
pub mod price;
pub mod price_list;

/// TEMP
#[derive(Debug, Clone)]
pub struct Policy {
    plan: std::sync::Arc<plan::Plan>,
}
impl Policy {
    /// TEMP
    pub fn plan(&self) -> &std::sync::Arc<plan::Plan> {
        &self.plan
    }
    /// TEMP
    pub fn digest(&self) -> &str {
        ""
    }
}
