"""Cases of kind `tokens`: counts of texts per encoding; exact ones where the build has the encoding."""

from __future__ import annotations

from typing import Any, Literal

import quota

from .scenario import Failed

ENCODINGS: list[tuple[Literal["o200k_base", "cl100k_base"], str]] = [("o200k_base", "gpt-4o"), ("cl100k_base", "gpt-4")]


def run(case: Any) -> None:
    text = case["text"] if "text" in case else case["repeat"] * case["times"]
    for encoding, model in ENCODINGS:
        want = case["counts"][encoding]
        counted = quota.count_tokens(text, tokenizer=encoding, model=model)
        if counted.exact and (counted.expected != want or counted.reserve != want):
            raise Failed(f"{encoding}: {counted}, not {want}")
        for count in (counted, quota.count_tokens(text, model=model)):
            if count.reserve * 100 < want * 95 or count.reserve < count.expected:
                raise Failed(f"{encoding}: {count}, not at least 0.95 of {want}")
