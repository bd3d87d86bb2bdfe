"""The middleware in front of a FastAPI application, behind uvicorn, with real disconnects."""

from __future__ import annotations

import asyncio
import gzip
import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import httpx
import openai
import pytest
from conftest import ACME, POLICY, Books, until
from fastapi import FastAPI
from fastapi.responses import StreamingResponse
from serving import Asker, Spec24, application, serving
from upstream import INPUT, OUTPUT, PIECES, Step, Upstream
from websockets.sync.client import connect

import quota
import quota.asgi

CHAT = "/v1/chat/completions"
MESSAGES: Any = [{"role": "user", "content": "Name three rivers."}]
BODY: dict[str, Any] = {"model": "m", "messages": MESSAGES}
GEMINI = "/v1beta/models/m:generateContent"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: BODY,
    "/v1/completions": {"model": "m", "prompt": "Name three rivers."},
    "/v1/responses": {"model": "m", "input": "Name three rivers."},
    "/v1/messages": {**BODY, "max_tokens": 50},
    GEMINI: {"contents": [{"role": "user", "parts": [{"text": "Name three rivers."}]}]},
}


class Served:
    """A running application, and who asks it."""

    def __init__(self, gate: quota.Gate, url: str) -> None:
        self.gate = gate
        self.url = url
        self.keys: dict[str, str] = {}
        #: Whether it is a server of the newer kind.
        self.is_new = False

    def headers(self, tenant: str = "acme", **more: str) -> dict[str, str]:
        if tenant not in self.keys:
            self.keys[tenant] = self.gate.issue_key(tenant=tenant, author="test").secret
        more = {name.replace("_", "-"): value for name, value in more.items()}
        return {"authorization": f"Bearer {self.keys[tenant]}", **more}

    def post(self, path: str = CHAT, body: Any = BODY, tenant: str = "acme", **more: str) -> httpx.Response:
        headers = self.headers(tenant, **more)
        return httpx.post(self.url + path, json=body, headers=headers, timeout=60)

    def asks(self, body: Any = BODY, tenant: str = "acme", path: str = CHAT) -> Asker:
        return Asker(self.url, path, body, self.headers(tenant))


@pytest.fixture
def served(upstream: Upstream, gate: quota.Gate) -> Iterator[Served]:
    with serving(application(upstream, gate)) as url:
        yield Served(gate, url)


@pytest.fixture(params=["2.3", "2.4"])
def each_spec(request: pytest.FixtureRequest, upstream: Upstream, gate: quota.Gate) -> Iterator[Served]:
    app = application(upstream, gate)
    with serving(app if request.param == "2.3" else Spec24(app)) as url:
        served = Served(gate, url)
        served.is_new = request.param == "2.4"
        yield served


@pytest.mark.parametrize("path", BODIES)
def test_an_answer_settles_by_its_usage(served: Served, books: Books, upstream: Upstream, path: str) -> None:
    answer = served.post(path, BODIES[path])
    assert answer.status_code == 200
    assert books.settled(1)
    assert upstream.paths == [path]


def test_embeddings_have_no_output(served: Served, books: Books) -> None:
    assert served.post("/v1/embeddings", {"model": "m", "input": "a"}).status_code == 200
    assert books.charged == (1, INPUT, 0) and books.in_flight == 0


@pytest.mark.parametrize("path", [*list(BODIES)[:4], "/v1beta/models/m:streamGenerateContent?alt=sse"])
def test_a_stream_settles_by_its_usage(served: Served, books: Books, path: str) -> None:
    body = BODIES.get(path) or BODIES[GEMINI]
    answer = served.post(path, {**body, "stream": True} if path in BODIES else body)
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.text.count("word") >= PIECES
    assert books.settled(1)


@pytest.mark.parametrize("asked", [None, {"include_usage": False}, {"include_usage": True}])
def test_usage_is_in_a_stream_only_if_it_was_asked_for(served: Served, upstream: Upstream, asked: Any) -> None:
    body = {**BODY, "stream": True} | ({} if asked is None else {"stream_options": asked})
    answer = served.post(body=body)
    assert ("usage" in answer.text) is bool(asked and asked["include_usage"])
    assert answer.text.endswith("data: [DONE]\n\n")
    assert upstream.bodies[0]["stream_options"] == {"include_usage": True}


def test_a_stream_passes_as_it_comes_and_holds_its_slot_to_the_end(
    served: Served, books: Books, upstream: Upstream
) -> None:
    upstream.expects(Step(how="hang_midway"))
    asker = served.asks({**BODY, "stream": True})
    asker.read_until(b"word")
    assert books.in_flight == 1
    upstream.go.set()
    asker.read_until(b"[DONE]")
    assert books.settled(1)
    asker.socket.close()


def test_the_official_clients_work_through_it(served: Served, books: Books) -> None:
    key = served.headers()["authorization"].removeprefix("Bearer ")
    with openai.OpenAI(api_key=key, base_url=f"{served.url}/v1", max_retries=0) as client:
        chunks = list(client.chat.completions.create(model="m", messages=MESSAGES, stream=True))
    assert len(chunks) == PIECES + 1
    with anthropic.Anthropic(api_key=key, base_url=served.url, max_retries=0) as other:
        with other.messages.stream(model="m", max_tokens=20, messages=MESSAGES) as stream:
            assert stream.get_final_message().usage.output_tokens == OUTPUT
    assert books.settled(2)


def test_a_refusal_is_in_the_manner_of_its_route(served: Served, upstream: Upstream) -> None:
    assert served.post(tenant="slow").status_code == 200
    answer = served.post(tenant="slow")
    assert answer.status_code == 429
    assert answer.json()["error"]["reason"] == "request_rate_exceeded"
    assert 0 < int(answer.headers["retry-after"]) <= 60
    assert answer.headers["x-ratelimit-remaining-requests"] == "0" and "x-request-id" in answer.headers
    answer = served.post("/v1/messages", BODIES["/v1/messages"], tenant="slow")
    assert (answer.status_code, answer.json()["error"]["type"]) == (429, "rate_limit_error")
    assert answer.headers["anthropic-ratelimit-requests-remaining"] == "0" and "request-id" in answer.headers
    answer = served.post(GEMINI, BODIES[GEMINI], tenant="slow")
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["status"]) == (429, 429, "RESOURCE_EXHAUSTED")
    assert [detail["@type"].rpartition(".")[2] for detail in error["details"]] == ["ErrorInfo", "RetryInfo"]
    assert "ratelimit" in answer.headers and "x-ratelimit-remaining-requests" not in answer.headers
    assert len(upstream.bodies) == 1


def test_strangers_and_foreign_models_are_refused(served: Served, upstream: Upstream, books: Books) -> None:
    assert httpx.post(served.url + CHAT, json=BODY).status_code == 401
    assert httpx.post(served.url + CHAT, json=BODY, headers={"x-api-key": "sk-no"}).status_code == 401
    assert served.post(body={**BODY, "model": "foreign"}).status_code == 403
    assert upstream.bodies == [] and books.settled(0)


def too_much(length: int) -> Iterator[bytes]:
    for _ in range(length):
        yield b" " * 1024


@pytest.mark.parametrize(
    ("body", "status", "headers"),
    [
        (b"x", 400, {}),
        (b"[]", 400, {}),
        (b'{"model": "m"', 400, {}),
        (b'{"model": "m", "messages": [], "seed": 1' + b"0" * 5000 + b"}", 400, {}),
        (b"[" * 100_000, 400, {}),
        (b"\xff\xfe{}", 400, {}),
        (gzip.compress(json.dumps(BODY).encode()), 415, {"content-encoding": "gzip"}),
        (b" " * 5000, 413, {}),
        (b" " * 100_000, 413, {}),
        (5, 413, {}),
        (500, 413, {}),
        (json.dumps(BODY).encode(), 400, {"idempotency-key": "a b"}),
        (json.dumps(BODY).encode(), 400, {"x-agent-run-id": "a b"}),
    ],
    ids=lambda value: str(value)[:30],
)
def test_what_is_no_request_is_answered_in_its_manner(
    upstream: Upstream, gate: quota.Gate, books: Books, body: Any, status: int, headers: dict[str, str]
) -> None:
    small = 4096 if status == 413 else 1 << 20
    with serving(application(upstream, gate, max_body=small)) as url:
        served = Served(gate, url)
        for path in (CHAT, "/v1/messages", GEMINI):
            content = too_much(body) if isinstance(body, int) else body
            answer = httpx.post(url + path, content=content, headers=served.headers() | headers)
            error = answer.json()["error"]
            assert (answer.status_code, "details" in error) == (status, path != CHAT), answer.text
            assert error.get("status", "INVALID_ARGUMENT") == "INVALID_ARGUMENT"
    assert upstream.bodies == [] and books.settled(0)


def test_others_wait_for_their_turn(served: Served, gate: quota.Gate, upstream: Upstream) -> None:
    upstream.expects(Step(how="hang"))
    books = Books(gate, "queue")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(served.post, tenant="queue")
        until(lambda: upstream.bodies)
        second = pool.submit(served.post, tenant="queue")
        until(lambda: waiting(gate) == 1)
        assert len(upstream.bodies) == 1
        upstream.go.set()
        assert first.result().status_code == second.result().status_code == 200
    assert int(second.result().headers["x-quota-waited-ms"]) > 0
    assert (books.used("rpd"), books.in_flight) == (2, 0)


def test_a_wait_ends_in_time(served: Served, gate: quota.Gate, upstream: Upstream) -> None:
    running = gate.admit(quota.Principal(tenant="queue"), quota.Request(model="m", input_tokens=1, max_output_tokens=1))
    assert running.lease is not None
    served.keys["queue"] = gate.issue_key(tenant="queue", author="test", lane="impatient").secret
    answer = served.post(tenant="queue")
    assert answer.json()["error"]["reason"] == "queue_timeout"
    assert upstream.bodies == [] and waiting(gate) == 0


def waiting(gate: quota.Gate) -> int:
    load = gate.pool_load("h200")
    return 0 if load is None else load[1]


def test_who_leaves_while_waiting_gives_up_the_place(each_spec: Served, gate: quota.Gate, upstream: Upstream) -> None:
    upstream.expects(Step(how="hang"))
    books = Books(gate, "queue")
    with ThreadPoolExecutor() as pool:
        first = pool.submit(each_spec.post, tenant="queue")
        until(lambda: upstream.bodies)
        second = each_spec.asks(tenant="queue")
        until(lambda: waiting(gate) == 1)
        second.hang_up()
        until(lambda: waiting(gate) == 0)
        upstream.go.set()
        assert first.result().status_code == 200
    assert (books.used("rpd"), books.used("output_tpd"), books.in_flight) == (1, OUTPUT, 0)
    assert len(upstream.bodies) == 1


def test_who_leaves_a_stream_leaves_it_unresolved(each_spec: Served, books: Books, upstream: Upstream) -> None:
    upstream.expects(Step(how="drip"))
    asker = each_spec.asks({**BODY, "stream": True})
    asker.read_until(b"word")
    assert books.in_flight == 1
    asker.hang_up()
    if each_spec.is_new:
        # It tells when a piece is sent to who has left. After the last one the stream would settle by its usage.
        upstream.go.set()
    until(lambda: books.in_flight == 0)
    (left,) = each_spec.gate.unresolved()
    assert left.seen is not None and left.seen.output_total >= 1
    assert books.used("output_tpd") == 400


def test_who_leaves_before_the_answer_pays_for_it(each_spec: Served, books: Books, upstream: Upstream) -> None:
    upstream.expects(Step(how="hang"))
    asker = each_spec.asks()
    until(lambda: upstream.bodies)
    asker.hang_up()
    upstream.go.set()
    until(lambda: books.in_flight == 0)
    # By its usage, if the answer was there before the application knew.
    assert books.used("rpd") == 1


def test_stream_options_that_are_none_are_refused(served: Served, books: Books) -> None:
    answer = served.post(body={**BODY, "stream": True, "stream_options": 3})
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, "stream_options")
    assert books.settled(0)


@pytest.mark.parametrize(("status", "charged"), [(400, 0), (404, 0), (429, 0), (500, 1), (503, 1), (408, 1)])
def test_an_upstream_that_fails(served: Served, books: Books, upstream: Upstream, status: int, charged: int) -> None:
    upstream.expects(Step(status=status, headers={"retry-after": "7"}))
    answer = served.post()
    assert (answer.status_code, answer.headers["retry-after"]) == (status, "7")
    assert books.in_flight == 0
    assert [left.cause for left in served.gate.unresolved()] == ["upstream_failed"] * charged
    assert books.used("rpd") == charged


def test_a_stream_that_breaks_off_is_unresolved(served: Served, books: Books, upstream: Upstream) -> None:
    upstream.expects(Step(how="break_midway"))
    with pytest.raises(httpx.HTTPError):
        served.post(body={**BODY, "stream": True})
    until(lambda: books.in_flight == 0)
    assert len(served.gate.unresolved()) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_without_usage_is_unresolved(served: Served, books: Books, upstream: Upstream, stream: bool) -> None:
    upstream.expects(Step(usage=False))
    assert served.post(body={**BODY, "stream": stream}).status_code == 200
    assert [left.cause for left in served.gate.unresolved()] == ["no_usage"]
    assert books.in_flight == 0


def test_an_application_that_raises(served: Served, books: Books) -> None:
    assert served.post(x_how="raise").status_code == 500
    assert [left.cause for left in served.gate.unresolved()] == ["upstream_failed"]
    assert books.in_flight == 0
    assert served.post(x_how="raise-404").status_code == 404
    assert books.used("rpd") == 1
    assert served.post(x_how="text").text == "not json"
    assert [left.cause for left in served.gate.unresolved()] == ["upstream_failed", "no_usage"]


@pytest.mark.parametrize("stream", [False, True])
def test_an_answer_that_is_compressed_all_the_same(served: Served, books: Books, upstream: Upstream, stream: bool) -> None:
    upstream.expects(Step(gzip=True))
    body = {**BODY, "stream": stream, **({"stream_options": {"include_usage": True}} if stream else {})}
    answer = served.post(body=body)
    assert answer.headers["content-encoding"] == "gzip" and "word" in answer.text
    assert upstream.headers[0]["accept-encoding"] == "identity"
    assert books.settled(1)


def test_the_body_is_handed_on_as_it_was_agreed(served: Served, gate: quota.Gate, upstream: Upstream) -> None:
    search = {"type": "web_search"}
    body = {**BODY, "model": "dear", "max_tokens": 100, "tools": [search], "tool_choice": "auto"}
    answer = served.post(body=body, tenant="soft")
    assert answer.headers["x-quota-degraded"].startswith("0;")
    assert upstream.bodies == [{"model": "m", "messages": MESSAGES, "max_tokens": 8}]
    assert gate.unresolved() == []


def test_the_upstream_is_asked_for_its_own_name(served: Served, books: Books, upstream: Upstream) -> None:
    assert served.post(body={**BODY, "model": "fast"}).status_code == 200
    assert served.post(GEMINI.replace("/m:", "/fast:"), BODIES[GEMINI]).status_code == 200
    assert upstream.bodies[0]["model"] == "m" and upstream.paths[1] == GEMINI
    assert books.settled(2)


def test_what_is_not_changed_stands_as_it_was_written(served: Served) -> None:
    text = json.dumps({**BODY, "max_tokens": 10, "temperature": 1.0}, indent=4)
    headers = served.headers(x_how="echo")
    answer = httpx.post(served.url + CHAT, content=text, headers=headers).json()
    assert answer["headers"]["content-length"] == str(len(text))
    told = httpx.post(served.url + CHAT, json=BODY, headers=headers).json()
    assert told["body"]["max_completion_tokens"] == 400


@pytest.mark.parametrize(
    "twice",
    [
        '{"max_completion_tokens": 400, "max_completion_tokens": 5, "model": "m", "messages": []}',
        '{"max_completion_tokens": 5, "model": "dear", "m\\u006fdel": "m", "messages": []}',
        '{"max_completion_tokens": 5, "model": "m", "messages": [{"role": "user", "content": "long", "content": "x"}]}',
    ],
)
def test_of_members_that_stand_twice_one_is_handed_on(served: Served, twice: str) -> None:
    answer = httpx.post(served.url + CHAT, content=twice, headers=served.headers(x_how="echo")).json()
    assert answer["headers"]["content-length"] == str(len(json.dumps(answer["body"], separators=(",", ":"))))


def test_a_byte_order_mark_is_no_part_of_a_body(served: Served, books: Books) -> None:
    content = b"\xef\xbb\xbf" + json.dumps(BODY).encode()
    assert httpx.post(served.url + CHAT, content=content, headers=served.headers()).status_code == 200
    assert books.settled(1)


def test_an_id_is_written_so_that_a_header_carries_it(upstream: Upstream) -> None:
    tenants = {"tén日": {"requests_per_day": 10, "models": ["m"]}}
    gate = quota.Gate(quota.Policy.from_dict({**POLICY, "tenants": tenants}))
    with serving(application(upstream, gate)) as url:
        served = Served(gate, url)
        answer = served.post(tenant="tén日", idempotency_key="k-1")
        assert (answer.status_code, answer.headers["x-request-id"]) == (200, "t%C3%A9n%E6%97%A5:k-1")
    assert gate.explain("tén日:k-1")[-1]["event"] == "settled"


def test_answers_tell_the_limits_and_their_id(served: Served) -> None:
    answer = served.post(body={**BODY, "stream": True})
    assert answer.headers["x-ratelimit-limit-requests"] == "1000"
    assert "ratelimit" in answer.headers and answer.headers["x-request-id"].startswith("req-")
    assert [entry["event"] for entry in served.gate.explain(answer.headers["x-request-id"])][-1] == "settled"


def test_a_request_runs_once_under_its_idempotency_key(served: Served, books: Books, upstream: Upstream) -> None:
    upstream.expects(Step(how="hang"))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(served.post, idempotency_key="k-1")
        until(lambda: upstream.bodies)
        assert served.post(idempotency_key="k-1").status_code == 409
        upstream.go.set()
        assert first.result().headers["x-request-id"] == "acme:k-1"
    assert books.settled(1)


def test_a_stream_of_gemini_that_is_no_events_is_unresolved(served: Served, books: Books) -> None:
    answer = served.post(GEMINI.replace(":generate", ":streamGenerate"), BODIES[GEMINI], x_how="array")
    assert len(answer.json()) == 2
    assert [left.cause for left in served.gate.unresolved()] == ["no_usage"] and books.in_flight == 0


def test_a_stream_that_outgrows_its_limit_ends_with_the_refusal(
    served: Served, gate: quota.Gate, upstream: Upstream
) -> None:
    who = quota.Principal(tenant="short")
    for _ in range(32):
        lease = gate.admit(who, quota.Request(model="m", input_tokens=10, max_output_tokens=400)).lease
        assert lease is not None
        lease.settle({"prompt_tokens": 1, "completion_tokens": 1})
    books = Books(gate, "short")
    upstream.expects(Step(words=300))
    body = {**BODY, "stream": True, "max_tokens": 390}
    key = served.headers("short")["authorization"].removeprefix("Bearer ")
    with openai.OpenAI(api_key=key, base_url=f"{served.url}/v1", max_retries=0) as client:
        with pytest.raises(openai.APIError, match="used up"):
            list(client.chat.completions.create(**body))
    assert books.used("output_tpd") <= 600
    assert len(gate.unresolved()) == 1


def test_everything_else_passes(served: Served, books: Books, upstream: Upstream) -> None:
    assert httpx.get(served.url + CHAT).text == "looked"
    assert httpx.post(served.url + "/v1/other", json={}, headers={"x-how": "echo"}).status_code == 200
    with connect(f"ws{served.url.removeprefix('http')}{CHAT}") as socket:
        assert socket.recv() == "talked"
    assert books.settled(0)


def test_what_routers_overlook_is_metered(upstream: Upstream, gate: quota.Gate, books: Books) -> None:
    with serving(application(upstream, gate), root_path="/below") as url:
        served = Served(gate, url)
        for path in ("/v1/chat/completions/", "//v1//chat/completions"):
            assert served.post(path, x_how="text").status_code == 200
    assert books.used("rpd") == 2


@pytest.mark.parametrize(
    "path",
    [
        "/v1/./chat/completions",
        "/v1/x/../chat/completions",
        "/v1/%2e/chat/completions",
        "/v1/x/%252e%252e/chat/completions",
        "/v1/chat/completions/.",
        "/v1/chat/completions%0a",
        "/v1/chat/completions;a=b",
        "/v1;a/chat/completions",
        "/v1%5cchat/completions",
        "/V1/Chat/Completions",
        "/v1beta/models/m;x:generateContent",
    ],
)
def test_what_an_upstream_would_read_as_a_route_is_metered(served: Served, books: Books, upstream: Upstream, path: str) -> None:
    asker = served.asks(BODIES[GEMINI] if "models" in path else BODY, path=path)
    told = asker.read_until(b"\r\n\r\n")
    asker.hang_up()
    # The names of models are not those of the policy.
    assert (b" 403 " in told) if "models" in path else (books.used("rpd") == 1)


def test_a_route_that_ends_in_a_line_break_is_metered(gate: quota.Gate, books: Books) -> None:
    app = FastAPI()
    app.add_middleware(quota.asgi.QuotaMiddleware, gate=gate)

    @app.post(CHAT)
    def answer() -> dict[str, Any]:
        return {"usage": {"prompt_tokens": INPUT, "completion_tokens": OUTPUT}}

    with serving(app) as url:
        # FastAPI's own patterns overlook it.
        assert Served(gate, url).post(CHAT + "%0a").status_code == 200
    assert books.settled(1)


@pytest.mark.parametrize("stream", [False, True])
def test_pieces_may_be_views_of_bytes(gate: quota.Gate, books: Books, stream: bool) -> None:
    told = json.dumps({"choices": [], "usage": {"prompt_tokens": INPUT, "completion_tokens": OUTPUT}})
    text = f"data: {told}\n\ndata: [DONE]\n\n" if stream else told
    app = FastAPI()
    app.add_middleware(quota.asgi.QuotaMiddleware, gate=gate)

    @app.post(CHAT)
    def answer() -> StreamingResponse:
        pieces = (memoryview(text.encode())[at : at + 9] for at in range(0, len(text), 9))
        return StreamingResponse(pieces, media_type="text/event-stream" if stream else "application/json")

    with serving(app) as url:
        asked = {**BODY, "stream": stream, "stream_options": {"include_usage": True}} if stream else BODY
        assert Served(gate, url).post(body=asked).text == text
    assert books.settled(1)


def test_a_handler_may_end_the_lease_itself(served: Served, books: Books) -> None:
    assert served.post(x_how="settle").status_code == 200
    assert books.charged == (1, 3, 2) and books.in_flight == 0 and not served.gate.unresolved()


def test_a_handler_may_meter_its_stream_itself(served: Served, books: Books) -> None:
    body = {**BODY, "stream": True, "stream_options": {"include_usage": True}}
    assert served.post(body=body, x_how="meter").text.endswith("data: [DONE]\n\n")
    assert books.settled(1)


def test_who_asks_may_be_told_by_a_function(upstream: Upstream, gate: quota.Gate, books: Books) -> None:
    async def who(scope: Any) -> quota.Principal:
        return ACME

    with serving(application(upstream, gate, principal=who, routes={"/chat": "openai_chat"})) as url:
        assert httpx.post(url + "/chat", json=BODY, headers={"x-how": "text"}).status_code == 200
    assert books.used("rpd") == 1


def test_many_at_once(served: Served, books: Books) -> None:
    paths = list(BODIES)[:4]

    def ask(number: int) -> int:
        path = paths[number % 4]
        return served.post(path, {**BODIES[path], "stream": number % 3 == 0}).status_code

    with ThreadPoolExecutor(16) as pool:
        assert set(pool.map(ask, range(96))) == {200}
    until(lambda: books.settled(96))


def asked(body: bytes = json.dumps(BODY).encode()) -> tuple[dict[str, Any], Any]:
    """A scope, and a `receive` whose asker never leaves."""
    scope = {"type": "http", "method": "POST", "path": CHAT, "headers": [], "asgi": {"spec_version": "2.3"}}
    messages = iter([{"type": "http.request", "body": body, "more_body": False}])

    async def receive() -> Any:
        for message in messages:
            return message
        return await asyncio.get_running_loop().create_future()

    return scope, receive


def test_a_call_that_is_cancelled_is_unresolved(gate: quota.Gate, books: Books) -> None:
    called = threading.Event()

    async def app(scope: Any, receive: Any, send: Any) -> None:
        assert json.loads((await receive())["body"])["model"] == "m"
        called.set()
        await asyncio.get_running_loop().create_future()

    async def main() -> None:
        middleware = quota.asgi.QuotaMiddleware(app, gate=gate, principal=lambda _: ACME)
        scope, receive = asked()
        task = asyncio.create_task(middleware(scope, receive, None))  # type: ignore[arg-type]
        while not called.is_set():
            await asyncio.sleep(0)
        assert books.in_flight == 1
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(main())
    assert [left.cause for left in gate.unresolved()] == ["dropped"]
    assert books.in_flight == 0


@pytest.mark.parametrize("first", ["cancelled", "left"])
def test_a_turn_that_comes_beside_the_end_of_a_wait_is_given_back(gate: quota.Gate, first: str) -> None:
    who = quota.Principal(tenant="queue")
    books = Books(gate, "queue")
    calls = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        calls.append(scope)

    async def main() -> None:
        middleware = quota.asgi.QuotaMiddleware(app, gate=gate, principal=lambda _: who)
        running = gate.admit(who, quota.Request(model="m", input_tokens=1, max_output_tokens=1)).lease
        assert running is not None
        scope, receive = asked()
        left = asyncio.get_running_loop().create_future()
        state = {"asked": False}

        async def leaving() -> Any:
            if not state["asked"]:
                state["asked"] = True
                return await receive()
            return await left

        task = asyncio.create_task(middleware(scope, leaving, None))  # type: ignore[arg-type]
        while waiting(gate) == 0:
            await asyncio.sleep(0)
        running.cancel()
        if first == "left":
            left.set_result({"type": "http.disconnect"})
            await task
        else:
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

    asyncio.run(main())
    assert calls == [] and (books.used("rpd"), books.in_flight, waiting(gate)) == (0, 0, 0)
    assert gate.unresolved() == []


def test_an_application_that_does_not_answer_is_unresolved(gate: quota.Gate, books: Books) -> None:
    async def app(scope: Any, receive: Any, send: Any) -> None:
        return None

    async def main() -> None:
        scope, receive = asked()
        middleware = quota.asgi.QuotaMiddleware(app, gate=gate, principal=lambda _: ACME)
        await middleware(scope, receive, None)  # type: ignore[arg-type]

    asyncio.run(main())
    assert [left.cause for left in gate.unresolved()] == ["dropped"]
