"""A lease on its way through a host that has several places at which it may end.

The first ending counts, whoever is told of it first; later ones, and those that the lease had elsewhere (by its handler, by
an operator, by its expiry), change nothing. While a call is on its way its lease is kept alive.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING
from weakref import ref

from ._errors import EndError, InputError
from ._native import Outcome

if TYPE_CHECKING:
    from ._bodies import Shape
    from ._native import Lease, Stream, Usage, _Dialect

__all__ = ["Call", "outcome_of"]

#: How often a lease is told that its request is alive, in seconds, or three times in its life if that is shorter.
_HEARTBEAT_S = 1.0

#: Endings that came too late: the first one stands.
_ENDED_ELSEWHERE = ("lease_conflict", "lease_unknown")


def outcome_of(status: int, body: object, dialect: _Dialect) -> Outcome:
    """What an answer means. One whose body is no JSON has no report."""
    try:
        return Outcome.of_answer(status, body, dialect=dialect)
    except InputError:
        return Outcome.of_answer(status)


class Call:
    """An admitted request. To be kept by whoever runs it: one that is dropped leaves its lease as dropping that would."""

    __slots__ = ("__weakref__", "_at_end", "_until", "every_s", "is_over", "is_sent", "lease", "may_have_run", "shape")

    def __init__(
        self,
        lease: Lease,
        shape: Shape,
        *,
        longest_s: float | None = None,
        at_end: Callable[[], object] | None = None,
    ) -> None:
        self.lease = lease
        self.shape = shape
        self.is_sent = False
        self.is_over = False
        #: Whether an attempt that did not succeed may have been run by the upstream all the same.
        self.may_have_run = False
        #: How often it is to be kept alive.
        self.every_s = min(_HEARTBEAT_S, lease.ttl_ms / 3000)
        self._at_end = at_end
        self._until = None if longest_s is None else time.monotonic() + longest_s
        _hearts.add(self)

    def sent(self) -> bool:
        """Marks that bytes are about to leave; `False` if the lease has ended meanwhile."""
        self.is_sent = True
        return self.lease.sent()

    def attempt_failed(self, outcome: Outcome) -> None:
        """An attempt has ended like this, and another may follow."""
        self.may_have_run |= outcome.state != "not_run"

    def finish(self, outcome: Outcome) -> None:
        """Ends it as the upstream's last answer says. If an attempt before it may have run, it is not given back in full."""
        if outcome.state == "not_run" and self.may_have_run:
            self.failed()
        else:
            self._end(lambda: self.lease.finish(outcome))

    def failed(self) -> None:
        """Ends it as failed without a report: whether anything is charged is the policy's choice."""
        self._end(lambda: self.lease.finish(Outcome.failed()))

    def never_sent(self) -> None:
        """Gives everything back."""
        self._end(self.lease.cancel)

    def dropped(self, *, seen: Usage | None = None) -> None:
        """Ends it as unresolved: nobody waits for the answer any more."""
        self._end(lambda: self.lease.unresolved("dropped", seen=seen))

    def no_usage(self) -> None:
        """Ends it as unresolved: it has run, and what it used is not known."""
        self._end(lambda: self.lease.unresolved("no_usage"))

    def left(self) -> None:
        """Leaves it to whoever has it, who may have ended it already."""
        self._end(lambda: self.lease.__exit__())

    def end_stream(self, stream: Stream) -> bytes:
        """Ends it by what its stream told, and gives the bytes that go on to the asker after it."""
        self._end(stream.finish)
        return stream.tail

    def beat(self) -> None:
        """Keeps the lease alive, or lets it expire if it has taken too long."""
        if self._until is not None and time.monotonic() > self._until:
            self._end(lambda: self.lease.unresolved("expired"))
        else:
            self.lease.renew()

    def _end(self, end: Callable[[], object]) -> None:
        if self.is_over:
            return
        self.is_over = True
        _hearts.discard(self)
        try:
            end()
        except EndError as error:
            if error.code not in _ENDED_ELSEWHERE:
                raise
        finally:
            if self._at_end is not None:
                self._at_end()


class _Hearts:
    """The calls that are on their way, and a thread that keeps them alive, from the first one on.

    Without a lock: an ending may come from a finalizer, at any moment of any thread.
    """

    def __init__(self) -> None:
        self._calls: dict[int, ref[Call]] = {}
        #: How long the thread sleeps.
        self._every_s = _HEARTBEAT_S
        #: Set where a call came that has to be told sooner.
        self._is_late = threading.Event()
        self._starting = threading.Lock()
        self._is_started = False

    def add(self, call: Call) -> None:
        self._calls[id(call)] = ref(call)
        if call.every_s < self._every_s:
            self._is_late.set()
        # Who does not get the lock leaves it to who has it.
        if not self._is_started and self._starting.acquire(blocking=False):
            try:
                if not self._is_started:
                    threading.Thread(target=self._run, name="quota-heartbeat", daemon=True).start()
                    self._is_started = True
            finally:
                self._starting.release()

    def discard(self, call: Call) -> None:
        self._calls.pop(id(call), None)

    def _run(self) -> None:
        while True:
            self._is_late.wait(self._every_s)
            self._is_late.clear()
            every_s = _HEARTBEAT_S
            for key, found in self._calls.copy().items():
                call = found()
                if call is not None:
                    every_s = min(every_s, call.every_s)
                    call.beat()
                elif self._calls.get(key) is found:
                    self._calls.pop(key, None)
                # Not held until the next beat: it may be the last that does.
                del call
            self._every_s = every_s


_hearts = _Hearts()


def _forget() -> None:
    # The thread is not there in a child.
    global _hearts
    _hearts = _Hearts()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget)

