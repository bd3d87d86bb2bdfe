//! libFuzzer on `quota_fuzz::price_list`.

#![no_main]

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| quota_fuzz::price_list::run(bytes));
