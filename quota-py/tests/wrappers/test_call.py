"""A lease on its way through a host, without the host."""

from __future__ import annotations

import time
from typing import Any

from conftest import ACME, until

import quota
from quota._bodies import SHAPES
from quota._call import Call


class Counted:
    """Stands in for a lease that lives for so long, and counts its heartbeats."""

    def __init__(self, ttl_ms: int) -> None:
        self.ttl_ms = ttl_ms
        self.beats = 0

    def renew(self) -> bool:
        self.beats += 1
        return True

    def cancel(self) -> None:
        pass


def test_a_lease_that_lives_shortly_is_kept_alive_in_time(gate: quota.Gate) -> None:
    usual = Call(gate.admit(ACME, quota.Request(model="m")).granted(), SHAPES["openai_chat"])
    assert usual.every_s == 1.0
    lease: Any = Counted(30)
    started = time.monotonic()
    short = Call(lease, SHAPES["openai_chat"])
    until(lambda: lease.beats >= 10)
    assert time.monotonic() - started < 8, "as often as others, this would take nine seconds at least"
    short.never_sent()
    usual.never_sent()
    assert usual.is_over and not usual.lease.is_open
