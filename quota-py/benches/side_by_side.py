"""Admitting and settling in Python beside what else limits there, in one run: `make bench-python`.

Rounds take turns, so that what slows the machine for a while slows all alike; each figure is the median of its rounds,
each ratio the median of the ratios within a round.
"""

from __future__ import annotations

import platform
import sys
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from statistics import median
from typing import NamedTuple

import quota
from contenders import Contender, Gated, LiteLLM, limits_in_sequence, pyrate_six_rates

ROUNDS = 15


class Row(NamedTuple):
    name: str
    run: Contender
    #: Turns in a round.
    turns: int
    #: Microseconds a turn, one for each round.
    found: list[float]

    @property
    def micros(self) -> float:
        return median(self.found)


def row(name: str, run: Contender, turns: int = 5000) -> Row:
    return Row(name, run, turns, [])


def ratio(one: Row, other: Row) -> float:
    return median(mine / theirs for mine, theirs in zip(one.found, other.found))


def judge(name: str, found: float, limit: float, *, at_most: bool, unit: str) -> str:
    met = found <= limit if at_most else found >= limit
    bound = f"{'<=' if at_most else '>='} {limit:g} {unit}"
    return f"{'ok  ' if met else 'MISS'} {name:<62} {found:10.2f} {unit:<4} {bound:>12}"


def measure(rows: Sequence[Row]) -> None:
    for each in rows:
        each.run(max(1, each.turns // 10))
    for _ in range(ROUNDS):
        for each in rows:
            each.found.append(each.run(each.turns) / each.turns / 1e3)


def main() -> None:
    gated, lite, busy_lite = Gated(), LiteLLM(), LiteLLM(1000)
    calls = row("three calls that do nothing", gated.empty_calls())
    core = row("admit + settle in the core alone", gated.core())
    ours = row("admit + settle(Usage)", gated.settle())
    report = row("admit + settle(dict)", gated.settle_report())
    busy = [row(f"admit + settle(Usage), {held:,} in flight", Gated(held).settle()) for held in (1, 100, 1000, 10_000)]
    in_sequence = row("limits: six limits hit in sequence, in memory", limits_in_sequence(), 1000)
    pyrate = row("pyrate-limiter: one bucket of six rates, in memory", pyrate_six_rates(), 1000)
    litellm = row("LiteLLM's limiter: before a call + success", lite.run, 50)
    busy_litellm = row("LiteLLM's limiter, 1,000 in flight", busy_lite.run, 10)
    rows = [calls, core, ours, report, *busy, in_sequence, pyrate, litellm, busy_litellm]
    measure(rows)
    if (lite.in_flight(), busy_lite.in_flight()) != (0, 1000):
        sys.exit("a turn of LiteLLM's limiter has not ended")

    names = ", ".join(f"{name} {version(name)}" for name in ("limits", "pyrate-limiter", "litellm"))
    print(f"quota {quota.__version__}, {names}; CPython {platform.python_version()}, {processor()}")
    print(f"processor time of the thread, median of {ROUNDS} rounds that take turns\n")
    print(f"{'a turn under six limits':<54} {'us':>9} {'times ours':>11}")
    for each in rows:
        print(f"{each.name:<54} {each.micros:9.2f} {ratio(each, ours):11.2f}")
    print()
    binding = median(mine - empty - inner for mine, empty, inner in zip(ours.found, calls.found, core.found))
    above = median(mine - empty for mine, empty in zip(ours.found, calls.found))
    print(judge("admit + settle(Usage) above its three empty calls", above, 2, at_most=True, unit="us"))
    print(f"       of which the binding, without the core{'':23} {binding:10.2f} us")
    print(judge("10,000 in flight over 1", ratio(busy[-1], busy[0]), 1.25, at_most=True, unit="x"))
    print(judge("pyrate-limiter over admit + settle(Usage)", ratio(pyrate, ours), 10, at_most=False, unit="x"))
    print(judge("LiteLLM's limiter over admit + settle(Usage)", ratio(litellm, ours), 200, at_most=False, unit="x"))
    beside = ratio(busy_litellm, busy[2])
    print(judge("the same, each with 1,000 in flight", beside, 200, at_most=False, unit="x"))


def processor() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return platform.processor() or platform.machine()
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())


if __name__ == "__main__":
    main()
