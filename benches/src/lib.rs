//! Benchmarks of quota-core; run one with `cargo bench -p benches --bench NAME`.
