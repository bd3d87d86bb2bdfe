.PHONY: test test-real text fairness ci

# Every test of the workspace; the last line is their sum.
test:
	@bash .ci/test

# The gateway in front of a real model on the CPU; fetches about 190 MB into ignored folders.
test-real:
	@bash .ci/test-real

# What a request's text costs on its way, beside targets: estimates, exact counts, streams, the gateway. Some five minutes.
text:
	@cargo build --release -q -p gateway
	@cargo run --release -q -p benches --bin text

# The scheduler beside the published orders of service before a simulated pool, a quarter of a minute once built.
fairness:
	@cargo run --release -p benches --bin fairness

# What must hold before a change lands.
ci:
	@bash .ci/run
