//! libFuzzer on `quota_fuzz::keys`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::keys::run(bytes));
