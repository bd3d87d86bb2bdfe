"""Cases of kind `respond`: a refusal as data, answered in both manners; or balances, as rate-limit headers.

Headers are exactly those stated; a body holds at least the members stated.
"""

from __future__ import annotations

import json
from typing import Any, Literal, get_args

import quota

from .scenario import Failed

Manner = Literal["openai", "anthropic"]


def run(case: Any) -> None:
    if "balances" in case:
        balances = [quota.Balance.from_dict(data) for data in case["balances"]]
        expect("openai", case["openai"], quota.balance_headers(balances))
        expect("anthropic", case["anthropic"], quota.balance_headers(balances, "anthropic", at=case["now"]))
        return expect("ietf", case["ietf"], quota.balance_headers(balances, "ietf"))
    refusal = quota.Refusal.from_dict(case["refusal"])
    expect("as data", refusal, quota.Refusal.from_dict(refusal.to_dict()))
    starts = {"openai": "data: ", "anthropic": "event: error\ndata: "}
    manner: Manner
    for manner in get_args(Manner):
        wanted = case[manner]
        status, headers, body = refusal.response(manner)
        expect(f"{manner}: status", wanted["status"], status)
        expect(f"{manner}: headers", wanted["headers"], headers)
        holds(f"{manner}: body", wanted["body"], body)
        frame = refusal.stream_error(manner)
        data = frame.removeprefix(starts[manner]).removesuffix("\n\n")
        expect(f"{manner}: frame", frame, f"{starts[manner]}{data}\n\n")
        expect(f"{manner}: lines", 1, len(data.splitlines()))
        expect(f"{manner}: frame", body, json.loads(data))


def holds(at: str, wanted: Any, found: Any) -> None:
    """Every member of an object, every element of a list, equal scalars."""
    if isinstance(wanted, dict) and isinstance(found, dict):
        for key, value in wanted.items():
            if key not in found:
                raise Failed(f"{at}.{key}: absent")
            holds(f"{at}.{key}", value, found[key])
    elif isinstance(wanted, list) and isinstance(found, list) and len(wanted) == len(found):
        for number, (value, other) in enumerate(zip(wanted, found, strict=True)):
            holds(f"{at}[{number}]", value, other)
    else:
        expect(at, wanted, found)


def expect(at: str, wanted: Any, found: Any) -> None:
    if wanted != found or type(wanted) is not type(found):
        raise Failed(f"{at}: got {found}, wanted {wanted}")
