//! libFuzzer on `quota_fuzz::exposition`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::exposition::run(bytes));
