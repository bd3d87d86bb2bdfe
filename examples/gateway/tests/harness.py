"""The running gateway, in front of its simulated pool.

No test sleeps but to look again within a deadline; where a client would sleep before a retry, it is recorded instead.
"""

import os
import pathlib
import subprocess
import threading
import time

import anthropic
import httpx
import openai

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
    subprocess.run(["cargo", "build", "--quiet", "-p", "gateway", "--features", "jwt"], cwd=REPOSITORY, check=True)
    target = pathlib.Path(os.environ.get("CARGO_TARGET_DIR", REPOSITORY / "target"))
    return REPOSITORY / target / "debug" / ("gateway.exe" if os.name == "nt" else "gateway")


def until(look, deadline=DEADLINE):
    """What `look` gives once it gives something."""
    end = time.monotonic() + deadline
    while not (found := look()):
        assert time.monotonic() < end, f"not within {deadline} s: {look.__qualname__}"
        # Not `time.sleep`, in whose place some tests record how long the clients would have slept.
        threading.Event().wait(0.01)
    return found


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

    def anthropic(self, key="acme", **options):
        options.setdefault("max_retries", 0)
        return anthropic.Anthropic(api_key=f"test-{key}", base_url=self.url, **options)

    def get(self, path, key=ADMIN):
        return httpx.get(self.url + path, headers={"authorization": f"Bearer {key}"})

    def post(self, path, body, key=ADMIN):
        return httpx.post(self.url + path, json=body, headers={"authorization": f"Bearer {key}"})

    def entries(self, request_id):
        return self.get(f"/admin/requests/{request_id}").json()["entries"]

    def story(self, request_id):
        return [entry["event"] for entry in self.entries(request_id)]

    def ended(self, request_id, deadline=DEADLINE):
        """The request's entries, once it has an ending."""

        def all_entries():
            entries = self.entries(request_id)
            return entries if len(entries) > 1 else None

        return until(all_entries, deadline)
