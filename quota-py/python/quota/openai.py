"""OpenAI's clients with a gate before their calls.

    client = quota.openai.wrap(OpenAI(), gate, quota.Principal(tenant="acme"))
    client.chat.completions.create(model="m", messages=[…])

The client that comes back is of the same class and used in the same ways: plain calls, streams, `parse` and `stream` helpers, raw
and streaming responses. Metered are chat completions, completions, responses and embeddings; other POSTs and websockets raise
`QuotaError` (`call_not_metered`). A refusal is a `quota.Refused` and the SDK's own error of its status at once: 429 is
`openai.RateLimitError`. The SDK's retries of one call are made on one lease; a refusal is not retried.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, TypeVar

import openai

from . import _sdk
from ._bodies import SHAPES

if TYPE_CHECKING:
    from ._native import Gate, Principal

__all__ = ["wrap"]

_Client = TypeVar("_Client", bound="openai.OpenAI | openai.AsyncOpenAI")

_ROUTES = {
    "/chat/completions": SHAPES["openai_chat"],
    "/completions": SHAPES["openai_completions"],
    "/responses": SHAPES["openai_responses"],
    "/embeddings": SHAPES["openai_embeddings"],
}
#: What costs nothing.
_FREE = ("/moderations", "/responses/input_tokens")


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
    if not isinstance(client, (openai.OpenAI, openai.AsyncOpenAI)):
        raise TypeError(f"an openai.OpenAI or openai.AsyncOpenAI is wanted, not {type(client).__name__}")
    terms = _sdk.Terms(gate, principal, _ROUTES, _sdk.unmetered_paths(_FREE, unmetered))
    wrapped: _Client = _sdk.wrap(client, terms, is_async=isinstance(client, openai.AsyncOpenAI))
    return wrapped
