"""Cases of kind `usage`: an upstream's status and body, and what they mean."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import Failed, same, shown

COUNTS = [
    "input_uncached",
    "input_cache_read",
    "input_cache_write_5m",
    "input_cache_write_1h",
    "input_cache_write_other",
    "input_audio",
    "input_image",
    "input_video",
    "output_text",
    "output_reasoning",
    "output_audio",
    "output_image",
    "audio_millis",
    "web_searches",
    "search_units",
    "pages",
    "images",
    "anomalies",
]


def normalized(usage: quota.Usage) -> dict[str, Any]:
    """Every field that is not zero, and the totals."""
    fields: dict[str, Any] = {name: count for name in COUNTS if (count := getattr(usage, name)) > 0}
    fields |= {"input_total": usage.input_total, "output_total": usage.output_total}
    if usage.provider_cost_usd is not None:
        fields["provider_cost"] = shown(usage.provider_cost_usd)
    if usage.service_tier is not None:
        fields["service_tier"] = usage.service_tier
    if usage.input_missing:
        fields["input_missing"] = True
    return fields


def told(outcome: quota.Outcome, estimate: int) -> dict[str, Any]:
    found: dict[str, Any] = {"state": outcome.state}
    if outcome.usage is not None:
        found["normalized"] = normalized(outcome.usage.or_input(estimate))
    if outcome.code is not None:
        found["code"] = outcome.code
    return found


def run(case: Any) -> None:
    outcome = quota.Outcome.of_answer(case["status"], case["body"], dialect=case["dialect"])
    found = told(outcome, case.get("estimate", 0))
    if "message" in case and outcome.message is not None:
        found["message"] = outcome.message
    known = ["id", "about", "dialect", "status", "body", "estimate"]
    wanted = {key: value for key, value in case.items() if key not in known}
    if not same(found, wanted):
        raise Failed(f"got {found}, wanted {wanted}")
