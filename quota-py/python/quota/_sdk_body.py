"""The bytes of an SDK's answer on their way from `httpx` to the SDK.

`httpx` asks whether a body is of its own class; which of its packages a client uses is seen at run time.
"""

from __future__ import annotations

import sys
from collections.abc import AsyncIterator, Callable, Iterator
from functools import cache
from typing import Any

from ._errors import Refused
from ._reading import Reading

__all__ = ["body_class", "http_module"]

_Refuse = Callable[[Refused], Refused]


def http_module(thing: object) -> Any:
    """The `httpx` that a client or a response is of."""
    for kind in type(thing).__mro__:
        root = kind.__module__.partition(".")[0]
        if root in ("httpx", "httpx2"):
            return sys.modules[root]
    raise TypeError(f"{type(thing).__name__} is of no httpx")


class _Piece:
    """One piece after the other, read while it passes."""

    def __init__(self, inner: Any, read: Reading, refuse: _Refuse) -> None:
        self._inner = inner
        self._read = read
        self._refuse = refuse

    def _feed(self, piece: bytes) -> bytes:
        try:
            return self._read.feed(piece)
        except Refused as refused:
            raise self._refuse(refused) from None


class _Body(_Piece):
    def __iter__(self) -> Iterator[bytes]:
        try:
            for piece in self._inner:
                yield self._feed(piece)
        except BaseException as error:
            # Anything but an error is that of a reader who has left.
            self._read.broke(left=not isinstance(error, Exception))
            raise
        last = self._read.over()
        if last:
            yield last

    def close(self) -> None:
        try:
            self._inner.close()
        finally:
            self._read.broke(left=True)


class _AsyncBody(_Piece):
    async def __aiter__(self) -> AsyncIterator[bytes]:
        try:
            async for piece in self._inner:
                yield self._feed(piece)
        except BaseException as error:
            # Anything but an error is that of a reader who has left.
            self._read.broke(left=not isinstance(error, Exception))
            raise
        last = self._read.over()
        if last:
            yield last

    async def aclose(self) -> None:
        try:
            await self._inner.aclose()
        finally:
            self._read.broke(left=True)


@cache
def _class(is_async: bool, base: type[Any]) -> type[Any]:
    own = _AsyncBody if is_async else _Body
    return type(own.__name__, (own, base), {})


def body_class(of: type[Any], http: Any) -> type[Any]:
    """What stands in for a body of this class."""
    is_async = issubclass(of, http.AsyncByteStream)
    return _class(is_async, http.AsyncByteStream if is_async else http.SyncByteStream)
