//! Placeholder entry point, replaced by the gateway.
fn main() {}
