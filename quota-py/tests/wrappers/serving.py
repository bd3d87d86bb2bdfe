"""A FastAPI application that proxies to the upstream behind the middleware, served by uvicorn on loopback."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import AsyncIterator, Iterator, MutableMapping
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import httpx
import uvicorn
from conftest import until
from fastapi import FastAPI, HTTPException, Request, WebSocket
from fastapi.responses import JSONResponse, Response, StreamingResponse
from upstream import Upstream

import quota
import quota.asgi


def application(upstream: Upstream, gate: quota.Gate, **options: Any) -> FastAPI:
    client = httpx.AsyncClient(timeout=60, limits=httpx.Limits(max_connections=None))

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await client.aclose()

    app = FastAPI(lifespan=lifespan)
    app.add_middleware(quota.asgi.QuotaMiddleware, gate=gate, **options)

    @app.get("/v1/chat/completions")
    async def look() -> Response:
        return Response("looked")

    @app.websocket("/v1/chat/completions")
    async def talk(socket: WebSocket) -> None:
        await socket.accept()
        await socket.send_text("talked")
        await socket.close()

    @app.post("/{path:path}")
    async def proxy(request: Request, path: str) -> Response:
        body = await request.body()
        how = request.headers.get("x-how", "")
        lease: Any = getattr(request.state, "quota_lease", None)
        if how == "raise":
            raise RuntimeError("on purpose")
        if how == "raise-404":
            raise HTTPException(404, "on purpose")
        if how == "echo":
            return JSONResponse({"body": json.loads(body), "headers": dict(request.headers)})
        if how == "settle":
            lease.sent()
            lease.settle({"prompt_tokens": 3, "completion_tokens": 2})
            return JSONResponse({"id": "x"})
        if how == "array":
            # What Google streams to who does not ask for events.
            told = {"promptTokenCount": 3, "candidatesTokenCount": 2, "totalTokenCount": 5}
            return JSONResponse([{"candidates": []}, {"candidates": [], "usageMetadata": told}])
        if how == "text":
            return Response("not json", media_type="text/plain")
        wanted = {"content-type": "application/json", "accept-encoding": request.headers["accept-encoding"]}
        query = f"?{request.url.query}" if request.url.query else ""
        asked = client.build_request("POST", f"{upstream.url}{request.url.path}{query}", content=body, headers=wanted)
        answer = await client.send(asked, stream=True)
        kept = ("content-type", "content-encoding", "content-length", "retry-after")
        headers = {name: answer.headers[name] for name in kept if name in answer.headers}

        async def pieces() -> AsyncIterator[bytes]:
            try:
                async for piece in answer.aiter_raw():
                    yield piece
            finally:
                await answer.aclose()

        async def metered() -> AsyncIterator[bytes]:
            with lease.stream("openai_chat") as stream:
                async for piece in pieces():
                    yield stream.feed(piece)
                stream.finish()
                yield stream.tail

        content = metered() if how == "meter" else pieces()
        return StreamingResponse(content, answer.status_code, headers)

    return app


class Spec24:
    """What a server of the newer kind does: `send` raises once the asker has left."""

    def __init__(self, app: Any) -> None:
        self.app = app

    async def __call__(self, scope: MutableMapping[str, Any], receive: Any, send: Any) -> None:
        if scope["type"] != "http":
            return await self.app(scope, receive, send)  # type: ignore[no-any-return]
        scope["asgi"] = {**scope["asgi"], "spec_version": "2.4"}

        async def raising(message: Any) -> None:
            if send.__self__.disconnected:
                raise OSError("the asker has left")
            await send(message)

        await self.app(scope, receive, raising)


class _Server(uvicorn.Server):
    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@contextmanager
def serving(app: Any, **options: Any) -> Iterator[str]:
    # No connection is closed while a client of a busy machine takes it up again.
    config = uvicorn.Config(app, log_level="critical", timeout_keep_alive=600, **options)
    server = _Server(config)
    listener = socket.create_server(("127.0.0.1", 0))
    thread = threading.Thread(target=server.run, kwargs={"sockets": [listener]})
    thread.start()
    try:
        until(lambda: server.started)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"
    finally:
        server.should_exit = True
        server.force_exit = True
        thread.join()
        listener.close()


class Asker:
    """A client that can hang up."""

    def __init__(self, url: str, path: str, body: object, headers: dict[str, str]) -> None:
        host, _, port = url.removeprefix("http://").partition(":")
        text = json.dumps(body).encode()
        told = {"host": host, "content-type": "application/json", "content-length": str(len(text)), **headers}
        head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
        self.socket = socket.create_connection((host, int(port)), timeout=30)
        self.socket.sendall(f"POST {path} HTTP/1.1\r\n{head}\r\n".encode() + text)

    def read_until(self, what: bytes) -> bytes:
        found = b""
        while what not in found:
            piece = self.socket.recv(65536)
            assert piece, f"the connection ended after {found!r}"
            found += piece
        return found

    def hang_up(self) -> None:
        # A reset, so that the server notices at once.
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\x01\x00\x00\x00\x00\x00\x00\x00")
        self.socket.close()
