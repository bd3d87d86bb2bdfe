"""Cases of kind `keys`: acts on keys and questions about them, at their times."""

from __future__ import annotations

import hashlib
import json
from typing import Any

import quota
from quota.testing import ManualClock

from .scenario import Failed


class Run:
    def __init__(self, case: Any) -> None:
        self.clock = ManualClock("2026-03-02T12:00:00Z")
        self.gate = quota.Gate(quota.Policy.from_dict(case["policy"]), clock=self.clock)
        self.at = 0
        self.given: dict[str, str] = case.get("secrets", {})
        self.made: dict[str, quota.IssuedKey] = {}
        self.principals: dict[str, quota.Principal] = {}
        self.leases: dict[str, quota.Lease] = {}

    def secret(self, step: Any) -> str:
        name = step["secret"]
        return self.made[name].secret if name in self.made else self.given[name]

    def step(self, step: Any) -> None:
        self.clock.advance(step["at_ms"] - self.at)
        self.at = step["at_ms"]
        expect = step.get("expect", {})
        match step["do"]:
            case "issue":
                names = ["tenant", "id", "parent", "app", "env", "user", "lane", "names_users", "expires", "models", "limits"]
                key = {name: value for name, value in step["key"].items() if name in names}
                self.issued(step, lambda: self.gate.issue_key(author="ops", **key))
            case "rotate":
                tenant, name, overlap = step["tenant"], step["id"], step["overlap_ms"]
                self.issued(step, lambda: self.gate.rotate_key(tenant, name, author="ops", overlap_ms=overlap))
            case "revoke":
                try:
                    equal("changed", self.gate.revoke_key(step["tenant"], step["id"], author="ops"), expect.get("changed"))
                except quota.KeyActError as error:
                    failed(error, expect)
            case "authenticate":
                bearer = step["bearer"] if "bearer" in step else self.secret(step)
                self.principal(step, lambda: self.gate.authenticate(bearer))
            case "claims":
                self.principal(step, lambda: self.gate.principal_from_claims(step["claims"]))
            case "admit":
                self.admit(step)
            case "settle":
                usage = quota.Usage.tokens(step.get("input", 0), step.get("output", 0))
                self.leases.pop(step["lease"]).settle(usage)
            case "reload":
                self.gate.reload(quota.Policy.from_dict(step["policy"]))
            case "keys":
                self.keys(step)
            case "differ":
                one, other = (self.made[name].secret for name in step["secrets"])
                if one == other:
                    raise Failed("the same secret")
            case other:
                raise Failed(f"no step `{other}`")

    def issued(self, step: Any, issue: Any) -> None:
        expect = step.get("expect", {})
        try:
            issued: quota.IssuedKey = issue()
        except quota.KeyActError as error:
            return failed(error, expect)
        if "error" in expect:
            raise Failed(f"made `{issued.id}`, not {expect['error']}")
        if "expires" in expect:
            equal("expires", issued.expires, expect["expires"])
        named = step.get("id", step.get("key", {}).get("id"))
        if named is not None:
            equal("id", issued.id, named)
        if "as" in step:
            self.made[step["as"]] = issued

    def principal(self, step: Any, ask: Any) -> None:
        expect = step.get("expect", {})
        try:
            who: quota.Principal = ask()
        except quota.Refused as error:
            return refused(error.refusal, expect)
        if "reason" in expect:
            raise Failed(f"let in, not {expect['reason']}")
        for name in ["tenant", "app", "env", "user", "lane"]:
            equal(name, getattr(who, name), expect.get(name))
        # The id of a key is stated where it was chosen.
        if "key" in expect:
            equal("key", who.key, expect["key"])
        if "principal" in step:
            self.principals[step["principal"]] = who

    def admit(self, step: Any) -> None:
        expect, count = step.get("expect", {}), step.get("input_tokens", 0)
        who = self.principals[step["principal"]] if "principal" in step else self.gate.authenticate(self.secret(step))
        decision = self.gate.admit(who, quota.Request(model=step["model"], input_tokens=count, max_output_tokens=0))
        if decision.action == "reject" and decision.refusal is not None:
            return refused(decision.refusal, expect)
        if decision.action != "allow" or expect.get("allowed") is not True:
            raise Failed(f"{decision}, not {expect}")
        lease = decision.granted()
        if "lease" in step:
            self.leases[step["lease"]] = lease
        else:
            lease.settle(quota.Usage.tokens(count, 0))

    def keys(self, step: Any) -> None:
        keys = self.gate.keys(step["tenant"])
        expect = step.get("expect", [])
        equal("count", len(keys), step.get("count", len(expect)))
        for key, want in zip(keys, expect):
            for what, wanted in want.items():
                equal(what, getattr(key, what), wanted)

    def nothing_shown(self) -> None:
        """No secret and no digest is in the journal, nor in what `repr` shows."""
        shown = repr([self.gate, self.made, self.principals])
        for tenant in ["acme", "other"]:
            shown += repr(self.gate.keys(tenant)) + json.dumps(self.gate.recent(tenant, last_ms=2**50))
        for secret in [issued.secret for issued in self.made.values()] + list(self.given.values()):
            digest = hashlib.sha256(secret.encode()).hexdigest()
            if secret in shown or secret[3:] in shown or digest in shown.lower():
                raise Failed("a secret or its digest is shown")


def failed(error: quota.KeyActError, expect: Any) -> None:
    equal("error", error.code, expect.get("error"))
    says(str(error), expect)


def refused(refusal: quota.Refusal, expect: Any) -> None:
    equal("reason", refusal.reason, expect.get("reason"))
    if "scopes" in expect:
        equal("scopes", [short.scope for short in refusal.shortages], expect["scopes"])
    says(refusal.message, expect)


def says(message: str, expect: Any) -> None:
    if "says" in expect and expect["says"] not in message:
        raise Failed(f"does not say {expect['says']}: {message}")


def equal(what: str, found: Any, want: Any) -> None:
    if found != want:
        raise Failed(f"{what} is {found!r}, not {want!r}")


def run(case: Any) -> None:
    run = Run(case)
    for number, step in enumerate(case["steps"]):
        try:
            run.step(step)
        except Failed as what:
            raise Failed(f"step {number} {step['do']}: {what}") from None
    run.nothing_shown()
