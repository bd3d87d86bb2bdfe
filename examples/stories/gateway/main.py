"""A gateway in one handler: who asks, may it run, run it, what did it cost. It serves chat completions on loopback, and asks
itself what a client would ask."""

import json
import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import quota
from quota.testing import ManualClock

gate = quota.Gate(
    quota.Policy.from_file(Path(__file__).with_name("policy.yaml")), clock=ManualClock("2026-03-02T12:00:00Z")
)


def upstream(body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
    """In a gateway of one's own, a call to the provider."""
    if body["messages"][0]["content"] == "fail":
        return 500, {"error": {"message": "out of memory", "type": "server_error"}}
    usage = {"prompt_tokens": 12, "completion_tokens": 31, "total_tokens": 43}
    return 200, {"choices": [{"message": {"role": "assistant", "content": "Rhine, Nile, Amazon."}}], "usage": usage}


class Handler(BaseHTTPRequestHandler):
    def do_POST(self) -> None:
        text = self.rfile.read(int(self.headers["content-length"]))
        try:
            who = gate.authenticate(self.headers.get("authorization", "").removeprefix("Bearer "))
            request = quota.Request.from_body("openai_chat", text)
            # Waits where the policy says so; here it says no at once.
            with gate.acquire(who, request) as lease:
                body = json.loads(text) | {"max_tokens": lease.max_output_tokens}
                lease.sent()
                status, answer = upstream(body)
                lease.finish(quota.Outcome.of_answer(status, answer))
            self.respond(status, gate.headers(who), answer)
        except quota.Refused as refused:
            self.respond(*refused.refusal.response("openai"))
        except quota.InputError as error:
            self.respond(
                400,
                {},
                {"error": {"message": str(error), "type": "invalid_request_error", "code": "request_invalid"}},
            )

    def respond(self, status: int, headers: dict[str, str], body: dict[str, Any]) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: Any) -> None:
        pass


def ask(what: str, key: str, body: str) -> None:
    """Asks and prints the answer's status, what it says about limits, and its text or its error."""
    client = HTTPConnection("127.0.0.1", server.server_port)
    client.request("POST", "/v1/chat/completions", body, {"authorization": f"Bearer {key}"})
    answer = client.getresponse()
    print(f"{what}: {answer.status}")
    for name in ["retry-after", "x-ratelimit-remaining-requests"]:
        if value := answer.getheader(name):
            print(f"  {name}: {value}")
    found = json.load(answer)
    client.close()
    if "choices" in found:
        print(f"  {found['choices'][0]['message']['content']}")
    else:
        print(f"  {found['error'].get('code') or found['error']['message']}")


server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()

RIVERS = '{"model":"small","messages":[{"role":"user","content":"Name three rivers."}]}'
KEY = "demo-acme-key"
ask("a request", KEY, RIVERS)
ask("a wrong key", "demo-other-key", RIVERS)
ask("half a body", KEY, RIVERS[:40])
ask("no messages", KEY, '{"model":"small"}')
ask("an upstream that fails", KEY, '{"model":"small","messages":[{"role":"user","content":"fail"}]}')
ask("a request", KEY, RIVERS)
ask("a request", KEY, RIVERS)
ask("a fifth in a minute", KEY, RIVERS)
server.shutdown()
for balance in gate.balances(gate.authenticate(KEY)):
    print(f"{balance.limit}: {balance.used} used")
