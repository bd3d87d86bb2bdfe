"""Runners of the shared corpus, `quota-core/tests/vectors`: thin, one for each kind, the same as the core's own."""
