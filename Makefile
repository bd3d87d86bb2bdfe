.PHONY: test test-real bench counts memory speed text fairness simulate fuzz loom check semver bench-python bench-node ci

# Every test of the workspace; the last line is their sum.
test:
	@bash .ci/test

# The gateway in front of a real model on the CPU; fetches about 190 MB into ignored folders.
test-real:
	@bash .ci/test-real

# Admit + settle against its targets: instructions and allocations, memory, times; then what text costs. Some ten
# minutes once built.
bench: counts memory speed text

# Instructions (by valgrind) and allocations of a pair; they don't vary with what else the machine does.
counts:
	@cargo run --release -q -p benches --bin counts

memory:
	@cargo run --release -q -p benches --bin memory

speed:
	@cargo run --release -q -p benches --bin speed

# What a request's text costs on its way, beside targets: estimates, exact counts, streams, the gateway. Some five minutes.
text:
	@cargo build --release -q -p gateway
	@cargo run --release -q -p benches --bin text

# The scheduler beside the published orders of service before a simulated pool, a quarter of a minute once built.
fairness:
	@cargo run --release -p benches --bin fairness

# Admitting and settling in Python beside other limiters of requests, one minute once built.
bench-python:
	@bash .ci/bench-python

# The same in Node.
bench-node:
	@cd quota-node && npm ci --ignore-scripts --no-audit --no-fund --silent && npm run --silent build
	@cd quota-node/benches && npm ci --ignore-scripts --no-audit --no-fund --silent && node cost.mjs

# Thousands of gates in virtual time, under load and faults, beside books of their own; some minutes.
SEEDS ?= 5000
simulate:
	@cargo run --release -p benches --bin simulate -- --seeds $(SEEDS)

# What reads from outside, against arbitrary bytes: each target for SECONDS_EACH seconds (30). MINIMISE=1 keeps what was found.
fuzz:
	@bash .ci/fuzz

# The lock-free parts in every order of their threads: each model with its sentence and its time.
loom:
	@bash .ci/loom

# Licences, dependencies and the oldest compiler that they allow; every set of features of the core.
check:
	@bash .ci/check

# What broke in the core's interface since the baseline.
semver:
	@bash .ci/semver

# What must hold before a change lands.
ci:
	@bash .ci/run
