"""Reading an answer for its usage while it passes through a host; the lease ends by it."""

from __future__ import annotations

import zlib
from typing import Protocol

from ._call import Call, outcome_of
from ._encoding import Decoder

__all__ = ["Reading", "reading"]

#: The largest answer that is read for its usage where it is not streamed, in bytes.
_MAX_WHOLE = 64 << 20


class Reading(Protocol):
    """How a body is read while it passes."""

    def feed(self, piece: bytes) -> bytes:
        """The bytes that go on. Raises `Refused` where the answer has to end."""

    def over(self) -> bytes:
        """It came to its end, the lease is to end: the bytes that go on last."""

    def broke(self, *, left: bool) -> None:
        """It did not: since the asker has left, or since the application has failed."""


class _Stream:
    """Events, metered one by one."""

    def __init__(self, call: Call, encoding: str, strip_usage: bool) -> None:
        self._call = call
        self._is_plain = encoding == "identity"
        self._decoder = None if self._is_plain else Decoder.of(encoding)
        self._stream = call.lease.stream(call.shape.answer, strip_usage=strip_usage and self._is_plain)
        #: Whether its last event has come, by which it was settled. Whatever follows means nothing.
        self._is_done = False

    def feed(self, piece: bytes) -> bytes:
        if self._is_done:
            return piece
        passed = piece
        if self._is_plain:
            passed = self._stream.feed(piece)
        elif self._decoder is not None:
            try:
                for part in self._decoder.feed(piece):
                    self._stream.feed(part)
            except zlib.error:
                self._decoder = None
        if self._stream.is_done:
            passed += self.over()
            self._is_done = True
        else:
            self._stream.keep()
        return passed

    def over(self) -> bytes:
        return b"" if self._is_done else self._call.end_stream(self._stream)

    def broke(self, *, left: bool) -> None:
        self._call.end_stream(self._stream)


class _Whole:
    """An answer that is read when it is there."""

    def __init__(self, call: Call, encoding: str, status: int) -> None:
        self._call = call
        self._encoding = encoding
        self._status = status
        self._pieces: list[bytes] | None = []
        self._size = 0

    def feed(self, piece: bytes) -> bytes:
        self._keep(piece)
        return piece

    def _keep(self, piece: bytes) -> None:
        if self._pieces is not None:
            self._size += len(piece)
            self._pieces.append(piece)
            if self._size > _MAX_WHOLE:
                self._pieces = None

    def over(self) -> bytes:
        self._call.finish(outcome_of(self._status, self._body(), self._call.shape.answer))
        return b""

    def _body(self) -> bytes | None:
        """The body as it was before it was compressed; `None` where it can't be read."""
        if self._pieces is None or self._encoding == "identity":
            return None if self._pieces is None else b"".join(self._pieces)
        decoder = Decoder.of(self._encoding)
        if decoder is None:
            return None
        pieces, self._pieces, self._size = self._pieces, [], 0
        try:
            for piece in pieces:
                for part in decoder.feed(piece):
                    self._keep(part)
        except zlib.error:
            return None
        return None if self._pieces is None else b"".join(self._pieces)

    def broke(self, *, left: bool) -> None:
        if not 200 <= self._status < 300:
            # The status of an error says enough.
            self._call.finish(outcome_of(self._status, None, self._call.shape.answer))
        elif left:
            self._call.dropped()
        else:
            self._call.failed()


class _Theirs:
    """A stream that the handler meters by itself."""

    def __init__(self, call: Call) -> None:
        self._call = call

    def feed(self, piece: bytes) -> bytes:
        return piece

    def over(self) -> bytes:
        self._call.left()
        return b""

    def broke(self, *, left: bool) -> None:
        self._call.left()


def reading(call: Call, status: int, *, content_type: str, encoding: str, strip_usage: bool) -> Reading:
    """What an answer with such a head is read by."""
    if status in (429, 503):
        call.lease.pool_refused()
    if not (200 <= status < 300 and content_type.strip().lower().startswith("text/event-stream")):
        return _Whole(call, encoding, status)
    try:
        return _Stream(call, encoding, strip_usage)
    except ValueError:
        # A lease has one stream at most, and the handler has taken it.
        return _Theirs(call)
