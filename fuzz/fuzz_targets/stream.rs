//! libFuzzer on `quota_fuzz::stream`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::stream::run(bytes));
