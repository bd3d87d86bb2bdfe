"""Cases of kind `schedule`: flows with a backlog in front of a pool that takes one request at a time, and how much work each
is served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import quota

from .queue import RATES, scheduler
from .scenario import Failed

#: Requests that an endless source keeps waiting.
BACKLOG = 3


@dataclass
class Source:
    """A tenant's requests: the work of each, in order, the last one again and again where there is no end."""

    lane: str
    weight: int
    items: list[int]
    endless: bool
    sent: int = 0
    waiting: list[tuple[int, quota.Place]] = field(default_factory=list)


class Run:
    def __init__(self, case: Any) -> None:
        self.scheduler = scheduler(case, 1)
        self.sources: dict[str, Source] = {}
        self.now = 0

    def arrive(self, tenant: str, lane: str, weight: int, work: int) -> quota.Place:
        return self.scheduler.arrive(
            tenant=tenant, lane=lane, weight=weight, input_tokens=work, rates=RATES, now_ns=self.now
        )

    def phase(self, phase: Any) -> None:
        for tenant, given in phase.get("tenants", {}).items():
            self.sources[tenant] = Source(
                given.get("lane", "default"), given.get("weight", 1), given["items"], given.get("endless", False)
            )
        # A pool that is free is taken until all have arrived, so that the order of arrival decides nothing.
        first = self.arrive("nobody", "default", 1, 0).try_turn()
        self.refill()
        if first is not None:
            first.unknown(now_ns=self.now)
        order: list[tuple[str, int]] = []
        served: dict[str, int] = {}
        while sum(served.values()) < phase["serve_work"]:
            one = self.serve()
            if one is None:
                break
            served[one[0]] = served.get(one[0], 0) + one[1]
            order.append(one)
            self.refill()
        self.compare(phase.get("expect", {}), order, served)

    def compare(self, expect: Any, order: list[tuple[str, int]], served: dict[str, int]) -> None:
        for tenant, bounds in expect.get("work", {}).items():
            between(f"work of {tenant}", served.get(tenant, 0), bounds)
        tenants = [tenant for tenant, _ in order]
        for tenant, within in expect.get("first_within_items", {}).items():
            if tenant not in tenants or tenants.index(tenant) >= within:
                raise Failed(f"the first of {tenant} is not within {within}: {tenants}")
        for tenant, bounds in expect.get("work_between_items_of", {}).items():
            at = [number for number, other in enumerate(tenants) if other == tenant]
            if len(at) != 2:
                raise Failed(f"{tenant} was served {len(at)} items")
            work = sum(work for _, work in order[at[0] + 1 : at[1]])
            between(f"work between the items of {tenant}", work, bounds)
        for tenant, deficit in expect.get("deficit_at_rest", {}).items():
            lanes = self.scheduler.figures()["lanes"].values()
            found = [lane["tenants"][tenant]["deficit"] for lane in lanes if tenant in lane["tenants"]]
            if found[:1] != [deficit]:
                raise Failed(f"deficit of {tenant}: {found}, not {deficit}")

    def refill(self) -> None:
        for tenant in sorted(self.sources):
            source = self.sources[tenant]
            while len(source.waiting) < BACKLOG and (source.endless or source.sent < len(source.items)):
                work = source.items[min(source.sent, len(source.items) - 1)]
                source.waiting.append((work, self.arrive(tenant, source.lane, source.weight, work)))
                source.sent += 1

    def serve(self) -> tuple[str, int] | None:
        """Serves the one whose turn has come, to its end. A unit of work takes a microsecond."""
        for tenant in sorted(self.sources):
            source = self.sources[tenant]
            turn = source.waiting[0][1].try_turn() if source.waiting else None
            if turn is not None:
                work, _ = source.waiting.pop(0)
                self.now += work * 1000
                turn.served_as_asked(now_ns=self.now)
                return tenant, work
        return None


def between(what: str, found: int, bounds: Any) -> None:
    if not bounds[0] <= found <= bounds[1]:
        raise Failed(f"{what}: {found}, not {bounds[0]} to {bounds[1]}")


def run(case: Any) -> None:
    run = Run(case)
    for number, phase in enumerate(case["phases"]):
        try:
            run.phase(phase)
        except Failed as what:
            raise Failed(f"phase {number}: {what}") from None
