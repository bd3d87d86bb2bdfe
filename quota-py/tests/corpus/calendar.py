"""Cases of kind `calendar`: the period of a unit in a zone that holds an instant, and the nanoseconds at its edges."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import quota

from .scenario import Failed

#: Of `2026-03-28T23:00:00Z`; the edges of periods are whole seconds.
FORM = "%Y-%m-%dT%H:%M:%SZ"


def just_before(at: str) -> str:
    """A nanosecond earlier."""
    second = datetime.strptime(at, FORM) - timedelta(seconds=1)
    return second.strftime("%Y-%m-%dT%H:%M:%S.999999999Z")


def run(case: Any) -> None:
    options = {name: case[name] for name in ("seconds", "start_day") if name in case}
    calendar = quota.Calendar(case["unit"], case["zone"], **options)
    found, start, end = calendar.period(case["holds"]), case["start"], case["end"]
    if (found.start, found.end) != (start, end):
        raise Failed(f"got {found}, wanted {start} to {end}")
    numbers = [calendar.period(at).number for at in (just_before(start), start, just_before(end), end)]
    if numbers != [found.number - 1, found.number, found.number, found.number + 1]:
        raise Failed(f"numbered {numbers} at its edges, {found.number} inside")
    hours = (datetime.strptime(end, FORM) - datetime.strptime(start, FORM)) / timedelta(hours=1)
    if case.get("hours", hours) != hours:
        raise Failed(f"{hours} hours, not {case['hours']}")
