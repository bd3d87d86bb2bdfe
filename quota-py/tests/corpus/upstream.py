"""Cases of kind `upstream`: waits, rate-limit headers and errors of an upstream."""

from __future__ import annotations

from typing import Any

import quota
from quota.testing import ManualClock

from .scenario import Failed


def run(case: Any) -> None:
    clock = ManualClock(case["now"])
    if isinstance(case.get("value"), str):
        return expect(case.get("ms"), quota.upstream_wait_ms(case["value"], clock=clock))
    if "headers" in case:
        headers = [(name, value) for name, value in case["headers"]]
        return expect(case["told"], told(quota.UpstreamLimits.read(headers, clock=clock)))
    error = quota.UpstreamError.read(case["status"], case.get("body"), clock=clock)
    found: dict[str, Any] = {"fault": error.fault, "retryable": error.is_retryable}
    found |= {key: value for key, value in [("code", error.code), ("retry_after_ms", error.retry_after_ms)] if value is not None}
    expect(case["error"], found)


def told(limits: quota.UpstreamLimits) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name in ["requests", "tokens", "input_tokens", "output_tokens"]:
        limit: quota.UpstreamLimit | None = getattr(limits, name)
        if limit is not None:
            found[name] = {"limit": limit.limit, "remaining": limit.remaining, "resets_in_ms": limit.resets_in_ms}
    for name in ["retry_after_ms", "should_retry"]:
        if getattr(limits, name) is not None:
            found[name] = getattr(limits, name)
    return found


def expect(wanted: Any, found: Any) -> None:
    if wanted != found:
        raise Failed(f"got {found}, wanted {wanted}")
