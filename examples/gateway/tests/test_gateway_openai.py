"""OpenAI's client against the running gateway."""

import asyncio
import base64
import hmac
import json
import secrets
import shlex
import shutil
import signal
import subprocess
import time
import urllib.request

import openai
import pytest
from harness import DEADLINE, HERE, MESSAGES, TEXT, Gateway, binary, until


def chat(client, model="sim-chat", **options):
    return client.chat.completions.create(model=model, messages=MESSAGES, max_tokens=10, **options)


def test_a_completion(gateway):
    with gateway.client() as client:
        answer = chat(client)
    assert answer.choices[0].message.content == TEXT
    assert answer.choices[0].finish_reason == "length"
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (7, 10)
    assert gateway.story(answer._request_id) == ["admitted", "settled"]


@pytest.mark.parametrize("options, usages", [({}, []), ({"stream_options": {"include_usage": True}}, [10])])
def test_a_stream(gateway, options, usages):
    with gateway.client() as client:
        stream = chat(client, stream=True, **options)
        chunks = list(stream)
        request_id = stream.response.headers["x-request-id"]
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices) == TEXT
    assert [chunk.usage.completion_tokens for chunk in chunks if chunk.usage] == usages
    assert gateway.ended(request_id)[-1]["event"] == "settled"

def test_a_text_completion(gateway):
    with gateway.client() as client:
        answer = client.completions.create(model="sim-chat", prompt=["Name", "three"], max_tokens=10)
        chunks = list(client.completions.create(model="sim-chat", prompt="Name", max_tokens=10, stream=True))
    assert [choice.text for choice in answer.choices] == [TEXT, TEXT]
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (3, 20)
    assert gateway.story(answer._request_id) == ["admitted", "settled"]
    assert "".join(chunk.choices[0].text for chunk in chunks) == TEXT
    assert not any(chunk.usage for chunk in chunks)


def test_a_response(gateway):
    with gateway.client() as client:
        answer = client.responses.create(model="sim-chat", input=MESSAGES, max_output_tokens=10)
    assert (answer.output_text, answer.status) == (TEXT, "incomplete")
    assert (answer.usage.input_tokens, answer.usage.output_tokens) == (7, 10)
    assert gateway.story(answer._request_id) == ["admitted", "settled"]


def test_a_streamed_response(gateway):
    with gateway.client() as client:
        with client.responses.stream(model="sim-chat", input=MESSAGES) as stream:
            said = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
            final = stream.get_final_response()
            request_id = stream._response.headers["x-request-id"]
    assert said == final.output_text == TEXT + "as one. " + TEXT + "as one. "
    assert final.usage.output_tokens == 24
    assert gateway.ended(request_id)[-1]["event"] == "settled"


def test_a_response_that_breaks_off_raises(gateway):
    with gateway.client() as client:
        stream = client.responses.create(model="sim-error-mid-stream", input=MESSAGES, stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert caught.value.code == "upstream_broken"


def test_models_are_those_of_the_key(gateway):
    with gateway.client("soft") as client:
        assert [model.id for model in client.models.list()] == ["dear", "sim-chat"]
        assert client.models.retrieve("dear").id == "dear"
        with pytest.raises(openai.NotFoundError) as caught:
            client.models.retrieve("sim-embed")
    assert caught.value.code == "model_not_found"


def test_an_upstream_that_is_full_is_asked_again(gateway, slept):
    with gateway.client(max_retries=2) as client, pytest.raises(openai.RateLimitError) as caught:
        chat(client, "sim-429")
    assert caught.value.code == "upstream_busy"
    assert slept == [7, 7]


def test_an_output_without_end_is_cut(gateway):
    with gateway.client() as client:
        stream = chat(client, "sim-overlong", stream=True)
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert caught.value.code == "output_limit_passed"
    assert gateway.ended(stream.response.headers["x-request-id"])[-1]["event"] == "unresolved"


def test_who_no_longer_waits_is_charged_all_the_same(gateway):
    with gateway.client("queue", timeout=0.1) as client, pytest.raises(openai.APITimeoutError):
        chat(client, "sim-slow")
    # The tenant's only slot: this waits until the request that was given up has ended.
    with gateway.client("queue") as client:
        chat(client)
    assert gateway.get("/admin/unresolved").json() == {"unresolved": []}


def test_a_task_that_is_cancelled_is_charged_all_the_same(gateway):
    async def run():
        async with openai.AsyncOpenAI(api_key="test-queue", base_url=f"{gateway.url}/v1", max_retries=0) as client:
            begun = asyncio.Event()

            async def read():
                stream = await chat(client, "sim-slow", stream=True)
                async for _ in stream:
                    begun.set()

            task = asyncio.create_task(read())
            await asyncio.wait_for(begun.wait(), DEADLINE)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            # The tenant's only slot: this waits until the stream that was left has ended.
            await chat(client)

    asyncio.run(run())
    assert gateway.get("/admin/unresolved").json() == {"unresolved": []}


def test_a_token_names_a_principal(tmp_path):
    secret = secrets.token_hex(32)
    key = tmp_path / "secret"
    key.write_text(secret + "\n")
    options = ["--jwt-key", str(key), "--jwt-issuer", "https://id.example", "--jwt-audience", "gateway"]
    gateway = Gateway("--policy", str(HERE / "policy.yaml"), *options)

    def token(**claims):
        def part(value):
            return base64.urlsafe_b64encode(value).rstrip(b"=")

        standard = {"iss": "https://id.example", "aud": "gateway", "exp": int(time.time()) + 600}
        head = part(b'{"alg":"HS256"}') + b"." + part(json.dumps({**standard, **claims}).encode())
        return (head + b"." + part(hmac.digest(secret.encode(), head, "sha256"))).decode()

    def client(bearer):
        return openai.OpenAI(api_key=bearer, base_url=f"{gateway.url}/v1", max_retries=0)

    try:
        with client(token(org="poor", sub="ann")) as by:
            chat(by)
            with pytest.raises(openai.APIStatusError) as caught:
                chat(by)
        assert caught.value.body["reason"] == "budget_exceeded"
        for bad in [token(org="acme", exp=1), token(org="acme", aud="other"), token(org="acme")[:-2]]:
            with client(bad) as by, pytest.raises(openai.AuthenticationError) as caught:
                chat(by)
            assert caught.value.code == "token_invalid"
            assert bad not in str(caught.value)
        with gateway.client() as by:
            chat(by)
    finally:
        gateway.close()


def test_a_lesser_form_is_told(gateway):
    with gateway.client("soft") as client:
        raw = client.chat.completions.with_raw_response.create(model="dear", messages=MESSAGES)
    assert raw.headers["x-quota-degraded"] == "0;soft_limit_passed"
    answer = raw.parse()
    assert (answer.model, answer.usage.completion_tokens) == ("sim-chat", 8)


def test_a_key_that_the_operator_makes(gateway):
    made = gateway.post("/admin/keys", {"tenant": "acme", "parent": "acme", "limits": {"rpm": {"hard": 1}}}).json()
    with openai.OpenAI(api_key=made["secret"], base_url=f"{gateway.url}/v1", max_retries=0) as client:
        chat(client)
        with pytest.raises(openai.RateLimitError):
            chat(client)
        gateway.post(f"/admin/keys/{made['id']}/revoke", {"tenant": "acme"})
        with pytest.raises(openai.AuthenticationError):
            chat(client)


def test_embeddings(gateway):
    with gateway.client() as client:
        answer = client.embeddings.create(model="sim-embed", input=["one", "two"], encoding_format="float")
    assert [len(item.embedding) for item in answer.data] == [8, 8]
    assert answer.usage.prompt_tokens == 2


def test_a_rate_limit_is_waited_out(gateway, slept):
    with gateway.client("slow", max_retries=1) as client:
        chat(client)
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client)
    error = caught.value
    assert (error.code, error.type, error.body["reason"]) == ("rate_limit_exceeded", "requests", "request_rate_exceeded")
    # One request a minute: the client would have come back after what was left of the minute.
    assert len(slept) == 1 and 50 < slept[0] <= 60, slept
    assert 50 <= int(error.response.headers["retry-after"]) <= 60
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"


def test_who_comes_back_early_twice_is_told_so(gateway, slept):
    with gateway.client("slow", max_retries=2) as client:
        chat(client)
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client)
    assert caught.value.body["reason"] == "retry_storm"
    assert len(slept) == 2


def test_a_budget_is_not_retried(gateway, slept):
    with gateway.client("poor", max_retries=2) as client:
        chat(client)
        with pytest.raises(openai.APIStatusError) as caught:
            chat(client)
    error = caught.value
    assert (error.status_code, error.code, error.body["reason"]) == (402, "insufficient_quota", "budget_exceeded")
    assert slept == []
    metrics = gateway.get("/metrics").text
    assert 'quota_refusals_total{tenant="poor",model="sim-chat",reason="budget_exceeded"} 1\n' in metrics


def test_errors_have_the_classes_that_people_catch(gateway, slept):
    for key, options, error_class, code in [
        ("nobody", {}, openai.AuthenticationError, "invalid_api_key"),
        ("revoked", {}, openai.AuthenticationError, "invalid_api_key"),
        ("slow", {"model": "sim-slow"}, openai.PermissionDeniedError, "model_not_found"),
        ("acme", {"n": 1000}, openai.BadRequestError, "request_invalid"),
        ("acme", {"model": "sim-error-before"}, openai.InternalServerError, "upstream_failed"),
        ("acme", {"model": "sim-429"}, openai.RateLimitError, "upstream_busy"),
    ]:
        with gateway.client(key) as client, pytest.raises(error_class) as caught:
            chat(client, **options)
        assert caught.value.code == code
        assert caught.value.request_id
        assert f"test-{key}" not in str(caught.value)
    assert slept == []


def test_a_stream_that_breaks_off_raises(gateway):
    with gateway.client() as client:
        stream = chat(client, "sim-error-mid-stream", stream=True)
        request_id = stream.response.headers["x-request-id"]
        with pytest.raises(openai.APIError) as caught:
            list(stream)
    assert caught.value.code == "upstream_broken"
    assert gateway.ended(request_id)[-1]["event"] == "unresolved"


def test_leaving_a_stream_frees_its_slot_and_settles(gateway):
    with gateway.client("queue") as client:
        stream = chat(client, "sim-slow", stream=True)
        request_id = stream.response.headers["x-request-id"]
        next(iter(stream))
        stream.close()
        # The tenant's only slot: this waits in the queue until the stream that was left has ended.
        chat(client)
    assert gateway.story(request_id) == ["admitted", "settled"]


def test_a_key_sees_its_balances(gateway):
    with gateway.client() as client:
        chat(client)
    quota = gateway.get("/v1/quota", "test-acme").json()
    budget = next(limit for limit in quota["limits"] if limit["limit"] == "daily_budget_usd")
    # 7 tokens in at 1 and 10 out at 2 dollars a million.
    assert (quota["tenant"], budget["hard"], budget["used"]) == ("acme", "100", "0.000027")


@pytest.mark.skipif(not hasattr(signal, "SIGHUP"), reason="the system has no SIGHUP")
def test_a_hangup_reloads_the_policy(tmp_path):
    policy = tmp_path / "policy.yaml"
    text = (HERE / "policy.yaml").read_text()
    policy.write_text(text)
    gateway = Gateway("--policy", str(policy))
    try:
        policy.write_text(text.replace("      sim-embed: {}\n", ""))
        gateway.process.send_signal(signal.SIGHUP)
        until(lambda: any("policy loaded" in line for line in gateway.said))
        with gateway.client() as client, pytest.raises(openai.PermissionDeniedError):
            client.embeddings.create(model="sim-embed", input="one")
    finally:
        gateway.close()


def post_like(words):
    """What a printed line of curl does, where there is no curl."""
    url = next(word for word in words if word.startswith("http"))
    headers = dict(words[at + 1].split(": ", 1) for at, word in enumerate(words) if word == "-H")
    data = [words[at + 1].encode() for at, word in enumerate(words) if word == "-d"]
    request = urllib.request.Request(url, data=data[0] if data else None, headers=headers)
    return urllib.request.urlopen(request, timeout=DEADLINE).read().decode()


def test_the_printed_lines_work():
    gateway = Gateway()
    try:
        lines = [line for line in gateway.said if line.startswith("curl")]
        assert len(lines) == 3
        # By a shell, as people would; and by hand, so that it is tested without curl too.
        ways = [lambda line: post_like(shlex.split(line))]
        if shutil.which("curl") and shutil.which("sh"):
            ways.append(lambda line: subprocess.check_output(["sh", "-c", line], text=True, timeout=DEADLINE))
        for run in ways:
            answer, stream, quota = map(run, lines)
            assert '"The pool is simulated' in answer
            assert stream.startswith("data: {") and stream.endswith("data: [DONE]\n\n")
            assert '"tenant":"acme"' in quota
    finally:
        gateway.close()


def test_what_is_wrong_with_the_arguments_is_told(tmp_path):
    bad = tmp_path / "bad.yaml"
    bad.write_text("tenants: {acme: {rmp: 1}}")
    for arguments, status, told in [
        (["--polcy", "x"], 2, "unknown option --polcy"),
        (["--policy", str(bad)], 1, "did you mean `rpm`?"),
        (["--policy", str(tmp_path / "none.yaml")], 1, "none.yaml"),
        (["--upstream", "ftp://x"], 1, "a URL of http or https"),
        (["--jwt-key", str(bad)], 2, "go together"),
        (["--jwt-key", str(bad), "--jwt-issuer", "i", "--jwt-audience", "a"], 1, "at least 32"),
    ]:
        done = subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=DEADLINE)
        assert (done.returncode, told in done.stderr) == (status, True), done.stderr


