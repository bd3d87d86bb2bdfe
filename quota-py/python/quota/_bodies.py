"""What endpoints differ in, and the body for the upstream: the asker's, with the model, bound and tools that were agreed.

What is not changed stays as it is. Of a body that can't be changed a `RequestError` tells why.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ._errors import RequestError

if TYPE_CHECKING:
    from ._native import Lease, Request, _BodyDialect, _Dialect, _Manner

__all__ = ["SHAPES", "Agreed", "Shape", "rewrite"]

#: Names by which upstreams let a body bound its output.
_BOUNDS = ("max_completion_tokens", "max_output_tokens", "max_tokens")

#: The least that thinking may be given in Anthropic's manner.
_MIN_THINKING = 1024


class Shape(NamedTuple):
    """What one kind of endpoint has of its own."""

    dialect: _BodyDialect
    #: How its answers report usage.
    answer: _Dialect
    #: Whose clients call it.
    manner: _Manner = "openai"
    #: The members that bound the output of one choice; the first is set where none is stated.
    bounds: tuple[str, ...] = ()
    #: Whether a stream has its usage only if `stream_options` asks for it.
    usage_on_request: bool = False


#: Every shape by the dialect of its bodies.
SHAPES: Mapping[str, Shape] = {
    shape.dialect: shape
    for shape in (
        Shape("openai_chat", "openai_chat", bounds=("max_completion_tokens", "max_tokens"), usage_on_request=True),
        Shape("openai_completions", "openai_chat", bounds=("max_tokens",), usage_on_request=True),
        Shape("openai_responses", "openai_responses", bounds=("max_output_tokens",)),
        Shape("openai_embeddings", "openai_embeddings"),
        Shape("anthropic_messages", "anthropic_messages", "anthropic", bounds=("max_tokens",)),
        Shape("gemini", "gemini", "gemini"),
    )
}


class Agreed(NamedTuple):
    """What a request was admitted as."""

    #: By the upstream's name.
    model: str
    #: The most output tokens of one choice.
    max_output_tokens: int
    #: Tools to leave out.
    disable_tools: list[str]

    @classmethod
    def of(cls, lease: Lease, request: Request) -> Agreed:
        lesser = lease.degradation
        most = max(1, lease.max_output_tokens // max(1, request.choices))
        return cls(lease.upstream_model, most, [] if lesser is None else lesser.disable_tools)


def rewrite(shape: Shape, body: Mapping[str, Any], agreed: Agreed, *, stream: bool) -> tuple[dict[str, Any], bool]:
    """The body for the upstream, and whether usage in the stream has to be kept from the asker, who has not asked for it."""
    made = dict(body)
    if shape.dialect == "gemini":
        _bound_gemini(made, agreed)
        return made, False
    made["model"] = agreed.model
    _bound(made, shape.bounds, agreed.max_output_tokens)
    if shape.manner == "anthropic":
        _bound_thinking(made, agreed.max_output_tokens)
    if agreed.disable_tools:
        _remove_tools(made, agreed.disable_tools)
    return made, stream and shape.usage_on_request and not _ask_for_usage(made)


def _wrong(field: str, allowed: str) -> RequestError:
    message = f"{field}: allowed: {allowed}"
    return RequestError(message, field=field, found="something else", allowed=allowed)


def _count(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else None


def _bound(body: dict[str, Any], names: tuple[str, ...], most: int) -> None:
    """Caps every bound of the endpoint, sets one if there is none, and leaves out those that are not the endpoint's."""
    bounded = False
    for name in _BOUNDS:
        if name not in body:
            continue
        asked = _count(body[name])
        if asked is None or name not in names:
            del body[name]
        else:
            body[name] = min(asked, most)
            bounded = True
    if names and not bounded:
        body[names[0]] = most


def _bound_gemini(body: dict[str, Any], agreed: Agreed) -> None:
    """Caps every bound, in either spelling; sets one if there is none."""
    bounded = False
    for name in ("generationConfig", "generation_config"):
        if body.get(name) is None:
            continue
        if not isinstance(body[name], Mapping):
            raise _wrong(name, "an object")
        body[name] = config = dict(body[name])
        for bound in ("maxOutputTokens", "max_output_tokens"):
            asked = _count(config.get(bound))
            if asked is not None:
                config[bound] = min(asked, agreed.max_output_tokens)
                bounded = True
            else:
                config.pop(bound, None)
    if not bounded:
        name = "generation_config" if body.get("generation_config") is not None else "generationConfig"
        body[name] = {**(body.get(name) or {}), "maxOutputTokens": agreed.max_output_tokens}
    if agreed.disable_tools and body.get("tools") is not None:
        body["tools"] = _kept_of_gemini(body["tools"], agreed.disable_tools)


def _kept_of_gemini(tools: object, names: list[str]) -> list[Any]:
    if not isinstance(tools, list):
        raise _wrong("tools", "a list")
    kept = []
    for tool in tools:
        if isinstance(tool, Mapping):
            tool = {name: value for name, value in tool.items() if name not in names}
            for functions in ("functionDeclarations", "function_declarations"):
                if isinstance(tool.get(functions), list):
                    tool[functions] = [one for one in tool[functions] if not _is_named(one, names)]
            tool = {name: value for name, value in tool.items() if value != []}
            if not tool:
                continue
        kept.append(tool)
    return kept


def _bound_thinking(body: dict[str, Any], most: int) -> None:
    """Thinking is part of the output, and has to be given less than all of it: what was agreed may be less than was asked."""
    thinking = body.get("thinking")
    if thinking is None:
        return
    if not isinstance(thinking, Mapping):
        raise _wrong("thinking", "an object")
    budget = _count(thinking.get("budget_tokens"))
    if budget is None or budget < most:
        return
    if most > _MIN_THINKING:
        body["thinking"] = {**thinking, "budget_tokens": most - 1}
    else:
        del body["thinking"]


def _is_named(tool: object, names: list[str]) -> bool:
    if not isinstance(tool, Mapping):
        return False
    function = tool.get("function")
    own = [function.get("name") if isinstance(function, Mapping) else None, tool.get("name"), tool.get("type")]
    return any(name in names for name in own if isinstance(name, str))


def _remove_tools(body: dict[str, Any], names: list[str]) -> None:
    for tools, choice in (("tools", "tool_choice"), ("functions", "function_call")):
        if body.get(tools) is None:
            continue
        if not isinstance(body[tools], list):
            raise _wrong(tools, "a list")
        kept = [tool for tool in body[tools] if not _is_named(tool, names)]
        body[tools] = kept
        if not kept:
            del body[tools]
            body.pop("parallel_tool_calls", None)
        if not kept or _is_named(body.get(choice), names):
            body.pop(choice, None)
    if "web_search" in names:
        body.pop("web_search_options", None)


def _ask_for_usage(body: dict[str, Any]) -> bool:
    """Makes a stream end with its usage; tells whether the asker wanted that anyway."""
    options = body.get("stream_options") or {}
    if not isinstance(options, Mapping):
        raise _wrong("stream_options", "an object")
    wants = options.get("include_usage") is True
    body["stream_options"] = {**options, "include_usage": True}
    return wants
