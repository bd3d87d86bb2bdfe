"""The shared corpus: the same files that the core runs, each case by the runner of its kind."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from corpus import (
    calendar,
    config,
    estimate,
    keys,
    metrics,
    price,
    queue,
    respond,
    scenario,
    schedule,
    sse,
    tokens,
    upstream,
    usage,
)

CORE = Path(__file__).parents[2] / "quota-core/tests"

RUNNERS = {
    "calendar": calendar.run,
    "config": config.run,
    "estimate": estimate.run,
    "keys": keys.run,
    "metrics": metrics.run,
    "price": price.run,
    "queue": queue.run,
    "respond": respond.run,
    "scenario": scenario.run,
    "schedule": schedule.run,
    "sse": sse.run,
    "tokens": tokens.run,
    "upstream": upstream.run,
    "usage": usage.run,
}


def files() -> dict[str, Any]:
    return {path.name: json.loads(path.read_text()) for path in sorted((CORE / "vectors").glob("*.json"))}


def cases() -> list[Any]:
    found = []
    for name, document in files().items():
        found += [pytest.param(document["kind"], case, id=f"{name}-{case['id']}") for case in document["cases"]]
    return found


ran: Counter[str] = Counter()


@pytest.mark.parametrize(("kind", "case"), cases())
def test_case(kind: str, case: Any) -> None:
    ran[kind] += 1
    RUNNERS[kind](case)


def test_every_case_was_run_and_every_kind_is_known(capsys: pytest.CaptureFixture[str]) -> None:
    in_files: Counter[str] = Counter()
    for document in files().values():
        in_files[document["kind"]] += len(document["cases"])
    with capsys.disabled():
        counts = ", ".join(f"{kind} {in_files[kind]}" for kind in RUNNERS)
        print(f"\ncorpus in Python: {counts}; {sum(ran.values())} of {sum(in_files.values())} cases")
    assert ran == in_files
    assert set(in_files) == set(RUNNERS)
    count = re.search(r"const COUNT: usize = (\d+);", (CORE / "corpus/main.rs").read_text())
    assert count is not None and int(count[1]) == sum(in_files.values())


def test_a_script_is_read_to_the_letter() -> None:
    """What no step reads and what no step came to is an error, not a silence."""
    policy = {"tenants": {"acme": {"models": ["m"], "rpm": 2}}}

    def script(*steps: Any) -> None:
        scenario.run({"id": "x", "about": "x", "policy": policy, "steps": list(steps)})

    script({"do": "admit", "expect": "allow"})
    faults: list[tuple[dict[str, Any], str]] = [
        ({"inptu": 5}, "nothing reads `inptu`"),
        ({"do": "admti"}, "no verb `admti`"),
        ({"who": {"usr": "u"}}, "nothing reads `usr`"),
        ({"input": "5"}, "`input` is no count"),
        ({"expect": {"action": "reject"}}, "action is 'allow', not 'reject'"),
        ({"expect": {"actoin": "allow"}}, "there is no `actoin`"),
        ({"expect": {"remaining": {"rps": 1}}}, "there is no `remaining.rps`"),
        ({"expect": {"remaining": {"rpm": 2}}}, "remaining.rpm is 1, not 2"),
        ({"expect": {"repeat": 0}}, "repeat is False, not 0"),
    ]
    for step, want in faults:
        with pytest.raises(scenario.Failed, match=re.escape(want)):
            script({"do": "admit", "expect": "allow"} | step)
    with pytest.raises(scenario.Failed):
        script({"at_ms": 5, "do": "sweep"}, {"at_ms": 4, "do": "sweep"})
