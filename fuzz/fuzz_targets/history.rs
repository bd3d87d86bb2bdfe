//! libFuzzer on `quota_fuzz::history`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::history::run(bytes));
