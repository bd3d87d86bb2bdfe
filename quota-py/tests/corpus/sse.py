"""Cases of kind `sse`: what a streamed answer comes to, and which of its bytes pass, however they are cut."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import FIXTURES, Failed, same
from .usage import normalized, told


def stream(case: Any) -> bytes:
    if "file" in case:
        return (FIXTURES / "sse" / str(case["file"])).read_bytes()
    parts = case["stream"] if isinstance(case["stream"], list) else [case["stream"]]
    texts = [part if isinstance(part, str) else part["repeat"] * part["times"] for part in parts]
    return "".join(texts).encode()


def read(case: Any, whole: bytes, sizes: list[int]) -> dict[str, Any]:
    """What is read when the stream comes in slices of these sizes, the last size over and over."""
    reader = quota.StreamReader(
        case["dialect"], strip_usage=case.get("strip", False), max_event=case.get("max_event")
    )
    passed, at, number = bytearray(), 0, 0
    while at < len(whole):
        size = sizes[min(number, len(sizes) - 1)]
        passed += reader.feed(whole[at : at + size])
        at, number = at + size, number + 1
    output = reader.output_so_far
    end = reader.finish()
    passed += end.tail
    estimate = case.get("estimate", 0)
    found = told(end.outcome, estimate)
    if end.seen is not None:
        found["seen"] = normalized(end.seen.or_input(estimate))
    found |= {key: True for key, flag in [("failed", end.failed), ("done", end.done)] if flag}
    if end.anomalies > 0:
        found["anomalies"] = end.anomalies
    if "output" in case:
        found["output"] = output
    if passed != whole:
        found["passed"] = passed.decode()
    return found


def run(case: Any) -> None:
    whole = stream(case)
    found = read(case, whole, [max(1, len(whole))])
    # Cutting at each place is the core's to try: here, that no slice is lost on the way.
    for size in [1, 2, 3, 7, 64]:
        if (cut := read(case, whole, [size])) != found:
            raise Failed(f"cut {size}: got {cut}, whole {found}")
    known = ["id", "about", "dialect", "stream", "file", "strip", "max_event", "estimate"]
    wanted = {key: value for key, value in case.items() if key not in known}
    if not same(found, wanted):
        raise Failed(f"got {found}, wanted {wanted}")
