"""An upstream on loopback that answers as it is told to, in OpenAI's and Anthropic's manner."""

from __future__ import annotations

import gzip
import json
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, NamedTuple

#: What every answer reports.
INPUT, OUTPUT = 11, 7
#: How many pieces a stream's text comes in.
PIECES = 4
LONGEST_S = 30


class Step(NamedTuple):
    """What happens to one request."""

    status: int = 200
    #: `answer`, `hang` (no head), `hang_midway` (two pieces, then nothing), `drip` (as that, then piece after piece
    #: without an end), `hang_at_end` (all of it, but no end), `break` (no head), `break_midway`.
    how: str = "answer"
    headers: dict[str, str] = {}
    usage: bool = True
    gzip: bool = False
    #: Words in each piece of a stream.
    words: int = 1


def chat(stream: bool, usage: bool, words: int) -> Any:
    told = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    common = {"id": "c1", "created": 1, "model": "m"}
    if not stream:
        message = {"role": "assistant", "content": "word " * PIECES}
        choice = {"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}
        answer = {**common, "object": "chat.completion", "choices": [choice]}
        return answer | ({"usage": told} if usage else {})
    common["object"] = "chat.completion.chunk"
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": "word " * words} for _ in range(PIECES)]
    events = [
        {**common, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas
    ] + [{**common, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}]}]
    if usage:
        events.append({**common, "choices": [], "usage": told})
    return [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]


def completion(stream: bool, usage: bool, words: int) -> Any:
    told = {"prompt_tokens": INPUT, "completion_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    choice = {"index": 0, "text": "word " * words, "finish_reason": "stop", "logprobs": None}
    common = {"id": "c1", "object": "text_completion", "created": 1, "model": "m"}
    if not stream:
        return {**common, "choices": [choice], "usage": told}
    events = [{**common, "choices": [choice]} for _ in range(PIECES)] + [{**common, "choices": [], "usage": told}]
    return [f"data: {json.dumps(event)}\n\n" for event in events] + ["data: [DONE]\n\n"]


def responses(stream: bool, usage: bool, words: int) -> Any:
    told: dict[str, Any] = {"input_tokens": INPUT, "output_tokens": OUTPUT, "total_tokens": INPUT + OUTPUT}
    told |= {"input_tokens_details": {"cached_tokens": 0}, "output_tokens_details": {"reasoning_tokens": 0}}
    content: dict[str, Any] = {"type": "output_text", "text": "word", "annotations": []}
    item: dict[str, Any] = {"type": "message", "id": "i1", "role": "assistant", "status": "completed", "content": [content]}
    answer: dict[str, Any] = {"id": "r1", "object": "response", "created_at": 1, "model": "m", "status": "completed", "output": [item]}
    answer |= {"parallel_tool_calls": True, "tool_choice": "auto", "tools": [], "error": None}
    whole = {**answer, "usage": told if usage else None}
    if not stream:
        return whole
    delta = {"type": "response.output_text.delta", "item_id": "i1", "output_index": 0, "content_index": 0}
    events: list[dict[str, Any]] = [{"type": "response.created", "response": {**answer, "status": "in_progress", "output": []}}]
    added = {**item, "status": "in_progress", "content": []}
    events += [{"type": "response.output_item.added", "output_index": 0, "item": added}]
    part = {"type": "response.content_part.added", "item_id": "i1", "output_index": 0, "content_index": 0}
    events += [{**part, "part": {**content, "text": ""}}]
    events += [{**delta, "delta": "word " * words} for _ in range(PIECES)]
    events += [{"type": "response.completed", "response": whole}]
    numbered = [{**event, "sequence_number": number} for number, event in enumerate(events)]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in numbered]


def messages(stream: bool, usage: bool, words: int) -> Any:
    told = {"input_tokens": INPUT, "output_tokens": OUTPUT}
    common = {"id": "m1", "type": "message", "role": "assistant", "model": "m", "stop_sequence": None}
    if not stream:
        text = {"type": "text", "text": "word"}
        return {**common, "content": [text], "stop_reason": "end_turn"} | ({"usage": told} if usage else {})
    first: dict[str, Any] = {**common, "content": [], "stop_reason": None, "usage": {"input_tokens": INPUT, "output_tokens": 1}}
    events: list[dict[str, Any]] = [{"type": "message_start", "message": first}]
    events += [{"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}]
    piece = {"type": "text_delta", "text": "word " * words}
    events += [{"type": "content_block_delta", "index": 0, "delta": piece} for _ in range(PIECES)]
    events += [{"type": "content_block_stop", "index": 0}]
    last = {"stop_reason": "end_turn", "stop_sequence": None}
    events += [{"type": "message_delta", "delta": last, "usage": {"output_tokens": OUTPUT}}, {"type": "message_stop"}]
    return [f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in events]


def embeddings(stream: bool, usage: bool, words: int) -> Any:
    told = {"prompt_tokens": INPUT, "total_tokens": INPUT}
    return {"object": "list", "model": "m", "data": [{"object": "embedding", "index": 0, "embedding": [0.5]}], "usage": told}


def gemini(stream: bool, usage: bool, words: int) -> Any:
    told = {"promptTokenCount": INPUT, "candidatesTokenCount": OUTPUT, "totalTokenCount": INPUT + OUTPUT}
    content = {"role": "model", "parts": [{"text": "word " * words}]}
    answer = {"candidates": [{"content": content, "finishReason": "STOP", "index": 0}], "usageMetadata": told}
    return [f"data: {json.dumps(answer)}\n\n" for _ in range(PIECES)] if stream else answer


ANSWERS = {
    "/chat/completions": chat,
    "/completions": completion,
    "/responses": responses,
    "/messages": messages,
    "/embeddings": embeddings,
    ":generateContent": gemini,
    ":streamGenerateContent": gemini,
}


class Upstream:
    """What the next requests meet (`steps`, then plain answers), and what has come (`bodies`, `paths`)."""

    def __init__(self) -> None:
        self.steps: deque[Step] = deque()
        self.bodies: list[dict[str, Any]] = []
        self.paths: list[str] = []
        self.headers: list[dict[str, str]] = []
        #: Lets go on what hangs.
        self.go = threading.Event()
        #: Ends what drips.
        self.enough = threading.Event()
        self.url = ""

    def expects(self, *steps: Step) -> None:
        self.steps.extend(steps)

    def reset(self) -> None:
        self.go.set()
        self.enough.set()
        self.go, self.enough = threading.Event(), threading.Event()
        self.steps.clear()
        self.bodies.clear()
        self.paths.clear()
        self.headers.clear()


def handler(upstream: Upstream) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def log_message(self, *_: object) -> None:
            pass

        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            upstream.bodies.append(body)
            upstream.paths.append(self.path)
            upstream.headers.append({name.lower(): value for name, value in self.headers.items()})
            step = upstream.steps.popleft() if upstream.steps else Step()
            try:
                self.answer(body, step)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        def answer(self, body: dict[str, Any], step: Step) -> None:
            go = upstream.go
            if step.how == "hang":
                go.wait(LONGEST_S)
            if step.how == "break":
                self.close_connection = True
                return
            if step.status != 200:
                error = {"error": {"message": "no", "type": "t", "code": "c", "param": None}}
                return self.whole(step, {"type": "error", **error})
            path = self.path.partition("?")[0]
            make = next(make for end, make in ANSWERS.items() if path.endswith(end))
            stream = body.get("stream", path.endswith(":streamGenerateContent"))
            asked = make is not chat or not stream or body.get("stream_options", {}).get("include_usage", False)
            answer = make(stream, step.usage and asked, step.words)
            if isinstance(answer, list):
                self.stream(step, answer, go)
            else:
                self.whole(step, answer)

        def whole(self, step: Step, answer: object) -> None:
            text = json.dumps(answer).encode()
            if step.gzip:
                text = gzip.compress(text)
            self.send_response(step.status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(text)))
            self.more_headers(step)
            self.wfile.write(text)

        def drips(self, events: Iterable[str], go: threading.Event, enough: threading.Event) -> Iterator[str]:
            first, *_ = events
            yield from (first, first)
            go.wait(LONGEST_S)
            while not enough.wait(0.05):
                yield first

        def stream(self, step: Step, events: Iterable[str], go: threading.Event) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/event-stream")
            self.send_header("transfer-encoding", "chunked")
            self.more_headers(step)
            if step.gzip:
                events = [gzip.compress("".join(events).encode()).decode("latin-1")]
            if step.how == "drip":
                events = self.drips(events, go, upstream.enough)
            for number, event in enumerate(events):
                if number == 2 and step.how == "hang_midway":
                    go.wait(LONGEST_S)
                if number == 2 and step.how == "break_midway":
                    self.close_connection = True
                    return
                piece = event.encode("latin-1")
                self.wfile.write(f"{len(piece):x}\r\n".encode() + piece + b"\r\n")
                self.wfile.flush()
            if step.how == "hang_at_end":
                go.wait(LONGEST_S)
            self.wfile.write(b"0\r\n\r\n")

        def more_headers(self, step: Step) -> None:
            if step.gzip:
                self.send_header("content-encoding", "gzip")
            for name, value in step.headers.items():
                self.send_header(name, value)
            self.end_headers()

    return Handler


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128


@contextmanager
def running() -> Iterator[Upstream]:
    upstream = Upstream()
    server = _Server(("127.0.0.1", 0), handler(upstream))
    upstream.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    try:
        yield upstream
    finally:
        upstream.reset()
        server.shutdown()
        thread.join()
        server.server_close()
