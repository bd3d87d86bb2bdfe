"""Bodies that are compressed, read piece by piece."""

from __future__ import annotations

import zlib
from collections.abc import Iterator

__all__ = ["Decoder"]

#: The most that one piece may become before it is taken in the next step, in bytes.
_STEP = 1 << 18


class Decoder:
    """What stands in pieces that were compressed. `None` from `of` for an encoding that can't be read here."""

    def __init__(self, wbits: int) -> None:
        self._wbits = wbits
        self._inflate = zlib.decompressobj(wbits)

    @classmethod
    def of(cls, encoding: str) -> Decoder | None:
        if encoding in ("gzip", "x-gzip"):
            return cls(16 + zlib.MAX_WBITS)
        if encoding == "deflate":
            return cls(zlib.MAX_WBITS)
        return None

    def feed(self, piece: bytes) -> Iterator[bytes]:
        """What stands in the next piece, in parts of bounded length; raises `zlib.error` for another encoding."""
        while piece:
            yield self._inflate.decompress(piece, _STEP)
            piece = self._inflate.unconsumed_tail
            if self._inflate.eof:
                # One stream may follow another.
                piece = self._inflate.unused_data
                self._inflate = zlib.decompressobj(self._wbits)
