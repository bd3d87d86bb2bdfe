"""Waiting for a turn: in an event loop, in threads, and what becomes of the place when somebody stops waiting."""

from __future__ import annotations

import asyncio
import gc
import os
import queue
import signal
import threading
from collections.abc import Coroutine
from typing import Any

import pytest

import quota
from conftest import ACME, POLICY, request, until
from quota.testing import ManualClock, replay

BLUE = quota.Principal(tenant="blue")


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main, debug=False)


async def waiting(gate: quota.Gate, number: int = 1) -> None:
    """Until so many wait, which takes a few rounds of the loop."""
    while True:
        load = gate.pool_load("h200")
        if load is not None and load[1] == number:
            return
        await asyncio.sleep(0)


def test_what_need_not_wait_is_there_at_once(gate: quota.Gate) -> None:
    async def main() -> None:
        lease = await gate.acquire(ACME, request())
        assert lease.waited_ms == 0
        lease.cancel()
        async with gate.acquire(ACME, request(id="r")) as lease:
            lease.sent()
            lease.settle(quota.Usage.tokens(1, 1))
        with pytest.raises(quota.Refused) as caught:
            await gate.acquire(ACME, request(model="other"))
        assert caught.value.code == "model_not_allowed"

    run(main())
    with gate.acquire(ACME, request()) as lease:
        lease.cancel()
    assert gate.acquire(ACME, request()).result().cancel().outcome == "cancelled"


def test_a_turn_wakes_its_task(gate: quota.Gate, clock: ManualClock) -> None:
    async def main() -> None:
        first = gate.admit(ACME, request()).granted()
        task = asyncio.create_task(gate.acquire(ACME, request()))
        await waiting(gate)
        clock.advance(250)
        first.settle(quota.Usage.tokens(1, 1))
        lease = await task
        assert lease.waited_ms == 250 and gate.pool_load("h200") == (1, 0)
        lease.settle(quota.Usage.tokens(1, 1))

    run(main())
    assert gate.pool_load("h200") == (0, 0)


def test_a_decision_that_waits_is_awaited_from_its_place(gate: quota.Gate) -> None:
    async def main() -> None:
        first = gate.admit(ACME, request()).granted()
        second, third = gate.admit(ACME, request()), gate.admit(ACME, request())
        assert (second.action, second.reason) == ("queue", "model_pool_overloaded")
        assert (second.lane, second.pool) == ("chat", "h200")
        assert second.max_wait_ms == 3000 and not second.is_due
        still = second.again()
        assert still.action == "queue"
        with pytest.raises(quota.QuotaError):
            second.again()
        task = asyncio.ensure_future(still.wait())
        third.leave()
        third.leave()
        assert gate.pool_load("h200") == (1, 1)
        first.cancel()
        (await task).cancel()

    run(main())
    assert gate.pool_load("h200") == (0, 0)


@pytest.mark.parametrize("rounds", range(6))
def test_a_turn_that_comes_beside_a_cancellation_is_given_back(gate: quota.Gate, rounds: int) -> None:
    """The grant and the cancellation fall into the same tick, or so many rounds of the loop apart."""

    async def main() -> None:
        first = gate.admit(ACME, request()).granted()
        task = asyncio.create_task(gate.acquire(ACME, request()))
        await waiting(gate)
        first.settle(quota.Usage.tokens(1, 1))
        assert gate.pool_load("h200") == (1, 0), "its turn has come"
        for _ in range(rounds):
            await asyncio.sleep(0)
        task.cancel()
        try:
            lease = await task
        except asyncio.CancelledError:
            pass
        else:
            assert rounds > 1
            lease.cancel()
        assert gate.pool_load("h200") == (0, 0)
        assert gate.admit(ACME, request()).granted().cancel()

    run(main())
    assert gate.unresolved() == [] and replay(gate).differ == []


@pytest.mark.parametrize("how", ["cancel", "timeout", "group", "close", "loop"])
def test_who_stops_waiting_gives_up_the_place(gate: quota.Gate, how: str) -> None:
    first = gate.admit(ACME, request()).granted()

    async def main() -> None:
        acquiring = gate.acquire(ACME, request())
        if how == "timeout":
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(acquiring, 0.001)
            return
        if how == "close":
            acquiring.send(None)
            acquiring.close()
            return
        task = asyncio.ensure_future(acquiring)
        await waiting(gate)
        if how == "loop":
            return  # the loop cancels what is left
        if how == "group":
            other = asyncio.gather(task, asyncio.ensure_future(gate.acquire(ACME, request())))
            await waiting(gate, 2)
            other.cancel()
            with pytest.raises(asyncio.CancelledError):
                await other
            return
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(main())
    assert gate.pool_load("h200") == (1, 0)
    first.cancel()
    assert gate.pool_load("h200") == (0, 0)


def test_a_task_that_is_cancelled_in_its_scope_leaves_its_room(gate: quota.Gate) -> None:
    async def main() -> None:
        entered = asyncio.Event()

        async def work() -> None:
            async with gate.acquire(ACME, request(id="r")):
                entered.set()
                await asyncio.Event().wait()

        task = asyncio.create_task(work())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert gate.pool_load("h200") == (0, 0)
        assert [record.request_id for record in gate.unresolved()] == ["r"]

    run(main())


def test_who_waits_too_long_is_refused(gate: quota.Gate, clock: ManualClock) -> None:
    async def main() -> None:
        first = gate.admit(ACME, request()).granted()
        task = asyncio.create_task(gate.acquire(ACME, request()))
        await waiting(gate)
        clock.advance(3001)
        gate.sweep()
        with pytest.raises(quota.Refused) as caught:
            await task
        assert (caught.value.code, caught.value.status) == ("queue_timeout", 503)
        first.cancel()

    run(main())


def test_a_loop_that_is_gone_is_not_woken(gate: quota.Gate) -> None:
    first = gate.admit(ACME, request()).granted()
    loop = asyncio.new_event_loop()
    task = asyncio.ensure_future(gate.acquire(ACME, request()), loop=loop)
    loop.run_until_complete(waiting(gate))
    loop.close()
    first.cancel()
    assert gate.pool_load("h200") == (1, 0), "the turn is there, and nobody looks"
    task._log_destroy_pending = False  # type: ignore[attr-defined]
    del task
    gc.collect()
    assert gate.pool_load("h200") == (0, 0)


def test_acquiring_is_for_one_use_and_begins_when_used(gate: quota.Gate) -> None:
    acquiring = gate.acquire(ACME, request())
    assert gate.pool_load("h200") == (0, 0), "nothing has begun"
    acquiring.result().cancel()
    with pytest.raises(RuntimeError, match="acquire again"):
        acquiring.result()

    async def main() -> None:
        with pytest.raises(RuntimeError, match="async with"), gate.acquire(ACME, request()):
            pass
        with pytest.raises(RuntimeError, match="async with"):
            gate.acquire(ACME, request()).result()

    run(main())
    assert gate.pool_load("h200") == (0, 0)


def test_a_thread_waits_and_lets_others_run(gate: quota.Gate) -> None:
    first = gate.admit(ACME, request()).granted()
    leases: queue.Queue[quota.Lease] = queue.Queue()
    thread = threading.Thread(target=lambda: leases.put(gate.acquire(ACME, request()).result()))
    thread.start()
    until(lambda: gate.pool_load("h200") == (1, 1))
    first.cancel()
    lease = leases.get(timeout=60)
    thread.join()
    assert gate.pool_load("h200") == (1, 0)
    lease.cancel()


def test_a_place_that_is_gone_is_not_waited_for(gate: quota.Gate) -> None:
    first = gate.admit(ACME, request()).granted()
    second = gate.admit(ACME, request())
    second.leave()
    with pytest.raises(quota.QuotaError) as caught:
        second.again()
    assert caught.value.code == "place_left"
    with pytest.raises(quota.QuotaError):
        second.wait().result()
    third = gate.admit(ACME, request())
    thread = threading.Thread(target=lambda: pytest.raises(quota.QuotaError, third.wait().result))
    thread.start()
    third.leave()
    thread.join()
    assert first.cancel() and gate.pool_load("h200") == (0, 0)


def test_a_thread_waits_no_longer_than_it_says(gate: quota.Gate) -> None:
    first = gate.admit(ACME, request()).granted()
    with pytest.raises(TimeoutError):
        gate.acquire(ACME, request()).result(timeout_ms=1)
    with pytest.raises(TimeoutError):
        gate.acquire(ACME, request()).result(timeout_ms=0)
    assert gate.pool_load("h200") == (1, 0)
    first.cancel()
    assert gate.acquire(ACME, request()).result(timeout_ms=0).cancel()


def test_a_signal_ends_the_wait_of_a_thread(gate: quota.Gate) -> None:
    first = gate.admit(ACME, request()).granted()

    def interrupt() -> None:
        until(lambda: gate.pool_load("h200") == (1, 1))
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    thread.start()
    with pytest.raises(KeyboardInterrupt):
        gate.acquire(ACME, request()).result()
    thread.join()
    assert gate.pool_load("h200") == (1, 0)
    first.cancel()


def test_a_keeper_ends_waits_and_is_stopped() -> None:
    policy = POLICY | {"queues": {"chat": {"max_wait_ms": 20}}}
    pools = {"h200": quota.FixedPool(replicas=1, max_running=1)}
    gate = quota.Gate(quota.Policy.from_dict(policy), pools=pools)
    with gate.keeper(interval_ms=10) as keeper:
        assert keeper.is_running
        with gate.admit(ACME, request()).granted():
            with pytest.raises(quota.Refused) as caught:
                gate.acquire(ACME, request()).result()
            assert caught.value.code == "queue_timeout"

            async def main() -> None:
                with pytest.raises(quota.Refused) as caught:
                    await gate.acquire(ACME, request())
                assert caught.value.code == "queue_timeout"

            run(main())
    assert not keeper.is_running
    keeper.stop()
    dropped = gate.keeper()
    del dropped


def test_wakers_and_releases_from_everywhere_never_stop_the_process() -> None:
    """Sixteen tasks wait, two threads end their leases, a keeper and a thread sweep without the interpreter, and one
    looks on: a waker asks for the interpreter on whichever thread ends a turn."""
    tenants = {"acme": {"models": ["m"]}, "blue": {"models": ["m"]}}
    policy = quota.Policy.from_dict({"models": {"m": {"pool": "h200"}}, "tenants": tenants})
    gate = quota.Gate(policy, pools={"h200": quota.FixedPool(replicas=1, max_running=3)})
    ending: queue.SimpleQueue[quota.Lease | None] = queue.SimpleQueue()
    over = threading.Event()

    def release() -> None:
        while (lease := ending.get()) is not None:
            lease.settle(quota.Usage.tokens(1, 1))

    def look() -> None:
        while not over.is_set():
            gate.sweep()
            gate.pool_load("h200")

    threads = [threading.Thread(target=release), threading.Thread(target=release), threading.Thread(target=look)]
    for thread in threads:
        thread.start()
    done = 0

    async def work(who: quota.Principal) -> None:
        nonlocal done
        for round_ in range(100):
            try:
                # Every third gives up at some moment, with its turn or without.
                lease = await asyncio.wait_for(gate.acquire(who, request()), 0.0005 if round_ % 3 == 0 else None)
            except asyncio.TimeoutError:
                continue
            ending.put(lease)
            done += 1

    async def main() -> None:
        await asyncio.gather(*(work(ACME if number % 2 else BLUE) for number in range(16)))

    with gate.keeper(interval_ms=1):
        run(main())
        for _ in range(2):
            ending.put(None)
        over.set()
        for thread in threads:
            thread.join()
    assert done >= 16 * 66 and gate.pool_load("h200") == (0, 0)
    assert replay(gate).differ == []


def test_threads_share_a_gate() -> None:
    # Longer than a slow machine may take, or whoever would wait too long is refused.
    lanes = {"queues": {"chat": {"max_wait_ms": 600_000}}}
    policy = quota.Policy.from_dict(POLICY | lanes | {"tenants": {"acme": {"models": ["m"]}}})
    gate = quota.Gate(policy, pools={"h200": quota.FixedPool(replicas=1, max_running=2)})
    most, running, done, lock = 0, 0, 0, threading.Lock()

    def work() -> None:
        nonlocal most, running, done
        for _ in range(50):
            with gate.acquire(ACME, request(text="word " * 5000, input_tokens=None)) as lease:
                with lock:
                    running += 1
                    most = max(most, running)
                lease.sent()
                with lock:
                    running -= 1
                    done += 1
                lease.settle({"prompt_tokens": 5, "completion_tokens": 5})

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert done == 8 * 50 and 1 <= most <= 2
    assert gate.pool_load("h200") == (0, 0) and gate.unresolved() == []


def test_a_lease_is_used_by_several_threads(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request()).granted()
    receipts: list[quota.Receipt] = []
    usage = quota.Usage.tokens(1, 1)
    threads = [threading.Thread(target=lambda: receipts.append(lease.settle(usage))) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(receipt.repeat for receipt in receipts) == [False] + [True] * 7
