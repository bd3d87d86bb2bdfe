.PHONY: test test-real ci

# Every test of the workspace; the last line is their sum.
test:
	@bash .ci/test

# The gateway in front of a real model on the CPU; fetches about 190 MB into ignored folders.
test-real:
	@bash .ci/test-real

# What must hold before a change lands.
ci:
	@bash .ci/run
