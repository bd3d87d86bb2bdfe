"""The official clients against the running gateway, in front of its simulated pool.

No test sleeps but to look again within a deadline; where a client would sleep before a retry, it is recorded instead.
"""

import os
import pathlib
import shlex
import shutil
import signal
import subprocess
import threading
import time
import urllib.request

import anthropic
import httpx
import openai
import pytest

HERE = pathlib.Path(__file__).parent
REPOSITORY = HERE.parents[2]
ADMIN = "the-operator"
DEADLINE = 20
MESSAGES = [{"role": "user", "content": "Name three rivers."}]
# What the simulated pool says within ten tokens.
TEXT = "The pool is simulated and every word of it counts "


def binary():
    """The program: GATEWAY_BIN, or what cargo builds."""
    given = os.environ.get("GATEWAY_BIN")
    if given:
        return pathlib.Path(given).resolve()
    subprocess.run(["cargo", "build", "--quiet", "-p", "gateway"], cwd=REPOSITORY, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return REPOSITORY / target / "debug" / ("gateway.exe" if os.name == "nt" else "gateway")


class Gateway:
    """A gateway of its own, ended by its own process."""

    def __init__(self, *arguments):
        environment = {**os.environ, "GATEWAY_ADMIN_KEY": ADMIN}
        command = [binary(), "--listen", "127.0.0.1:0", *arguments]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
        self.said = []
        self.started = threading.Event()
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()
        assert self.started.wait(DEADLINE), f"not started: {self.said}"
        self.url = next(line.split()[-1] for line in self.said if "listening on" in line)

    def read(self):
        for line in self.process.stdout:
            self.said.append(line.rstrip("\n"))
            if line.startswith("curl") and "/v1/quota" in line:
                self.started.set()

    def close(self):
        self.process.terminate()
        assert self.process.wait(DEADLINE) == 0
        self.reader.join(DEADLINE)
        self.process.stdout.close()

    def client(self, key="acme", **options):
        options.setdefault("max_retries", 0)
        return openai.OpenAI(api_key=f"test-{key}", base_url=f"{self.url}/v1", **options)

    def get(self, path, key=ADMIN):
        return httpx.get(self.url + path, headers={"authorization": f"Bearer {key}"})

    def story(self, request_id):
        return [entry["event"] for entry in self.get(f"/admin/requests/{request_id}").json()["entries"]]

    def until_ended(self, request_id):
        end = time.monotonic() + DEADLINE
        while len(self.story(request_id)) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return self.story(request_id)[-1]


@pytest.fixture
def gateway():
    gateway = Gateway("--policy", str(HERE / "policy.yaml"))
    yield gateway
    gateway.close()


@pytest.fixture
def slept(monkeypatch):
    """What the clients would have slept, in seconds."""
    record = []
    monkeypatch.setattr(openai._base_client.time, "sleep", record.append)
    return record


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
    assert gateway.until_ended(request_id) == "settled"


def test_embeddings(gateway):
    with gateway.client() as client:
        answer = client.embeddings.create(model="sim-embed", input=["one", "two"], encoding_format="float")
    assert [len(item.embedding) for item in answer.data] == [8, 8]
    assert answer.usage.prompt_tokens == 2


def test_a_rate_limit_is_waited_out(gateway, slept):
    with gateway.client("slow", max_retries=2) as client:
        chat(client)
        with pytest.raises(openai.RateLimitError) as caught:
            chat(client)
    error = caught.value
    assert (error.code, error.type, error.body["reason"]) == ("rate_limit_exceeded", "requests", "request_rate_exceeded")
    # One request a minute: the client came back twice, each time after what was left of the minute.
    assert len(slept) == 2 and all(50 < seconds <= 60 for seconds in slept), slept
    assert 50 <= int(error.response.headers["retry-after"]) <= 60
    assert error.response.headers["x-ratelimit-remaining-requests"] == "0"


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
    assert gateway.until_ended(request_id) == "unresolved"


def test_leaving_a_stream_frees_its_slot_and_settles(gateway):
    with gateway.client("queue") as client:
        stream = chat(client, "sim-slow", stream=True)
        request_id = stream.response.headers["x-request-id"]
        next(iter(stream))
        stream.close()
        # The tenant's only slot: this waits in the queue until the stream that was left has ended.
        chat(client)
    assert gateway.story(request_id) == ["admitted", "settled"]


def test_the_other_official_client_understands_refusals(gateway):
    with anthropic.Anthropic(api_key="test-acme", base_url=gateway.url, max_retries=0) as client:
        with pytest.raises(anthropic.NotFoundError) as caught:
            client.messages.create(model="sim-chat", max_tokens=1, messages=MESSAGES)
        assert caught.value.body["error"]["type"] == "not_found_error"
    with anthropic.Anthropic(api_key="test-nobody", base_url=gateway.url, max_retries=0) as client:
        with pytest.raises(anthropic.AuthenticationError) as caught:
            client.post("/v1/chat/completions", cast_to=object, body={"model": "sim-chat", "messages": MESSAGES})
    assert caught.value.body["error"]["details"]["error_code"] == "key_unknown"
    assert caught.value.request_id


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
        end = time.monotonic() + DEADLINE
        while not any("policy loaded" in line for line in gateway.said) and time.monotonic() < end:
            time.sleep(0.01)
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
    ]:
        done = subprocess.run([binary(), *arguments], capture_output=True, text=True, timeout=DEADLINE)
        assert (done.returncode, told in done.stderr) == (status, True), done.stderr


