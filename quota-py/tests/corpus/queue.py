"""Cases of kind `queue`: what arrives, leaves and ends in front of a pool, and whose turn comes of it."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import Failed

MILLISECOND = 1_000_000
# One unit of work a token of input.
RATES = (1000, 0, 0, 0)


def scheduler(case: Any, capacity: int) -> quota.Scheduler:
    lanes = []
    for lane in case["lanes"]:
        options = {key: value for key, value in lane.items() if key != "name"}
        lanes.append(quota.Lane(lane["name"], **options))
    mode = case.get("mode", "weighted")
    return quota.Scheduler(capacity=capacity, lanes=lanes, mode=mode, idle_ttl_ms=case.get("idle_ttl_ms"))


class Run:
    def __init__(self, case: Any) -> None:
        self.scheduler = scheduler(case, case["capacity"])
        #: In the order of arrival.
        self.places: list[tuple[str, quota.Place]] = []
        self.turns: dict[str, quota.Turn] = {}

    def step(self, step: Any) -> None:
        now, name = step["at_ms"] * MILLISECOND, step.get("id", "")
        refused: dict[str, str] = {}
        match step["do"]:
            case "arrive":
                try:
                    place = self.scheduler.arrive(
                        tenant=step.get("tenant", "acme"),
                        lane=step.get("lane", "default"),
                        weight=step.get("weight", 1),
                        input_tokens=step.get("work", 100),
                        max_queued=step.get("max_queued"),
                        rates=RATES,
                        now_ns=now,
                    )
                    self.places.append((name, place))
                except quota.QueueRefused as why:
                    refused[name] = why.code
            case "leave":
                # The last reference to its place goes, and the place with it.
                self.places = [(other, place) for other, place in self.places if other != name]
            case "end":
                turn = self.turns.pop(name)
                if not turn.served_as_asked(now_ns=now) or turn.served_as_asked(now_ns=now):
                    raise Failed("a turn ends once")
            case "put_back":
                turn = self.turns.pop(name)
                due = step.get("due_ms")
                place = turn.put_back(
                    step.get("scope", ""),
                    now_ns=now,
                    whole_flow=step.get("whole_flow", True),
                    due_ns=None if due is None else due * MILLISECOND,
                )
                self.places.insert(0, (name, place))
            case "release":
                self.scheduler.released(step.get("scope", ""), now)
            case "capacity":
                self.scheduler.set_capacity(step["requests"], now)
            case "tick":
                self.scheduler.tick(now)
            case other:
                raise Failed(f"step {other}")
        turns: list[str] = []
        # `unclaimed`: turns that have come are not looked at yet.
        if not step.get("unclaimed", False):
            places, self.places = self.places, []
            for other, place in places:
                try:
                    turn_or_none = place.try_turn()
                except quota.QueueRefused as why:
                    refused[other] = why.code
                    continue
                if turn_or_none is None:
                    self.places.append((other, place))
                else:
                    turns.append(other)
                    self.turns[other] = turn_or_none
        self.compare(step.get("expect", {}), turns, refused)

    def compare(self, expect: Any, turns: list[str], refused: dict[str, str]) -> None:
        figures = self.scheduler.figures()
        lanes = figures["lanes"].values()
        found = {
            "turns": turns,
            "refused": refused,
            "queued": sum(lane["queued"] for lane in lanes),
            "in_flight": figures["in_flight"],
            "tenants": [tenant for lane in lanes for tenant in lane["tenants"]],
        }
        wanted = {"turns": [], "refused": {}} | {key: want for key, want in expect.items() if want is not None}
        for key, want in wanted.items():
            if found[key] != want:
                raise Failed(f"{key}: {found[key]}, not {want}")


def run(case: Any) -> None:
    run = Run(case)
    for number, step in enumerate(case["steps"]):
        try:
            run.step(step)
        except Failed as what:
            raise Failed(f"step {number} {step['do']}: {what}") from None
