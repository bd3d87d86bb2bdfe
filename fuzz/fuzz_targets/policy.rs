//! libFuzzer on `quota_fuzz::policy`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::policy::run(bytes));
