//! A usage object of any JSON: the first byte chooses the dialect. What is read is within bounds and can be charged.

use quota_core::Usd;
use quota_core::usage::{Dialect, Usage};
use serde_json::Value;

/// Reads a usage.
pub fn run(bytes: &[u8]) {
    let Some((dialect, json)) = bytes.split_first() else { return };
    let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
    let dialect = Dialect::ALL[*dialect as usize % Dialect::ALL.len()];
    let Ok(usage) = Usage::read(dialect, &value) else { return };
    let others = [usage.audio_millis, usage.web_searches, usage.search_units, usage.pages, usage.images];
    assert!(usage.total() > 0 || others != [0; 5], "something was used");
    assert_eq!(usage.first_difference(&usage), None);
    let mut twice = usage.clone();
    twice.add(&usage);
    assert!(twice.total() >= usage.total());
    let _ = usage.amounts(Usd::from_units(u64::MAX));
}
