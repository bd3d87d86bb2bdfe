"""Waiting for a turn: in an event loop or in a thread.

A place in a queue is given up by whoever stops waiting, however that comes about; a turn that came in the same moment
is given back with it. Between a turn and the lease there is no point at which a task can be cancelled.
"""

from __future__ import annotations

import asyncio
import atexit
import math
import time
from collections.abc import Coroutine, Generator
from types import TracebackType
from typing import TYPE_CHECKING, Any, cast
from weakref import WeakSet

if TYPE_CHECKING:
    from ._native import Decision, Gate, Keeper, Lease, Place, Principal, Request, Turn

__all__ = ["Acquiring", "keepers", "turn_in_thread", "turn_of"]

#: Threads that are to be stopped before the interpreter goes down.
keepers: WeakSet[Keeper] = WeakSet()


@atexit.register
def _stop_keepers() -> None:
    for keeper in list(keepers):
        keeper.stop()


def _set(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


async def _due(place: Decision | Place) -> None:
    """Ends when looking again may bring something."""
    loop = asyncio.get_running_loop()
    future: asyncio.Future[None] = loop.create_future()
    if not place._wake_by(loop.call_soon_threadsafe, _set, future):
        await future


def _refuse_in_loop() -> None:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return
    raise RuntimeError("this would stop the event loop of this thread: use `await` or `async with`")


def _until(timeout_ms: int | None) -> float | None:
    return None if timeout_ms is None else time.monotonic() + timeout_ms / 1000


def _sleep(place: Decision | Place, until: float | None, timeout_ms: int | None) -> None:
    left = None if until is None else max(0, math.ceil((until - time.monotonic()) * 1000))
    if not place._sleep(left):
        raise TimeoutError(f"no turn within {timeout_ms} ms")


async def turn_of(place: Place) -> Turn:
    """Waits for the turn of a place in a scheduler's queue."""
    try:
        while (turn := _turn(place)) is None:
            await _due(place)
    except BaseException:
        place.leave()
        raise
    return turn


def turn_in_thread(place: Place, timeout_ms: int | None) -> Turn:
    """As `turn_of`, in a thread."""
    _refuse_in_loop()
    until = _until(timeout_ms)
    try:
        while (turn := _turn(place)) is None:
            _sleep(place, until, timeout_ms)
    except BaseException:
        place.leave()
        raise
    return turn


def _turn(place: Place) -> Turn | None:
    due = place.is_due
    turn = place.try_turn()
    if turn is None and due:
        raise RuntimeError("the place is used up: its turn was given, or it was left")
    return turn


class Acquiring(Coroutine[Any, Any, "Lease"]):
    """A request on its way to its lease. Nothing happens before it is awaited, entered or asked for its result.

    `await it`, `async with it as lease:`; in a thread `with it as lease:` or `it.result()`. Each gives the lease or
    raises `Refused`. It is for one use.
    """

    __slots__ = ("__weakref__", "_coroutine", "_from", "_lease", "_request", "_who")

    def __init__(
        self, begin: Gate | Decision, who: Principal | None = None, request: Request | None = None
    ) -> None:
        self._from: Gate | Decision | None = begin
        self._who = who
        self._request = request
        self._coroutine: Coroutine[Any, Any, Lease] | None = None
        self._lease: Lease | None = None

    def _first(self) -> Decision:
        begin, self._from = self._from, None
        if begin is None:
            raise RuntimeError("this was awaited, entered or asked for its result before; acquire again")
        if self._who is None or self._request is None:
            return cast("Decision", begin)
        return cast("Gate", begin).admit(self._who, self._request)

    async def _wait(self) -> Lease:
        decision = self._first()
        try:
            while decision.action == "queue":
                await _due(decision)
                decision = decision.again()
        except BaseException:
            decision.leave()
            raise
        return decision.granted()

    def result(self, timeout_ms: int | None = None) -> Lease:
        """Waits in this thread, which lets others run meanwhile. Raises `TimeoutError`, with its place given up."""
        _refuse_in_loop()
        until = _until(timeout_ms)
        decision = self._first()
        try:
            while decision.action == "queue":
                _sleep(decision, until, timeout_ms)
                decision = decision.again()
        except BaseException:
            decision.leave()
            raise
        return decision.granted()

    def _as_coroutine(self) -> Coroutine[Any, Any, Lease]:
        if self._coroutine is None:
            self._coroutine = self._wait()
        return self._coroutine

    def __await__(self) -> Generator[Any, Any, Lease]:
        return self._wait().__await__()

    async def __aenter__(self) -> Lease:
        self._lease = await self._wait()
        return self._lease

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.__exit__(kind, error, trace)

    def __enter__(self) -> Lease:
        self._lease = self.result()
        return self._lease

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._lease is not None:
            self._lease.__exit__(kind, error, trace)

    # A coroutine, so that `asyncio.create_task` and `TaskGroup.create_task` take it as it is.

    def send(self, value: Any, /) -> Any:
        """What an event loop calls; nobody else has to."""
        return self._as_coroutine().send(value)

    def throw(self, *args: Any) -> Any:
        """What an event loop calls to cancel it."""
        return self._as_coroutine().throw(*args)

    def close(self) -> None:
        """Ends it, with its place given up."""
        if self._coroutine is not None:
            self._coroutine.close()
