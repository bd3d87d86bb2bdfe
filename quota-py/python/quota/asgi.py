"""A middleware for FastAPI, Starlette and any other ASGI application whose routes serve or proxy models.

    app.add_middleware(quota.asgi.QuotaMiddleware, gate=gate)

It reads the body, identifies who asks, waits for the turn, hands the body on as it was agreed, and settles by the answer
while that passes. The lease is in `scope["quota.lease"]` and `request.state.quota_lease`: a handler may meter its stream or,
after its last byte, settle by itself. A request counts as sent from the call of the application on.
"""

from __future__ import annotations

import inspect
import json
import re
import uuid
from codecs import BOM_UTF8
from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from posixpath import normpath
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, unquote

from ._answer import Answer
from ._bodies import SHAPES, Agreed, Shape, rewrite
from ._call import Call
from ._errors import InputError, Refused, RequestError
from ._faults import Fault
from ._incoming import Gone, Incoming
from ._native import Request

if TYPE_CHECKING:
    from ._native import Gate, Principal, _BodyDialect, _HeaderManner

__all__ = ["ROUTES", "QuotaMiddleware"]

_Scope = MutableMapping[str, Any]
_Message = MutableMapping[str, Any]
_Receive = Callable[[], Awaitable[_Message]]
_Send = Callable[[_Message], Awaitable[None]]
_App = Callable[[_Scope, _Receive, _Send], Awaitable[None]]

#: The routes that spend quota, each with the dialect of its bodies. `{model}` is where an address names the model.
ROUTES: Mapping[str, _BodyDialect] = {
    "/v1/chat/completions": "openai_chat",
    "/v1/completions": "openai_completions",
    "/v1/responses": "openai_responses",
    "/v1/embeddings": "openai_embeddings",
    "/v1/messages": "anthropic_messages",
    "/v1beta/models/{model}:generateContent": "gemini",
    "/v1beta/models/{model}:streamGenerateContent": "gemini",
}

_IDEMPOTENCY_KEY = re.compile(r"[A-Za-z0-9\-_.]{1,64}")
_RUN_ID = re.compile(r"[!-~]{1,128}")
#: What a header shows as it is.
_PRINTABLE = "".join(map(chr, range(0x20, 0x7F)))


class QuotaMiddleware:
    """Puts a gate in front of an ASGI application.

    `routes` are the paths of the POST requests that spend quota; everything else passes. `principal` tells who asks, from
    the scope; it may be a coroutine and may raise `Refused`. Without it the key in `authorization`, `x-api-key` or
    `x-goog-api-key` does. `max_body` is the largest body in bytes.
    """

    def __init__(
        self,
        app: _App,
        *,
        gate: Gate,
        routes: Mapping[str, _BodyDialect] = ROUTES,
        principal: Callable[[_Scope], Principal | Awaitable[Principal]] | None = None,
        max_body: int = 10 << 20,
    ) -> None:
        self.app = app
        self.gate = gate
        self.principal = principal
        self.max_body = max_body
        #: Ends waits in time, and leases that nobody ends.
        self._keeper = gate.keeper()
        self._routes = [(_pattern(path), path, SHAPES[dialect]) for path, dialect in routes.items()]

    async def __call__(self, scope: _Scope, receive: _Receive, send: _Send) -> None:
        route = self._route(scope) if scope["type"] == "http" and scope["method"].upper() == "POST" else None
        if route is None:
            await self.app(scope, receive, send)
        else:
            await _Exchange(self, route, scope, receive, send).run()

    def _route(self, scope: _Scope) -> _Route | None:
        path = _path(scope)
        # With and without the parameters of segments, which some routers leave out.
        for read in dict.fromkeys((path, _plain(re.sub(";[^/]*", "", path)))):
            for pattern, template, shape in self._routes:
                found = pattern.fullmatch(read)
                if found is not None:
                    return _Route(shape, template, found.groupdict().get("model"))
        return None

    async def identify(self, scope: _Scope) -> Principal:
        """Who asks."""
        if self.principal is None:
            headers = _headers(scope)
            names = ("authorization", "x-api-key", "x-goog-api-key")
            return self.gate.authenticate(next((headers[name] for name in names if name in headers), ""))
        who = self.principal(scope)
        return await who if inspect.isawaitable(who) else who


def _pattern(path: str) -> re.Pattern[str]:
    before, named, after = path.partition("{model}")
    return re.compile(re.escape(before) + ("(?P<model>.+)" if named else "") + re.escape(after), re.IGNORECASE | re.DOTALL)


def _path(scope: _Scope) -> str:
    """The path below where the application is mounted, as the most generous of routers reads it: what one of them, or the
    upstream that a handler forwards it to, would overlook is no way around the gate."""
    path, root = _plain(unquote(scope["path"])), _plain(scope.get("root_path", ""))
    return path[len(root) :] if path.startswith(root + "/") else path


def _plain(path: str) -> str:
    """Without empty segments, dots, and the line breaks that a pattern which ends in `$` overlooks."""
    path = re.sub(r"[\x00-\x20\x7f]", "", path).replace("\\", "/")
    path = normpath(re.sub("/{2,}", "/", "/" + path))
    return "" if path == "/" else path


def _root(scope: _Scope) -> str:
    """Where the application is mounted, if the path tells."""
    root: str = scope.get("root_path", "")
    return root if scope["path"].startswith(root + "/") else ""


def _headers(scope: _Scope) -> dict[str, str]:
    return {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in scope["headers"]}


class _Route(NamedTuple):
    """What is called, and the model that its address names."""

    shape: Shape
    template: str
    model: str | None

    def read(self, body: bytes, **fields: Any) -> Request:
        dialect = self.shape.dialect
        if dialect != "gemini":
            return Request.from_body(dialect, body, **fields)
        stream = self.template.endswith(":streamGenerateContent")
        return Request.from_body(dialect, body, model=self.model or "", stream=stream, **fields)


class _Admitted(NamedTuple):
    call: Call
    #: The body that the application is handed.
    body: bytes
    strip_usage: bool


class _Exchange:
    """One request, from its headers to the last byte of its answer."""

    def __init__(self, of: QuotaMiddleware, route: _Route, scope: _Scope, receive: _Receive, send: _Send) -> None:
        self._of = of
        self._route = route
        self._manner = route.shape.manner
        self._scope = scope
        self._incoming = Incoming(receive)
        self._send = send
        self._headers = _headers(scope)
        self._id = f"req-{uuid.uuid4().hex}"
        #: Whose limits the answer shows.
        self._shown: Principal | None = None

    async def run(self) -> None:
        try:
            try:
                admitted = await self._admitted()
            except Gone:
                return
            except Refused as refused:
                return await self._tell(*refused.refusal.response(self._manner))
            except Fault as fault:
                return await self._tell(*fault.response(self._manner))
            await self._call(admitted)
        finally:
            self._incoming.close()

    async def _admitted(self) -> _Admitted:
        """Everything before the application is called."""
        gate, shape = self._of.gate, self._route.shape
        self._shown = who = await self._of.identify(self._scope)
        body = await self._body()
        request = self._request(who, body)
        if request.user is not None:
            self._shown = who.on_behalf_of(request.user)
        decision = gate.admit(who, request)
        waits = decision.action == "queue"
        lease = await self._incoming.unless_gone(decision.wait()) if waits else decision.granted()
        if lease.is_repeat:
            # One settlement would pay for many calls.
            told = "A request under this idempotency key is in progress; it is not run twice."
            raise Fault(409, "request_in_progress", told, retry=False)
        call = Call(lease, shape)
        try:
            asked, is_plain = _read(body)
            made, strip_usage = rewrite(shape, asked, Agreed.of(lease, request), stream=request.stream)
        except RequestError as error:
            call.never_sent()
            raise _malformed(error) from None
        except ValueError:
            # A number that Python does not read.
            call.never_sent()
            raise Fault(400, "request_invalid", "The body is not JSON.") from None
        if not call.sent():
            call.never_sent()
            raise Fault(503, "lease_lost", "The request's reservation ended before it was sent.")
        # What is not changed stands as it was written.
        made_body = body if is_plain and made == asked else json.dumps(made, separators=(",", ":")).encode()
        return _Admitted(call, made_body, strip_usage)

    async def _body(self) -> bytes:
        if self._headers.get("content-encoding", "identity") != "identity":
            raise Fault(415, "body_encoded", "The body is compressed; allowed: identity.")
        length = self._headers.get("content-length", "")
        body = await self._incoming.body(int(length) if length.isdecimal() else None, self._of.max_body)
        return body.removeprefix(BOM_UTF8)

    def _request(self, who: Principal, body: bytes) -> Request:
        try:
            return self._route.read(body, id=self._request_id(who), run_id=self._run_id())
        except RequestError as error:
            raise _malformed(error) from None
        except InputError as error:
            raise Fault(400, "request_invalid", f"The request is malformed: {error}.") from None

    def _request_id(self, who: Principal) -> str:
        key = self._headers.get("idempotency-key")
        if key is None:
            return self._id
        if not _IDEMPOTENCY_KEY.fullmatch(key):
            told = "idempotency-key: allowed: 1 to 64 of A-Z, a-z, 0-9, `-`, `_`, `.`."
            raise Fault(400, "request_invalid", told)
        # No colon in the key: the last one ends the tenant, so that no two tenants' ids are the same.
        request_id = f"{who.tenant}:{key}"
        # A name of a tenant may be of letters that a header can't carry.
        self._id = quote(request_id, safe=_PRINTABLE)
        return request_id

    def _run_id(self) -> str | None:
        run = self._headers.get("x-agent-run-id")
        if run is not None and not _RUN_ID.fullmatch(run):
            told = "x-agent-run-id: allowed: 1 to 128 printable characters without a space."
            raise Fault(400, "request_invalid", told)
        return run

    async def _call(self, admitted: _Admitted) -> None:
        """Calls the application. The lease ends in here, however that ends."""
        call = admitted.call
        self._incoming.replay(admitted.body)
        told = self._told(admitted)
        answer = Answer(call, self._send, headers=lambda: self._shown_limits() | told, strip_usage=admitted.strip_usage)
        try:
            self._hand_on(admitted)
            await self._of.app(self._scope, self._incoming.receive, answer.send)
        except Exception:
            answer.failed()
            if not answer.is_cut:
                raise
        finally:
            answer.dropped()

    def _hand_on(self, admitted: _Admitted) -> None:
        """Makes the scope that of the body as it is now. Answers that are not compressed can be read as they pass."""
        scope, lease = self._scope, admitted.call.lease
        ours = {b"accept-encoding": b"identity", b"content-length": str(len(admitted.body)).encode()}
        gone = ours.keys() | {b"transfer-encoding"}
        kept = [(name, value) for name, value in scope["headers"] if name.lower() not in gone]
        scope["headers"] = [*kept, *ours.items()]
        scope["quota.lease"] = lease
        scope.setdefault("state", {})["quota_lease"] = lease
        if self._route.model is not None and self._route.model != lease.upstream_model:
            scope["path"] = _root(scope) + self._route.template.replace("{model}", lease.upstream_model)
            scope["raw_path"] = quote(scope["path"]).encode()

    def _told(self, admitted: _Admitted) -> dict[str, str]:
        lease = admitted.call.lease
        told = {self._id_header(): self._id}
        if lease.waited_ms:
            told["x-quota-waited-ms"] = str(lease.waited_ms)
        lesser = lease.degradation
        if lesser is not None:
            told["x-quota-degraded"] = f"{lesser.step};{lesser.reason}"
        return told

    def _shown_limits(self) -> dict[str, str]:
        if self._shown is None:
            return {}
        # Google has no headers of its own for this.
        manners: list[_HeaderManner] = ["ietf"] if self._manner == "gemini" else ["ietf", self._manner]
        return {name: value for manner in manners for name, value in self._of.gate.headers(self._shown, manner).items()}

    def _id_header(self) -> str:
        return "request-id" if self._manner == "anthropic" else "x-request-id"

    async def _tell(self, status: int, headers: dict[str, str], body: dict[str, Any]) -> None:
        """Answers in place of the application."""
        text = json.dumps(body).encode()
        all_headers = self._shown_limits() | {self._id_header(): self._id} | headers
        all_headers |= {"content-type": "application/json", "content-length": str(len(text))}
        encoded = [(name.encode("latin-1"), value.encode("latin-1")) for name, value in all_headers.items()]
        await self._send({"type": "http.response.start", "status": status, "headers": encoded})
        await self._send({"type": "http.response.body", "body": text, "more_body": False})


def _read(body: bytes) -> tuple[Any, bool]:
    """What a body says, and whether everybody reads it so: of two members of one name some take the first."""
    is_plain = True

    def members(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        nonlocal is_plain
        made = dict(pairs)
        is_plain &= len(made) == len(pairs)
        return made

    return json.loads(body, object_pairs_hook=members), is_plain


def _malformed(error: RequestError) -> Fault:
    return Fault(400, "request_invalid", f"The request is malformed: {error}.", param=error.field)
