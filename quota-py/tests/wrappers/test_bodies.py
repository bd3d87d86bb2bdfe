"""The body for the upstream, as it was agreed."""

from __future__ import annotations

from typing import Any

import pytest

from quota import RequestError
from quota._bodies import SHAPES, Agreed, rewrite


def sent(dialect: str, body: dict[str, Any], most: int = 100, *tools: str, stream: bool = False) -> dict[str, Any]:
    before = repr(body)
    made, _ = rewrite(SHAPES[dialect], body, Agreed("m", most, list(tools)), stream=stream)
    assert repr(body) == before, "the asker's own is not changed"
    if dialect != "gemini":
        assert made.pop("model") == "m"
    return made


@pytest.mark.parametrize(
    ("dialect", "asked", "want"),
    [
        ("openai_chat", {}, {"max_completion_tokens": 100}),
        ("openai_chat", {"max_tokens": 7}, {"max_tokens": 7}),
        ("openai_chat", {"max_tokens": 700}, {"max_tokens": 100}),
        (
            "openai_chat",
            {"max_tokens": 7, "max_completion_tokens": 700},
            {"max_tokens": 7, "max_completion_tokens": 100},
        ),
        ("openai_chat", {"max_tokens": None, "max_output_tokens": 900}, {"max_completion_tokens": 100}),
        ("openai_chat", {"max_tokens": True}, {"max_completion_tokens": 100}),
        ("openai_completions", {"max_completion_tokens": 9}, {"max_tokens": 100}),
        ("openai_responses", {"max_tokens": 9, "max_output_tokens": 101}, {"max_output_tokens": 100}),
        ("openai_embeddings", {"max_tokens": 99}, {}),
        ("anthropic_messages", {"max_tokens": 99}, {"max_tokens": 99}),
        ("gemini", {}, {"generationConfig": {"maxOutputTokens": 100}}),
        (
            "gemini",
            {"generationConfig": {"maxOutputTokens": 7, "topK": 3}},
            {"generationConfig": {"maxOutputTokens": 7, "topK": 3}},
        ),
        (
            "gemini",
            {"generation_config": {"max_output_tokens": 700}},
            {"generation_config": {"max_output_tokens": 100}},
        ),
        # Whichever of them the upstream reads.
        (
            "gemini",
            {"generation_config": {"maxOutputTokens": 5, "max_output_tokens": 700}, "generationConfig": {"maxOutputTokens": 900}},
            {"generation_config": {"maxOutputTokens": 5, "max_output_tokens": 100}, "generationConfig": {"maxOutputTokens": 100}},
        ),
        ("gemini", {"generationConfig": None, "generation_config": {}}, {"generationConfig": None, "generation_config": {"maxOutputTokens": 100}}),
    ],
)
def test_bounds_are_capped_and_never_raised(dialect: str, asked: dict[str, Any], want: dict[str, Any]) -> None:
    assert sent(dialect, asked) == want


@pytest.mark.parametrize(
    ("budget", "most", "want"), [(2000, 4000, 2000), (4000, 4000, 3999), (4000, 1025, 1024), (4000, 1024, None)]
)
def test_thinking_stays_below_the_bound(budget: int, most: int, want: int | None) -> None:
    asked = {"max_tokens": 8000, "thinking": {"type": "enabled", "budget_tokens": budget}}
    assert sent("anthropic_messages", asked, most).get("thinking", {}).get("budget_tokens") == want


def test_tools_are_taken_away() -> None:
    search = {"type": "function", "function": {"name": "web_search"}}
    add = {"type": "function", "function": {"name": "sum", "parameters": {"z": 1.0}}}
    made = sent("openai_chat", {"tools": [search, add], "tool_choice": search, "web_search_options": {}}, 9, "web_search")
    assert made == {"tools": [add], "max_completion_tokens": 9}
    made = sent("openai_responses", {"tools": [{"type": "web_search"}], "tool_choice": "auto"}, 9, "web_search")
    assert made == {"max_output_tokens": 9}
    named = {"functionDeclarations": [{"name": "sum"}, {"name": "search"}]}
    made = sent("gemini", {"tools": [{"googleSearch": {}}, named]}, 9, "googleSearch", "search")
    assert made["tools"] == [{"functionDeclarations": [{"name": "sum"}]}]


def test_streams_end_with_their_usage() -> None:
    for options, wants in ((None, False), ({"include_usage": False}, False), ({"include_usage": True}, True)):
        body = {"stream_options": options}
        made, strip = rewrite(SHAPES["openai_chat"], body, Agreed("m", 1, []), stream=True)
        assert (made["stream_options"], strip) == ({"include_usage": True}, not wants)
    for dialect in ("openai_responses", "anthropic_messages"):
        assert "stream_options" not in sent(dialect, {}, stream=True)


@pytest.mark.parametrize(
    ("dialect", "asked", "field"),
    [
        ("openai_chat", {"stream_options": 3}, "stream_options"),
        ("openai_chat", {"tools": {}}, "tools"),
        ("anthropic_messages", {"thinking": "yes"}, "thinking"),
        ("gemini", {"generationConfig": 3}, "generationConfig"),
        ("gemini", {"generationConfig": {}, "generation_config": 3}, "generation_config"),
        ("gemini", {"tools": 3}, "tools"),
    ],
)
def test_what_can_not_be_changed_is_refused(dialect: str, asked: dict[str, Any], field: str) -> None:
    with pytest.raises(RequestError) as caught:
        sent(dialect, asked, 9, "web_search", stream=True)
    assert caught.value.field == field
