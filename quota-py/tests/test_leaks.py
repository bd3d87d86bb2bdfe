"""Nothing is left behind: whatever a turn takes, of Python's objects and of the addon's memory, is free again after it.

Each path runs thousands of turns in gates of its own, which go with them. What is held before and after is what the
interpreter counts as blocks, all small objects, and what the C library counts as handed out, where the addon's memory comes from. What
is made once, or is kept for later by each thread, grows less and less: stretches of turns are run until two in a row leave nothing. A leak
is in all of them.
"""

from __future__ import annotations

import asyncio
import contextlib
import ctypes
import gc
import queue
import sys
import threading
import weakref
from collections.abc import Callable, Coroutine, Iterator
from typing import Any, NamedTuple

import pytest

import quota
from quota.testing import ManualClock, SimulatedPool

#: Turns of a stretch.
TURNS = 400

#: The most stretches that are run.
STRETCHES = 12

#: The smallest block of the C library's takes 32 bytes with what it is kept by, so that one that is lost in every fourth turn is
#: found.
MOST_BYTES = 8.0

#: Of small objects of Python's: one that is lost in every tenth turn.
MOST_BLOCKS = 0.1

DOCUMENT: dict[str, Any] = {
    "models": {
        "m": {"pool": "h200", "price": {"input": "0.5", "output": 2}},
        "plain": {"price": {"input": "0.1", "output": "0.4"}},
        "none": {},
    },
    "queues": {"chat": {"max_wait_ms": 3000}},
    "tenants": {
        "acme": {
            "rpm": {"hard": 10**9, "soft": 1},
            "tpm": 10**12,
            "models": {"m": {}, "plain": {"max_inflight": {"hard": 1000, "alert_percent": 1}}, "none": {"rpm": 1}},
        },
    },
}
BODY = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Name three rivers."}]}
CHUNKS = [
    b'data: {"choices":[{"delta":{"content":"Rhine"}}]}\n\n',
    b'data: {"choices":[],"usage":{"prompt_tokens":3,"completion_tokens":2}}\n\ndata: [DONE]\n\n',
]

ACME = quota.Principal(tenant="acme")
USAGE = quota.Usage.tokens(1, 1)
REPORT = {"prompt_tokens": 3, "completion_tokens": 1}


class MallInfo(ctypes.Structure):
    """What `mallinfo2` of glibc tells."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in "arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split()
    ]


_mallinfo2 = ctypes.CDLL(None).mallinfo2
_mallinfo2.restype = MallInfo


class Held(NamedTuple):
    #: Handed out by the C library, in all threads' arenas and in mappings of their own.
    bytes: float
    #: Small objects of the interpreter.
    blocks: float

    @staticmethod
    def now() -> Held:
        gc.collect()
        told = _mallinfo2()
        return Held(told.uordblks + told.hblkhd, sys.getallocatedblocks())


def left_by(run: Callable[[int], object], turns: int) -> list[Held]:
    """What a turn of each stretch left behind, where no two stretches in a row left nothing."""
    found: list[Held] = []
    flat = 0
    before = Held.now()
    while len(found) < STRETCHES:
        run(turns)
        after = Held.now()
        left = Held((after.bytes - before.bytes) / turns, (after.blocks - before.blocks) / turns)
        found.append(left)
        flat = flat + 1 if left.bytes < MOST_BYTES and left.blocks < MOST_BLOCKS else 0
        if flat == 2:
            return []
        before = after
    return found


def policy() -> quota.Policy:
    return quota.Policy.from_dict(DOCUMENT)


def small(**options: Any) -> quota.Gate:
    """A gate that takes little memory, whose pool runs one request at a time."""
    usual: dict[str, Any] = {"pools": {"h200": quota.FixedPool(replicas=1, max_running=1)}}
    return quota.Gate(policy(), max_rows=64, max_open_leases=64, **usual | options)


def request(**fields: Any) -> quota.Request:
    usual: dict[str, Any] = {"model": "plain", "input_tokens": 10, "max_output_tokens": 50}
    return quota.Request(**usual | fields)


def pooled() -> quota.Request:
    return request(model="m")


def admitted(gate: quota.Gate, request: quota.Request) -> quota.Lease:
    return gate.admit(ACME, request).granted()


def run(main: Coroutine[Any, Any, None]) -> None:
    asyncio.run(main, debug=False)


# What is made, and the endings of leases.


def gates(turns: int) -> None:
    for _ in range(turns // 10):
        gate = small()
        admitted(gate, request()).settle(USAGE)
        admitted(gate, pooled())
        gate.admit(ACME, pooled())


def policies(turns: int) -> None:
    for _ in range(turns // 4):
        quota.Policy.from_dict(DOCUMENT).limits(tenant="acme")
        quota.Policy.from_yaml("tenants: {a: {rpm: 5}}")
        with pytest.raises(quota.PolicyError):
            quota.Policy.from_yaml("tenants: {a: {rmp: 5}}")


def bodies(turns: int) -> None:
    for _ in range(turns):
        assert quota.Request.from_body("openai_chat", BODY, id="r").texts
        with pytest.raises(quota.RequestError):
            quota.Request.from_body("openai_chat", {"model": 5})
        with pytest.raises(TypeError):
            quota.Request(model=5)  # type: ignore[arg-type]


def settled(turns: int) -> None:
    gate, asked = small(), request()
    for _ in range(turns):
        receipt = admitted(gate, asked).settle(USAGE)
        assert receipt.charged.tokens == 2 and receipt.usage == USAGE
        assert admitted(gate, asked).settle(REPORT).cost_usd


def ended_otherwise(turns: int) -> None:
    gate, asked = small(), request()
    for turn in range(turns):
        admitted(gate, asked).cancel()
        lease = admitted(gate, asked)
        lease.unresolved("no_usage", seen=USAGE)
        assert lease.settle(USAGE).late
        admitted(gate, asked).finish(quota.Outcome.of_answer(429, {"error": {}}))
        named = gate.admit(ACME, request(id=f"r{turn}")).granted()
        assert gate.admit(ACME, request(id=f"r{turn}")).granted().is_repeat
        gate.finalize(USAGE, request_id=f"r{turn}")
        assert named.settle(USAGE).repeat
        with pytest.raises(quota.EndError):
            named.settle(quota.Usage.tokens(5, 5))


def dropped(turns: int) -> None:
    gate, asked = small(), request()
    for _ in range(turns):
        gate.admit(ACME, asked)
        with gate.admit(ACME, asked).granted() as lease:
            lease.sent()
        with pytest.raises(KeyError), gate.acquire(ACME, asked):
            raise KeyError


def refused(turns: int) -> None:
    gate, strange, over = small(), request(model="other"), request(model="none")
    gate.admit(ACME, over)
    for _ in range(turns):
        for asked in (strange, over):
            decision = gate.admit(ACME, asked)
            assert decision.refusal is not None and decision.refusal.response("openai")
            assert quota.Refusal.from_dict(decision.refusal.to_dict()).reason == decision.reason
            with pytest.raises(quota.Refused):
                decision.granted()
        with pytest.raises(quota.Refused):
            gate.acquire(ACME, strange).result()
        gate.preview(ACME, over)


def streams(turns: int) -> None:
    gate, asked = small(), request(stream=True)
    for _ in range(turns):
        with admitted(gate, asked).stream("openai_chat", strip_usage=True) as stream:
            for chunk in CHUNKS:
                stream.feed(chunk)
                stream.keep()
            assert stream.finish().charged.tokens == 5
        # One that breaks off, and one that nobody has any more.
        with admitted(gate, asked).stream("openai_chat") as stream:
            stream.feed(CHUNKS[0])
        admitted(gate, asked).stream("openai_chat").feed(CHUNKS[0][:20])


# Who waits.


def granted_in_a_loop(turns: int) -> None:
    gate, asked = small(), pooled()

    async def main() -> None:
        for _ in range(turns):
            async with gate.acquire(ACME, asked) as first:
                second = asyncio.create_task(gate.acquire(ACME, asked))
                third = asyncio.ensure_future(gate.acquire(ACME, asked))
                await asyncio.sleep(0)
                first.settle(USAGE)
            (await second).cancel()
            (await third).cancel()

    run(main())


def cancelled_in_a_loop(turns: int) -> None:
    gate, asked = small(), pooled()

    async def main() -> None:
        for _ in range(turns):
            first = await gate.acquire(ACME, asked)
            waits, due, left = (asyncio.create_task(gate.acquire(ACME, asked)) for _ in range(3))
            decision = gate.admit(ACME, asked)
            await asyncio.sleep(0)
            decision.leave()
            waits.cancel()
            # Its turn comes in the same moment.
            first.settle(USAGE)
            due.cancel()
            (await left).cancel()
            for task in (waits, due):
                with pytest.raises(asyncio.CancelledError):
                    await task
            gate.acquire(ACME, asked).close()

    run(main())


def timed_out(turns: int) -> None:
    clock, asked = ManualClock(), pooled()
    gate = small(clock=clock)

    async def main() -> None:
        for _ in range(turns // 4):
            with pytest.raises(asyncio.TimeoutError):
                await asyncio.wait_for(gate.acquire(ACME, asked), 0)
            late = asyncio.create_task(gate.acquire(ACME, asked))
            await asyncio.sleep(0)
            clock.advance(3001)
            gate.sweep()
            with pytest.raises(quota.Refused):
                await late
            first.renew()

    first = admitted(gate, asked)
    run(main())
    for _ in range(turns // 4):
        with pytest.raises(TimeoutError):
            gate.acquire(ACME, asked).result(timeout_ms=0)
        # A place that nobody has any more.
        gate.admit(ACME, asked)


def left_with_its_loop(turns: int) -> None:
    gate, asked = small(), pooled()
    first = admitted(gate, asked)
    for _ in range(turns // 8):

        async def main() -> None:
            asyncio.create_task(gate.acquire(ACME, asked))
            await asyncio.sleep(0)

        run(main())
    first.cancel()


def granted_in_threads(turns: int) -> None:
    gate, asked = small(), pooled()
    taken: queue.SimpleQueue[quota.Lease | None] = queue.SimpleQueue()

    def work() -> None:
        while (lease := taken.get()) is not None:
            lease.settle(USAGE)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for _ in range(turns):
        taken.put(gate.acquire(ACME, asked).result())
    for thread in threads:
        taken.put(None)
    for thread in threads:
        thread.join()


def many_threads(turns: int) -> None:
    gate, asked = small(), request()

    def work() -> None:
        for _ in range(turns // 4):
            admitted(gate, asked).settle(USAGE)

    threads = [threading.Thread(target=work) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


# What the host plugs in.


class Host:
    """All that a gate takes from its host: each does `act` first. It has the gate, which has it."""

    def __init__(self, act: Callable[[Host], object]) -> None:
        self.act = act
        self.told = 0
        self.gate: quota.Gate | None = None
        gate = small(journal=self, estimator=self.count, pools={"h200": self})
        self.subscription = gate.on_alert(self.alert)
        self.keeper: quota.Keeper | None = None
        self.gate = gate

    def _tell(self) -> None:
        self.told += 1
        self.act(self)

    def push(self, entry: dict[str, Any]) -> None:
        self._tell()

    def count(self, request: quota.Request, tokenizer: str) -> quota.TokenCount:
        self._tell()
        return quota.TokenCount(3, reserve=4)

    def load(self, now_ns: int) -> list[quota.ReplicaLoad]:
        self._tell()
        return [quota.ReplicaLoad(max_running=1)]

    def reports(self) -> bool:
        return False

    def alert(self, alert: quota.Alert) -> None:
        self._tell()

    def turn(self) -> None:
        assert self.gate is not None
        admitted(self.gate, request(input_tokens=None, text="Name three rivers.")).settle(USAGE)
        with contextlib.suppress(quota.Refused):
            # Where it is not told how full the pool is, it waits.
            admitted(self.gate, pooled()).cancel()
        self.gate.sweep()


def called_back(turns: int) -> None:
    host = Host(lambda host: None)
    for _ in range(turns):
        host.turn()
    assert host.told > turns


def called_back_and_calls(turns: int) -> None:
    inside = False

    def ask(host: Host) -> None:
        nonlocal inside
        if host.gate is None or inside:
            return
        inside = True
        host.gate.balances(ACME)
        admitted(host.gate, request()).cancel()
        inside = False

    host = Host(ask)
    for _ in range(turns // 4):
        host.turn()


def called_back_and_raises(turns: int) -> None:
    def fail(host: Host) -> None:
        raise LookupError

    host = Host(fail)
    for _ in range(turns // 2):
        host.turn()


def hosts_that_have_their_gate(turns: int) -> None:
    """The journal, the estimator, the pool and the subscriber are an object that has the gate."""
    for _ in range(turns // 10):
        host = Host(lambda host: None)
        host.turn()
    for _ in range(turns // 20):
        kept = Host(lambda host: None)
        assert kept.gate is not None
        kept.keeper = kept.gate.keeper(interval_ms=60_000)
        kept.subscription.stop()


# What else a gate does.


def reloads(turns: int) -> None:
    clock = ManualClock()
    gate, both = small(clock=clock), [policy(), quota.Policy.from_yaml("tenants: {acme: {rpm: 1000000000, models: [plain]}}")]
    for turn in range(turns // 2):
        lease = admitted(gate, request())
        gate.reload(both[turn % 2])
        lease.settle(USAGE)
        clock.advance(1000)
        gate.sweep()


def keepers(turns: int) -> None:
    gate = small()
    for _ in range(turns // 6):
        gate.keeper(interval_ms=60_000).stop()
        with gate.keeper(interval_ms=60_000):
            pass
        gate.keeper(interval_ms=60_000)


def keys(turns: int) -> None:
    gate = small()
    for turn in range(turns // 4):
        issued = gate.issue_key(tenant="acme", author="ops", limits={"rpm": 10**6})
        assert gate.authenticate(issued.secret).key == issued.id
        gate.rotate_key("acme", issued.id, author="ops", overlap_ms=0)
        with pytest.raises(quota.Refused):
            gate.authenticate(issued.secret)
        assert gate.keys("acme")
        gate.revoke_key("acme", issued.id, author="ops")
        if turn % 20 == 0:
            # Those that are revoked are shown for as long as the gate is there.
            gate = small()


def freezes(turns: int) -> None:
    gate = small()
    for _ in range(turns):
        gate.freeze(tenant="acme", author="ops", reason="a test")
        assert gate.frozen() and gate.admit(ACME, request()).action == "reject"
        gate.thaw(tenant="acme", author="ops")


def looks(turns: int) -> None:
    gate = small()
    lease = admitted(gate, request(id="r"))
    for _ in range(turns // 4):
        assert gate.balances(ACME) and gate.headers(ACME) and gate.snapshot() and gate.metrics()
        assert list(gate.journal()) and gate.explain("r") and gate.recent("acme", last_ms=10**9)
        assert lease.id and lease.worst_usd and lease.principal and repr(lease) and gate.unresolved() == []


def readers(turns: int) -> None:
    price = quota.Price({"input": 1, "output": 2})
    for _ in range(turns):
        reader = quota.StreamReader("openai_chat")
        reader.feed(CHUNKS[0])
        reader.finish()
        assert quota.UpstreamLimits.read([("retry-after", "5")]) and quota.UpstreamError.read(429, {"error": {"code": "x"}})
        assert price.cost(USAGE).usd and quota.count_tokens("Name three rivers.") and quota.Calendar("day", "UTC")
        with pytest.raises(quota.UsageError):
            quota.Usage.read({"prompt_tokens": 1, "completion_tokens": "many"})


def pools(turns: int) -> None:
    clock, reported = ManualClock(), quota.ReportedPool(replicas=1, ttl_ms=1000, max_running=1)
    simulated = SimulatedPool(clock, replicas=1, max_running=1)
    gates = [small(pools={"h200": reported}), small(clock=clock, pools={"h200": simulated})]
    for turn in range(turns // 2):
        gates[0].report("h200", 0, quota.ReplicaLoad(running=1))
        simulated.submit(turn, input_tokens=1, output_tokens=1)
        clock.advance(60_000)
        assert simulated.advance()
        for gate in gates:
            gate.sweep()
            gate.pool_load("h200")


def schedulers(turns: int) -> None:
    async def main(scheduler: quota.Scheduler) -> None:
        for now in range(1, turns // 2):
            first = await scheduler.arrive(tenant="a", now_ns=now)
            second = asyncio.ensure_future(turn_of(scheduler.arrive(tenant="b", now_ns=now)))
            third = asyncio.ensure_future(turn_of(scheduler.arrive(tenant="c", now_ns=now)))
            await asyncio.sleep(0)
            third.cancel()
            first.served(now_ns=now)
            place = (await second).put_back("scope", now_ns=now)
            scheduler.released("scope", now_ns=now)
            (await place).unknown(now_ns=now)
            with pytest.raises(asyncio.CancelledError):
                await third

    async def turn_of(place: quota.Place) -> quota.Turn:
        return await place

    run(main(quota.Scheduler(capacity=1)))
    for _ in range(turns // 4):
        scheduler = quota.Scheduler(capacity=1)
        turn = scheduler.arrive(tenant="a", now_ns=1).result()
        scheduler.arrive(tenant="b", now_ns=1)
        assert scheduler.figures()
        with pytest.raises(TimeoutError):
            scheduler.arrive(tenant="b", now_ns=1).result(timeout_ms=0)
        del turn


PATHS: list[Callable[[int], None]] = [
    gates,
    policies,
    bodies,
    settled,
    ended_otherwise,
    dropped,
    refused,
    streams,
    granted_in_a_loop,
    cancelled_in_a_loop,
    timed_out,
    left_with_its_loop,
    granted_in_threads,
    many_threads,
    called_back,
    called_back_and_calls,
    called_back_and_raises,
    hosts_that_have_their_gate,
    reloads,
    keepers,
    keys,
    freezes,
    looks,
    readers,
    pools,
    schedulers,
]


@pytest.fixture
def silent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """What callbacks raise goes nowhere."""
    monkeypatch.setattr("sys.unraisablehook", lambda told: None)
    yield


@pytest.mark.parametrize("path", PATHS, ids=lambda path: path.__name__)
def test_nothing_is_left_of(path: Callable[[int], None], silent: None) -> None:
    path(TURNS)
    assert left_by(path, TURNS) == []


def test_a_gate_does_not_grow() -> None:
    """All kinds of turns in one gate that stays, once its journal is full."""
    gate, usual, waits, strange = small(), request(), pooled(), request(model="other")

    def mixed(turns: int) -> None:
        async def main() -> None:
            for turn in range(turns):
                admitted(gate, usual).settle(USAGE)
                gate.admit(ACME, usual)
                gate.admit(ACME, strange)
                first = await gate.acquire(ACME, waits)
                second = asyncio.ensure_future(gate.acquire(ACME, waits))
                await asyncio.sleep(0)
                first.cancel()
                (await second).settle(USAGE)

        run(main())

    # Eight entries and a refusal a turn; it holds 32,768.
    mixed(4500)
    assert gate.journal().dropped > 0
    assert left_by(mixed, 300) == []


@pytest.mark.parametrize("what", [bytes, list], ids=["memory", "objects"])
def test_what_is_lost_is_found(what: type) -> None:
    """The check itself: the smallest block in each turn, of the C library's or of Python's."""
    lost: list[object] = []
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p

    def lose(turns: int) -> None:
        for _ in range(turns):
            if what is bytes:
                libc.malloc(ctypes.c_size_t(1))
            else:
                lost.append(object())

    lose(TURNS)
    assert len(left_by(lose, TURNS)) == STRETCHES


def test_a_host_goes_with_its_gate() -> None:
    """By reference counts alone where nothing refers back, by the collector of cycles where something does."""

    class Book:
        def push(self, entry: dict[str, Any]) -> None:
            pass

    book = Book()
    gone = weakref.ref(book)
    gate = small(journal=book)
    admitted(gate, request()).settle(USAGE)
    del book, gate
    assert gone() is None

    host = Host(lambda host: None)
    host.turn()
    assert host.gate is not None
    lease, left = admitted(host.gate, request()), weakref.ref(host)
    del host
    gc.collect()
    host_again = left()
    assert host_again is not None, "its journal is told of an open lease's end"
    told = host_again.told
    lease.settle(USAGE)
    assert host_again.told == told + 1
    del host_again
    assert left() is not None
    del lease
    gc.collect()
    assert left() is None
