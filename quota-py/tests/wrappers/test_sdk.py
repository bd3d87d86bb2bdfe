"""The wrapped clients of the official packages, sync and async, in front of an upstream on loopback."""

from __future__ import annotations

import asyncio
import gc
import inspect
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anthropic
import openai
import pytest
from conftest import ACME, Books, until, until_async
from upstream import INPUT, OUTPUT, PIECES, Step, Upstream

import quota
import quota.anthropic
import quota.openai

MESSAGES: Any = [{"role": "user", "content": "Name three rivers."}]
BODY: Any = {"model": "m", "messages": MESSAGES, "max_tokens": 50}
KINDS = ["openai", "openai async", "anthropic", "anthropic async"]


class Kind:
    """One kind of client, used alike: each call is run in a loop of its own where the client is asynchronous."""

    def __init__(self, name: str, upstream: Upstream, gate: quota.Gate) -> None:
        self.name = name
        self.is_openai = name.startswith("openai")
        self.is_async = name.endswith("async")
        self.upstream = upstream
        self.gate = gate
        self.errors: Any = openai if self.is_openai else anthropic
        self.loop = asyncio.Runner() if self.is_async else None

    def client(self, tenant: str = "acme", **options: Any) -> Any:
        who = quota.Principal(tenant=tenant)
        options = {"api_key": "k", "max_retries": 0, **options}
        if self.is_openai:
            own = (openai.AsyncOpenAI if self.is_async else openai.OpenAI)(base_url=f"{self.upstream.url}/v1", **options)
            return quota.openai.wrap(own, self.gate, who)
        other = anthropic.AsyncAnthropic if self.is_async else anthropic.Anthropic
        return quota.anthropic.wrap(other(base_url=self.upstream.url, **options), self.gate, who)

    def run(self, value: Any) -> Any:
        """The value, awaited if it has to be."""

        async def awaited() -> Any:
            return await value

        return self.loop.run(awaited()) if self.loop is not None and inspect.isawaitable(value) else value

    def resource(self, client: Any) -> Any:
        return client.chat.completions if self.is_openai else client.messages

    def create(self, client: Any, **more: Any) -> Any:
        return self.run(self.resource(client).create(**BODY | more))

    def pieces(self, stream: Any, at_most: int = 1000) -> int:
        """Reads so many pieces of a stream, and leaves it then."""

        async def read() -> int:
            found = 0
            async for _ in stream:
                found += 1
                if found == at_most:
                    break
            return found

        if self.loop is not None:
            return self.loop.run(read())
        found = 0
        for _ in stream:
            found += 1
            if found == at_most:
                break
        return found


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest, upstream: Upstream, gate: quota.Gate) -> Iterator[Kind]:
    made = Kind(request.param, upstream, gate)
    yield made
    if made.loop is not None:
        made.loop.close()


def test_a_wrapped_client_is_of_its_own_class(kind: Kind) -> None:
    client = kind.client()
    own: Any = {"openai": openai.OpenAI, "openai async": openai.AsyncOpenAI, "anthropic": anthropic.Anthropic}
    assert isinstance(client, own.get(kind.name, anthropic.AsyncAnthropic))
    assert client.with_options(timeout=3).timeout == 3
    with pytest.raises(ValueError, match="wrapped already"):
        (quota.openai if kind.is_openai else quota.anthropic).wrap(client, kind.gate, ACME)
    with pytest.raises(TypeError):
        quota.openai.wrap(anthropic.Anthropic(api_key="k"), kind.gate, ACME)  # type: ignore[type-var]
    with pytest.raises(TypeError):
        quota.anthropic.wrap(openai.OpenAI(api_key="k"), kind.gate, ACME)  # type: ignore[type-var]


def test_a_call_settles_by_its_usage(kind: Kind, books: Books) -> None:
    client = kind.client()
    answer = kind.create(client)
    assert answer.usage.model_dump()["completion_tokens" if kind.is_openai else "output_tokens"] == OUTPUT
    assert books.settled(1)
    assert kind.create(client.with_options(timeout=20)).usage is not None
    assert books.settled(2)


def test_a_stream_settles_by_its_usage(kind: Kind, books: Books) -> None:
    stream = kind.create(kind.client(), stream=True)
    assert books.in_flight == 1
    assert kind.pieces(stream) >= PIECES
    assert books.settled(1)


@pytest.mark.parametrize("kind", ["anthropic", "anthropic async"], indirect=True)
def test_a_stream_is_settled_by_its_last_event(kind: Kind, books: Books) -> None:
    """OpenAI's client stops there by itself."""
    kind.upstream.expects(Step(how="hang_at_end"))
    stream = kind.create(kind.client(), stream=True)
    assert kind.pieces(stream, PIECES + 5) == PIECES + 5
    assert books.settled(1)


def test_the_upstream_is_asked_for_its_own_name(kind: Kind, books: Books) -> None:
    kind.create(kind.client(), model="fast")
    assert kind.upstream.bodies[0]["model"] == "m" and books.settled(1)


def test_a_stream_that_is_left_early_is_unresolved(kind: Kind, books: Books) -> None:
    kind.upstream.expects(Step(how="hang_midway"))
    stream = kind.create(kind.client(), stream=True)
    assert kind.pieces(stream, 1) == 1
    kind.run(stream.close())
    assert books.in_flight == 0 and books.used("rpd") == 1
    assert len(kind.gate.unresolved()) == 1


def test_a_stream_that_nobody_holds_is_unresolved(kind: Kind, books: Books) -> None:
    kind.upstream.expects(Step(how="hang_midway"))
    stream = kind.create(kind.client(), stream=True)
    assert kind.pieces(stream, 1) == 1
    del stream
    gc.collect()
    if kind.loop is not None:
        # The loop finalizes what is left of it, one layer after the other.
        kind.loop.run(until_async(lambda: gc.collect() >= 0 and books.in_flight == 0))
    assert books.in_flight == 0
    assert len(kind.gate.unresolved()) == 1


def test_a_stream_that_breaks_off_is_unresolved(kind: Kind, books: Books) -> None:
    kind.upstream.expects(Step(how="break_midway"))
    stream = kind.create(kind.client(), stream=True)
    with pytest.raises(Exception):  # noqa: B017  # each SDK has its own
        kind.pieces(stream)
    assert books.in_flight == 0 and len(kind.gate.unresolved()) == 1


def test_raw_and_streaming_responses_settle_too(kind: Kind, books: Books) -> None:
    resource = kind.resource(kind.client())
    raw = kind.run(resource.with_raw_response.create(**BODY))
    assert kind.run(raw.parse()).usage is not None and books.settled(1)
    raw = kind.run(resource.with_raw_response.create(**BODY, stream=True))
    assert kind.pieces(kind.run(raw.parse())) >= PIECES and books.settled(2)

    def read(streamed: Any) -> None:
        with streamed as response:
            assert books.in_flight == 1
            response.read()

    async def read_async(streamed: Any) -> None:
        async with streamed as response:
            assert books.in_flight == 1
            await response.read()

    kind.run((read_async if kind.is_async else read)(resource.with_streaming_response.create(**BODY)))
    assert books.settled(3)
    kind.run((read_async if kind.is_async else read)(resource.with_streaming_response.create(**BODY, stream=True)))
    assert books.settled(4)


def test_the_helpers_of_streams_work(kind: Kind, books: Books) -> None:
    asked = {"model": "m", "messages": MESSAGES, "max_tokens": 50}

    def read(manager: Any) -> Any:
        with manager as stream:
            return stream.get_final_completion() if kind.is_openai else stream.get_final_message()

    async def read_async(manager: Any) -> Any:
        async with manager as stream:
            return await (stream.get_final_completion() if kind.is_openai else stream.get_final_message())

    assert kind.run((read_async if kind.is_async else read)(kind.resource(kind.client()).stream(**asked))) is not None
    assert books.settled(1)
    assert kind.run(kind.resource(kind.client()).parse(**asked)) is not None
    assert books.settled(2)


def test_a_refusal_is_the_sdks_own_error_too(kind: Kind) -> None:
    client = kind.client("slow", max_retries=2)
    kind.create(client)
    with pytest.raises(kind.errors.RateLimitError) as caught:
        kind.create(client)
    assert isinstance(caught.value, quota.Refused)
    refused: Any = caught.value
    assert (refused.reason, refused.status_code, refused.status) == ("request_rate_exceeded", 429, 429)
    assert int(refused.response.headers["retry-after"]) <= 60 and refused.retry_after_ms <= 60_000
    assert len(kind.upstream.bodies) == 1
    with pytest.raises(kind.errors.PermissionDeniedError):
        kind.create(client, model="foreign")


@pytest.mark.parametrize(("status", "charged"), [(400, 0), (429, 0), (500, 1)])
def test_an_upstream_that_fails(kind: Kind, books: Books, status: int, charged: int) -> None:
    for stream in (False, True):
        kind.upstream.expects(Step(status=status))
        with pytest.raises(kind.errors.APIStatusError):
            kind.create(kind.client(), stream=stream)
    assert (books.in_flight, books.used("rpd"), len(kind.gate.unresolved())) == (0, charged * 2, charged * 2)


def test_the_sdks_retries_are_made_on_one_lease(kind: Kind, books: Books) -> None:
    client = kind.client(max_retries=2)
    at_once = {"retry-after-ms": "1"}
    kind.upstream.expects(Step(status=500, headers=at_once), Step(status=429, headers=at_once))
    assert kind.create(client).usage is not None
    assert books.settled(1) and len(kind.upstream.bodies) == 3


@pytest.mark.parametrize(("first", "charged"), [(429, 0), (500, 1)])
def test_what_may_have_run_is_not_given_back(kind: Kind, books: Books, first: int, charged: int) -> None:
    at_once = {"retry-after-ms": "1"}
    kind.upstream.expects(Step(status=first, headers=at_once), Step(status=400))
    with pytest.raises(kind.errors.BadRequestError):
        kind.create(kind.client(max_retries=2))
    assert (books.in_flight, books.used("rpd"), len(kind.gate.unresolved())) == (0, charged, charged)


def test_what_was_never_connected_is_given_back(kind: Kind, books: Books) -> None:
    nobody = kind.client().with_options(base_url="http://127.0.0.1:1", max_retries=0)
    with pytest.raises(kind.errors.APIConnectionError):
        kind.create(nobody)
    assert books.settled(0)


def test_what_was_sent_and_not_answered_in_time_is_unresolved(kind: Kind, books: Books) -> None:
    kind.upstream.expects(Step(how="hang"))
    with pytest.raises(kind.errors.APITimeoutError):
        kind.create(kind.client(timeout=0.2))
    assert [left.cause for left in kind.gate.unresolved()] == ["upstream_failed"] and books.in_flight == 0
    kind.upstream.expects(Step(how="break"))
    with pytest.raises(kind.errors.APIConnectionError):
        kind.create(kind.client())
    assert len(kind.gate.unresolved()) == 2 and books.in_flight == 0


def test_an_answer_without_usage_is_unresolved(kind: Kind, books: Books) -> None:
    if kind.is_openai:
        kind.upstream.expects(Step(usage=False))
        assert kind.create(kind.client()).usage is None
        assert [left.cause for left in kind.gate.unresolved()] == ["no_usage"] and books.in_flight == 0
    else:
        kind.upstream.expects(Step(usage=False))
        kind.create(kind.client())
        assert len(kind.gate.unresolved()) == 1 and books.in_flight == 0


def test_the_body_is_sent_as_it_was_agreed(kind: Kind) -> None:
    kind.create(kind.client("soft"), model="dear", max_tokens=100, extra_body={"tools": [{"type": "web_search"}]})
    assert kind.upstream.bodies == [{"model": "m", "messages": MESSAGES, "max_tokens": 8}]
    # What is merged into a body late is seen all the same.
    kind.create(kind.client("soft"), extra_body={"model": "dear", "max_tokens": 300})
    assert (kind.upstream.bodies[1]["model"], kind.upstream.bodies[1]["max_tokens"]) == ("m", 8)


def test_others_wait_for_their_turn(kind: Kind, gate: quota.Gate) -> None:
    books = Books(gate, "queue")
    first = gate.admit(quota.Principal(tenant="queue"), quota.Request(model="m", input_tokens=1, max_output_tokens=1))
    assert first.lease is not None
    with ThreadPoolExecutor() as pool:
        second = pool.submit(kind.create, kind.client("queue"))
        until(lambda: (gate.pool_load("h200") or (0, 0))[1] == 1)
        assert kind.upstream.bodies == []
        first.lease.cancel()
        assert second.result().usage is not None
    assert (books.used("rpd"), books.in_flight) == (1, 0)


def test_many_at_once(kind: Kind, books: Books) -> None:
    if kind.is_async:

        async def main() -> None:
            client = kind.client()

            async def one(number: int) -> None:
                answer = await kind.resource(client).create(**BODY, stream=number % 2 == 0)
                if number % 2 == 0:
                    assert len([piece async for piece in answer]) >= PIECES

            await asyncio.gather(*(one(number) for number in range(40)))

        kind.run(main())
    else:
        client = kind.client()

        def one(number: int) -> None:
            answer = kind.resource(client).create(**BODY, stream=number % 2 == 0)
            if number % 2 == 0:
                assert len(list(answer)) >= PIECES

        with ThreadPoolExecutor(8) as pool:
            list(pool.map(one, range(40)))
    until(lambda: books.settled(40))


def test_a_task_that_is_cancelled_leaves_its_call_unresolved(upstream: Upstream, gate: quota.Gate, books: Books) -> None:
    for name in ("openai async", "anthropic async"):
        kind = Kind(name, upstream, gate)
        assert kind.loop is not None

        async def main(kind: Kind = kind) -> None:
            upstream.expects(Step(how="hang"))
            before = len(upstream.bodies)
            task = asyncio.create_task(kind.resource(kind.client()).create(**BODY))
            while len(upstream.bodies) == before:
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task

        kind.loop.run(main())
        kind.loop.close()
    assert [left.cause for left in gate.unresolved()] == ["dropped", "dropped"] and books.in_flight == 0


@pytest.fixture
def client(upstream: Upstream, gate: quota.Gate) -> Iterator[openai.OpenAI]:
    with openai.OpenAI(api_key="k", base_url=f"{upstream.url}/v1", max_retries=0) as own:
        yield quota.openai.wrap(own, gate, lambda: ACME)


def test_other_endpoints_of_openai(client: openai.OpenAI, books: Books) -> None:
    client.responses.create(model="m", input="Name three rivers.")
    assert len(list(client.responses.create(model="m", input="Name three rivers.", stream=True))) >= PIECES
    with client.responses.stream(model="m", input="Name three rivers.") as stream:
        usage = stream.get_final_response().usage
    assert usage is not None and usage.output_tokens == OUTPUT
    client.completions.create(model="m", prompt="Name three rivers.")
    assert len(list(client.completions.create(model="m", prompt="Name three rivers.", stream=True))) >= PIECES
    assert books.settled(5)
    client.embeddings.create(model="m", input="a")
    assert books.charged == (6, 6 * INPUT, 5 * OUTPUT)


@pytest.mark.parametrize("asked", [False, True])
def test_usage_is_in_a_stream_only_if_it_was_asked_for(client: openai.OpenAI, upstream: Upstream, asked: bool) -> None:
    more: Any = {"stream_options": {"include_usage": True}} if asked else {}
    chunks = list(client.chat.completions.create(**BODY, stream=True, **more))
    assert any(chunk.usage for chunk in chunks) is asked
    assert len(chunks) == PIECES + 1 + asked
    assert upstream.bodies[0]["stream_options"] == {"include_usage": True}


def test_what_can_not_be_metered_is_an_error(client: openai.OpenAI, upstream: Upstream, gate: quota.Gate) -> None:
    calls: list[Callable[[], Any]] = [
        lambda: client.images.generate(model="m", prompt="a"),
        lambda: client.audio.speech.create(model="m", input="a", voice="x"),
        lambda: client.post("/v1/chat/completions", cast_to=object, body=BODY),
        lambda: client.realtime.connect(model="m").enter(),
        lambda: client.beta.responses.connect().enter(),
    ]
    for call in calls:
        with pytest.raises(quota.QuotaError) as caught:
            call()
        assert caught.value.code == "call_not_metered"
    assert upstream.paths == []
    own = openai.OpenAI(api_key="k", base_url=f"{upstream.url}/v1", max_retries=0)
    free = quota.openai.wrap(own, gate, ACME, unmetered=["/images/*"])
    with pytest.raises(openai.APIError):
        free.images.generate(model="m", prompt="a")
    assert upstream.paths == ["/v1/images/generations"]


def test_a_call_in_a_hook_of_another_is_no_part_of_it(upstream: Upstream, gate: quota.Gate, books: Books) -> None:
    def hook(request: Any) -> None:
        if "/free/" not in request.url.path:
            metered.post("/free/chat/completions", cast_to=object, body=BODY)

    http = openai.DefaultHttpxClient(event_hooks={"request": [hook]})
    own = openai.OpenAI(api_key="k", base_url=f"{upstream.url}/v1", max_retries=0, http_client=http)
    metered = quota.openai.wrap(own, gate, ACME, unmetered=["/free/*"])
    upstream.expects(Step(), Step(status=400))
    with pytest.raises(openai.BadRequestError):
        metered.chat.completions.create(**BODY)
    assert upstream.paths == ["/v1/free/chat/completions", "/v1/chat/completions"]
    assert books.settled(0)
    own.close()


def test_azures_client_is_wrapped_too(upstream: Upstream, gate: quota.Gate) -> None:
    own = openai.AzureOpenAI(api_key="k", azure_endpoint=upstream.url, api_version="1", max_retries=0)
    client = quota.openai.wrap(own, gate, quota.Principal(tenant="soft"))
    client.chat.completions.create(**BODY | {"model": "dear"})
    assert upstream.paths == ["/openai/deployments/m/chat/completions?api-version=1"]


def test_an_answer_that_is_compressed_all_the_same(client: openai.OpenAI, upstream: Upstream, books: Books) -> None:
    upstream.expects(Step(gzip=True), Step(gzip=True))
    client.chat.completions.create(**BODY)
    list(client.chat.completions.create(**BODY, stream=True))
    assert upstream.headers[1]["accept-encoding"] == "identity"
    assert books.settled(2)


def test_a_stream_that_outgrows_its_limit_raises_the_refusal(upstream: Upstream, gate: quota.Gate) -> None:
    who = quota.Principal(tenant="short")
    for _ in range(32):
        lease = gate.admit(who, quota.Request(model="m", input_tokens=10, max_output_tokens=400)).lease
        assert lease is not None
        lease.settle({"prompt_tokens": 1, "completion_tokens": 1})
    upstream.expects(Step(words=300))
    own = openai.OpenAI(api_key="k", base_url=f"{upstream.url}/v1", max_retries=0)
    stream = quota.openai.wrap(own, gate, who).chat.completions.create(**BODY | {"max_tokens": 390}, stream=True)
    with pytest.raises(openai.RateLimitError) as caught:
        list(stream)
    assert isinstance(caught.value, quota.Refused)
    assert len(gate.unresolved()) == 1


def test_the_lease_is_kept_alive_while_the_upstream_works(upstream: Upstream) -> None:
    policy = {"settings": {"lease_ttl_ms": 1500}, "models": {"m": {}}, "tenants": {"acme": {"models": ["m"]}}}
    gate = quota.Gate(quota.Policy.from_dict(policy))
    own = openai.OpenAI(api_key="k", base_url=f"{upstream.url}/v1", max_retries=0)
    upstream.expects(Step(how="hang"))
    swept = []

    def lets_go() -> None:
        # Longer than a lease lives by itself.
        for _ in range(24):
            threading.Event().wait(0.1)
            swept.append(gate.sweep())
        upstream.go.set()

    with gate.keeper():
        thread = threading.Thread(target=lets_go)
        thread.start()
        quota.openai.wrap(own, gate, ACME).chat.completions.create(**BODY)
        thread.join()
    assert sum(swept) == 0 and gate.unresolved() == []
