.PHONY: test ci

# Every test of the workspace; the last line is their sum.
test:
	@bash .ci/test

# What must hold before a change lands.
ci:
	@bash .ci/run
