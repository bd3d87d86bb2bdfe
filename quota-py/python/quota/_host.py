"""What a host may plug into a gate, as types: any object that has these methods will do.

They are called from whatever thread the gate is in at that moment: a request's, the keeper's, the one that sweeps. Nothing
of the gate is held meanwhile, so they may call it; who called them waits for them. What they raise goes to
`sys.unraisablehook`, and the gate goes on: with its own count, without a load, without a push.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from ._native import ReplicaLoad, Request, TokenCount

__all__ = ["Estimator", "Journal", "Pool"]


class Estimator(Protocol):
    """Counts the input of requests whose count the host has not told."""

    def __call__(self, request: Request, tokenizer: str, /) -> int | TokenCount:
        """The tokens of `request.texts` and what is around them. `tokenizer` is the one that the policy names for the model.

        A whole number is both the guess and the reserve.
        """


class Journal(Protocol):
    """Takes every entry of a gate's journal as it is written, to keep it elsewhere."""

    def push(self, entry: dict[str, Any], /) -> object:
        """Takes one entry, as `Gate.journal` shows it. Of entries that are written at once a later `seq` may come first."""


class Pool(Protocol):
    """Tells how full a pool of replicas is.

    It may also have `reports()`, asked once: `False` where replicas are not measured and only their capacity is told, so
    that the gate does not look for their reaction.
    """

    def load(self, now_ns: int, /) -> Sequence[ReplicaLoad]:
        """The newest that is known, at once; `now_ns` is the gate's time. Nothing (`[]`) means that it is not known."""
