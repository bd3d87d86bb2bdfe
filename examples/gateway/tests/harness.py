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

    def story(self, request_id):
        return [entry["event"] for entry in self.get(f"/admin/requests/{request_id}").json()["entries"]]

    def until_ended(self, request_id):
        end = time.monotonic() + DEADLINE
        while len(self.story(request_id)) < 2 and time.monotonic() < end:
            time.sleep(0.01)
        return self.story(request_id)[-1]
