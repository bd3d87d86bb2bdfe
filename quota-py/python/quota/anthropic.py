"""Anthropic's clients with a gate before their calls.

    client = quota.anthropic.wrap(Anthropic(), gate, quota.Principal(tenant="acme"))
    client.messages.create(model="m", max_tokens=100, messages=[…])

The client that comes back is of the same class and used in the same ways: plain calls, streams, `parse` and `stream` helpers, raw
and streaming responses. Metered are messages, also those of `beta`; other POSTs raise `QuotaError` (`call_not_metered`). A
refusal is a `quota.Refused` and the SDK's own error of its status at once: 429 is `anthropic.RateLimitError`. The SDK's
retries of one call are made on one lease; a refusal is not retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import anthropic

from . import _sdk
from ._bodies import SHAPES

if TYPE_CHECKING:
    from ._native import Gate, Principal

__all__ = ["wrap"]

_Client = TypeVar("_Client", bound="anthropic.Anthropic | anthropic.AsyncAnthropic")

_ROUTES = {"/v1/messages": SHAPES["anthropic_messages"]}
#: What costs nothing.
_FREE = ("/v1/messages/count_tokens",)


def wrap(
    client: _Client,
    gate: Gate,
    principal: Principal | Callable[[], Principal],
    *,
    unmetered: Iterable[str] = (),
) -> _Client:
    """A copy of the client whose calls ask the gate first. The principal may be a function that is asked at each call.

    `unmetered` lists further paths below the client's base that may be posted to, with the wildcards of shells.
    """
    if not isinstance(client, (anthropic.Anthropic, anthropic.AsyncAnthropic)):
        raise TypeError(f"an anthropic.Anthropic or AsyncAnthropic is wanted, not {type(client).__name__}")
    terms = _sdk.Terms(gate, principal, _ROUTES, _sdk.unmetered_paths(_FREE, unmetered))
    wrapped: _Client = _sdk.wrap(client, terms, is_async=isinstance(client, anthropic.AsyncAnthropic))
    return wrapped
