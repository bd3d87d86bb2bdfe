"""What several tests use: a policy, a gate on a clock that stands still, and a guard against tests that hang."""

from __future__ import annotations

import faulthandler
import os
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TextIO

import pytest

import quota
from quota.testing import ManualClock

POLICY: dict[str, Any] = {
    "settings": {"lease_ttl_ms": 60_000},
    "models": {
        "m": {"pool": "h200", "price": {"input": "0.5", "output": 2}},
        "small": {"price": {"input": "0.1", "output": "0.4"}},
    },
    "queues": {"chat": {"max_wait_ms": 3000}},
    "tenants": {
        "acme": {"rpm": 60, "daily_budget_usd": "20", "models": {"m": {}, "small": {"max_inflight": 1}}},
        "blue": {"models": {"m": {}}},
    },
}

ACME = quota.Principal(tenant="acme")

#: How long a test waits for what must happen.
DEADLINE_S = 30

#: Whoever needs longer hangs: the threads are shown and the run ends.
LONGEST_S = 300

#: Where they are shown.
_shown: TextIO | None = None


def pytest_configure() -> None:
    # What a test writes to standard error is caught and lost with the run, but not what was standard error before the first.
    global _shown
    _shown = os.fdopen(os.dup(2), "w")


@pytest.fixture(autouse=True)
def no_hanging() -> Iterator[None]:
    assert _shown is not None
    faulthandler.dump_traceback_later(LONGEST_S, exit=True, file=_shown)
    yield
    faulthandler.cancel_dump_traceback_later()


def request(**fields: Any) -> quota.Request:
    usual: dict[str, Any] = {"model": "m", "input_tokens": 100, "max_output_tokens": 50}
    return quota.Request(**usual | fields)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock("2026-03-02T12:00:00Z")


@pytest.fixture
def gate(clock: ManualClock) -> quota.Gate:
    """Its pool runs one request at a time."""
    pools = {"h200": quota.FixedPool(replicas=1, max_running=1)}
    return quota.Gate(quota.Policy.from_dict(POLICY), clock=clock, pools=pools)


def until(happens: Callable[[], bool]) -> None:
    """Looks again and again until it is so, and lets others run meanwhile; fails when it never is."""
    end = time.monotonic() + DEADLINE_S
    while not happens():
        assert time.monotonic() < end, f"it did not happen within {DEADLINE_S} s"
        time.sleep(0)


def pytest_report_header() -> str:
    return f"quota {quota.__version__} from {Path(quota.__file__).parent}"
