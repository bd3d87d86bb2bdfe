"""What the wrappers' tests share: an upstream on loopback, a gate, and its books."""

from __future__ import annotations

import asyncio
import faulthandler
import os
import time
from collections.abc import Callable, Iterator
from typing import Any, TextIO

import pytest
import upstream as upstreams
from upstream import Upstream

import quota

POLICY: dict[str, Any] = {
    "models": {
        "m": {"price": {"input": 1, "output": 2}, "max_output": 400, "pool": "h200"},
        "dear": {"price": {"input": 10, "output": 20}, "max_output": 400},
        "spare": {"price": {"input": 10, "output": 20}, "max_output": 400},
        "foreign": {},
        # Another name of it.
        "fast": {"upstream": "m"},
    },
    "queues": {"chat": {"max_wait_ms": 20_000}, "impatient": {"max_wait_ms": 100}},
    "tenants": {
        "acme": {
            "requests_per_day": 1000,
            "input_tokens_per_day": 1_000_000,
            "output_tokens_per_day": 1_000_000,
            "max_inflight": 100,
            "models": ["m", "dear", "spare", "fast"],
        },
        # One request a minute.
        "slow": {"requests_per_minute": {"hard": 1}, "models": ["m"]},
        # One request at a time, the others wait.
        "queue": {
            "requests_per_day": 1000,
            "output_tokens_per_day": 1_000_000,
            "max_inflight": {"hard": 1, "on_exceed": "queue"},
            "models": ["m"],
        },
        # A lesser form of everything.
        "soft": {"daily_budget_usd": {"soft": 0, "hard": 1}, "models": ["m", "dear"]},
        # Few words.
        "short": {"output_tokens_per_day": {"hard": 600, "hold": "p95"}, "models": ["m"]},
    },
    "degrade": [
        {
            "when": {"soft": "daily_budget_usd", "model": "dear"},
            "model": "m",
            "max_output_tokens": 8,
            "disable_tools": ["web_search"],
        }
    ],
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


@pytest.fixture(scope="session")
def the_upstream() -> Iterator[Upstream]:
    with upstreams.running() as upstream:
        yield upstream


@pytest.fixture
def upstream(the_upstream: Upstream) -> Iterator[Upstream]:
    the_upstream.reset()
    yield the_upstream
    the_upstream.reset()


@pytest.fixture
def gate() -> quota.Gate:
    return quota.Gate(quota.Policy.from_dict(POLICY))


def until(happens: Callable[[], object], deadline_s: float = DEADLINE_S) -> None:
    """Looks again and again until it is so; fails when it never is."""
    end = time.monotonic() + deadline_s
    while not happens():
        assert time.monotonic() < end, f"it did not happen within {deadline_s} s"
        time.sleep(0.005)


async def until_async(happens: Callable[[], object]) -> None:
    """The same, while the loop goes on."""
    end = time.monotonic() + DEADLINE_S
    while not happens():
        assert time.monotonic() < end, f"it did not happen within {DEADLINE_S} s"
        await asyncio.sleep(0.005)


class Books:
    """What a tenant's accounts say."""

    def __init__(self, gate: quota.Gate, tenant: str = "acme") -> None:
        self.gate = gate
        self.who = quota.Principal(tenant=tenant)

    def used(self, limit: str) -> int:
        (balance,) = [balance for balance in self.gate.balances(self.who) if balance.limit == limit]
        assert isinstance(balance.used, int)
        return balance.used

    @property
    def in_flight(self) -> int:
        return self.used("max_inflight")

    @property
    def charged(self) -> tuple[int, int, int]:
        """Requests, input and output."""
        limits = ("rpd", "input_tpd", "output_tpd")
        requests, given, output = (self.used(limit) for limit in limits)
        return requests, given, output

    def settled(self, requests: int) -> bool:
        """Whether nothing is open, and so many requests are charged as they were reported."""
        want = (requests, requests * upstreams.INPUT, requests * upstreams.OUTPUT)
        return self.in_flight == 0 and not self.gate.unresolved() and self.charged == want


@pytest.fixture
def books(gate: quota.Gate) -> Books:
    return Books(gate)
