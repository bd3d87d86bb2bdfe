"""A lease on its way through a host, without the host."""

from __future__ import annotations

import gzip
import time
from typing import Any

import pytest
from conftest import ACME, Books, until
from upstream import INPUT, OUTPUT

import quota
from quota._bodies import SHAPES
from quota._call import Call
from quota._reading import reading


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


def call_of(gate: quota.Gate) -> Call:
    call = Call(gate.admit(ACME, quota.Request(model="m")).granted(), SHAPES["openai_chat"])
    assert call.sent()
    return call


def test_streams_that_were_compressed_one_by_one_are_read(gate: quota.Gate, books: Books) -> None:
    text = f'data: {{"choices": [], "usage": {{"prompt_tokens": {INPUT}, "completion_tokens": {OUTPUT}}}}}\n\ndata: [DONE]\n\n'
    events = [gzip.compress(event.encode()) for event in ('data: {"choices": []}\n\n', text)]
    read = reading(call_of(gate), 200, content_type="text/event-stream", encoding="gzip", strip_usage=False)
    assert read.feed(events[0] + events[1]) == events[0] + events[1]
    read.over()
    assert books.settled(1)


@pytest.mark.parametrize(("status", "requests"), [(400, 0), (500, 1)])
def test_an_error_that_nobody_reads_to_its_end_ends_by_its_status(
    gate: quota.Gate, books: Books, status: int, requests: int
) -> None:
    read = reading(call_of(gate), status, content_type="application/json", encoding="identity", strip_usage=False)
    read.feed(b'{"error": ')
    read.broke(left=True)
    assert (books.in_flight, books.used("rpd")) == (0, requests)
    assert [left.cause for left in gate.unresolved()] == ["upstream_failed"] * requests
