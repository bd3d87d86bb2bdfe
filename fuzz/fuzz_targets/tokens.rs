//! libFuzzer on `quota_fuzz::tokens`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::tokens::run(bytes));
