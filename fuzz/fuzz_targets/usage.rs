//! libFuzzer on `quota_fuzz::usage`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::usage::run(bytes));
