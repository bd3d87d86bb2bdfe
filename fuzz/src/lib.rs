//! What `quota-core` reads from outside, against arbitrary bytes: a module a target, whose `run` panics where what was
//! read is not what it promises to be.
//!
//! libFuzzer calls them through `fuzz_targets`; `quota-core/tests/fuzzed.rs` is this file over again and calls them on
//! what libFuzzer has found, `corpus`.

pub mod body;
pub mod exposition;
pub mod history;
pub mod keys;
pub mod policy;
pub mod price_list;
pub mod stream;
pub mod tokens;
pub mod upstream;
pub mod usage;

/// A target's name, and what it makes of an input.
pub type Target = (&'static str, fn(&[u8]));

/// All of them.
pub const TARGETS: [Target; 10] = [
    ("body", body::run),
    ("exposition", exposition::run),
    ("history", history::run),
    ("keys", keys::run),
    ("policy", policy::run),
    ("price_list", price_list::run),
    ("stream", stream::run),
    ("tokens", tokens::run),
    ("upstream", upstream::run),
    ("usage", usage::run),
];
