"""Usage as it comes: dictionaries, texts, the SDKs' own objects, and what is none."""

from __future__ import annotations

import dataclasses
import json
import types
from decimal import Decimal
from typing import Any

import pytest

import quota
from conftest import ACME, request

OPENAI = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}


@dataclasses.dataclass
class Report:
    prompt_tokens: int
    completion_tokens: int


class Slotted:
    __slots__ = ("completion_tokens", "prompt_tokens")

    def __init__(self) -> None:
        self.prompt_tokens, self.completion_tokens = 10, 5


@pytest.mark.parametrize(
    "report",
    [
        OPENAI,
        {"usage": OPENAI, "choices": []},
        json.dumps(OPENAI),
        json.dumps({"usage": OPENAI}).encode(),
        types.MappingProxyType(OPENAI),
        types.SimpleNamespace(**OPENAI, _private="x"),
        types.SimpleNamespace(usage=types.SimpleNamespace(**OPENAI)),
        Report(10, 5),
        Slotted(),
        {"prompt_tokens": 10.0, "completion_tokens": 5},
    ],
    ids=lambda report: type(report).__name__,
)
def test_a_report_is_read_as_it_stands(gate: quota.Gate, report: Any) -> None:
    assert quota.Usage.read(report) == quota.Usage.tokens(10, 5)
    receipt = gate.admit(ACME, request()).granted().settle(report)
    assert (receipt.charged.input_tokens, receipt.charged.output_tokens) == (10, 5)


def test_the_openai_packages_own_objects() -> None:
    from openai.types import CompletionUsage
    from openai.types.chat import ChatCompletion

    usage = CompletionUsage.model_validate(
        OPENAI | {"completion_tokens_details": {"reasoning_tokens": 2}, "prompt_tokens_details": {"cached_tokens": 4}}
    )
    for report in [usage, {"usage": usage}]:
        read = quota.Usage.read(report, dialect="openai_chat")
        assert (read.input_uncached, read.input_cache_read, read.output_text, read.output_reasoning) == (6, 4, 3, 2)
    answer = ChatCompletion.model_validate(
        {
            "id": "c",
            "object": "chat.completion",
            "created": 1,
            "model": "m",
            "service_tier": "flex",
            "choices": [{"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": "hi"}}],
            "usage": OPENAI,
        }
    )
    read = quota.Usage.read(answer)
    assert (read.total, read.service_tier, read.anomalies) == (15, "flex", 0)


def test_the_anthropic_packages_own_objects() -> None:
    from anthropic.types import Usage

    report = Usage(input_tokens=10, output_tokens=5, cache_read_input_tokens=100, cache_creation_input_tokens=7)
    read = quota.Usage.read(report, dialect="anthropic_messages")
    assert (read.input_uncached, read.input_cache_read, read.input_cache_write_5m) == (10, 100, 7)
    assert read.output_total == 5 and read.input_total == 117


@pytest.mark.parametrize(
    ("report", "code"),
    [
        ({}, "usage_missing"),
        ({"choices": []}, "usage_missing"),
        ([], "usage_missing"),
        ({"prompt_tokens": 0, "completion_tokens": 0}, "usage_all_zero"),
        ({"prompt_tokens": -1, "completion_tokens": 0}, "usage_malformed"),
        ({"prompt_tokens": 1.5, "completion_tokens": 0}, "usage_malformed"),
        ({"prompt_tokens": float("nan"), "completion_tokens": 1}, "usage_malformed"),
        ({"prompt_tokens": float("inf"), "completion_tokens": 1}, "usage_malformed"),
        ({"prompt_tokens": 2**200, "completion_tokens": 1}, "usage_malformed"),
        ({"prompt_tokens": "12", "completion_tokens": 1}, "usage_malformed"),
        ({"prompt_tokens": True, "completion_tokens": 1}, "usage_malformed"),
        ("", "json_invalid"),
        (b"\xff", "json_invalid"),
        ("{", "json_invalid"),
    ],
)
def test_what_is_no_report_changes_nothing(gate: quota.Gate, report: Any, code: str) -> None:
    lease = gate.admit(ACME, request()).granted()
    with pytest.raises(quota.InputError) as caught:
        lease.settle(report)
    assert caught.value.code == code and isinstance(caught.value, ValueError)
    assert lease.sent(), "it is open as before"
    assert lease.settle(OPENAI).charged.tokens == 15


@pytest.mark.parametrize("report", [None, 5, object(), print, dict, {1: 2}, {"usage": object()}])
def test_what_is_of_a_wrong_type_is_told(gate: quota.Gate, report: Any) -> None:
    lease = gate.admit(ACME, request()).granted()
    with pytest.raises((TypeError, quota.UsageError)):
        lease.settle(report)
    lease.cancel()


def test_an_error_of_the_object_itself_comes_through(gate: quota.Gate) -> None:
    class Broken:
        def model_dump(self, mode: str) -> dict[str, int]:
            raise RuntimeError("not today")

    class Endless:
        def model_dump(self, mode: str) -> Endless:
            return self

    lease = gate.admit(ACME, request()).granted()
    with pytest.raises(RuntimeError, match="not today"):
        lease.settle(Broken())
    with pytest.raises(quota.InputError) as caught:
        lease.settle(Endless())
    assert caught.value.code == "too_deep"
    lease.cancel()


def test_a_usage_is_made_of_counts() -> None:
    usage = quota.Usage(input_uncached=3, output_text=4, input_missing=False, service_tier="flex")
    assert (usage.requests, usage.total, usage.service_tier) == (1, 7, "flex")
    assert repr(usage) == "Usage(requests=1, input_uncached=3, output_text=4)"
    assert quota.Usage(output_text=4, input_missing=True).or_input(9).input_total == 9
    assert usage != quota.Usage.tokens(3, 4) and usage != 5
    with pytest.raises(TypeError):
        quota.Usage(5)  # type: ignore[call-arg]
    with pytest.raises(ValueError):
        quota.Usage(pages=-1)


def test_what_the_provider_says_that_it_cost_is_a_decimal() -> None:
    usage = quota.Usage.read(OPENAI | {"cost": 0.00123})
    assert usage.provider_cost_usd == Decimal("0.00123")
