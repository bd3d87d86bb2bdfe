//! libFuzzer on `quota_fuzz::body`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::body::run(bytes));
