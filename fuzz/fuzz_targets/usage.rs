//! A usage object of any JSON: the first byte chooses the dialect. What is read is within bounds and can be charged.

#![no_main]

use libfuzzer_sys::fuzz_target;
use quota_core::Usd;
use quota_core::usage::{Dialect, Usage};
use serde_json::Value;

fuzz_target!(|input: (u8, &[u8])| {
    let (dialect, json) = input;
    let Ok(value) = serde_json::from_slice::<Value>(json) else { return };
    let dialect = Dialect::ALL[dialect as usize % Dialect::ALL.len()];
    let Ok(usage) = Usage::read(dialect, &value) else { return };
    assert!(usage.input_total() > 0 || usage.output_total() > 0 || usage.audio_millis > 0 || usage.web_searches > 0);
    assert_eq!(usage.first_difference(&usage), None);
    let mut twice = usage.clone();
    twice.add(&usage);
    assert!(twice.total() >= usage.total());
    let _ = usage.amounts(Usd::from_units(u64::MAX));
});
