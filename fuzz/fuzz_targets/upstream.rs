//! libFuzzer on `quota_fuzz::upstream`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::upstream::run(bytes));
