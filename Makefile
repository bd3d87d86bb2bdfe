.PHONY: test test-real fairness fuzz loom check ci

# Every test of the workspace; the last line is their sum.
test:
	@bash .ci/test

# The gateway in front of a real model on the CPU; fetches about 190 MB into ignored folders.
test-real:
	@bash .ci/test-real

# The scheduler beside the published orders of service before a simulated pool, a quarter of a minute once built.
fairness:
	@cargo run --release -p benches --bin fairness

# What reads from outside, against arbitrary bytes: each target for SECONDS_EACH seconds (30). MINIMISE=1 keeps what was found.
fuzz:
	@bash .ci/fuzz

# The lock-free parts in every order of their threads: each model with its sentence and its time.
loom:
	@bash .ci/loom

# Licences, dependencies and the oldest compiler that they allow; every set of features of the core.
check:
	@bash .ci/check

# What must hold before a change lands.
ci:
	@bash .ci/run
