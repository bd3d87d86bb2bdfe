"""A soak: real sockets and threads, askers that leave anywhere, an upstream that fails in every way, reloads meanwhile.

After each round the gateway comes to rest, and then nothing is held, nothing waits, nothing is unresolved, and what is
charged is what the upstream has reported, with the reservation for each request whose usage nobody knows. SOAK_SECONDS
lengthens it; what happens when is drawn from a seed, SOAK_SEED, though not the order in which threads and sockets run.
"""

import asyncio
import hashlib
import json
import os
import random
import signal
import threading

from harness import Gateway, until

SECONDS = float(os.environ.get("SOAK_SECONDS", "20"))
SEED = int(os.environ.get("SOAK_SEED", "1"))
ROUND = 5.0
TENANTS = ["red", "green", "blue"]
AT_ONCE = 24
WORDS = 12
# What a request may leave behind: its entries in the journal, its lease, its id. Both hold 32,768, and then no more.
A_REQUEST, MOST_REMEMBERED = 10_000, 32_768
# What the allocator and threads' buffers may differ by.
SLACK = 24 << 20


def policy(revision):
    """Limits whose amounts a reload changes; what is compared is counted by windows of a year, which don't end meanwhile."""
    slots = [6, 3, 9][revision % 3]
    year = "seconds: 31622400, hard: 1000000000, window: fixed"
    tenants = "\n".join(
        f"""  {tenant}:
    max_inflight: {{hard: {slots}, on_exceed: queue}}
    windows:
      - {{name: asked, meter: requests, {year}}}
      - {{name: said, meter: output_tokens, {year}, hold: worst_case}}
    models: {{m: {{}}}}
    keys: [{{id: {tenant}, sha256: {hashlib.sha256(f"test-{tenant}".encode()).hexdigest()}}}]"""
        for tenant in TENANTS
    )
    return f"""settings: {{lease_ttl_ms: 15000, unresolved_after_ms: 1500}}
queues: {{interactive: {{max_wait_ms: 2000, max_queue: 16}}}}
models: {{m: {{price: {{input: 1, output: 2}}, max_output: 1000}}}}
tenants:
{tenants}
"""


class Upstream:
    """A model server that keeps books of what it told: by tenant, requests and output tokens that count."""

    # How it treats a request, and how often.
    WAYS = {
        "whole": 6, "stream": 12, "slow": 3, "error": 1, "unavailable": 1, "refuses": 1, "hangs_up": 1,
        "breaks_body": 1, "breaks_stream": 2, "malformed": 2, "silent_usage": 2, "late_usage": 2,
    }

    def __init__(self, seed):
        self.dice = random.Random(seed)
        self.asked = dict.fromkeys(TENANTS, 0)
        self.said = dict.fromkeys(TENANTS, 0)
        self.ways = dict.fromkeys(self.WAYS, 0)

    async def start(self):
        self.server = await asyncio.start_server(self.serve, "127.0.0.1", 0)
        return f"http://127.0.0.1:{self.server.sockets[0].getsockname()[1]}"

    async def serve(self, reader, writer):
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                length = next(int(line.split(b":")[1]) for line in head.lower().split(b"\r\n") if line.startswith(b"content-length"))
                await self.answer(json.loads(await reader.readexactly(length)), writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    def charge(self, tenant, tokens):
        self.asked[tenant] += 1
        self.said[tenant] += tokens

    async def answer(self, body, writer):
        tenant, most = TENANTS[body["seed"] % len(TENANTS)], body["max_tokens"]
        way = self.dice.choices(list(self.WAYS), self.WAYS.values())[0]
        words = self.dice.randint(1, min(most, WORDS))
        if not body.get("stream") and way not in ("error", "unavailable", "refuses", "hangs_up", "breaks_body", "slow"):
            way = "whole"
        if body.get("stream") and way in ("whole", "breaks_body"):
            way = "stream"
        self.ways[way] += 1
        usage = {"prompt_tokens": 7, "completion_tokens": words, "total_tokens": 7 + words}
        if way == "refuses":
            # A request that was not run costs nothing.
            return await self.send(writer, 429, {"error": {"message": "no room"}})
        # What is not reported is charged as reserved: the most that was agreed.
        told = way in ("whole", "stream", "slow", "late_usage")
        self.charge(tenant, words if told else most)
        if way == "hangs_up":
            return writer.transport.abort()
        if way in ("error", "unavailable"):
            return await self.send(writer, 500 if way == "error" else 503, {"error": {"message": "failed"}})
        if way == "breaks_body":
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 5000\r\n\r\n{\"choices\":")
            await writer.drain()
            return writer.transport.abort()
        if not body.get("stream"):
            if way == "slow":
                await asyncio.sleep(self.dice.random() * 0.3)
            message = {"message": {"role": "assistant", "content": "word " * words}, "finish_reason": "stop", "index": 0}
            return await self.send(writer, 200, {"choices": [message], "usage": usage, "object": "chat.completion"})
        await self.stream(writer, way, words, usage)

    async def send(self, writer, status, body):
        text = json.dumps(body).encode()
        writer.write(f"HTTP/1.1 {status} x\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n".encode() + text)
        await writer.drain()

    async def stream(self, writer, way, words, usage):
        def piece(text):
            writer.write(f"{len(text):x}\r\n".encode() + text + b"\r\n")

        def event(body):
            piece(b"data: " + json.dumps(body).encode() + b"\n\n")

        writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for nth in range(words):
            event({"choices": [{"index": 0, "delta": {"content": "word "}}]})
            await writer.drain()
            if way == "breaks_stream" and nth == words // 2:
                return writer.transport.abort()
            await asyncio.sleep(self.dice.random() * (0.1 if way == "slow" else 0.01))
        if way in ("malformed", "late_usage"):
            piece(b"data: {\"choices\": [\x00\xff not json\n\n: a comment\n\nevent:\ndata\n\n\n\n")
        if way not in ("malformed", "silent_usage"):
            event({"choices": [], "usage": usage})
        piece(b"data: [DONE]\n\n")
        writer.write(b"0\r\n\r\n")
        await writer.drain()

    async def stop(self):
        self.server.close()


class Askers:
    """Askers of all tenants, who leave wherever they like."""

    WAYS = {"stays": 12, "leaves_early": 3, "leaves_midway": 4, "half_a_body": 2, "never_reads": 1, "bad_body": 1, "bad_key": 1}

    def __init__(self, url, seed):
        self.host, self.port = url.removeprefix("http://").split(":")
        self.dice = random.Random(seed)
        self.number = 0
        self.statuses = {}
        self.ways = dict.fromkeys(self.WAYS, 0)

    async def ask(self):
        self.number += 1
        way = self.dice.choices(list(self.WAYS), self.WAYS.values())[0]
        self.ways[way] += 1
        seed = self.number
        tenant = TENANTS[seed % len(TENANTS)]
        body = {"model": "m", "max_tokens": self.dice.randint(1, 40), "seed": seed, "messages": [{"role": "user", "content": "Name three rivers."}]}
        body["stream"] = self.dice.random() < 0.7
        text = json.dumps(body).encode()
        if way == "bad_body":
            text = text[:-3]
        key = "nobody" if way == "bad_key" else tenant
        head = f"POST /v1/chat/completions HTTP/1.1\r\nhost: gateway\r\nconnection: close\r\nauthorization: Bearer test-{key}\r\ncontent-type: application/json\r\ncontent-length: {len(text)}\r\n\r\n"
        reader, writer = await asyncio.open_connection(self.host, int(self.port))
        try:
            if way == "half_a_body":
                writer.write(head.encode() + text[: len(text) // 2])
                await writer.drain()
                await asyncio.sleep(self.dice.random() * 0.05)
                return
            writer.write(head.encode() + text)
            await writer.drain()
            if way == "leaves_early":
                await asyncio.sleep(self.dice.random() * 0.1)
                return
            if way == "never_reads":
                await asyncio.sleep(0.5)
                return
            first = await reader.read(self.dice.randint(20, 400) if way == "leaves_midway" else -1)
            if way != "leaves_midway":
                status = int(first.split(b" ", 2)[1])
                self.statuses[status] = self.statuses.get(status, 0) + 1
        except ConnectionError:
            # A reset while it writes: the gateway had answered and closed before it read all.
            pass
        finally:
            if self.dice.random() < 0.5:
                writer.transport.abort()
            writer.close()

    async def run(self, seconds):
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds

        async def one_after_the_other():
            while loop.time() < end:
                await asyncio.wait_for(self.ask(), 30)

        await asyncio.gather(*(one_after_the_other() for _ in range(AT_ONCE)))


def used(gateway, tenant):
    limits = gateway.get("/v1/quota", f"test-{tenant}").json()["limits"]
    return {limit["limit"]: limit["used"] for limit in limits}


def resident(gateway):
    with open(f"/proc/{gateway.process.pid}/statm") as file:
        return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


def waiting(gateway):
    """The figures of what waits, in any queue."""
    lines = gateway.get("/metrics").text.splitlines()
    return {line.split()[0]: float(line.split()[1]) for line in lines if "waiting" in line.split("{")[0] and not line.startswith("#")}


def at_rest(gateway, upstream):
    """Whether nothing runs, waits or is unresolved."""
    idle = all(used(gateway, tenant)["max_inflight"] == 0 for tenant in TENANTS)
    return idle and not gateway.get("/admin/unresolved").json()["unresolved"] and not any(waiting(gateway).values())


class Soak:
    """An upstream and askers in a thread of their own; the test looks on."""

    def __init__(self):
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self.thread.start()

    def run(self, work, deadline=120):
        return asyncio.run_coroutine_threadsafe(work, self.loop).result(deadline)

    def begin(self, work):
        return asyncio.run_coroutine_threadsafe(work, self.loop)

    def close(self):
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join(20)


def test_nothing_is_left_and_the_books_balance(tmp_path):
    soak = Soak()
    upstream = Upstream(SEED)
    url = soak.run(upstream.start())
    file = tmp_path / "policy.yaml"
    file.write_text(policy(0))
    gateway = Gateway("--policy", str(file), "--upstream", url)
    askers = Askers(gateway.url, SEED + 1)
    reloads, first, after = 0, None, 0
    try:
        for nth in range(max(2, round(SECONDS / ROUND))):
            load = soak.begin(askers.run(ROUND))
            while not load.done():
                # A reload in the middle of it, as soon as the one before is in force.
                reloads += 1
                fresh = tmp_path / "policy.new"
                fresh.write_text(policy(reloads))
                fresh.replace(file)
                gateway.process.send_signal(signal.SIGHUP)
                until(lambda: sum("policy loaded" in line for line in gateway.said) >= reloads, 60)
            load.result(0)
            until(lambda: at_rest(gateway, upstream), 60)
            for tenant in TENANTS:
                told = used(gateway, tenant)
                assert (told["asked"], told["said"]) == (upstream.asked[tenant], upstream.said[tenant]), f"{tenant} in round {nth}"
            # The first round warms up: connections, threads, the allocator's arenas.
            if first is None:
                first, after = resident(gateway), askers.number
        grown, made = resident(gateway) - first, min(askers.number - after, MOST_REMEMBERED)
        assert grown < made * A_REQUEST + SLACK, f"{grown} bytes for {made} requests"
        assert gateway.process.poll() is None
    finally:
        gateway.close()
        soak.run(upstream.stop())
        soak.close()
    print(f"{askers.number} requests, {reloads} reloads, {grown} bytes more; {askers.statuses} {askers.ways} {upstream.ways}")
    # Nothing is proved of what did not happen.
    assert min(upstream.ways.values()) > 0 and min(askers.ways.values()) > 0 and reloads > 1, (upstream.ways, askers.ways)
    assert {200, 400, 401, 429, 502}.issubset(askers.statuses), askers.statuses
