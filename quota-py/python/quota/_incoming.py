"""What an ASGI server hands on of one request: its body, and later that its asker has left.

It is read here first and handed to the application as if nobody had read it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, MutableMapping
from typing import TYPE_CHECKING, Any

from ._faults import Fault

if TYPE_CHECKING:
    from ._native import Lease

__all__ = ["Gone", "Incoming"]

_Message = MutableMapping[str, Any]

#: How long a body may take to arrive, in seconds.
_BODY_S = 60
#: How many times too large a body may be and still be read to its end: an answer before that is lost in the reset of the
#: connection that follows.
_MAX_EXCESS = 4


class Gone(Exception):
    """The asker has left: nobody is there to be answered."""


class Incoming:
    """The incoming side of one request."""

    def __init__(self, receive: Callable[[], Awaitable[_Message]]) -> None:
        self._receive = receive
        #: What has been asked for while the request waited, and has not been handed on.
        self._asked: asyncio.Task[_Message] | None = None
        self._body: bytes | None = None

    async def body(self, length: int | None, most: int) -> bytes:
        """The whole body, if it is not too large and comes in time."""
        try:
            return await asyncio.wait_for(self._whole(length, most), _BODY_S)
        except asyncio.TimeoutError:
            raise Fault(408, "body_late", f"The body took over {_BODY_S} s.") from None

    async def _whole(self, length: int | None, most: int) -> bytes:
        # Not a list of pieces: they may be of one byte each.
        body = bytearray()
        found = 0
        more = length is None or length <= most * _MAX_EXCESS
        while more:
            message = await self._receive()
            if message["type"] != "http.request":
                raise Gone
            piece = message.get("body", b"")
            found += len(piece)
            if found <= most:
                body += piece
            more = message.get("more_body", False) and found <= most * _MAX_EXCESS
        found = max(found, length or 0)
        if found > most:
            raise Fault(413, "body_too_large", f"The body is too large: {found} bytes; allowed: {most}.")
        return bytes(body)

    async def unless_gone(self, waiting: Coroutine[Any, Any, Lease]) -> Lease:
        """Waits for a turn as long as the asker does. Who leaves gives up the place, and a turn that came beside it."""
        turn = asyncio.ensure_future(waiting)
        asked = self._asked = asyncio.ensure_future(self._receive())
        try:
            await asyncio.wait({turn, asked}, return_when=asyncio.FIRST_COMPLETED)
            if asked.done() and asked.result()["type"] == "http.disconnect":
                raise Gone
            return await turn
        except BaseException:
            # Cancelled before it is done, it gives up its place by itself.
            if not turn.cancel() and not turn.cancelled() and turn.exception() is None:
                lease = turn.result()
                if not lease.is_repeat:
                    lease.cancel()
            raise

    def replay(self, body: bytes) -> None:
        """What the application is to be handed as the body."""
        self._body = body

    async def receive(self) -> _Message:
        """The application's side: the body once, then what the server tells."""
        if self._body is not None:
            body, self._body = self._body, None
            return {"type": "http.request", "body": body, "more_body": False}
        if self._asked is None:
            return await self._receive()
        # Shielded: who asks may be cancelled and ask again, and nothing may be lost between.
        message = await asyncio.shield(self._asked)
        self._asked = None
        return message

    def close(self) -> None:
        """Stops asking the server."""
        if self._asked is not None:
            self._asked.cancel()
