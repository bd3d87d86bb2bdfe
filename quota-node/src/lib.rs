//! The native part of the Node package `quota-node`: objects of `quota-core` as JavaScript's, and nothing decided.
//!
//! Each method converts, calls and converts. What begins with `_` is called by `lib/` alone, which adds what is a matter of
//! JavaScript: promises, signals, disposal, and the classes of errors.

// Functions are registered with Node by code that is left out of test builds, in which nothing calls them then.
#![cfg_attr(test, allow(dead_code))]

mod alert;
mod calendar;
mod callback;
mod calls;
mod convert;
mod count;
mod decision;
mod errors;
mod estimate;
mod gate;
mod host;
mod journal;
mod keys;
mod lease;
mod policy;
mod pools;
mod price;
mod principal;
mod reader;
mod refusal;
mod request;
mod scheduler;
mod simulated;
mod testing;
mod upstream;
mod usage;
mod wake;
