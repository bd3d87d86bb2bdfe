"""A bill explained: each request's story as the journal has it, and their sum, which is what the tenant's budget says."""

from decimal import Decimal
from pathlib import Path

import quota
from quota.testing import ManualClock

clock = ManualClock("2026-03-02T12:00:00Z")
gate = quota.Gate(quota.Policy.from_file(Path(__file__).with_name("policy.yaml")), clock=clock)
who = quota.Principal(tenant="acme")


def ask(id: str) -> quota.Lease | None:
    return gate.admit(who, quota.Request(model="large", id=id, input_tokens=8_000, max_output_tokens=1_000)).lease


def fits(lease: quota.Lease | None) -> quota.Lease:
    assert lease is not None
    return lease


# Paid by the provider's own figures, of which 6,000 tokens were read from its cache.
with fits(ask("paid")) as lease:
    lease.sent()
    usage = {"prompt_tokens": 8_000, "completion_tokens": 250, "prompt_tokens_details": {"cached_tokens": 6_000}}
    lease.settle({"usage": usage | {"total_tokens": 8_250}})
# Cancelled: it never left.
fits(ask("cancelled")).cancel()
# Lost on the way, and reported a minute later.
with fits(ask("late")) as lease:
    lease.sent()
    lease.unresolved("upstream_failed")
clock.advance(60_000)
gate.finalize(quota.Usage.tokens(8_000, 100), request_id="late")
# Lost, and never reported: it is charged as it was reserved.
with fits(ask("lost")) as lease:
    lease.sent()
# Refused: it costs nothing.
assert ask("refused") is None

total = Decimal(0)
for id in ["paid", "cancelled", "late", "lost", "refused"]:
    print(id)
    charged = Decimal(0)
    for entry in gate.explain(id):
        at, event = entry["at"], entry["event"]
        if event == "admitted":
            print(f"  {at} {event}: at most {entry['estimate']['worst_case_usd']} USD")
        elif event == "refused":
            print(f"  {at} {event}: {entry['message']}")
        else:
            print(f"  {at} {event}: {entry['cost_usd']} USD")
            for line in entry.get("lines", []):
                print(f"    {line['units']} {line['item']}: {line['usd']} USD")
            charged = Decimal(entry["charged_usd"])
    total += charged
print(f"sum: {total} USD")
budget = next(balance for balance in gate.balances(who) if balance.limit == "daily_budget_usd")
print(f"budget: {budget.used} USD used")
