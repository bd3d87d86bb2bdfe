"""For tests of what uses a gate: a clock that stands still until it is moved, a pool without a GPU, and a check of the journal."""

from __future__ import annotations

from typing import NamedTuple

from ._native import Gate, ManualClock, SimulatedEvent, SimulatedPool, _replay

__all__ = ["ManualClock", "Replay", "SimulatedEvent", "SimulatedPool", "replay"]


class Replay(NamedTuple):
    """What the journal of a gate adds up to, beside its live accounts."""

    #: Entries that the journal no longer has.
    missing: int
    #: Accounts that were compared.
    compared: int
    #: Accounts that differ.
    differ: list[str]


def replay(gate: Gate) -> Replay:
    """Adds the journal up and compares it with the accounts."""
    return Replay(*_replay(gate))
