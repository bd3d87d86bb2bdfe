"""Streaming: an answer is paid for while it passes. One ends as it should, one breaks off and is paid for late, and one
grows to where its tenant has nothing left."""

import json
from pathlib import Path

import quota
from quota.testing import ManualClock


def text(text: str) -> bytes:
    """What an upstream sends, event by event."""
    return b"data: " + json.dumps({"choices": [{"delta": {"content": text}}]}, separators=(",", ":")).encode() + b"\n\n"


USAGE = b'data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":6,"total_tokens":15}}\n\n'
DONE = b"data: [DONE]\n\n"


def passed_on(chunk: bytes) -> None:
    print(chunk.decode().replace("\n\n", "\n"), end="")


clock = ManualClock("2026-03-02T12:00:00Z")
gate = quota.Gate(quota.Policy.from_file(Path(__file__).with_name("policy.yaml")), clock=clock)
who = quota.Principal(tenant="acme")


def start(id: str) -> quota.Lease:
    request = quota.Request(model="small", id=id, input_tokens=9, max_output_tokens=100, stream=True)
    lease = gate.admit(who, request).granted()
    lease.sent()
    return lease


print("r1 ends as it should; its asker did not ask for usage and gets none:")
with start("r1").stream("openai_chat", strip_usage=True) as stream:
    for event in [text("Rhine, "), text("Nile, "), text("Amazon."), USAGE, DONE]:
        passed_on(stream.feed(event))  # as many bytes as came: events may be cut anywhere
        stream.keep()
    receipt = stream.finish()
    passed_on(stream.tail)
print(f"{receipt.outcome}: {receipt.cost_usd} USD")

print("r2 breaks off:")
with start("r2").stream("openai_chat") as stream:
    passed_on(stream.feed(text("Rhine, ")))  # the asker is gone
for lease in gate.unresolved():
    print(f"unresolved {lease.request_id}: {lease.worst_usd} USD charged")
clock.advance(60_000)
receipt = gate.finalize(quota.Usage.tokens(9, 40), request_id="r2")
print(f"{receipt.outcome} late: {str(receipt.late).lower()}, {receipt.cost_usd} USD")

print("r3 outgrows what its tenant has left:")
paragraph = text("one two three four five six seven eight nine ten " * 8)
passed = 0
with start("r3").stream("openai_chat") as stream:
    try:
        while True:
            passed += bool(stream.feed(paragraph))
            stream.keep()
    except quota.Refused as refused:
        print(f"ended after {passed} events: {refused.reason}")
    print(stream.finish().outcome)
for balance in gate.balances(who):
    print(f"{balance.limit}: {balance.remaining} left")
