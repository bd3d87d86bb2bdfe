"""The objects and their methods, and what misusing them comes to."""

from __future__ import annotations

import copy
import gc
import json
import os
import pickle
import subprocess
import sys
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

import quota
from conftest import ACME, POLICY, request
from quota.testing import ManualClock, replay


def test_a_policy_is_loaded_from_a_file_a_text_and_a_dictionary(tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    file.write_text(json.dumps(POLICY))
    for policy in [
        quota.Policy.from_file(file),
        quota.Policy.from_file(str(file)),
        quota.Policy.from_yaml(file.read_text()),
        quota.Policy.from_json(file.read_text()),
        quota.Policy.from_dict(POLICY),
    ]:
        assert policy.digest == quota.Policy.from_json(json.dumps(POLICY)).digest
        assert policy.warnings == [] or all(fault.code for fault in policy.warnings)
    assert "tenants" in json.dumps(quota.Policy.schema())


def test_a_dictionary_keeps_its_order_and_takes_decimals() -> None:
    """Lanes are in the order of the document: the first is the highest."""
    lanes: dict[str, Any] = {"zeta": {}, "alpha": {}}
    tenants = {"acme": {"daily_budget_usd": Decimal("0.1"), "models": ("m",)}}
    document = {"queues": lanes, "models": {"m": {"price": {"input": 1, "output": 1}}}, "tenants": tenants}
    gate = quota.Gate(quota.Policy.from_dict(document), clock=ManualClock())
    ranks = {}
    for lane in lanes:
        lease = gate.admit(ACME, request(lane=lane)).granted()
        ranks[lane] = lease.rank
        lease.cancel()
    assert ranks == {"zeta": 0, "alpha": 1}
    assert gate.balances(ACME)[0].hard == Decimal("0.1")


def test_all_that_is_wrong_with_a_policy_is_told() -> None:
    with pytest.raises(quota.PolicyError) as caught:
        quota.Policy.from_yaml("tenants:\n  acme:\n    rmp: 5\n    tpm: -1\n")
    error = caught.value
    assert isinstance(error, quota.QuotaError) and isinstance(error, ValueError)
    assert (error.code, error.is_retryable, error.source_name, error.omitted) == ("policy_invalid", False, "policy", 0)
    assert [(fault.path, fault.line, fault.column, fault.code) for fault in error.errors] == [
        ("tenants.acme.rmp", 3, 5, "unknown_key"),
        ("tenants.acme.tpm", 4, 5, "bad_value"),
    ]
    assert "did you mean `rpm`?" in error.errors[0].message and "did you mean `rpm`?" in str(error)
    with pytest.raises(quota.PolicyError) as unreadable:
        quota.Policy.from_file("/nowhere/policy.yaml")
    assert (unreadable.value.errors[0].code, unreadable.value.is_retryable) == ("unreadable", True)


@pytest.mark.parametrize("hard", [float("nan"), float("inf"), 2**70, True, b"5", object()])
def test_what_is_no_amount_is_refused_in_a_dictionary(hard: Any) -> None:
    with pytest.raises((quota.PolicyError, TypeError)):
        quota.Policy.from_dict({"tenants": {"acme": {"rpm": hard, "models": ["m"]}}})


def test_a_document_that_holds_itself_is_refused() -> None:
    document: dict[str, Any] = {}
    document["tenants"] = document
    with pytest.raises(quota.InputError) as caught:
        quota.Policy.from_dict(document)
    assert caught.value.code == "too_deep"
    with pytest.raises(TypeError, match="texts, not int"):
        quota.Policy.from_dict({1: 2})  # type: ignore[dict-item]


def test_prices_are_taken_from_a_list() -> None:
    listed = json.dumps({"small": {"input_cost_per_token": 1e-6, "output_cost_per_token": 2e-6}})
    policy = quota.Policy.from_dict({"models": {"small": {}}, "tenants": {"acme": {"models": ["small"]}}})
    gate = quota.Gate(policy.with_prices(listed))
    lease = gate.admit(ACME, request(model="small")).granted()
    assert lease.worst_usd == Decimal("0.0002")
    with pytest.raises(quota.InputError) as caught:
        policy.with_prices("[")
    assert caught.value.code == "price_list_invalid"


def test_a_principal_has_names_and_equality() -> None:
    who = quota.Principal(tenant="acme", app="bot", env="prod", user="u", lane="chat", key="k", names_users=True)
    assert (who.tenant, who.app, who.env, who.user, who.lane, who.key) == ("acme", "bot", "prod", "u", "chat", "k")
    other = who.on_behalf_of("v")
    assert other.user == "v" and other != who and len({who, other, who.on_behalf_of("v")}) == 2
    assert ACME.on_behalf_of("v") == ACME, "not trusted to name users"
    assert repr(ACME) == 'Principal(tenant="acme")'
    with pytest.raises(TypeError):
        quota.Principal("acme")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        quota.Principal()  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        quota.Principal(tenant=5)  # type: ignore[arg-type]


def test_a_request_has_fields_and_refuses_what_is_none() -> None:
    sound: dict[str, Any] = {"max_output_tokens": 9, "choices": 2, "stream": True, "id": "r", "run_id": "x"}
    asked = quota.Request(model="m", text="secret words", **sound)
    assert (asked.model, asked.kind, asked.id, asked.run_id) == ("m", "chat", "r", "x")
    assert asked.stream and asked.choices == 2
    assert (asked.max_output_tokens, asked.input_tokens, asked.new_tool_calls) == (9, None, 0)
    assert quota.Request(model="m", input_tokens=7).input_tokens == 7
    assert "secret" not in repr(asked)
    for fields, error in [
        ({"model": "m", "kind": "talk"}, ValueError),
        ({"model": "m", "text": "a", "input_tokens": 1}, TypeError),
        ({"model": "m", "input_tokens": -1}, ValueError),
        ({"model": "m", "input_tokens": 2**64}, ValueError),
        ({"model": "m", "input_tokens": True}, TypeError),
        ({"model": "m", "input_tokens": 1.0}, TypeError),
        ({"model": None}, TypeError),
        ({"modle": "m"}, TypeError),
    ]:
        with pytest.raises(error):
            quota.Request(**fields)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        quota.Request("m")  # type: ignore[call-arg]


def test_bodies_are_read_in_each_dialect() -> None:
    messages = [{"role": "user", "content": "Name three rivers."}]
    chat = {"model": "m", "messages": messages, "max_tokens": 5, "n": 2, "user": "u", "stream": True}
    for body in [chat, json.dumps(chat), json.dumps(chat).encode(), bytearray(json.dumps(chat).encode())]:
        asked = quota.Request.from_body("openai_chat", body, id="r", lane="chat", run_id="x")
        assert (asked.max_output_tokens, asked.choices, asked.user, asked.stream) == (5, 2, "u", True)
        assert (asked.id, asked.lane, asked.run_id) == ("r", "chat", "x")
    read = quota.Request.from_body
    assert read("anthropic_messages", {"model": "c", "max_tokens": 8, "messages": messages}).max_output_tokens == 8
    assert read("openai_responses", {"model": "m", "input": "hi", "max_output_tokens": 4}).max_output_tokens == 4
    assert read("openai_embeddings", {"model": "m", "input": [1, 2, 3]}).input_tokens == 3
    assert read("openai_completions", {"model": "m", "prompt": ["a", "b"]}).choices == 2
    gemini = read("gemini", {"contents": [{"parts": [{"text": "hi"}]}]}, model="g", stream=True)
    assert (gemini.model, gemini.stream) == ("g", True)


def test_a_body_that_is_none_is_refused_without_its_text() -> None:
    with pytest.raises(quota.RequestError) as caught:
        quota.Request.from_body("openai_chat", {"model": "m", "messages": "sesame", "n": 1})
    error = caught.value
    assert (error.code, error.field) == ("request_invalid", "messages") and "sesame" not in str(error)
    assert "array" in error.allowed and error.found
    with pytest.raises(quota.InputError) as not_json:
        quota.Request.from_body("openai_chat", '{"model": "sesame"')
    assert not_json.value.code == "json_invalid" and "sesame" not in str(not_json.value)
    with pytest.raises(ValueError, match="openai"):
        quota.Request.from_body("openai", {})  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="gemini alone"):
        quota.Request.from_body("openai_chat", {"model": "m", "messages": []}, model="n")


def test_long_texts_are_read_as_short_ones(gate: quota.Gate) -> None:
    messages = [{"role": "user", "content": "word " * 20_000}]
    body = {"model": "m", "messages": messages, "max_tokens": 5}
    leases = []
    for given in [body, json.dumps(body)]:
        asked = quota.Request.from_body("openai_chat", given)
        assert gate.preview(ACME, asked).action == "allow"
        leases.append(gate.admit(ACME, asked).granted())
        leases[-1].cancel()
    assert leases[0].input_tokens == leases[1].input_tokens > 20_000
    with pytest.raises(quota.InputError) as caught:
        quota.Request.from_body("openai_chat", json.dumps(body)[:-1])
    assert caught.value.code == "json_invalid" and "word" not in str(caught.value)


def test_an_admitted_request_is_settled_once(gate: quota.Gate) -> None:
    decision = gate.admit(ACME, request(id="r"))
    assert (decision.action, decision.reason, decision.retry_after_ms, decision.refusal) == ("allow", None, None, None)
    lease = decision.lease
    assert lease is not None and decision.lease is lease
    assert (lease.request_id, lease.model, lease.input_tokens, lease.max_output_tokens) == ("r", "m", 100, 50)
    assert lease.worst_usd == Decimal("0.00015") and lease.principal == ACME and not lease.is_repeat
    assert lease.sent() and lease.renew()
    receipt = lease.settle({"prompt_tokens": 14, "completion_tokens": 31})
    assert (receipt.outcome, receipt.repeat, receipt.late, receipt.request_id) == ("settled", False, False, "r")
    assert receipt.lease_id == lease.id and receipt.cost_usd == Decimal("0.000069")
    assert receipt.usage == quota.Usage.tokens(14, 31)
    assert (receipt.held.usd, receipt.charged.usd) == (Decimal("0.00015"), Decimal("0.000069"))
    assert receipt.returned.usd == Decimal("0.000081") and receipt.overrun.as_dict()["usd"] == 0
    assert lease.settle(quota.Usage.tokens(14, 31)).repeat
    with pytest.raises(quota.EndError) as caught:
        lease.settle(quota.Usage.tokens(14, 32))
    error = caught.value
    assert (error.code, error.field, error.first, error.second) == ("lease_conflict", "output_text", "31", "32")
    assert gate.finalize(quota.Usage.tokens(14, 31), request_id="r").repeat
    assert gate.finalize(quota.Usage.tokens(14, 31), lease_id=lease.id).repeat
    assert not lease.sent()
    assert replay(gate) == (0, 2, [])


def test_a_refusal_is_a_value(gate: quota.Gate) -> None:
    held = gate.admit(ACME, request(model="small")).granted()
    decision = gate.admit(ACME, request(model="small", id="r"))
    assert (decision.action, decision.reason, decision.lease) == ("reject", "concurrency_exceeded", None)
    refusal = decision.refusal
    assert refusal is not None
    assert (refusal.status, refusal.tenant, refusal.model, refusal.request_id) == (429, "acme", "small", "r")
    assert (refusal.wait, refusal.retry_after_ms, refusal.receipt) == ("unknown", None, None)
    (short,) = refusal.shortages
    assert (short.limit, short.meter, short.hard, short.used, short.asked) == ("max_inflight", "in_flight", 1, 1, 1)
    assert refusal.fits.models == ["m"]
    status, headers, body = refusal.response("openai")
    assert status == 429 and headers["retry-after"] == "1" and body["error"]["reason"] == "concurrency_exceeded"
    assert refusal.response("anthropic")[2]["type"] == "error" and refusal.stream_error().startswith("data: ")
    told = refusal.response("gemini")[2]["error"]
    assert (told["code"], told["status"], told["details"][1]["retryDelay"]) == (429, "RESOURCE_EXHAUSTED", "1s")
    assert refusal.stream_error("gemini").startswith('data: {"error":{"code":429,')
    with pytest.raises(ValueError, match="gemini"):
        refusal.response("google")  # type: ignore[arg-type]
    with pytest.raises(quota.Refused) as caught:
        decision.granted()
    error = caught.value
    assert (error.code, error.reason, error.status, error.is_retryable) == (refusal.reason, refusal.reason, 429, True)
    assert error.refusal.message == refusal.message == str(error)
    assert quota.REASONS[error.code].retry == "soon"
    held.cancel()


def test_a_preview_takes_nothing(gate: quota.Gate) -> None:
    preview = gate.preview(ACME, request())
    assert preview.action == "allow" and preview.offer is not None
    assert (preview.offer.model, preview.offer.input_tokens, preview.offer.worst_usd) == ("m", 100, Decimal("0.00015"))
    assert [balance.used for balance in gate.balances(ACME)] == [0, 0, 0]
    with gate.admit(ACME, request()).granted():
        preview = gate.preview(ACME, request())
        assert (preview.action, preview.reason, preview.lane) == ("queue", "model_pool_overloaded", "chat")
        assert preview.max_wait_ms == 3000 and preview.refusal is not None
    assert gate.preview(ACME, request(model="other")).reason == "model_not_allowed"


def test_balances_have_money_as_decimals(gate: quota.Gate) -> None:
    gate.admit(ACME, request()).granted().settle(quota.Usage.tokens(100, 50))
    rpm, budget = [balance for balance in gate.balances(ACME) if balance.scope == "tenant:acme"]
    assert (rpm.limit, rpm.hard, rpm.used, rpm.remaining, rpm.rolling) == ("rpm", 60, 1, 59, True)
    assert (rpm.window_ms, rpm.soft, rpm.meter) == (60_000, None, "requests")
    assert (budget.hard, budget.used, budget.rolling) == (Decimal(20), Decimal("0.00015"), False)
    assert budget.resets_ms == 12 * 3600 * 1000
    with pytest.raises(TypeError):
        gate.balances(ACME, run_id="x", operator=True)


def test_a_lesser_form_is_told() -> None:
    policy = {
        "models": {"big": {}, "small": {}},
        "degrade": [{"when": {"model": "big"}, "model": "small", "max_output_tokens": 10}],
        "tenants": {"acme": {"models": {"big": {"max_inflight": {"hard": 1, "on_exceed": "degrade"}}, "small": {}}}},
    }
    gate = quota.Gate(quota.Policy.from_dict(policy), clock=ManualClock())
    first = gate.admit(ACME, request(model="big")).granted()
    decision = gate.admit(ACME, request(model="big"))
    assert (decision.action, decision.reason) == ("degrade", "concurrency_exceeded")
    lesser = decision.degradation
    assert lesser is not None and decision.lease is not None
    assert (lesser.step, lesser.model, lesser.max_output_tokens, lesser.limit) == (0, "small", 10, "max_inflight")
    assert lesser.disable_tools == [] and decision.lease.model == "small"
    first.cancel()
    decision.lease.cancel()


def test_keys_name_principals(gate: quota.Gate) -> None:
    import hashlib

    policy = copy.deepcopy(POLICY)
    digest = hashlib.sha256(b"qk_secret").hexdigest()
    policy["tenants"]["acme"]["keys"] = [{"id": "k1", "sha256": digest, "app": "bot"}]
    gate.reload(quota.Policy.from_dict(policy))
    who = gate.authenticate("Bearer qk_secret")
    assert (who.tenant, who.app, who.key) == ("acme", "bot", "k1")
    with pytest.raises(quota.Refused) as caught:
        gate.authenticate("qk_wrong")
    assert (caught.value.code, caught.value.status) == ("key_unknown", 401) and "qk_wrong" not in str(caught.value)
    with pytest.raises(quota.Refused) as claims:
        gate.principal_from_claims({"sub": "x"})
    assert claims.value.code == "claims_invalid"


def test_keys_are_made_while_the_gate_runs(gate: quota.Gate) -> None:
    fields: dict[str, Any] = {"app": "bot", "models": ["m"], "limits": {"rpm": 1}, "expires": "2026-03-03T00:00:00Z"}
    issued = gate.issue_key(tenant="acme", author="ops", **fields)
    assert issued.secret.startswith("qk_") and issued.secret not in repr(issued)
    assert issued.expires == "2026-03-03T00:00:00Z"
    who = gate.authenticate(issued.secret)
    assert (who.app, who.key) == ("bot", issued.id)
    gate.admit(who, request()).granted().settle(quota.Usage.tokens(1, 1))
    assert gate.admit(who, request()).reason == "request_rate_exceeded"
    again = gate.rotate_key("acme", issued.id, author="ops", overlap_ms=1000)
    assert again.secret != issued.secret and gate.authenticate(issued.secret) == gate.authenticate(again.secret)
    (key,) = gate.keys("acme")
    assert (key.id, key.tenant, key.app, key.models, key.parent) == (issued.id, "acme", "bot", ["m"], None)
    assert (key.state, key.secrets, key.in_policy) == ("active", 2, False)
    assert gate.revoke_key("acme", issued.id, author="ops") and not gate.revoke_key("acme", issued.id, author="ops")
    with pytest.raises(quota.Refused) as caught:
        gate.authenticate(again.secret)
    assert caught.value.code == "key_revoked"
    assert [entry["event"] for entry in gate.recent("acme", last_ms=1)][0] == "key_issued"
    for fields, code in [
        ({"tenant": "nobody"}, "tenant_unknown"),
        ({"tenant": "acme", "limits": "rmp: 1"}, "key_limits_invalid"),
        ({"tenant": "acme", "lane": "none"}, "key_invalid"),
    ]:
        with pytest.raises(quota.KeyActError) as wrong:
            gate.issue_key(author="ops", **fields)  # type: ignore[arg-type]
        assert wrong.value.code == code and not wrong.value.is_retryable
    with pytest.raises(ValueError, match="RFC 3339"):
        gate.issue_key(tenant="acme", author="ops", expires="soon")


def test_a_scope_that_is_left_leaves_the_lease_unresolved(gate: quota.Gate) -> None:
    with gate.admit(ACME, request(id="r")).granted() as lease:
        pass
    (open_one,) = gate.unresolved()
    assert (open_one.request_id, open_one.cause, open_one.tenant, open_one.model) == ("r", "dropped", "acme", "m")
    assert open_one.lease_id == lease.id and open_one.worst_usd == Decimal("0.00015") and open_one.held.usd > 0
    receipt = lease.settle({"prompt_tokens": 1, "completion_tokens": 1})
    assert receipt.late and gate.unresolved() == []
    with pytest.raises(RuntimeError, match="inside"), gate.admit(ACME, request()).granted() as lease:
        lease.settle(quota.Usage.tokens(1, 1))
        raise RuntimeError("inside")
    assert gate.unresolved() == []


def test_a_lease_that_nobody_holds_is_unresolved(gate: quota.Gate) -> None:
    gate.admit(ACME, request(id="r"))
    gc.collect()
    assert [record.cause for record in gate.unresolved()] == ["dropped"]
    receipt = gate.finalize(quota.Outcome.not_run(), request_id="r")
    assert receipt.late and receipt.charged.requests == 0


def test_endings_of_a_lease(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request()).granted()
    assert lease.cancel().outcome == "cancelled" and lease.cancel().repeat
    lease = gate.admit(ACME, request()).granted()
    lease.sent()
    with pytest.raises(quota.EndError) as caught:
        lease.cancel()
    assert caught.value.code == "cancel_after_sent"
    assert lease.unresolved("upstream_failed", seen=quota.Usage.tokens(3, 4)).outcome == "unresolved"
    (open_one,) = gate.unresolved()
    assert open_one.cause == "upstream_failed" and open_one.seen == quota.Usage.tokens(3, 4)
    with pytest.raises(ValueError):
        lease.unresolved("bored")  # type: ignore[arg-type]
    answer = quota.Outcome.of_answer(200, {"usage": {"prompt_tokens": 3, "completion_tokens": 9}})
    assert lease.finish(answer).charged.tokens == 12
    for outcome, state in [
        (quota.Outcome.of_answer(None), "not_run"),
        (quota.Outcome.of_answer(500, {}), "failed_without_usage"),
        (quota.Outcome.failed(), "failed_without_usage"),
        (quota.Outcome.final(quota.Usage.tokens(1, 2)), "final"),
    ]:
        assert outcome.state == state
    missing = quota.Outcome.of_answer(200, {"choices": []})
    assert (missing.state, missing.code, missing.usage) == ("unresolved", "usage_missing", None)
    with pytest.raises(quota.EndError) as unknown:
        gate.finalize(quota.Outcome.not_run(), request_id="never")
    assert unknown.value.code == "lease_unknown"
    with pytest.raises(TypeError):
        gate.finalize(quota.Outcome.not_run())
    with pytest.raises(ValueError, match="32 hexadecimal"):
        gate.finalize(quota.Outcome.not_run(), lease_id="7")


def test_a_hold_is_extended_or_refused() -> None:
    policy = quota.Policy.from_dict({"tenants": {"acme": {"output_tpm": 100, "models": ["m"]}}})
    gate = quota.Gate(policy, clock=ManualClock())
    lease = gate.admit(ACME, request()).granted()
    lease.extend(40)
    with pytest.raises(quota.Refused) as caught:
        lease.extend(40)
    assert caught.value.code == "output_token_rate_exceeded"
    assert gate.balances(ACME)[0].used == 90
    lease.progress(5)
    lease.pool_refused()
    lease.cancel()


def test_a_lease_expires_when_swept(gate: quota.Gate, clock: ManualClock) -> None:
    lease = gate.admit(ACME, request()).granted()
    clock.advance(59_000)
    assert lease.renew()
    clock.advance(59_000)
    assert gate.sweep() == 0
    clock.advance(ms=2000, ns=1)
    assert gate.sweep() == 1 and not lease.sent()


def test_a_lease_tells_how_it_is_to_be_run() -> None:
    document = {
        "settings": {"lease_ttl_ms": 1500},
        "models": {"fast": {"upstream": "m"}, "m": {"price": {"input": 1, "output": 2}}, "dear": {}},
        "tenants": {"acme": {"rpm": {"soft": 0, "hard": 9}, "models": ["fast", "m", "dear"]}},
        "degrade": [{"when": {"soft": "rpm", "model": "dear"}, "model": "fast", "disable_tools": ["search"]}],
    }
    gate = quota.Gate(quota.Policy.from_dict(document), clock=ManualClock())
    lease = gate.admit(ACME, request(model="m")).granted()
    assert (lease.model, lease.upstream_model, lease.degradation, lease.ttl_ms) == ("m", "m", None, 1500)
    decision = gate.admit(ACME, request(model="dear"))
    lesser = decision.granted()
    assert (lesser.model, lesser.upstream_model) == ("fast", "m")
    assert lesser.degradation is not None and lesser.degradation.disable_tools == ["search"]
    assert decision.degradation is not None and lesser.degradation.reason == decision.reason == "soft_limit_passed"
    assert lesser.is_open
    lesser.cancel()
    assert not lesser.is_open


def test_a_request_is_explained(gate: quota.Gate) -> None:
    gate.admit(ACME, request(id="r")).granted().settle(quota.Usage.tokens(1, 2))
    story = gate.explain("r")
    assert [entry["event"] for entry in story] == ["admitted", "settled"]
    assert story[1]["cost_usd"] == "0.0000045" and gate.explain("never") == []


def chunk(text: str) -> bytes:
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}).encode() + b"\n\n"


LAST = b'data: {"choices":[],"usage":{"prompt_tokens":10,"completion_tokens":7,"total_tokens":17}}\n\ndata: [DONE]\n\n'


def test_a_stream_is_paid_by_its_last_word(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request(stream=True)).granted()
    passed = b""
    with lease.stream("openai_chat", strip_usage=True) as stream:
        assert stream.lease is lease and stream.receipt is None
        whole = chunk("word ") * 3
        assert stream.feed(whole) == whole
        stream.keep()
        assert stream.output_so_far > 0
        for at in range(0, len(LAST), 11):
            assert not stream.is_done
            passed += stream.feed(LAST[at : at + 11])
        assert stream.is_done
        receipt = stream.finish()
        passed += stream.tail
    assert receipt.charged.output_tokens == 7 and stream.finish() is receipt is stream.receipt
    assert passed.endswith(b"data: [DONE]\n\n") and b"usage" not in passed
    with pytest.raises(ValueError, match="already"):
        lease.stream()
    assert gate.unresolved() == []


def test_a_stream_that_breaks_off_leaves_what_was_seen(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request(stream=True)).granted()
    with pytest.raises(ConnectionError), lease.stream("openai_chat") as stream:
        stream.feed(chunk("word " * 40))
        raise ConnectionError
    (open_one,) = gate.unresolved()
    assert open_one.seen is not None and open_one.seen.output_total >= 40
    with pytest.raises(ValueError, match="no dialect"):
        lease.stream("openai")  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        stream.feed("text")  # type: ignore[arg-type]


def test_a_stream_that_outgrows_its_limit_has_to_end() -> None:
    limits = {"output_tpm": {"hard": 3000, "hold": "p95"}, "models": ["m"]}
    gate = quota.Gate(quota.Policy.from_dict({"tenants": {"acme": limits}}), clock=ManualClock())
    for _ in range(32):
        lease = gate.admit(ACME, request(max_output_tokens=2000)).granted()
        lease.settle(quota.Usage.tokens(10, 30))
    stream = gate.admit(ACME, request(max_output_tokens=2900)).granted().stream("openai_chat")
    with pytest.raises(quota.Refused) as caught:
        for _ in range(100):
            stream.feed(chunk("word " * 200))
            stream.keep()
    assert caught.value.code == "output_token_rate_exceeded"
    assert stream.finish().outcome == "unresolved"


def test_reloading_keeps_open_leases(gate: quota.Gate) -> None:
    lease = gate.admit(ACME, request()).granted()
    before = gate.digest
    policy = copy.deepcopy(POLICY)
    policy["tenants"]["acme"]["rpm"] = 1
    gate.reload(quota.Policy.from_dict(policy))
    assert gate.digest != before
    assert gate.admit(ACME, request()).reason == "request_rate_exceeded"
    assert lease.settle(quota.Usage.tokens(1, 1)).outcome == "settled"


def test_pressure_is_stated_and_read(gate: quota.Gate) -> None:
    assert gate.set_pressure("h200", 300) and gate.pressure("h200") == 100
    assert not gate.set_pressure("none", 5) and gate.pressure("none") is None
    assert gate.pool_load("h200") == (0, 0) and gate.pool_load("none") is None


def test_a_pool_that_reports_is_followed(clock: ManualClock) -> None:
    pool = quota.ReportedPool(replicas=2, ttl_ms=5000, max_running=8)
    gate = quota.Gate(quota.Policy.from_dict(POLICY), clock=clock, pools={"h200": pool})
    text = 'vllm:num_requests_running{model_name="m"} 3\nvllm:num_requests_waiting{model_name="m"} 0\n'
    report = quota.read_load("vllm", text, model="m")
    assert (report.load, report.models) == (quota.ReplicaLoad(running=3, waiting=0), ["m"])
    assert gate.report("h200", 0, report.load)
    assert gate.report("h200", 0, quota.ReplicaLoad(running=4), amend=True)
    assert not gate.report("h200", 2, report.load) and not gate.report("none", 0, report.load)
    gate.sweep()
    gate.admit(ACME, request()).granted().cancel()
    assert quota.priority_hint("vllm", 1) == ("priority", 1)
    for wrong in ["nobody", ""]:
        with pytest.raises(ValueError, match="no kind"):
            quota.read_load(wrong, text)


def test_what_is_frozen_is_refused(gate: quota.Gate) -> None:
    gate.freeze(tenant="acme", author="ops", reason="invoice")
    assert gate.frozen() == [("tenant `acme`", "invoice")] and gate.admit(ACME, request()).reason == "frozen"
    assert gate.thaw(tenant="acme", author="ops") and not gate.thaw(tenant="acme", author="ops")
    gate.freeze(model="m", author="ops", reason="x")
    gate.freeze(tenant="acme", key="k", author="ops", reason="x")
    assert len(gate.frozen()) == 2
    for target in [{}, {"key": "k"}, {"tenant": "acme", "model": "m"}]:
        with pytest.raises(TypeError):
            gate.thaw(author="ops", **target)


def test_limits_are_told_as_headers(gate: quota.Gate) -> None:
    assert gate.headers(ACME)["x-ratelimit-limit-requests"] == "60"
    assert "anthropic-ratelimit-requests-limit" in gate.headers(ACME, "anthropic") and gate.headers(ACME, "ietf")
    with pytest.raises(ValueError, match="manner"):
        gate.headers(ACME, "google")  # type: ignore[arg-type]


def test_bounds_are_the_hosts() -> None:
    gate = quota.Gate(quota.Policy.from_dict({"tenants": {"acme": {"models": ["m"]}}}), max_open_leases=2)
    leases = [gate.admit(ACME, request()).granted() for _ in range(2)]
    assert gate.admit(ACME, request()).reason == "leases_exhausted"
    for lease in leases:
        lease.cancel()
    policy = quota.Policy.from_dict({"tenants": {}})
    for bounds in [{"max_rows": 0}, {"max_open_leases": 0}, {"max_rows": 2**32 - 1}, {"max_open_leases": 2**31}]:
        with pytest.raises(ValueError, match="max_rows"):
            quota.Gate(policy, **bounds)  # type: ignore[arg-type]


def test_wrong_types_are_type_errors(gate: quota.Gate) -> None:
    policy: Any = quota.Policy.from_dict(POLICY)
    made: Any = quota.Gate
    admit: Any = gate.admit
    wrongs: list[Callable[[], object]] = [
        lambda: made({}),
        lambda: made(policy, clock=5),
        lambda: made(policy, pools={"h200": 5}),
        lambda: made(policy, pools=[5]),
        lambda: made(policy, pools={5: quota.FixedPool(replicas=1, max_running=1)}),
        lambda: made(policy, ManualClock()),
        lambda: admit("acme", request()),
        lambda: admit(ACME, {"model": "m"}),
        quota.Lease,
        quota.Receipt,
    ]
    for wrong in wrongs:
        with pytest.raises(TypeError):
            wrong()
    with pytest.raises(ValueError):
        gate.keeper(interval_ms=0)


def test_errors_are_quota_errors_with_codes() -> None:
    for name in quota.__all__:
        thing = getattr(quota, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            assert issubclass(thing, quota.QuotaError)
    error = pickle.loads(pickle.dumps(quota.UsageError("no usage", code="usage_missing")))
    assert (str(error), error.code) == ("no usage", "usage_missing")
    assert len(quota.REASONS) > 30 and quota.REASONS["frozen"].status == 403
    with pytest.raises(TypeError):
        quota.REASONS["x"] = quota.REASONS["frozen"]  # type: ignore[index]


def test_a_manual_clock_moves_both_scales_or_one() -> None:
    clock = ManualClock("2026-03-02T12:00:00Z")
    start = clock.mono_ns
    clock.advance(5, ns=7)
    assert (clock.mono_ns - start, clock.wall_ns - start) == (5_000_007, 5_000_007)
    clock.set_wall("2026-03-03T00:00:00Z")
    assert clock.wall_ns > clock.mono_ns and "2026-03-03" in repr(clock)
    with pytest.raises(ValueError, match="RFC 3339"):
        ManualClock("yesterday")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork on this system")
def test_a_gate_does_not_work_in_a_forked_child() -> None:
    """Its accounts would be counted twice, and nobody would know."""
    script = """
import os, quota
policy = quota.Policy.from_dict({"tenants": {"acme": {"models": ["m"]}}})
gate, who, asked = quota.Gate(policy), quota.Principal(tenant="acme"), quota.Request(model="m")
keeper = gate.keeper()
child = os.fork()
if child == 0:
    assert not keeper.is_running
    keeper.stop()
    try:
        gate.admit(who, asked)
    except quota.ForkedError as error:
        assert error.code == "gate_forked"
        assert quota.Gate(policy).admit(who, asked).action == "allow"
        os._exit(7)
    os._exit(1)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
assert gate.admit(who, asked).action == "allow" and keeper.is_running
"""
    subprocess.run([sys.executable, "-W", "ignore", "-c", script], check=True, timeout=60)
