"""What a host plugs in, in Python: callbacks that call back, raise, are slow, and come from other threads."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

import quota
from conftest import ACME, until
from quota.testing import ManualClock, SimulatedPool

POLICY: dict[str, Any] = {
    "models": {"m": {"pool": "h200", "tokenizer": "o200k_base"}},
    "tenants": {"acme": {"rpm": {"hard": 60, "soft": 1, "alert_percent": 50}, "models": ["m"]}},
}


def policy() -> quota.Policy:
    return quota.Policy.from_dict(POLICY)


def ask(text: str = "Name three rivers.", **fields: Any) -> quota.Request:
    return quota.Request(model="m", max_output_tokens=5, text=text, **fields)


@pytest.fixture
def unraisable(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The exceptions that had nowhere to go. Not themselves: they would keep the frames that they went through."""
    seen: list[str] = []

    def hook(told: Any) -> None:
        assert told.object is not None
        seen.append(repr(told.exc_value))

    monkeypatch.setattr("sys.unraisablehook", hook)
    yield seen


def everything(gate: quota.Gate) -> None:
    """All that may be asked from within a callback."""
    gate.preview(ACME, ask())
    gate.balances(ACME)
    gate.snapshot()
    gate.metrics()
    list(gate.journal())
    gate.sweep()


class Pool:
    """Tells a capacity, and does what it is told to before."""

    def __init__(self, requests: int = 4) -> None:
        self.requests = requests
        self.first: Callable[[], object] = lambda: None
        self.asked: list[int] = []

    def load(self, now_ns: int) -> list[quota.ReplicaLoad]:
        self.asked.append(now_ns)
        self.first()
        return [quota.ReplicaLoad(max_running=self.requests)]

    def reports(self) -> bool:
        return False


class Book:
    """A journal that does what it is told to with each entry."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []
        self.first: Callable[[], object] = lambda: None

    def push(self, entry: dict[str, Any]) -> None:
        self.entries.append(entry)
        self.first()


class Once:
    """Runs only at its first call, so that what calls it may be called by it."""

    def __init__(self, run: Callable[[], object]) -> None:
        self.left = [run]

    def __call__(self) -> None:
        if self.left:
            self.left.pop()()


def fail(*_: object) -> Any:
    raise LookupError("mine")


FAULT = "LookupError('mine')"


def test_alerts_are_told_until_the_subscription_stops() -> None:
    gate = quota.Gate(policy())
    told: list[quota.Alert] = []
    with gate.on_alert(told.append) as subscription:
        leases = [gate.admit(ACME, ask()).granted() for _ in range(30)]
        assert [(alert.scope, alert.limit, alert.crossed, alert.soft) for alert in told] == [
            ("tenant:acme", "rpm", 1, True),
            ("tenant:acme", "rpm", 30, False),
        ]
        assert told[0] == told[0] != told[1]
        assert (told[0].tenant, told[0].meter, told[0].hard, told[0].used) == ("acme", "requests", 60, 2)
    assert subscription.stop() is False
    assert [entry["event"] for entry in gate.journal()].count("alerted") == 2
    del leases
    with pytest.raises(TypeError, match="a callable is wanted, not int"):
        gate.on_alert(5)  # type: ignore[arg-type]


def test_alerts_reach_an_event_loop() -> None:
    gate = quota.Gate(policy())

    async def main() -> int:
        loop = asyncio.get_running_loop()
        queue: asyncio.Queue[quota.Alert] = asyncio.Queue()
        with gate.on_alert(lambda alert: loop.call_soon_threadsafe(queue.put_nowait, alert)):
            held = [await asyncio.to_thread(lambda: gate.admit(ACME, ask()).granted()) for _ in range(2)]
            alert = await asyncio.wait_for(queue.get(), 30)
            return len(held) + int(alert.used)

    assert asyncio.run(main()) == 4


def test_the_journal_is_handed_on_and_read_from_where_one_was() -> None:
    book = Book()
    gate = quota.Gate(policy(), journal=book)
    gate.admit(ACME, ask(id="r-1")).granted().cancel()
    events = ["policy_loaded", "admitted", "cancelled"]
    assert [entry["event"] for entry in book.entries] == events
    held = gate.journal()
    assert held.dropped == 0 and list(held) == book.entries and list(held) == []
    assert [entry["seq"] for entry in gate.journal(after=0)] == [1, 2]
    assert gate.explain("r-1") == book.entries[1:]
    with pytest.raises(TypeError, match=r"a journal has a method `push\(entry\)`, list has none"):
        quota.Gate(policy(), journal=[])  # type: ignore[arg-type]


def test_an_estimator_counts_in_place_of_the_core() -> None:
    seen: list[tuple[str, list[str], str]] = []

    def words(request: quota.Request, tokenizer: str) -> int | quota.TokenCount:
        seen.append((request.model, request.texts, tokenizer))
        count = sum(len(text.split()) for text in request.texts)
        return quota.TokenCount(count, reserve=count + 2) if count > 3 else count

    gate = quota.Gate(policy(), estimator=words)
    assert gate.admit(ACME, ask("two words")).granted().input_tokens == 2
    assert gate.admit(ACME, ask("these are four words")).granted().input_tokens == 6
    assert gate.admit(ACME, quota.Request(model="m", input_tokens=9)).granted().input_tokens == 9
    assert seen == [("m", ["two words"], "o200k_base"), ("m", ["these are four words"], "o200k_base")]
    with pytest.raises(TypeError, match="an estimator is a callable, not str"):
        quota.Gate(policy(), estimator="words")  # type: ignore[arg-type]


def test_a_pool_tells_its_capacity() -> None:
    pool = Pool(requests=2)
    clock = ManualClock("2026-03-02T12:00:00Z")
    gate = quota.Gate(policy(), clock=clock, pools={"h200": pool})
    assert pool.asked == [clock.mono_ns]
    leases = [gate.admit(ACME, ask()).granted() for _ in range(2)]
    waits = gate.admit(ACME, ask())
    assert (waits.action, waits.reason) == ("queue", "model_pool_overloaded")
    pool.requests = 3
    gate.sweep()
    assert waits.again().action == "allow"
    assert len(pool.asked) == 2 and len(leases) == 2
    with pytest.raises(TypeError, match=r"a pool has a method `load\(now_ns\)`, int has none"):
        quota.Gate(policy(), pools={"h200": 3})  # type: ignore[dict-item]


def test_a_simulated_pool_moves_with_the_clock() -> None:
    clock = ManualClock()
    pool = SimulatedPool(clock, replicas=1, max_running=2)
    gate = quota.Gate(policy(), clock=clock, pools={"h200": pool})
    lease = gate.admit(ACME, ask()).granted()
    pool.submit(1, input_tokens=100, output_tokens=20)
    with pytest.raises(ValueError, match="id"):
        pool.submit(1, input_tokens=1, output_tokens=1)
    assert pool.next_event_ns is not None
    clock.advance(60_000)
    kinds = [event.kind for event in pool.advance()]
    assert kinds[0] == "prefilled" and kinds[-1] == "finished" and "first_token" in kinds
    assert pool.advance() == [] and pool.cancel(1) is None
    pool.submit(2, input_tokens=5, output_tokens=5)
    pool.remove_replica(0)
    assert [(event.kind, event.id, event.tokens) for event in pool.advance()] == [("lost", 2, 0)]
    pool.remove_replica(9)
    lease.cancel()


def seams(act: Callable[[], object]) -> dict[str, Any]:
    """A gate's options with every callback doing `act` first."""
    book, pool = Book(), Pool()
    book.first = pool.first = act

    def count(request: quota.Request, tokenizer: str) -> int:
        act()
        return 7

    return {"journal": book, "pools": {"h200": pool}, "estimator": count}


def test_what_raises_is_told_and_the_gate_goes_on(unraisable: list[str]) -> None:
    book, pool = Book(), Pool()
    gate = quota.Gate(policy(), journal=book, estimator=fail, pools={"h200": pool})
    book.first = pool.first = fail
    gate.on_alert(fail)
    leases = [gate.admit(ACME, ask()).granted() for _ in range(2)]
    assert leases[0].input_tokens == quota.estimate(ask(), tokenizer="o200k_base").reserve
    gate.sweep()
    receipt = leases[0].settle({"prompt_tokens": 3, "completion_tokens": 1})
    assert receipt.charged.tokens == 4
    # Of each request its count and its entry, of the second the alert and its entry, then the load, and the ending.
    assert unraisable == [FAULT] * 8
    assert [entry["event"] for entry in book.entries] == [entry["event"] for entry in gate.journal()]


def test_an_answer_of_another_type_is_told_as_well(unraisable: list[str]) -> None:
    for answer, says in [("many", "not str"), (-1, "0 to 2^64"), (True, "not bool"), (None, "not NoneType")]:
        count: Any = lambda *_, answer=answer: answer  # noqa: E731
        assert quota.Gate(policy(), estimator=count).admit(ACME, ask()).action == "allow"
        assert says in unraisable.pop()
    pool: Any = Pool()
    gate = quota.Gate(policy(), pools={"h200": pool})
    pool.load = 5
    assert gate.sweep() == 0 and unraisable == [], "the method that it had is the one that is asked"
    told: Any = type("Told", (), {"load": lambda self, now: [{"running": 1}]})()
    gate = quota.Gate(policy(), pools={"h200": told})
    assert len(unraisable) == 1 and "ReplicaLoad" in unraisable[0]
    assert gate.admit(ACME, ask()).action == "queue", "of a pool that nothing is known of nothing is taken"


def test_what_raises_does_not_take_the_place_of_what_is_raised(unraisable: list[str]) -> None:
    """A lease that is dropped while an exception is on its way ends, tells its journal, and wakes who waits for its turn."""
    book = Book()
    gate = quota.Gate(policy(), journal=book, pools={"h200": Pool(requests=1)})

    def own() -> Any:
        raise KeyError("own")

    async def main() -> None:
        # What is on the stack is dropped with the exception under way, not handled.
        task = asyncio.ensure_future(later())
        with pytest.raises(KeyError, match="own"):
            _ = [gate.admit(ACME, ask()).granted(), await others(), own()]
        await asyncio.wait_for(task, 30)

    async def others() -> int:
        await asyncio.sleep(0)
        book.first = fail
        return 0

    async def later() -> None:
        (await gate.acquire(ACME, ask())).cancel()

    asyncio.run(main())
    events = [entry["event"] for entry in book.entries]
    assert events == ["policy_loaded", "admitted", "queued", "unresolved", "admitted", "alerted", "cancelled"]
    assert unraisable == [FAULT] * 4


def test_an_interrupt_in_a_callback_reaches_the_program(unraisable: list[str]) -> None:
    gate = quota.Gate(policy())

    def interrupted(_: quota.Alert) -> None:
        raise KeyboardInterrupt

    gate.on_alert(interrupted)
    with pytest.raises(KeyboardInterrupt):
        held = [gate.admit(ACME, ask()) for _ in range(2)]
        until(lambda: not held)
    assert unraisable[0] == "KeyboardInterrupt()"


def test_callbacks_call_the_gate(unraisable: list[str]) -> None:
    gates: list[quota.Gate] = []
    once = Once(lambda: None)

    def act() -> None:
        if gates:
            once()

    gate = quota.Gate(policy(), **seams(act))
    gates.append(gate)
    gate.on_alert(lambda _: everything(gate))

    def acts() -> Iterator[Callable[[], object]]:
        yield lambda: everything(gate)
        yield lambda: gate.reload(policy())
        yield lambda: gate.admit(ACME, ask()).leave()
        yield lambda: gate.issue_key(tenant="acme", author="callback")

    def calls() -> Iterator[Callable[[], object]]:
        yield lambda: gate.admit(ACME, ask())
        yield lambda: gate.admit(ACME, ask("long " * 10_000))
        yield lambda: gate.reload(policy())
        yield gate.sweep
        yield lambda: gate.issue_key(tenant="acme", author="ops")
        yield lambda: gate.freeze(tenant="acme", author="ops", reason="a test")
        yield lambda: gate.thaw(tenant="acme", author="ops")

    for inner in acts():
        for outer in calls():
            once = Once(inner)
            outer()
            assert gate.preview(ACME, ask()).action in ("allow", "reject"), "it answers"
    assert unraisable == []


def test_a_slow_callback_holds_up_nobody_else() -> None:
    """Others decide, sweep and read while one request waits for its own callback."""
    entered, leave = threading.Event(), threading.Event()
    slow = threading.local()

    def act() -> None:
        if getattr(slow, "here", False):
            slow.here = False
            entered.set()
            assert leave.wait(60)

    gate = quota.Gate(policy(), **seams(act))
    ended: list[str] = []

    def one(call: Callable[[], object]) -> None:
        slow.here = True
        call()
        ended.append("slow")

    for call in (lambda: gate.admit(ACME, ask()), gate.sweep, lambda: gate.reload(policy())):
        entered.clear()
        leave.clear()
        thread = threading.Thread(target=one, args=(call,))
        thread.start()
        assert entered.wait(60)
        gate.admit(ACME, ask()).granted().cancel()
        gate.reload(policy())
        everything(gate)
        assert thread.is_alive() and not leave.is_set()
        leave.set()
        thread.join(60)
    assert ended == ["slow"] * 3


def test_callbacks_come_from_the_keeper_and_from_many_threads(unraisable: list[str]) -> None:
    threads: set[int] = set()
    gates: list[quota.Gate] = []

    def act() -> None:
        threads.add(threading.get_ident())
        if gates:
            gates[0].balances(ACME)

    gate = quota.Gate(policy(), **seams(act))
    gates.append(gate)
    ended = threading.Event()

    def work() -> None:
        while not ended.is_set():
            decision = gate.admit(ACME, ask())
            if decision.lease is not None:
                decision.lease.cancel()
            decision.leave()

    workers = [threading.Thread(target=work) for _ in range(3)]
    with gate.keeper(interval_ms=1):
        for worker in workers:
            worker.start()
        until(lambda: len(threads) >= 5)
        ended.set()
        for worker in workers:
            worker.join(60)
    assert not any(worker.is_alive() for worker in workers) and unraisable == []


def test_a_gate_of_callbacks_is_dropped_with_them() -> None:
    """Where the callback does not hold the gate, nothing does."""
    import gc
    import weakref

    class Watched(Book):
        pass

    book = Watched()
    gone = weakref.ref(book)
    gate = quota.Gate(policy(), journal=book)
    gate.admit(ACME, ask())
    del book, gate
    gc.collect()
    until(lambda: gone() is None)


def test_a_place_in_a_scheduler_is_awaited() -> None:
    scheduler = quota.Scheduler(capacity=1)

    async def main() -> None:
        first = await scheduler.arrive(tenant="a", now_ns=1)
        second = asyncio.ensure_future(turn(scheduler.arrive(tenant="b", now_ns=2)))
        cancelled = asyncio.ensure_future(turn(scheduler.arrive(tenant="c", now_ns=3)))
        third = asyncio.ensure_future(turn(scheduler.arrive(tenant="d", now_ns=4)))
        await asyncio.sleep(0)
        assert not second.done()
        cancelled.cancel()
        assert first.served(now_ns=10)
        (await asyncio.wait_for(second, 30)).served(now_ns=20)
        (await asyncio.wait_for(third, 30)).served(now_ns=30)
        with pytest.raises(asyncio.CancelledError):
            await cancelled
        assert scheduler.figures()["in_flight"] == 0

    async def turn(place: quota.Place) -> quota.Turn:
        return await place

    asyncio.run(main())


def test_a_place_is_given_up_with_the_wait() -> None:
    scheduler = quota.Scheduler(capacity=1)
    held = scheduler.arrive(tenant="a", now_ns=1).result()

    async def main() -> None:
        place = scheduler.arrive(tenant="b", now_ns=2)
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.ensure_future(waiting(place)), 0.01)
        assert repr(place) == "Place(left)"
        with pytest.raises(RuntimeError, match="the place is used up"):
            await place
        with pytest.raises(RuntimeError, match="stop the event loop"):
            place.result()

    async def waiting(place: quota.Place) -> quota.Turn:
        return await place

    asyncio.run(main())
    with pytest.raises(TimeoutError, match="no turn within 5 ms"):
        scheduler.arrive(tenant="b", now_ns=3).result(timeout_ms=5)
    assert sum(lane["queued"] for lane in scheduler.figures()["lanes"].values()) == 0
    held.served(now_ns=9)


def test_a_place_waits_in_a_thread_and_is_refused_in_time() -> None:
    scheduler = quota.Scheduler(capacity=1, lanes=[quota.Lane("chat", max_wait_ms=1000)])
    held = scheduler.arrive(tenant="a", lane="chat", now_ns=1).result()
    got: list[object] = []

    def wait(tenant: str) -> None:
        try:
            got.append(scheduler.arrive(tenant=tenant, lane="chat", now_ns=2).result())
        except quota.QueueRefused as refused:
            got.append(refused.code)

    def queued() -> int:
        return sum(lane["queued"] for lane in scheduler.figures()["lanes"].values())

    thread = threading.Thread(target=wait, args=("b",))
    thread.start()
    until(lambda: queued() == 1)
    held.served(now_ns=3)
    thread.join(60)
    assert isinstance(got[0], quota.Turn)
    thread = threading.Thread(target=wait, args=("c",))
    thread.start()
    until(lambda: queued() == 1)
    scheduler.tick(now_ns=2_000_000_000)
    thread.join(60)
    assert got[1:] == ["queue_timeout"]
