"""A fair queue: a pool runs two requests at once. One tenant asks for eight, then another for three; who asks for little
does not wait for who asks for much. One of those who wait gives up."""

import asyncio
from pathlib import Path

import quota
from quota.testing import ManualClock

clock = ManualClock("2026-03-02T12:00:00Z")
gate = quota.Gate(
    quota.Policy.from_file(Path(__file__).with_name("policy.yaml")),
    clock=clock,
    pools={"gpus": quota.FixedPool(replicas=1, max_running=2)},
)


async def main() -> None:
    turns: asyncio.Queue[tuple[str, quota.Lease]] = asyncio.Queue()

    async def ask(tenant: str, number: int) -> None:
        request = quota.Request(model="m", input_tokens=4_000, max_output_tokens=2_000)
        lease = await gate.acquire(quota.Principal(tenant=tenant), request)
        turns.put_nowait((f"{tenant} {number}", lease))

    hogs = [asyncio.create_task(ask("hog", number)) for number in range(1, 9)]
    lights = [asyncio.create_task(ask("light", number)) for number in range(1, 4)]

    running: list[quota.Lease] = []
    for turn in range(1, 11):
        name, lease = await turns.get()
        print(f"turn {turn}: {name}, waited {lease.waited_ms} ms")
        running.append(lease)
        if turn == 2:
            hogs.pop(6).cancel()  # hog 7 gives up
        if len(running) == 2:
            clock.advance(100)
            running.pop(0).settle(quota.Usage.tokens(4_000, 2_000))
    running.pop(0).settle(quota.Usage.tokens(4_000, 2_000))
    load = gate.pool_load("gpus")
    print(f"in flight: {load[0] if load else None}")
    await asyncio.gather(*hogs, *lights)


asyncio.run(main())
