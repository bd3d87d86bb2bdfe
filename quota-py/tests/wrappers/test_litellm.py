"""The hook in a LiteLLM proxy of its own, as its process, in front of an upstream on loopback."""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import anthropic
import httpx
import openai
import pytest
from conftest import ACME, POLICY, Books, until
from upstream import INPUT, OUTPUT, PIECES, Step, Upstream

import quota

HERE = Path(__file__).parent
KEY = "sk-" + "a" * 40
MESSAGES: Any = [{"role": "user", "content": "Name three rivers."}]
BODY: Any = {"model": "m", "messages": MESSAGES}
#: A cold start imports some thousand modules: on a machine that has much else to do, for minutes.
STARTS_S = 250


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


def configuration(upstream: Upstream) -> dict[str, Any]:
    def at(model: str, **more: object) -> dict[str, Any]:
        deployment = {"model": f"openai/{model}", "api_base": f"{upstream.url}/v1", "api_key": "k", "max_retries": 0}
        return {"model_name": model, "litellm_params": {**deployment, **more}}

    return {
        "model_list": [at("m"), at("dear"), at("spare")],
        "litellm_settings": {"callbacks": ["quota_hook.hook", "strict_hook.strict"], "telemetry": False},
        "router_settings": {"num_retries": 0, "disable_cooldowns": True, "fallbacks": [{"dear": ["spare"]}]},
        "general_settings": {"master_key": KEY},
    }


class Proxy:
    """The process, and what it tells of the books."""

    def __init__(self, directory: Path, upstream: Upstream) -> None:
        for name in ("quota_hook.py", "strict_hook.py"):
            shutil.copy(HERE / "proxy" / name, directory)
        (directory / "policy.json").write_text(json.dumps(POLICY))
        (directory / "config.yaml").write_text(json.dumps(configuration(upstream)))
        port, self.books_port = free_ports(2)
        self.url = f"http://127.0.0.1:{port}"
        environment = {
            **os.environ,
            "LITELLM_LOCAL_MODEL_COST_MAP": "True",
            "QUOTA_POLICY": str(directory / "policy.json"),
            "BOOKS_PORT": str(self.books_port),
        }
        command = [str(Path(sys.executable).parent / "litellm"), "--config", "config.yaml", "--host", "127.0.0.1"]
        # A connection that the proxy closes while a client of a busy machine takes it up again is an error that is not its own.
        command += ["--keepalive_timeout", "600"]
        self.log = (directory / "log").open("w+")
        self.process = subprocess.Popen(
            [*command, "--port", str(port)], cwd=directory, env=environment, stdout=self.log, stderr=self.log
        )
        self.before: dict[str, Any] = {}

    def is_up(self) -> bool:
        if self.process.poll() is not None:
            self.log.seek(0)
            pytest.fail(f"the proxy ended with {self.process.returncode}: {self.log.read()[-4000:]}")
        try:
            return httpx.get(f"{self.url}/health/liveliness", timeout=5).status_code == 200
        except httpx.HTTPError:
            return False

    def close(self) -> None:
        self.process.terminate()
        try:
            self.process.wait(30)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()

    def books(self, tenant: str = "acme") -> dict[str, Any]:
        told: dict[str, Any] = httpx.get(f"http://127.0.0.1:{self.books_port}/{tenant}").json()
        return told

    def starts(self) -> None:
        """What is charged from here on is what `charged` tells."""
        self.before = self.books()

    def charged(self) -> tuple[int, int, int]:
        """Requests, input and output since `starts`."""
        now = self.books()["used"]
        requests, given, output = (now[name] - self.before["used"][name] for name in ("rpd", "input_tpd", "output_tpd"))
        return requests, given, output

    def unresolved(self) -> list[str]:
        """The causes of what has been left unresolved since `starts`."""
        causes: list[str] = self.books()["unresolved"]
        return causes[len(self.before["unresolved"]) :]

    def settled(self, requests: int) -> bool:
        books = self.books()
        is_closed = books["open"] == 0 and books["used"]["max_inflight"] == 0
        return is_closed and not self.unresolved() and self.charged() == (requests, requests * INPUT, requests * OUTPUT)

    def open(self) -> tuple[int, int]:
        """Calls that the hook knows, and slots that are held."""
        books = self.books()
        return books["open"], books["used"]["max_inflight"]


@pytest.fixture(scope="module")
def running(the_upstream: Upstream, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    made = Proxy(tmp_path_factory.mktemp("proxy"), the_upstream)
    try:
        until(made.is_up, STARTS_S)
        yield made
    finally:
        made.close()


@pytest.fixture
def proxy(running: Proxy, upstream: Upstream) -> Proxy:
    running.starts()
    return running


@pytest.fixture
def client(proxy: Proxy) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key=KEY, base_url=f"{proxy.url}/v1", max_retries=0) as made:
        yield made


def test_each_kind_of_call_settles_by_its_usage(proxy: Proxy, client: openai.OpenAI) -> None:
    client.chat.completions.create(**BODY)
    client.completions.create(model="m", prompt="Name three rivers.")
    client.responses.create(model="m", input="Name three rivers.")
    with anthropic.Anthropic(api_key=KEY, base_url=proxy.url, max_retries=0) as other:
        other.messages.create(**BODY, max_tokens=50)
    until(lambda: proxy.settled(4))
    client.embeddings.create(model="m", input="a")
    until(lambda: proxy.charged() == (5, 5 * INPUT, 4 * OUTPUT))


def test_the_slot_is_free_once_the_answer_is_read(proxy: Proxy, client: openai.OpenAI) -> None:
    client.chat.completions.create(**BODY)
    assert proxy.settled(1)


def test_each_kind_of_stream_settles_by_its_usage(proxy: Proxy, client: openai.OpenAI) -> None:
    chunks = list(client.chat.completions.create(**BODY, stream=True))
    assert len(chunks) >= PIECES and not any(chunk.usage for chunk in chunks)
    assert list(client.completions.create(model="m", prompt="Name three rivers.", stream=True))
    assert list(client.responses.create(model="m", input="Name three rivers.", stream=True))
    with anthropic.Anthropic(api_key=KEY, base_url=proxy.url, max_retries=0) as other:
        with other.messages.stream(**BODY, max_tokens=50) as stream:
            stream.get_final_message()
    until(lambda: proxy.settled(4))


def test_a_refusal_reaches_the_asker_with_its_headers(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    client.chat.completions.create(**BODY, user="slow")
    with pytest.raises(openai.RateLimitError) as caught:
        client.chat.completions.create(**BODY, user="slow")
    assert 0 < int(caught.value.response.headers["retry-after"]) <= 60
    assert "no room" in caught.value.message
    assert len(upstream.bodies) == 1 and proxy.open() == (0, 0)


def test_what_a_later_hook_refuses_is_given_back(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "forbidden"}])
    assert proxy.settled(0) and upstream.bodies == []


def test_what_a_later_hook_refuses_to_hand_out_has_run(proxy: Proxy, client: openai.OpenAI) -> None:
    with pytest.raises(openai.PermissionDeniedError):
        client.chat.completions.create(model="m", messages=[{"role": "user", "content": "unheard"}])
    until(lambda: proxy.settled(1))


@pytest.mark.parametrize(("status", "charged"), [(400, 0), (429, 0), (500, 1)])
def test_an_upstream_that_fails(
    proxy: Proxy, client: openai.OpenAI, upstream: Upstream, status: int, charged: int
) -> None:
    for stream in (False, True):
        upstream.expects(Step(status=status))
        with pytest.raises(openai.APIStatusError):
            client.chat.completions.create(**BODY, stream=stream)
    until(lambda: proxy.open() == (0, 0))
    assert (proxy.charged()[0], proxy.unresolved()) == (charged * 2, ["upstream_failed"] * charged * 2)


def test_retries_are_made_on_one_lease(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.expects(Step(status=500))
    client.chat.completions.create(**BODY, extra_body={"num_retries": 1})
    until(lambda: proxy.settled(1))
    assert len(upstream.bodies) == 2


def test_a_fallback_is_made_on_one_lease(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.expects(Step(status=500))
    client.chat.completions.create(**BODY | {"model": "dear"})
    assert [body["model"] for body in upstream.bodies] == ["dear", "spare"]
    until(lambda: proxy.settled(1))


def test_what_may_have_run_is_not_given_back(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.expects(Step(status=500), Step(status=400))
    with pytest.raises(openai.APIStatusError):
        client.chat.completions.create(**BODY | {"model": "dear"})
    until(lambda: proxy.open() == (0, 0))
    assert (proxy.charged()[0], len(proxy.unresolved())) == (1, 1)


def test_a_stream_that_breaks_off_is_unresolved(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.expects(Step(how="break_midway"))
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(**BODY, stream=True))
    until(lambda: proxy.open() == (0, 0))
    assert (proxy.charged()[0], len(proxy.unresolved())) == (1, 1)


def test_who_leaves_a_stream_leaves_it_unresolved(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.expects(Step(how="hang_midway"))
    stream = client.chat.completions.create(**BODY, stream=True)
    next(iter(stream))
    assert proxy.open() == (1, 1)
    stream.close()
    until(lambda: proxy.open() == (0, 0))
    assert (proxy.charged()[0], proxy.unresolved()) == (1, ["dropped"])


def test_others_wait_for_their_turn(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    upstream.expects(Step(how="hang"))
    with ThreadPoolExecutor() as pool:
        first = pool.submit(lambda: client.chat.completions.create(**BODY, user="queue"))
        until(lambda: len(upstream.bodies) == 1)
        second = pool.submit(lambda: client.chat.completions.create(**BODY, user="queue"))
        until(lambda: proxy.books()["waiting"] == 1)
        assert len(upstream.bodies) == 1
        upstream.go.set()
        assert first.result().usage and second.result().usage
    assert proxy.open() == (0, 0)


def test_the_body_is_sent_as_it_was_agreed(client: openai.OpenAI, upstream: Upstream) -> None:
    client.chat.completions.create(**BODY | {"model": "dear"}, max_tokens=100, user="soft")
    assert (upstream.bodies[0]["model"], upstream.bodies[0]["max_tokens"]) == ("m", 8)


def test_what_can_not_be_metered_is_refused(proxy: Proxy, client: openai.OpenAI, upstream: Upstream) -> None:
    with pytest.raises(openai.BadRequestError, match="can't be metered"):
        client.images.generate(model="m", prompt="a")
    assert upstream.bodies == [] and proxy.settled(0)


@pytest.mark.parametrize(
    "more",
    [
        {"extra_body": {"n": 9}},
        {"extra_body": {"max_tokens": 99_999}},
        {"extra_body": "n"},
        {"additional_drop_params": ["max_completion_tokens"]},
        {"additional_drop_params": "max_completion_tokens"},
        {"fallbacks": ["dear"]},
        {"context_window_fallbacks": [{"m": ["dear"]}]},
    ],
    ids=str,
)
def test_what_would_not_be_sent_as_it_was_admitted_is_refused(proxy: Proxy, upstream: Upstream, more: dict[str, Any]) -> None:
    headers = {"authorization": f"Bearer {KEY}"}
    answer = httpx.post(f"{proxy.url}/v1/chat/completions", json=BODY | more, headers=headers, timeout=60)
    assert answer.status_code == 400, answer.text
    assert upstream.bodies == [] and proxy.settled(0)


def test_what_a_body_adds_besides_passes(client: openai.OpenAI, upstream: Upstream) -> None:
    more: Any = {"extra_body": {"top_k": 3}, "additional_drop_params": ["seed"]}
    client.chat.completions.create(**BODY, seed=1, extra_body=more)
    assert upstream.bodies[0]["top_k"] == 3 and "seed" not in upstream.bodies[0]


def test_what_nobody_tells_of_is_left_to_expire(gate: quota.Gate, books: Books, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LITELLM_LOCAL_MODEL_COST_MAP", "True")
    import quota.litellm

    hook = quota.litellm.QuotaHook(gate, principal=lambda _: ACME, longest_s=0)
    data = {**BODY, "metadata": {"quota_call": "one's own"}}
    asyncio.run(hook.async_pre_call_hook(None, None, data, "acompletion"))
    until(lambda: books.in_flight == 0)
    assert [left.cause for left in gate.unresolved()] == ["expired"]
    assert hook._of(data) is None
    with pytest.raises(quota.InputError, match="NOTHING names no policy file"):
        quota.litellm.QuotaHook.from_env("NOTHING")


def test_many_at_once(proxy: Proxy, client: openai.OpenAI) -> None:
    def ask(number: int) -> None:
        answer = client.chat.completions.create(**BODY, stream=number % 2 == 0)
        if number % 2 == 0:
            assert len(list(answer)) >= PIECES

    with ThreadPoolExecutor(16) as pool:
        list(pool.map(ask, range(64)))
    until(lambda: proxy.settled(64))
