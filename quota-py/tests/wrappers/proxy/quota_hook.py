"""What the LiteLLM proxy of the tests loads: the hook, and a port that tells the books."""

from __future__ import annotations

import json
import os
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import quota
import quota.litellm


def principal(auth: Any) -> quota.Principal:
    """The test says in `user` which tenant asks."""
    return quota.Principal(tenant=auth.end_user_id or "acme")


hook = quota.litellm.QuotaHook.from_env(principal=principal)
gate = hook.gate


class Books(BaseHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        who = quota.Principal(tenant=self.path.strip("/"))
        used = {balance.limit: balance.used for balance in gate.balances(who) if isinstance(balance.used, int)}
        load = gate.pool_load("h200")
        told = {
            "used": used,
            "unresolved": [one.cause for one in gate.unresolved()],
            "open": len(hook._calls),
            "waiting": 0 if load is None else load[1],
        }
        text = json.dumps(told).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)


_server = ThreadingHTTPServer(("127.0.0.1", int(os.environ["BOOKS_PORT"])), Books)
threading.Thread(target=_server.serve_forever, daemon=True).start()
