"""Quick start: a request is reserved, sent and settled; one that does not fit is refused, and told what would fit."""

from pathlib import Path

import quota
from quota.testing import ManualClock

policy = quota.Policy.from_file(Path(__file__).with_name("policy.yaml"))
# A gateway leaves the clock out; here it stands still, so that each run tells the same.
gate = quota.Gate(policy, clock=ManualClock("2026-03-02T12:00:00Z"))

who = gate.authenticate("demo-acme-key")
print(f"{who.tenant} asks")

body = {"model": "small", "max_tokens": 200, "messages": [{"role": "user", "content": "Name three rivers."}]}
lease = gate.admit(who, quota.Request.from_body("openai_chat", body, id="r1")).granted()
print(f"r1 allowed: at most {lease.max_output_tokens} tokens out and {lease.worst_usd} USD")

lease.sent()  # bytes are about to leave for the provider
answer = {"usage": {"prompt_tokens": 12, "completion_tokens": 31, "total_tokens": 43}}
receipt = lease.settle(answer)
print(f"r1 charged: {receipt.charged.input_tokens} in, {receipt.charged.output_tokens} out, {receipt.cost_usd} USD")
print(f"r1 returned: {receipt.returned.tokens} tokens")
print(f"r1 settled again: {'the first receipt' if lease.settle(answer).repeat else 'charged twice'}")

large = quota.Request(model="small", id="r2", input_tokens=4_000, max_output_tokens=20_000)
refusal = gate.admit(who, large).refusal
assert refusal is not None
print(f"r2 refused: {refusal.status} {refusal.reason}")
for shortage in refusal.shortages:
    print(f"  {shortage.limit}: {shortage.used} of {shortage.hard} used, {shortage.asked} asked")
print(f"  would fit: {refusal.fits.max_output_tokens} tokens out")

lease = gate.admit(who, quota.Request(model="small", id="r3", input_tokens=10)).granted()
lease.finish(quota.Outcome.not_run())  # the provider was never reached
for balance in gate.balances(who):
    print(f"{balance.limit}: {balance.remaining} left of {balance.hard}")
