"""The official clients do what a refusal tells them.

Every refusal of the shared vectors is served as its status, headers and body; the clients must retry exactly where the
headers ask for it, wait exactly as long, and hand over the manner's own code. No test sleeps: the clients' sleep is
recorded instead.
"""

import http.server
import json
import pathlib
import threading

import anthropic
import openai
import pytest

VECTORS = pathlib.Path(__file__).parents[3] / "quota-core/tests/vectors/respond.json"
CASES = [case for case in json.loads(VECTORS.read_text())["cases"] if "refusal" in case]
RETRIES = 2


@pytest.fixture
def serve():
    """A server that gives one answer to everything and counts its requests."""
    servers = []

    def start(answer):
        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"
            requests = 0

            def do_POST(self):
                self.rfile.read(int(self.headers["content-length"]))
                Handler.requests += 1
                body = json.dumps(answer["body"]).encode()
                self.send_response(answer["status"])
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(body)))
                for name, value in answer["headers"].items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
        return f"http://127.0.0.1:{server.server_port}", Handler

    yield start
    for server in servers:
        server.shutdown()
        server.server_close()


def expected(answer):
    """How often a client comes back and how long it waits each time, from the statuses that clients retry."""
    headers = answer["headers"]
    retried = answer["status"] in (408, 409, 429) or answer["status"] >= 500
    if not retried or headers.get("x-should-retry") == "false":
        return []
    millis = headers.get("retry-after-ms")
    return [float(millis) / 1000 if millis else float(headers["retry-after"])] * RETRIES


def refused(call, error):
    with pytest.raises(error) as caught:
        call(model="any", messages=[{"role": "user", "content": "hi"}], max_tokens=1)
    return caught.value


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_openai(case, serve, slept):
    answer = case["openai"]
    url, handler = serve(answer)
    with openai.OpenAI(api_key="none", base_url=url, max_retries=RETRIES) as client:
        error = refused(client.chat.completions.create, openai.APIStatusError)
    waits = expected(answer)
    assert slept == waits
    assert handler.requests == 1 + len(waits)
    assert error.status_code == answer["status"]
    stated = answer["body"]["error"]
    assert error.code == stated.get("code")
    assert error.type == stated.get("type")
    assert error.request_id == answer["headers"].get("x-request-id")


@pytest.mark.parametrize("case", CASES, ids=[case["id"] for case in CASES])
def test_anthropic(case, serve, slept):
    answer = case["anthropic"]
    url, handler = serve(answer)
    with anthropic.Anthropic(api_key="none", base_url=url, max_retries=RETRIES) as client:
        error = refused(client.messages.create, anthropic.APIStatusError)
    waits = expected(answer)
    assert slept == waits
    assert handler.requests == 1 + len(waits)
    assert error.status_code == answer["status"]
    assert error.body == answer["body"]
    assert error.request_id == answer["headers"].get("request-id")


def test_the_classes_that_people_catch(serve, slept):
    by_id = {case["id"]: case for case in CASES}
    for case, openai_class, anthropic_class in [
        ("request-rate", openai.RateLimitError, anthropic.RateLimitError),
        ("context-too-long", openai.BadRequestError, anthropic.BadRequestError),
        ("key-unknown", openai.AuthenticationError, anthropic.AuthenticationError),
        ("model-not-allowed", openai.PermissionDeniedError, anthropic.PermissionDeniedError),
        ("leases-exhausted", openai.InternalServerError, anthropic.InternalServerError),
    ]:
        url, _ = serve(by_id[case]["openai"])
        with openai.OpenAI(api_key="none", base_url=url, max_retries=0) as client:
            refused(client.chat.completions.create, openai_class)
        url, _ = serve(by_id[case]["anthropic"])
        with anthropic.Anthropic(api_key="none", base_url=url, max_retries=0) as client:
            refused(client.messages.create, anthropic_class)
    assert slept == []
