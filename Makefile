.PHONY: test test-real fairness bench-python ci

# Every test of the workspace; the last line is their sum.
test:
	@bash .ci/test

# The gateway in front of a real model on the CPU; fetches about 190 MB into ignored folders.
test-real:
	@bash .ci/test-real

# The scheduler beside the published orders of service before a simulated pool, a quarter of a minute once built.
fairness:
	@cargo run --release -p benches --bin fairness

# Admitting and settling in Python beside other limiters of requests, one minute once built.
bench-python:
	@bash .ci/bench-python

# What must hold before a change lands.
ci:
	@bash .ci/run
