"""What a policy says, what things cost and count, and refusals as data."""

from __future__ import annotations

import copy
import gc
import json
import pickle
from collections.abc import Callable
from decimal import Decimal
from typing import Any

import pytest

import quota
from conftest import ACME, POLICY, request
from quota.testing import ManualClock

LIMITS: dict[str, Any] = {
    "global": {"rps": 9},
    "models": {"m": {"tpm": 8, "price": {"input": 1, "output": 2}}, "alias": {"upstream": "m"}},
    "cost_centers": {"legal": {"monthly_budget_usd": "20.50"}},
    "tenants": {
        "acme": {
            "rpm": {"hard": 7, "soft": 5, "mode": "shadow"},
            "users": {"rpm": 2},
            "agent_runs": {"max_steps": 4},
            "models": {"m": {"daily_budget_usd": "1.5"}, "*": {"rpm": 1}},
        },
        "blue": {"models": ["m"], "rpm": 1},
    },
    "overrides": [
        {
            "tenant": "blue",
            "limits": {"rpm": 50},
            "starts": "2026-03-01T00:00:00Z",
            "expires": "2026-04-01T00:00:00Z",
            "operator": "o",
            "approver": "p",
            "reason": "launch",
        }
    ],
}


def test_a_policy_tells_its_limits_by_scope() -> None:
    policy = quota.Policy.from_dict(LIMITS)
    assert policy.tenants == ["acme", "blue"]

    def of(**scope: Any) -> list[tuple[str, Any, str]]:
        return [(limit.name, limit.hard, limit.window) for limit in policy.limits(**scope)]

    assert of() == [("rps", 9, "rolling 1 s")]
    assert of(model="m") == [("tpm", 8, "rolling 60 s")]
    assert of(cost_center="legal") == [("monthly_budget_usd", Decimal("20.5"), "month UTC from 1")]
    assert of(tenant="acme") == [("rpm", 7, "rolling 60 s")]
    assert of(tenant="acme", model="m")[1:] == [("daily_budget_usd", Decimal("1.5"), "day UTC")], "after those of `*`"
    assert of(tenant="acme", model="*") == [("rpm", 1, "rolling 60 s")]
    assert of(tenant="acme", users=True) == [("rpm", 2, "rolling 60 s")]
    assert of(tenant="acme", runs=True)[0] == ("max_steps", 4, "run")
    limit = policy.limits(tenant="acme")[0]
    assert (limit.meter, limit.soft, limit.burst, limit.mode, limit.on_exceed) == ("requests", 5, 7, "shadow", "reject")
    assert (limit.hold, limit.alert_percent, limit.overrides) == ("p95", None, [])
    assert limit == policy.limits(tenant="acme")[0] and "PolicyLimit(rpm: 7" in repr(limit)
    (over,) = policy.limits(tenant="blue")[0].overrides
    assert (over.hard, over.starts, over.expires) == (50, "2026-03-01T00:00:00Z", "2026-04-01T00:00:00Z")
    unknown: list[tuple[dict[str, Any], str]] = [
        ({"tenant": "red"}, "no tenant `red`"),
        ({"tenant": "acme", "key": "k"}, "the tenant `acme` has no key `k`"),
        ({"users": True}, "are a tenant's"),
        ({"tenant": "acme", "model": "m", "app": "x"}, "not several"),
    ]
    for scope, says in unknown:
        with pytest.raises(LookupError, match=says):
            policy.limits(**scope)


def test_prices_tell_what_a_usage_costs() -> None:
    policy = quota.Policy.from_dict(LIMITS)
    price = policy.price("alias")
    assert price is not None and price == policy.price("m") == quota.Price("{input: 1, output: 2}")
    assert policy.price("other") is None
    cost = price.cost({"prompt_tokens": 1_000_000, "completion_tokens": 500_000})
    assert (cost.usd, cost.fallback, cost.unpriced) == (Decimal(2), False, False)
    assert [(line.item, line.units, line.usd) for line in cost.lines] == [
        ("input", 1_000_000, Decimal(1)),
        ("output", 500_000, Decimal(1)),
    ]
    assert price.cost(quota.Usage(web_searches=1)).unpriced
    assert price.worst_case(input=1000, output=500) == Decimal("0.002")
    prices = quota.PriceList.litellm(json.dumps({"x": {"input_cost_per_token": 1e-06, "output_cost_per_token": 2e-06}}))
    assert (len(prices), "x" in prices, prices.models, prices.skipped) == (1, True, ["x"], [])
    assert prices.get("x") == price and prices.get("X") is None
    unpriced = quota.Policy.from_dict({"tenants": {"acme": {"models": ["x"], "rpm": 1}}, "models": {"x": {}}})
    assert unpriced.price("x") is None and unpriced.with_prices(prices).price("x") == price
    with pytest.raises(quota.PolicyError, match="unknown key") as caught:
        quota.Price({"input": 1, "outptu": 2})
    assert caught.value.source_name == "price"


def test_counts_and_estimates() -> None:
    count = quota.count_tokens("Name three rivers.", model="gpt-4o")
    assert count.expected <= count.reserve and not count.exact
    assert quota.estimate(request(input_tokens=7)) == quota.TokenCount(7, exact=True)
    assert hash(quota.TokenCount(7)) == hash(quota.TokenCount(7, reserve=7)) and repr(count).startswith("TokenCount(")
    body = {"model": "m", "messages": [{"role": "user", "name": "ann", "content": "hello"}]}
    read = quota.Request.from_body("openai_chat", body)
    assert read.texts == ["ann", "hello"] and read.image_tokens == []
    assert read.output_ceiling() == 4096 and read.output_ceiling(per_choice=[None, 9], total=[5]) == 5
    assert quota.Request(model="m", kind="embeddings", text="x").output_ceiling() == 0
    with pytest.raises(ValueError, match="there are heuristic, o200k_base, cl100k_base"):
        quota.count_tokens("x", tokenizer="gpt2")  # type: ignore[arg-type] # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="reserve is at least expected"):
        quota.TokenCount(5, reserve=4)


def test_a_build_says_which_tokenizers_it_has() -> None:
    """Without them the heuristic counts, and a policy that names one is warned."""
    policy = quota.Policy.from_dict({"models": {"m": {"tokenizer": "o200k_base"}}, "tenants": {"a": {"rpm": 1, "models": ["m"]}}})
    exact = quota.count_tokens("<|endoftext|>", tokenizer="o200k_base")
    if "o200k_base" in quota.EXACT_TOKENIZERS:
        assert exact == quota.TokenCount(7, exact=True) and policy.warnings == []
    else:
        assert not exact.exact and quota.EXACT_TOKENIZERS == ()
        (warning,) = policy.warnings
        assert warning.path == "models.m.tokenizer" and "this build has no `o200k_base`" in warning.message


def test_periods_of_calendars() -> None:
    period = quota.Calendar("month", "Europe/Berlin", start_day=31).period("2026-02-28T12:00:00Z")
    assert (period.start, period.end) == ("2026-02-27T23:00:00Z", "2026-03-30T22:00:00Z")
    assert period == quota.Calendar("month", "Europe/Berlin", start_day=31).period("2026-03-01") and {period}
    assert repr(quota.Calendar("seconds", seconds=60)) == "Calendar('seconds', \"UTC\", seconds=60)"
    wrong: list[tuple[dict[str, Any], type[Exception], str]] = [
        ({"unit": "year"}, ValueError, "unit is 'day'"),
        ({"unit": "day", "zone": "Mars"}, ValueError, "`Mars` is not an IANA time zone"),
        ({"unit": "month", "start_day": 32}, ValueError, "1 to 31"),
        ({"unit": "seconds", "seconds": 0}, ValueError, "1 to 2"),
        ({"unit": "seconds"}, TypeError, "told with the unit 'seconds'"),
        ({"unit": "day", "start_day": 3}, TypeError, "told with the unit 'month'"),
        ({"unit": "month", "start_day": 300}, ValueError, "from 0 to 255"),
    ]
    for options, kind, says in wrong:
        with pytest.raises(kind, match=says):
            quota.Calendar(**options)


def test_a_refusal_is_answered_by_another_process(gate: quota.Gate, clock: ManualClock) -> None:
    held = [gate.admit(ACME, request(model="small")) for _ in range(2)]
    refusal = held[1].refusal
    assert refusal is not None and refusal.reason == "concurrency_exceeded"
    sent = json.loads(json.dumps(refusal.to_dict()))
    again = quota.Refusal.from_dict(sent)
    assert again == refusal and again.response() == refusal.response()
    assert pickle.loads(pickle.dumps(refusal)) == copy.deepcopy(refusal) == refusal
    balances = gate.balances(ACME)
    assert pickle.loads(pickle.dumps(balances)) == balances
    assert quota.balance_headers([quota.Balance.from_dict(one.to_dict()) for one in balances]) == gate.headers(ACME)
    now = "2026-03-02T12:00:00Z"
    assert quota.balance_headers(balances, "anthropic", at=now) == gate.headers(ACME, "anthropic")
    for data, says in [({"reason": "x"}, "no reason `x`"), ({}, "missing field"), ({"reson": 1}, "unknown field `reson`")]:
        with pytest.raises(quota.InputError, match=says) as caught:
            quota.Refusal.from_dict(data)
        assert caught.value.code == "data_invalid"


def test_what_was_told_stays_as_it_was(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request(id="r")).granted()
    unresolved = lease.unresolved("no_usage", seen=quota.Usage.tokens(3, 4))
    open_slot = gate.admit(ACME, request(model="small")).granted()
    read, unread = (gate.admit(ACME, request(model="small")).refusal for _ in range(2))
    late, again = lease.settle(quota.Usage.tokens(3, 4)), lease.settle(quota.Usage.tokens(3, 4))
    over = gate.admit(ACME, request(id="r")).refusal
    assert read is not None and unread is not None and over is not None and over.receipt is not None

    def told(receipt: quota.Receipt) -> list[Any]:
        figures = [receipt.held, receipt.charged, receipt.returned, receipt.overrun]
        ended = [receipt.outcome, receipt.late, receipt.repeat, receipt.cost_usd, receipt.usage]
        return [receipt.lease_id, receipt.request_id, *ended, *(each.as_dict() for each in figures)]

    receipts = [unresolved, late, again, over.receipt]
    before = [told(receipt) for receipt in receipts]
    first = (read.to_dict(), read.message, [short.used for short in read.shortages])
    assert [line[2:6] for line in before[:2]] == [
        ["unresolved", False, False, Decimal("0.00015")],
        ["settled", True, False, Decimal("0.0000095")],
    ]
    assert before[2] == [*before[1][:4], True, *before[1][5:]]
    assert (late == again, unresolved == late, over.receipt == over.receipt) == (False, False, True)
    open_slot.cancel()
    policy = copy.deepcopy(POLICY)
    policy["tenants"]["acme"]["models"]["small"]["max_inflight"] = 9
    policy["models"]["m"]["price"] = {"input": 7, "output": 7}
    gate.reload(quota.Policy.from_dict(policy))
    # The fixture has it, too, but it is no longer asked.
    del gate, lease, open_slot
    gc.collect()
    assert [told(receipt) for receipt in receipts] == before
    assert (unread.to_dict(), unread.message, [short.used for short in unread.shortages]) == first
    assert unread == read == pickle.loads(pickle.dumps(unread)) and unread.fits == read.fits
    assert read.shortages == unread.shortages == unread.shortages


def test_errors_reach_another_process_and_objects_do_not(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request()).granted()
    lease.settle(quota.Usage.tokens(1, 1))
    errors: list[quota.QuotaError] = []
    acts: list[Callable[[], object]] = [
        lambda: lease.settle(quota.Usage.tokens(2, 2)),
        lambda: gate.admit(ACME, request(model="none")).granted(),
        lambda: quota.Request.from_body("openai_chat", {}),
        lambda: gate.revoke_key("acme", "none", author="ops"),
    ]
    for act in acts:
        with pytest.raises(quota.QuotaError) as caught:
            act()
        errors.append(caught.value)
    for error in errors:
        again = pickle.loads(pickle.dumps(error))
        assert type(again) is type(error) and str(again) == str(error) and vars(again) == vars(error)
        assert type(error).__module__ == "quota"
    for thing in (gate, lease, gate.journal(), quota.FixedPool(replicas=1, max_running=1)):
        with pytest.raises(TypeError, match=rf"cannot pickle 'quota\.{type(thing).__name__}' object"):
            pickle.dumps(thing)


def test_a_snapshot_and_the_metrics_tell_what_was_counted(gate: quota.Gate) -> None:
    gate.admit(ACME, request(max_output_tokens=1000)).granted().settle(quota.Usage.tokens(10, 20))
    gate.admit(quota.Principal(tenant="nobody"), request())
    snapshot = gate.snapshot()
    (line,) = [line for line in snapshot["models"] if line["model"] == "m"]
    assert (line["tenant"], line["allowed"], line["settled"], line["usd"]) == ("acme", 1, 1, "0.000045")
    assert (line["input_tokens"], line["output_tokens"]) == (10, 20)
    assert snapshot["strangers"]["reasons"] == {"tenant_unknown": 1}
    (pool,) = [pool for pool in snapshot["pools"] if pool["pool"] == "h200"]
    assert pool["gated"] and pool["lanes"][0]["counts"]["turns"] == 1
    json.dumps(snapshot)
    text = gate.metrics()
    assert 'quota_decisions_total{tenant="acme",model="m",action="allow"} 1' in text and text.endswith("# EOF\n")
    assert quota.METRICS_CONTENT_TYPE.startswith("application/openmetrics-text")


def test_json_is_read_as_json() -> None:
    text = json.dumps(POLICY | {"x-note": "a\t\U0001f600"}, indent="\t")
    assert quota.Policy.from_json(text).tenants == ["acme", "blue"]
    with pytest.raises(quota.PolicyError, match="this is no JSON"):
        quota.Policy.from_json("tenants: {}")


def test_what_is_read_may_change_while_it_is_read() -> None:
    report: dict[str, Any] = {"completion_tokens": 2}

    class Grows:
        def model_dump(self, mode: str) -> dict[str, int]:
            report.update({f"field_{number}": 0 for number in range(100)})
            return {"cached_tokens": 1}

    report = {"prompt_tokens_details": Grows(), "prompt_tokens": 5, "completion_tokens": 2}
    assert quota.Usage.read(report, dialect="openai_chat").total == 7
    assert len(report) == 103


def test_numbers_out_of_range_are_value_errors() -> None:
    wrong: Any
    for wrong in (-1, 2**70):
        for call in (
            lambda n: quota.FixedPool(replicas=n, max_running=1),
            lambda n: quota.Lane("x", weight=n),
            lambda n: quota.priority_hint("vllm", n),
            lambda n: quota.Outcome.of_answer(n),
            lambda n: quota.Usage(output_text=n),
            lambda n: quota.Policy.from_dict({"tenants": {"a": {"rpm": n, "models": ["m"]}}}),
        ):
            with pytest.raises(ValueError):
                call(wrong)
    for wrong in ("1", 1.0, True):
        with pytest.raises(TypeError, match="a whole number is wanted, not"):
            quota.FixedPool(replicas=wrong, max_running=1)
