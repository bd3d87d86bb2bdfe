"""Cases of kind `estimate`: bodies, what is read of them, and what they reserve."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import Failed


def made(value: Any) -> Any:
    """The body with its recipes carried out."""
    if isinstance(value, list):
        return [made(item) for item in value]
    if not isinstance(value, dict):
        return value
    if "$zeros" in value:
        return value.get("prefix", "") + "A" * (-(-value["$zeros"] // 3) * 4)
    if "$nest" in value:
        nested: list[Any] = []
        for _ in range(value["$nest"]):
            nested = [nested]
        return nested
    return {key: made(item) for key, item in value.items()}


def read(case: Any) -> quota.Request:
    dialect, body = case["dialect"], made(case["body"])
    if dialect == "gemini_generate_content":
        return quota.Request.from_body("gemini", body, model=case["model"], stream=False)
    return quota.Request.from_body(dialect, body)


def run(case: Any) -> None:
    want = dict(case["expect"])
    try:
        request = read(case)
    except quota.RequestError as error:
        if error.field != want.get("error"):
            raise Failed(f"refused: {error}") from error
        return
    if "error" in want:
        raise Failed(f"not refused at {want['error']}")
    ceilings = {name: [ceiling] for name, ceiling in case.get("ceilings", {}).items()}
    found: dict[str, Any] = {
        "output": request.output_ceiling(**ceilings),
        "choices": request.choices,
        "images": request.image_tokens,
        "model": request.model,
        "stream": request.stream,
        "user": request.user,
        "service_tier": request.service_tier,
    }
    bounds = want.pop("input", {})
    for name, value in want.items():
        if found[name] != value:
            raise Failed(f"{name} is {found[name]}, not {value}")
    reserve = quota.estimate(request).reserve
    if not bounds.get("at_least", 0) <= reserve <= bounds.get("at_most", reserve):
        raise Failed(f"input is {reserve}, not {bounds}")
