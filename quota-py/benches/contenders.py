"""What is measured: one turn is a request that is let in under six limits, none of which is ever reached, and ended."""

# The packages that are only measured are not where types are checked.
# mypy: disable-error-code="import-not-found,import-untyped,no-any-return"
# pyright: reportMissingImports=false, reportAttributeAccessIssue=false

from __future__ import annotations

import asyncio
import os
import time
import uuid
from collections.abc import Callable
from typing import Any

# Before LiteLLM is imported: it would ask the network for prices.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"

import limits
import limits.storage
import limits.strategies
import litellm
import pyrate_limiter
from litellm.caching.dual_cache import DualCache
from litellm.proxy._types import UserAPIKeyAuth
from litellm.proxy.hooks import parallel_request_limiter_v3 as limiter
from litellm.proxy.utils import InternalUsageCache

import quota
from quota import _native

#: Runs so many turns and gives the nanoseconds of all of them. Processor time of this thread: what else runs on the machine is
#: not in it.
Contender = Callable[[int], float]

MUCH = 10**12
POLICY = {
    "models": {"m": {"price": {"input": "0.5", "output": 2}}},
    "tenants": {
        "acme": {
            "rpm": 10**9,
            "tpm": MUCH,
            "input_tpd": MUCH,
            "daily_budget_usd": 10**6,
            "max_inflight": 10**6,
            "models": {"m": {"rpm": 10**9}},
        }
    },
}
MESSAGES = [{"role": "user", "content": "Name three rivers."}]
INPUT, OUTPUT = 10, 10


def timed(act: Callable[[], object]) -> Contender:
    def run(times: int) -> float:
        started = time.thread_time_ns()
        for _ in range(times):
            act()
        return time.thread_time_ns() - started

    return run


class Gated:
    """The gate, with so many other requests in flight."""

    def __init__(self, in_flight: int = 0) -> None:
        self.gate = quota.Gate(quota.Policy.from_dict(POLICY))
        self.who = quota.Principal(tenant="acme")
        self.request = quota.Request(model="m", input_tokens=INPUT, max_output_tokens=50)
        self.usage = quota.Usage.tokens(INPUT, OUTPUT)
        self.held = [self.gate.admit(self.who, self.request).granted() for _ in range(in_flight)]

    def settle(self) -> Contender:
        gate, who, request, usage = self.gate, self.who, self.request, self.usage
        return timed(lambda: gate.admit(who, request).granted().settle(usage))

    def settle_report(self) -> Contender:
        gate, who, request = self.gate, self.who, self.request
        report = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
        return timed(lambda: gate.admit(who, request).granted().settle(report))

    def core(self) -> Contender:
        """The same turns without Python in between."""

        def run(times: int) -> float:
            started = time.thread_time_ns()
            _native._floor(self.gate, self.who, self.request, times)
            return time.thread_time_ns() - started

        return run

    def empty_calls(self) -> Contender:
        """As many calls as a turn has, with as many arguments, that do nothing."""
        nothing, who, request, usage = _native._nothing, self.who, self.request, self.usage

        def turn() -> None:
            nothing(who, request)
            nothing()
            nothing(usage)

        return timed(turn)


def limits_in_sequence() -> Contender:
    """Six limits hit one after the other; nothing is given back."""
    strategy = limits.strategies.FixedWindowRateLimiter(limits.storage.MemoryStorage())
    items = [limits.RateLimitItemPerMinute(MUCH, multiples=1 + number) for number in range(6)]

    def turn() -> None:
        for item in items:
            if not strategy.hit(item, "acme"):
                raise RuntimeError("a limit is reached")

    return timed(turn)


def pyrate_six_rates() -> Contender:
    """One bucket with six rates; nothing is given back."""
    rates = [pyrate_limiter.Rate(10**9 * (1 + number), (1 + number) * pyrate_limiter.Duration.SECOND) for number in range(6)]
    of = pyrate_limiter.Limiter(rates)

    def turn() -> None:
        if not of.try_acquire("acme", blocking=False):
            raise RuntimeError("a limit is reached")

    return timed(turn)


class LiteLLM:
    """LiteLLM's own limiter: its hook before a call and its event of success, with so many other requests in flight.

    Six limits: requests, tokens and requests in flight of a key, requests and tokens of its team, requests of its user.
    """

    def __init__(self, in_flight: int = 0) -> None:
        self.cache = DualCache()
        self.hook = limiter._PROXY_MaxParallelRequestsHandler_v3(InternalUsageCache(self.cache))
        self.auth = UserAPIKeyAuth(
            api_key="k" * 64,
            rpm_limit=10**9,
            tpm_limit=MUCH,
            max_parallel_requests=10**6,
            team_id="acme",
            team_rpm_limit=10**9,
            team_tpm_limit=MUCH,
            user_id="ann",
            user_rpm_limit=10**9,
        )
        usage = litellm.Usage(prompt_tokens=INPUT, completion_tokens=OUTPUT, total_tokens=INPUT + OUTPUT)
        self.answer = litellm.ModelResponse(model="m", usage=usage)
        self.loop = asyncio.new_event_loop()
        self.loop.run_until_complete(self._hold(in_flight))

    async def _hold(self, in_flight: int) -> None:
        for _ in range(in_flight):
            await self._before()

    async def _before(self) -> str:
        # Each request of the proxy has a context of its own.
        limiter._request_stash.set(None)
        call = uuid.uuid4().hex
        data = {"model": "m", "messages": MESSAGES, "max_tokens": 50, "litellm_call_id": call}
        await self.hook.async_pre_call_hook(self.auth, self.cache, data, "acompletion")
        return call

    async def _turn(self) -> None:
        call = await self._before()
        told = {
            "user_api_key_hash": self.auth.api_key,
            "user_api_key_team_id": self.auth.team_id,
            "user_api_key_user_id": self.auth.user_id,
        }
        kwargs = {"model": "m", "litellm_call_id": call, "litellm_params": {}, "standard_logging_object": {"metadata": told}}
        await self.hook.async_log_success_event(kwargs, self.answer, None, None)

    def run(self, times: int) -> float:
        async def turns() -> float:
            started = time.thread_time_ns()
            for _ in range(times):
                await self._turn()
            return time.thread_time_ns() - started

        return self.loop.run_until_complete(turns())

    def in_flight(self) -> int:
        """What the limiter itself says is in flight, to check that turns end."""
        (key,) = [key for key in self.cache.in_memory_cache.cache_dict if key.endswith(":max_parallel_requests")]
        found: Any = self.cache.in_memory_cache.get_cache(key)
        return len(found)
