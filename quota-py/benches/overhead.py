"""What a decision costs from Python, beside the same in the core alone and beside an empty call. It takes a release build.

    make bench-python      # which builds the release, and measures other limiters
    .cache/quota-py/benches/bin/python quota-py/benches/overhead.py

Each row is the best of several runs, in microseconds a time; compare rows of one run only.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

import quota
from quota import _native

TIMES, RUNS = 20_000, 5

LIMITS = {"rpm": 10**9, "tpm": 10**12, "daily_budget_usd": 10**6, "max_inflight": 1000}
DOCUMENT = {
    "models": {"m": {"price": {"input": "0.5", "output": 2}}, "pooled": {"pool": "h200"}},
    "tenants": {"acme": {**LIMITS, "models": {"m": {"rpm": 10**9}}}, "blue": {"models": ["pooled"]}},
}
BODY = {"model": "m", "max_tokens": 50, "messages": [{"role": "user", "content": "Name three rivers. " * 20}]}

gate = quota.Gate(quota.Policy.from_dict(DOCUMENT), pools={"h200": quota.FixedPool(replicas=1, max_running=1)})
who, blue = quota.Principal(tenant="acme"), quota.Principal(tenant="blue")
request = quota.Request(model="m", input_tokens=10, max_output_tokens=50)
usage = quota.Usage.tokens(10, 10)
report = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}


def micros(act: Callable[[], object]) -> float:
    def once() -> float:
        started = time.perf_counter()
        for _ in range(TIMES):
            act()
        return (time.perf_counter() - started) / TIMES * 1e6

    return min(once() for _ in range(RUNS))


def core_alone() -> float:
    def once() -> float:
        started = time.perf_counter()
        _native._floor(gate, who, request, TIMES)
        return (time.perf_counter() - started) / TIMES * 1e6

    return min(once() for _ in range(RUNS))


async def awaited() -> float:
    async def once() -> float:
        started = time.perf_counter()
        for _ in range(TIMES):
            (await gate.acquire(who, request)).settle(usage)
        return (time.perf_counter() - started) / TIMES * 1e6

    return min([await once() for _ in range(RUNS)])


async def handed_over() -> float:
    """Two tasks take turns in a pool of one: each turn is waited for and wakes the other."""
    asked = quota.Request(model="pooled", input_tokens=10, max_output_tokens=50)

    async def work(times: int) -> None:
        for _ in range(times):
            lease = await gate.acquire(blue, asked)
            await asyncio.sleep(0)
            lease.settle(usage)

    async def once(tasks: int) -> float:
        started = time.perf_counter()
        await asyncio.gather(*(work(TIMES // 10 // tasks) for _ in range(tasks)))
        return (time.perf_counter() - started) / (TIMES // 10) * 1e6

    return min([await once(2) for _ in range(RUNS)])


def main() -> None:
    rows = [
        ("an attribute of a native object", micros(lambda: request.stream)),
        ("admit + settle in the core alone", core_alone()),
        ("admit + settle(Usage)", micros(lambda: gate.admit(who, request).granted().settle(usage))),
        ("admit + settle(dict)", micros(lambda: gate.admit(who, request).granted().settle(report))),
        ("await acquire + settle(Usage)", asyncio.run(awaited())),
        ("Request.from_body(dict), 380 bytes of text", micros(lambda: quota.Request.from_body("openai_chat", BODY))),
        ("acquire that waits for another's end, and is woken", asyncio.run(handed_over())),
    ]
    for name, cost in rows:
        print(f"{name:52} {cost:8.2f} us")


if __name__ == "__main__":
    main()
