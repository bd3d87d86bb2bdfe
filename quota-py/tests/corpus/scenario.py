"""Cases of kind `scenario`: a script of steps on a manual clock, through the real gate.

What a case and a step may say is written in `quota-core/tests/corpus/scenario.rs`. A key that nothing reads fails the case.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import quota
from quota.testing import ManualClock, replay

FIXTURES = Path(__file__).parents[3] / "quota-core/tests/fixtures"


#: What came of a step, and whose balances it is about.
Did = tuple[dict[str, Any], quota.Principal]


class Failed(Exception):
    """What a case came to is not what it wants."""


class Words:
    """The inputs of a step: read by name, each once, so that a key that nothing reads is noticed."""

    def __init__(self, fields: Any) -> None:
        if not isinstance(fields, dict):
            raise Failed(f"no object: {fields}")
        self.fields = dict(fields)

    def may(self, key: str) -> Any:
        return self.fields.pop(key, None)

    def need(self, key: str) -> Any:
        if key not in self.fields:
            raise Failed(f"no `{key}`")
        return self.fields.pop(key)

    def may_text(self, key: str) -> str | None:
        value = self.may(key)
        if value is not None and not isinstance(value, str):
            raise Failed(f"`{key}` is no text")
        return value

    def may_count(self, key: str) -> int | None:
        value = self.may(key)
        if value is not None and (type(value) is not int or value < 0):
            raise Failed(f"`{key}` is no count")
        return value

    def count(self, key: str) -> int:
        if key not in self.fields:
            raise Failed(f"no `{key}`")
        return self.may_count(key) or 0

    def flag(self, key: str) -> bool:
        value = self.may(key)
        if value not in (None, True, False):
            raise Failed(f"`{key}` is no flag")
        return bool(value)

    def may_name(self, key: str) -> str | None:
        """A name, or a character so many times: `{"x": 129}`."""
        value = self.may(key)
        if isinstance(value, dict):
            ((text, times),) = value.items()
            return str(text) * int(times)
        return value if value is None else str(value)

    def done(self) -> None:
        if self.fields:
            raise Failed(f"nothing reads `{next(iter(self.fields))}`")

    def request(self, turn: int) -> quota.Request:
        name, model = self.may_name("id"), self.may_name("model")
        kind: Any = self.may_text("kind") or "chat"
        choices = self.may_count("choices")
        return quota.Request(
            model="m" if model is None else model,
            kind=kind,
            id=name if name is None or turn == 0 else f"{name}.{turn}",
            text=self.may_text("text"),
            input_tokens=self.may_count("input"),
            max_output_tokens=self.may_count("output"),
            choices=1 if choices is None else choices,
            stream=self.flag("stream"),
            service_tier=self.may_text("service_tier"),
            lane=self.may_text("lane"),
            user=self.may_name("user"),
            run_id=self.may_name("run_id"),
            tool_calls=self.may_count("tool_calls"),
        )

    def principal(self) -> quota.Principal:
        tenant = self.may_name("tenant")
        who = quota.Principal(
            tenant="acme" if tenant is None else tenant,
            names_users=self.flag("names_users"),
            app=self.may_name("app"),
            user=self.may_name("user"),
            key=self.may_name("key"),
            lane=self.may_name("lane"),
        )
        self.done()
        return who

    def may_usage(self) -> quota.Usage | None:
        """`[input, output]`, or the fields of a usage by their names."""
        value = self.may("usage")
        if value is None:
            return None
        if isinstance(value, list):
            return quota.Usage.tokens(*value)
        return quota.Usage(**value)

    def usage(self) -> quota.Usage:
        usage = self.may_usage()
        if usage is None:
            raise Failed("no `usage`")
        return usage

    def outcome(self) -> quota.Outcome | quota.Usage:
        """A `usage`, or an upstream's `answer`: `status` (`null` if there was no connection), `dialect`, `body`."""
        usage = self.may_usage()
        if usage is not None:
            return usage
        words = Words(self.need("answer"))
        dialect: Any = words.may_text("dialect") or "auto"
        outcome = quota.Outcome.of_answer(words.may("status"), words.may("body"), dialect=dialect)
        words.done()
        return outcome


def shown(amount: int | Decimal | None) -> int | str | None:
    """An amount as vectors have it: a count, or money as decimal text."""
    return format(amount, "f") if isinstance(amount, Decimal) else amount


def amounts(of: quota.Amounts) -> dict[str, Any]:
    return {meter: shown(amount) for meter, amount in of.as_dict().items()}


def decision(of: quota.Decision | quota.Preview) -> dict[str, Any]:
    found: dict[str, Any] = {}
    if isinstance(of, quota.Decision) and of.lease is not None:
        found = lease(of.lease)
    elif isinstance(of, quota.Preview) and of.offer is not None:
        found = {
            "model": of.offer.model,
            "lane": of.offer.lane,
            "input_tokens": of.offer.input_tokens,
            "max_output_tokens": of.offer.max_output_tokens,
            "worst_usd": shown(of.offer.worst_usd),
        }
    if of.refusal is not None:
        found = refusal(of.refusal)
    if of.degradation is not None:
        names = ["step", "limit", "model", "max_output_tokens", "disable_tools", "lane"]
        found["degraded"] = {name: getattr(of.degradation, name) for name in names}
    if of.action == "queue":
        found |= {"lane": of.lane, "max_wait_ms": of.max_wait_ms}
    return found | {"action": of.action, "reason": of.reason}


def lease(of: quota.Lease) -> dict[str, Any]:
    return {
        "model": of.model,
        "lane": of.lane,
        "input_tokens": of.input_tokens,
        "max_output_tokens": of.max_output_tokens,
        "expected_output": of.expected_output_tokens,
        "worst_usd": shown(of.worst_usd),
        "soft_passed": [f"{scope} {limit}" for scope, limit in of.soft_passed],
        "repeat": of.is_repeat,
    }


def refusal(of: quota.Refusal) -> dict[str, Any]:
    return {
        "reason": of.reason,
        "status": of.status,
        "tenant": of.tenant,
        "retry_after_ms": of.retry_after_ms,
        "wait": of.wait,
        "limits": [f"{short.scope} {short.limit}" for short in of.shortages],
        "shortages": [
            {
                "scope": short.scope,
                "limit": short.limit,
                "shared": short.shared,
                "hard": shown(short.hard),
                "used": shown(short.used),
                "asked": shown(short.asked),
                "retry_after_ms": short.retry_after_ms,
            }
            for short in of.shortages
        ],
        "fits": {"max_output_tokens": of.fits.max_output_tokens, "models": of.fits.models},
        "says": of.message,
        "receipt": None if of.receipt is None else receipt(of.receipt),
    }


def receipt(of: quota.Receipt) -> dict[str, Any]:
    return {
        "outcome": of.outcome,
        "request": of.request_id,
        "cost": shown(of.cost_usd),
        "late": of.late,
        "repeat": of.repeat,
        "held": amounts(of.held),
        "charged": amounts(of.charged),
        "returned": amounts(of.returned),
        "overrun": amounts(of.overrun),
        "assumed": of.outcome == "settled" and of.usage is None,
    }


def ended(end: Callable[[], quota.Receipt]) -> dict[str, Any]:
    """The receipt, or the error: its code, its words, and the field of a conflict."""
    try:
        return receipt(end())
    except quota.EndError as error:
        return {"error": error.code, "field": error.field, "first": error.first, "second": error.second}


def same(found: Any, want: Any) -> bool:
    """Equal, without `True` being 1."""
    return found == want and isinstance(found, bool) == isinstance(want, bool)


def holds(at: str, found: Any, want: Any) -> None:
    """Each member of an object, as many elements of a list, equal scalars; in `says`, each part of the text."""
    if isinstance(found, dict) and isinstance(want, dict):
        for key, wanted in want.items():
            if key not in found:
                raise Failed(f"there is no `{at}{key}`, only {list(found)}")
            if key == "says" and isinstance(wanted, list):
                for part in wanted:
                    if part not in found[key]:
                        raise Failed(f"{at}says {found[key]!r}, without {part!r}")
            else:
                holds(f"{at}{key}.", found[key], wanted)
    elif isinstance(found, list) and isinstance(want, list) and len(found) == len(want):
        for number, (one, other) in enumerate(zip(found, want)):
            holds(f"{at}{number}.", one, other)
    elif not same(found, want):
        raise Failed(f"{at.rstrip('.')} is {found!r}, not {want!r}")


def policy(words: Words) -> quota.Policy:
    document, file = words.may("policy"), words.may_text("policy_file")
    if (document is None) == (file is None):
        raise Failed("needs `policy` or `policy_file`")
    made = quota.Policy.from_file(FIXTURES / file) if file else quota.Policy.from_dict(document)
    prices = words.may("price_list")
    return made if prices is None else made.with_prices(json.dumps(prices))


class Stage:
    """A gate, its clock, and what the steps have given names to."""

    def __init__(self, words: Words) -> None:
        self.clock = ManualClock(words.may_text("start") or "2026-03-02T12:00:00Z")
        bounds = Words(words.may("bounds") or {})
        rows, leases = bounds.may_count("rows"), bounds.may_count("open_leases")
        bounds.done()
        self.gate = quota.Gate(
            policy(words), clock=self.clock, max_rows=rows or 128, max_open_leases=leases or 128
        )
        self.elapsed = 0
        self.leases: dict[str, quota.Lease] = {}
        self.queued: dict[str, quota.Decision] = {}
        self.known: dict[str, quota.Principal] = {}
        self.run: str | None = None

    def step(self, step: Any) -> None:
        words = Words(step)
        words.may_text("about")
        millis, nanos = words.may_count("at_ms"), words.may_count("at_ns")
        at = nanos if nanos is not None else None if millis is None else millis * 1_000_000
        if at is not None:
            if at < self.elapsed:
                raise Failed("the step lies before the last one")
            self.clock.advance(ns=at - self.elapsed)
            self.elapsed = at
        expect = words.may("expect") or {}
        expect = {"action": expect} if isinstance(expect, str) else expect
        times = words.may_count("times")
        for turn in range(1 if times is None else times):
            found, who = self.act(Words(words.fields), turn)
            self.add_balances(found, who)
            try:
                holds("", found, expect)
            except Failed as what:
                raise Failed(f"(turn {turn + 1}) {what}") from None

    def act(self, words: Words, turn: int) -> Did:
        """Does what a step says; what came of it, and whose balances it is about."""
        verb = words.need("do")
        do = getattr(self, f"do_{verb}", None)
        if do is None:
            raise Failed(f"no verb `{verb}`")
        found, who = do(words, turn)
        words.done()
        return found, who

    def who(self, words: Words) -> quota.Principal:
        who = words.may("who")
        if who is None or isinstance(who, str):
            return self.known.get(who or "acme") or quota.Principal(tenant=who or "acme")
        return Words(who).principal()

    def request(self, words: Words, turn: int) -> quota.Request:
        request = words.request(turn)
        self.run = request.run_id or self.run
        return request

    def do_admit(self, words: Words, turn: int) -> Did:
        who, named = self.who(words), words.may_text("as")
        request = self.request(words, turn)
        name = request.id if named is None else named if turn == 0 else f"{named}.{turn}"
        made = self.gate.admit(who, request)
        found = decision(made)
        if made.lease is not None:
            name = name or f"lease {len(self.leases)}"
            if name in self.leases:
                raise Failed(f"`{name}` is the name of a lease already")
            self.leases[name] = made.lease
        elif made.action == "queue":
            self.queued[name or f"queued {len(self.queued)}"] = made
        return found, who

    def do_preview(self, words: Words, turn: int) -> Did:
        who = self.who(words)
        return decision(self.gate.preview(who, self.request(words, turn))), who

    def do_run(self, words: Words, turn: int) -> Did:
        """Admits, sends and settles."""
        who, request, usage = self.who(words), self.request(words, turn), words.usage()
        made = self.gate.admit(who, request)
        granted = made.lease
        if granted is None:
            return decision(made), who
        granted.sent()
        return ended(lambda: granted.settle(usage)), who

    def lease(self, name: str) -> quota.Lease:
        if name not in self.leases:
            raise Failed(f"no lease `{name}`")
        return self.leases[name]

    def on_lease(self, words: Words, act: Callable[[quota.Lease], dict[str, Any]]) -> Did:
        lease = self.lease(words.need("of"))
        return act(lease), lease.principal

    def do_drop(self, words: Words, turn: int) -> Did:
        name = words.need("of")
        who = self.lease(name).principal
        del self.leases[name]
        return {}, who

    def do_sent(self, words: Words, turn: int) -> Did:
        return self.on_lease(words, lambda lease: {"open": lease.sent()})

    def do_renew(self, words: Words, turn: int) -> Did:
        return self.on_lease(words, lambda lease: {"open": lease.renew()})

    def do_extend(self, words: Words, turn: int) -> Did:
        output = words.count("output")

        def extend(lease: quota.Lease) -> dict[str, Any]:
            try:
                lease.extend(output)
            except quota.Refused as refused:
                return refusal(refused.refusal) | {"extended": False}
            return {"extended": True}

        return self.on_lease(words, extend)

    def do_settle(self, words: Words, turn: int) -> Did:
        usage = words.usage()
        return self.on_lease(words, lambda lease: ended(lambda: lease.settle(usage)))

    def do_cancel(self, words: Words, turn: int) -> Did:
        return self.on_lease(words, lambda lease: ended(lease.cancel))

    def do_unresolved(self, words: Words, turn: int) -> Did:
        seen = words.may_usage()
        return self.on_lease(words, lambda lease: ended(lambda: lease.unresolved("no_usage", seen=seen)))

    def do_finish(self, words: Words, turn: int) -> Did:
        outcome = words.outcome()
        return self.on_lease(words, lambda lease: ended(lambda: lease.finish(outcome)))

    def do_finalize(self, words: Words, turn: int) -> Did:
        request, of = words.may_text("request"), words.may_text("of")
        lease = None if of is None else self.lease(of).id
        outcome = words.outcome()
        end = lambda: self.gate.finalize(outcome, request_id=request, lease_id=lease)  # noqa: E731
        return ended(end), self.who(words)

    def do_leave_queue(self, words: Words, turn: int) -> Did:
        self.queued.pop(words.need("of")).leave()
        return {}, self.who(words)

    def do_sweep(self, words: Words, turn: int) -> Did:
        at_most = words.may_count("at_most")
        return {"ended": self.gate.sweep(1 << 20 if at_most is None else at_most)}, self.who(words)

    def do_reload(self, words: Words, turn: int) -> Did:
        self.gate.reload(policy(words))
        return {}, self.who(words)

    def do_set_pressure(self, words: Words, turn: int) -> Did:
        known = self.gate.set_pressure(words.need("pool"), words.count("percent"))
        return {"known": known}, self.who(words)

    def do_set_wall(self, words: Words, turn: int) -> Did:
        self.clock.set_wall(words.need("wall"))
        return {}, self.who(words)

    def do_balances(self, words: Words, turn: int) -> Did:
        who = self.who(words)
        balances = self.gate.balances(who, operator=words.flag("operator"))
        return {"limits": [f"{balance.scope} {balance.limit}" for balance in balances]}, who

    def do_authenticate(self, words: Words, turn: int) -> Did:
        key, name = words.need("key"), words.may_text("as")
        try:
            who = self.gate.authenticate(key)
        except quota.Refused as refused:
            return refusal(refused.refusal), quota.Principal(tenant="acme")
        if name is not None:
            self.known[name] = who
        names = ["tenant", "app", "env", "user", "lane", "key"]
        return {name: getattr(who, name) for name in names} | {"reason": None}, who

    def do_unresolved_list(self, words: Words, turn: int) -> Did:
        at_most = words.may_count("at_most")
        open_ones = self.gate.unresolved(1 << 20 if at_most is None else at_most)
        return {"requests": [record.request_id for record in open_ones]}, self.who(words)

    def do_overshoot(self, words: Words, turn: int) -> Did:
        return amounts(self.gate.overshoot()), self.who(words)

    def do_explain(self, words: Words, turn: int) -> Did:
        story = self.gate.explain(words.need("request"))
        return {"events": [entry["event"] for entry in story], "entries": story}, self.who(words)

    def do_replay(self, words: Words, turn: int) -> Did:
        found = replay(self.gate)
        told = {"missing": found.missing, "differ": found.differ, "compared": found.compared > 0}
        return told, self.who(words)

    def add_balances(self, found: dict[str, Any], who: quota.Principal) -> None:
        """The balances of a principal: by scope and limit, and by the limit alone where no other has its name."""
        balances = self.gate.balances(who, operator=True)
        if self.run is not None:
            of_run = self.gate.balances(who, run_id=self.run)
            balances += [balance for balance in of_run if balance.scope.endswith(f"/run:{self.run}")]
        names = [balance.limit for balance in balances]
        for what in ("remaining", "used", "hard", "soft", "resets_ms"):
            found[what] = {}
            for balance in balances:
                if names.count(balance.limit) == 1:
                    found[what][balance.limit] = shown(getattr(balance, what))
                found[what][f"{balance.scope} {balance.limit}"] = shown(getattr(balance, what))


def run(case: Any) -> None:
    words = Words(case)
    words.need("id")
    words.need("about")
    stage = Stage(words)
    steps = words.need("steps")
    words.done()
    for number, step in enumerate(steps):
        try:
            stage.step(step)
        except Failed as what:
            raise Failed(f"step {number + 1}: {what}\n    {json.dumps(step)}") from None
