"""Cases of kind `metrics`: what inference servers tell of their load, and the priorities that they are told."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import Failed

FIGURES = ["running", "waiting", "kv_used_ppm", "kv_tokens", "max_running", "preemptions"]


def run(case: Any) -> None:
    if "rank" in case:
        hint = quota.priority_hint(case["dialect"], case["rank"])
        told = None if hint is None else {"field": hint[0], "value": hint[1]}
        return expect("priority", case.get("priority"), told)
    try:
        report = quota.read_load(case["dialect"], "\n".join(case["text"]), model=case.get("model"))
    except quota.InputError as error:
        return expect("error", case.get("error"), error.code)
    figures = {name: figure for name in FIGURES if (figure := getattr(report.load, name)) is not None}
    expect("load", case.get("load"), figures)
    expect("bad_lines", case.get("bad_lines", 0), report.bad_lines)
    if "models" in case:
        expect("models", case["models"], report.models)


def expect(what: str, wanted: Any, found: Any) -> None:
    if wanted != found:
        raise Failed(f"{what}: got {found}, wanted {wanted}")
