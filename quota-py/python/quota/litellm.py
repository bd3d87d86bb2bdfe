"""A hook for the LiteLLM proxy.

    # quota_hook.py, beside the proxy's configuration, which says `litellm_settings: {callbacks: quota_hook.hook}`
    hook = quota.litellm.QuotaHook(gate)            # or QuotaHook.from_env()

A request waits for its turn before it is routed. Its retries and fallbacks are made on the lease of the request; it ends by what
LiteLLM reports of the answer, or of the last failure. Attempts are told apart by LiteLLM's hooks of deployments, so that what
never left is given back in full.
"""

from __future__ import annotations

import asyncio
import os
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any

import openai
from fastapi import HTTPException
from litellm.integrations.custom_logger import CustomLogger

from ._bodies import SHAPES, Agreed, Shape, rewrite
from ._call import Call, outcome_of
from ._errors import InputError, Refused
from ._native import Gate, Outcome, Policy, Principal, Request

if TYPE_CHECKING:
    from litellm.proxy._types import UserAPIKeyAuth

__all__ = ["QuotaHook", "principal_of"]

_SHAPES: Mapping[str, Shape] = {
    "completion": SHAPES["openai_chat"],
    "acompletion": SHAPES["openai_chat"],
    "text_completion": SHAPES["openai_completions"],
    "atext_completion": SHAPES["openai_completions"],
    "embedding": SHAPES["openai_embeddings"],
    "embeddings": SHAPES["openai_embeddings"],
    "aembedding": SHAPES["openai_embeddings"],
    "responses": SHAPES["openai_responses"],
    "aresponses": SHAPES["openai_responses"],
    "anthropic_messages": SHAPES["anthropic_messages"],
    "aanthropic_messages": SHAPES["anthropic_messages"],
}
#: Calls that use no model.
_FREE = ("moderation", "amoderation", "list_mcp_tools", "call_mcp_tool")
#: What the proxy adds to a request's body.
_NOT_OF_THE_BODY = frozenset({"litellm_metadata", "metadata", "proxy_server_request", "secret_fields"})
#: What a body is admitted by.
_ADMITTED_BY = frozenset({
    *("model", "messages", "prompt", "suffix", "input", "instructions", "system", "tools", "functions", "response_format"),
    *("max_tokens", "max_completion_tokens", "max_output_tokens", "n", "best_of", "stream", "stream_options", "thinking"),
    *("service_tier", "user", "generationConfig", "generation_config", "contents"),
})
#: By which a body makes LiteLLM send another one than was admitted.
_OTHER_BODIES = ("fallbacks", "context_window_fallbacks", "content_policy_fallbacks", "context_window_fallback_dict")
#: The member of a request's metadata by which its events are found. A client's own is overwritten.
_KEY = "quota_call"
#: How long the event of an answer that has been sent may take, in seconds.
_LATE_S = 10.0


def principal_of(auth: UserAPIKeyAuth) -> Principal:
    """The principal of a key: its team is the tenant, or its organization, or its user where it has neither."""
    tenant = auth.team_alias or auth.team_id or auth.org_id or auth.user_id
    if not tenant:
        raise HTTPException(403, {"error": "the key has no team, no organization and no user to count by"})
    return Principal(tenant=tenant, user=auth.end_user_id or auth.user_id)


class QuotaHook(CustomLogger):
    """The hook. The proxy calls what stands in this class itself: it is not to be derived from.

    `principal` maps the key that LiteLLM has authenticated. `unmetered` are further types of calls that may pass; those that
    can't be metered are refused. A lease whose request lasts longer than `longest_s` is left to expire.
    """

    def __init__(
        self,
        gate: Gate,
        *,
        principal: Callable[[UserAPIKeyAuth], Principal] = principal_of,
        unmetered: Iterable[str] = (),
        longest_s: float = 3600,
    ) -> None:
        super().__init__()
        self.gate = gate
        self._principal = principal
        self._unmetered = frozenset((*_FREE, *unmetered))
        self._longest_s = longest_s
        self._calls: dict[str, Call] = {}
        #: Ends waits in time, and leases that nobody ends.
        self._keeper = gate.keeper()

    @classmethod
    def from_env(cls, variable: str = "QUOTA_POLICY", **options: Any) -> QuotaHook:
        """A hook with a gate of its own, whose policy is the file that an environment variable names."""
        path = os.environ.get(variable)
        if not path:
            raise InputError(f"{variable} names no policy file", code="policy_missing")
        return cls(Gate(Policy.from_file(path)), **options)

    async def async_pre_call_hook(
        self, user_api_key_dict: UserAPIKeyAuth, cache: Any, data: dict[str, Any], call_type: Any
    ) -> None:
        """Reserves, once a request. The body is changed where it is: what a later hook refuses is found by it."""
        shape = _SHAPES.get(call_type)
        if shape is None:
            if call_type not in self._unmetered:
                raise HTTPException(400, {"error": f"calls of type {call_type!r} can't be metered"})
            return
        _refuse_what_is_not_seen(data)
        body = {name: value for name, value in data.items() if _is_of_the_body(name, value)}
        try:
            request = Request.from_body(shape.dialect, body)
            lease = await self.gate.acquire(self._principal(user_api_key_dict), request)
        except InputError as error:
            raise HTTPException(400, {"error": str(error)}) from None
        except Refused as refused:
            status, headers, told = refused.refusal.response("openai")
            raise HTTPException(status, told, headers) from None
        key = uuid.uuid4().hex
        call = Call(lease, shape, longest_s=self._longest_s, at_end=lambda: self._calls.pop(key, None))
        self._calls[key] = call
        try:
            # LiteLLM itself asks streams for their usage.
            made, _ = rewrite(shape, body, Agreed.of(lease, request), stream=False)
        except InputError as error:
            call.never_sent()
            raise HTTPException(400, {"error": str(error)}) from None
        for name in body.keys() - made.keys():
            del data[name]
        data.update(made)
        _metadata(data)[_KEY] = key

    async def async_pre_call_deployment_hook(self, kwargs: dict[str, Any], call_type: Any) -> None:
        """An attempt is about to leave."""
        call = self._of(kwargs)
        if call is not None and not call.sent():
            raise HTTPException(503, {"error": "the request's reservation ended before it was sent"})

    async def async_post_call_failure_deployment_hook(
        self, request_data: Mapping[str, Any], exception: Exception, call_type: Any, fallback_depth: int | None = None
    ) -> None:
        """An attempt has failed; another may follow, so nothing is given back yet."""
        call = self._of(request_data)
        if call is not None:
            status = _status(exception)
            if status in (429, 503):
                call.lease.pool_refused()
            call.attempt_failed(Outcome.failed() if status is None else Outcome.of_answer(status))

    async def async_post_call_success_hook(
        self, data: dict[str, Any], user_api_key_dict: UserAPIKeyAuth, response: Any
    ) -> None:
        """An answer that is not streamed is there, and has not been sent to the asker yet."""
        call = self._of(data)
        if call is not None and not data.get("stream"):
            self._settle(call, response, getattr(response, "_hidden_params", None) or {})

    async def async_log_success_event(self, kwargs: dict[str, Any], response_obj: Any, start_time: Any, end_time: Any) -> None:
        """An answer is complete, also a streamed one; some time after it was sent."""
        call = self._of(kwargs)
        if call is not None:
            self._settle(call, response_obj, kwargs)

    async def async_post_call_failure_hook(
        self,
        request_data: dict[str, Any],
        original_exception: Exception,
        user_api_key_dict: UserAPIKeyAuth,
        traceback_str: str | None = None,
    ) -> None:
        """A request has failed for good: refused by a later hook, or after its last attempt."""
        call = self._of(request_data)
        if call is None:
            return
        if not call.is_sent:
            call.never_sent()
        elif isinstance(original_exception, openai.APIError):
            status = _status(original_exception)
            call.finish(Outcome.failed() if status is None else Outcome.of_answer(status))
        else:
            # A hook refused an answer that has run: its usage is still to be told.
            self._expects_event(call)

    async def async_post_call_streaming_iterator_hook(
        self, user_api_key_dict: UserAPIKeyAuth, response: Any, request_data: dict[str, Any]
    ) -> AsyncGenerator[Any, None]:
        """A stream on its way to the asker, who may leave."""
        call = self._of(request_data)
        is_over = False
        try:
            async for piece in response:
                yield piece
            is_over = True
        except Exception:
            # The failure hook is called with it.
            is_over = True
            raise
        finally:
            if call is not None and is_over:
                self._expects_event(call)
            elif call is not None:
                call.dropped()

    def _of(self, told: Mapping[str, Any]) -> Call | None:
        """The call that an event is about."""
        for place in (told, told.get("litellm_params")):
            for name in ("litellm_metadata", "metadata"):
                metadata = place.get(name) if isinstance(place, Mapping) else None
                key = metadata.get(_KEY) if isinstance(metadata, Mapping) else None
                if isinstance(key, str) and key in self._calls:
                    return self._calls[key]
        return None

    def _settle(self, call: Call, response: object, told: Mapping[str, Any]) -> None:
        if told.get("cache_hit") is True:
            # From LiteLLM's own cache.
            call.finish(Outcome.not_run())
            return
        usage = response.get("usage") if isinstance(response, Mapping) else getattr(response, "usage", None)
        outcome = outcome_of(200, usage, "auto")
        if _asker_has_left(told):
            # LiteLLM has counted by itself what had been sent until then.
            call.dropped(seen=outcome.usage)
        else:
            call.finish(outcome)

    def _expects_event(self, call: Call) -> None:
        asyncio.get_running_loop().call_later(_LATE_S, call.no_usage)


def _refuse_what_is_not_seen(data: Mapping[str, Any]) -> None:
    """LiteLLM lets a body say what is added to it, left out of it or sent in its place after this hook."""
    for name in _OTHER_BODIES:
        if data.get(name):
            raise HTTPException(400, {"error": f"{name}: what would be sent then was not admitted"})
    for name, kind in (("extra_body", dict), ("additional_drop_params", list)):
        told = data.get(name)
        if told is None:
            continue
        if not isinstance(told, kind):
            raise HTTPException(400, {"error": f"{name}: allowed: a JSON {'object' if kind is dict else 'array'}"})
        for member in told:
            if isinstance(member, str) and member in _ADMITTED_BY:
                raise HTTPException(400, {"error": f"{name}: {member} is what a request is admitted by"})


def _metadata(data: dict[str, Any]) -> dict[str, Any]:
    """Where the proxy keeps what is its own, which goes with the request to its events."""
    for name in ("litellm_metadata", "metadata"):
        found = data.get(name)
        if isinstance(found, dict):
            return found
    made: dict[str, Any] = {}
    data["metadata"] = made
    return made


def _is_of_the_body(name: str, value: object) -> bool:
    plain = value is None or isinstance(value, (str, int, float, list, dict))
    return plain and name not in _NOT_OF_THE_BODY and not name.startswith(("litellm_", "_"))


def _status(error: Exception) -> int | None:
    status = getattr(error, "status_code", None)
    return status if isinstance(status, int) else None


def _asker_has_left(told: Mapping[str, Any]) -> bool:
    parameters = told.get("litellm_params")
    metadata = parameters.get("metadata") if isinstance(parameters, Mapping) else None
    return isinstance(metadata, Mapping) and metadata.get("client_disconnected") is True
