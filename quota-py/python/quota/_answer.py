"""The answer of an ASGI application on its way to the asker: passed on as it comes, and read for its usage.

The lease ends with the last byte, before that is sent: who has read it finds the slot free.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from functools import partial
from typing import Any

from ._call import Call
from ._errors import Refused
from ._reading import Reading, reading

__all__ = ["Answer"]

_Message = MutableMapping[str, Any]
_Send = Callable[[_Message], Awaitable[None]]


class _Cut(OSError):
    """The answer has been ended. Applications take an `OSError` of `send` for an asker who has left."""


class Answer:
    """The outgoing side of one request."""

    def __init__(
        self, call: Call, send: _Send, *, headers: Callable[[], Mapping[str, str]], strip_usage: bool
    ) -> None:
        self._call = call
        self._send = send
        self._headers = headers
        self._strip_usage = strip_usage
        #: Makes what the body is read by, once the head is there. Not before the first piece: a handler that meters by itself
        #: may take the lease's stream as late as that.
        self._read_by: Callable[[], Reading] | None = None
        self._reading: Reading | None = None
        #: Whether it was ended here, since a limit has no room for more of it.
        self.is_cut = False
        self._is_lost = False
        self._is_line_ended = True
        #: How many bytes are still to come, where that is known: the asker does not wait for more.
        self._left: int | None = None

    async def send(self, message: _Message) -> None:
        """The application's side."""
        if self.is_cut:
            raise _Cut
        if message["type"] == "http.response.start":
            await self._pass(self._started(message))
        elif message["type"] == "http.response.body" and self._read_by is not None:
            self._reading = self._reading or self._read_by()
            await self._piece(message, self._reading)
        else:
            await self._pass(message)

    def _started(self, message: _Message) -> _Message:
        headers = [(bytes(name).lower(), bytes(value)) for name, value in message.get("headers", ())]
        told = {name: value.strip().lower().decode("latin-1") for name, value in headers}
        content_type = told.get(b"content-type", "")
        self._read_by = partial(
            reading,
            self._call,
            message["status"],
            content_type=content_type,
            encoding=told.get(b"content-encoding", "identity"),
            strip_usage=self._strip_usage,
        )
        ours = {name.encode("latin-1"): value.encode("latin-1") for name, value in self._headers().items()}
        gone = set(ours)
        if content_type.startswith("text/event-stream"):
            # What is taken out of a stream or ends it early changes its length.
            gone |= {b"content-length"}
        elif told.get(b"content-length", "").isdecimal():
            self._left = int(told[b"content-length"])
        kept = [(name, value) for name, value in headers if name not in gone]
        return {**message, "headers": [*kept, *ours.items()]}

    async def _piece(self, message: _Message, read: Reading) -> None:
        # Starlette takes views of bytes too.
        piece = bytes(message.get("body", b""))
        more = message.get("more_body", False)
        if self._left is not None:
            self._left -= len(piece)
        try:
            passed = read.feed(piece)
        except Refused as refused:
            self.is_cut = True
            # An event that has been passed on in part ends here.
            start = b"" if self._is_line_ended else b"\n\n"
            last = start + read.over() + refused.refusal.stream_error(self._call.shape.manner).encode()
            await self._pass({"type": "http.response.body", "body": last, "more_body": False})
            raise _Cut from None
        if not more or self._left == 0:
            passed += read.over()
        if passed:
            self._is_line_ended = passed.endswith((b"\n", b"\r"))
        if passed or not more:
            await self._pass({**message, "body": passed})

    async def _pass(self, message: _Message) -> None:
        try:
            await self._send(message)
        except OSError:
            self._is_lost = True
            raise

    def failed(self) -> None:
        """The application has raised something."""
        if self._reading is not None:
            self._reading.broke(left=self._is_lost)
        elif self._is_lost:
            self._call.dropped()
        else:
            self._call.failed()

    def dropped(self) -> None:
        """The application is over, by itself or cancelled. Where the answer has not come to its end, its asker has left."""
        if self._reading is not None:
            self._reading.broke(left=True)
        else:
            self._call.dropped()
