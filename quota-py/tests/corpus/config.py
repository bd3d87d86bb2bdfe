"""Cases of kind `config`: a document loads or not, with what is said about it or what its limits come to."""

from __future__ import annotations

from typing import Any

import quota

from .scenario import Failed, shown

SCOPE = ("tenant", "model", "app", "key", "users", "cost_center")


def load(case: Any) -> quota.Policy:
    return quota.Policy.from_yaml(case["yaml"]) if "yaml" in case else quota.Policy.from_dict(case["document"])


def run(case: Any) -> None:
    try:
        policy = load(case)
    except quota.PolicyError as error:
        if case["valid"]:
            raise Failed(f"does not load: {error}") from error
        told(error.errors, case.get("errors", []), case.get("error_count"))
        return
    if not case["valid"]:
        raise Failed("loads")
    told(policy.warnings, case.get("warnings", []), case.get("warning_count"))
    for fact in case.get("limits", []):
        check(policy, fact)


def told(found: list[quota.PolicyFault], wanted: list[Any], count: int | None) -> None:
    """Each that is wanted is there: path, kind, line where stated, and a part of the message."""
    if count is not None and count != len(found):
        raise Failed(f"{len(found)} faults, not {count}: {found}")
    for want in wanted:
        if not any(fits(fault, want) for fault in found):
            raise Failed(f"nothing like {want} in {found}")


def fits(fault: quota.PolicyFault, want: Any) -> bool:
    same = {"path": fault.path, "kind": fault.code, "line": fault.line}
    unknown = set(want) - set(same) - {"says"}
    if unknown:
        raise Failed(f"nothing reads {unknown}")
    stated = all(want[name] == value for name, value in same.items() if name in want)
    return stated and want.get("says", "") in fault.message


def check(policy: quota.Policy, fact: Any) -> None:
    scope = {name: fact[name] for name in SCOPE if name in fact}
    found = [limit for limit in policy.limits(**scope) if limit.name == fact["limit"]]
    if fact.get("absent", False):
        if found:
            raise Failed(f"{found} is there, of {fact}")
        return
    if len(found) != 1:
        raise Failed(f"{found} of {fact}")
    for name, want in fact.items():
        if name in SCOPE or name == "limit":
            continue
        value = getattr(found[0], name)
        if name in ("hard", "soft", "burst"):
            value = None if value is None else str(shown(value))
        elif name == "overrides":
            value = [str(shown(over.hard)) for over in value]
        if value != want:
            raise Failed(f"{name} is {value!r}, not {want!r}, of {fact}")
