"""The official SDKs' clients with a gate before their calls.

The clients of OpenAI's and of Anthropic's package are made alike: each call of a resource comes to the client's `request`, which
runs the SDK's own retries and hands a good answer to `_process_response`. A wrapped client is of a class below its own that
steps in there: what the SDK makes of an answer (objects, streams, raw responses) it makes as ever, and the bytes of the
answer are read on their way to it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from fnmatch import fnmatchcase
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import urlsplit

from ._bodies import Agreed, Shape, rewrite
from ._call import Call, outcome_of
from ._errors import QuotaError, Refused
from ._native import Outcome, Request
from ._reading import reading
from ._sdk_body import body_class, http_module

if TYPE_CHECKING:
    from ._native import Decision, Gate, Lease, Principal

__all__ = ["Terms", "wrap"]

#: What the class below a client's own steps into.
_SEAMS = ("request", "_prepare_request", "_process_response", "_sleep_for_retry", "copy", "with_options")
#: Where a client opens a websocket, which is not metered.
_WEBSOCKETS = ("_websocket_query_params", "_websocket_query_params_fallback")
#: The errors of `httpx` with which no byte of a request has left.
_NOT_CONNECTED = {"ConnectError", "ConnectTimeout", "PoolTimeout", "UnsupportedProtocol"}


class Terms(NamedTuple):
    """On which terms a client's calls are made."""

    gate: Gate
    principal: Principal | Callable[[], Principal]
    #: What spends quota, by the path below the client's base.
    routes: Mapping[str, Shape]
    #: Paths that may be posted to without spending any; with the wildcards of shells.
    unmetered: tuple[str, ...]

    def who(self) -> Principal:
        return self.principal() if callable(self.principal) else self.principal

    def shape(self, options: Any) -> Shape | None:
        """What a call's body is; `None` of one that spends nothing."""
        if options.method.lower() != "post":
            return None
        path = urlsplit(options.url).path
        shape = self.routes.get(path)
        if shape is None and not any(fnmatchcase(path, pattern) for pattern in self.unmetered):
            known = ", ".join(self.routes)
            message = f"POST {path} can't be metered; metered are {known}. List it in `unmetered` to let it pass."
            raise QuotaError(message, code="call_not_metered")
        return shape


class _Run:
    """One call of the SDK, with its retries."""

    def __init__(self, client: Any, shape: Shape, options: Any, stream: bool) -> None:
        self.client = client
        self.shape = shape
        self.options = options
        self.stream = stream
        self.request = Request.from_body(shape.dialect, options.json_data)
        self.strip_usage = False
        self.is_answered = False

    def admit(self) -> Decision:
        terms: Terms = self.client._quota
        return terms.gate.admit(terms.who(), self.request)

    def admitted(self, lease: Lease) -> None:
        """Takes the lease, and rewrites the body as it was agreed."""
        self.call = Call(lease, self.shape)
        try:
            agreed = Agreed.of(lease, self.request)
            body, self.strip_usage = rewrite(self.shape, self.options.json_data, agreed, stream=self.request.stream)
        except BaseException:
            self.call.never_sent()
            raise
        self.options.json_data = body
        headers = self.options.headers if isinstance(self.options.headers, Mapping) else {}
        if self.stream:
            headers = {**headers, "Accept-Encoding": "identity"}
        self.options.headers = headers

    def refused(self, refused: Refused) -> Refused:
        """The refusal as the SDK's own error of its status, which retrying code looks for."""
        http = http_module(self.client._client)
        status, headers, body = refused.refusal.response(self.shape.manner)
        asked = http.Request("POST", str(self.client.base_url))
        response = http.Response(status, headers=headers, json=body, request=asked)
        error = self.client._make_status_error(str(refused), body=body, response=response)
        own: Any = type(error)
        kind = _refused_class(own)
        made: Refused = kind(str(refused), response=response, body=error.body)
        made.__dict__.update(vars(refused))
        return made

    def sending(self) -> None:
        """Bytes of an attempt are about to leave."""
        if not self.call.sent():
            raise QuotaError("the request's reservation ended before it was sent", code="lease_lost")

    def retries(self, response: Any) -> None:
        """An attempt has failed and another will follow."""
        if response is not None:
            self._upstream_refused(response.status_code)
            self.call.attempt_failed(Outcome.of_answer(response.status_code))
        else:
            never = _never_connected(sys.exc_info()[1])
            self.call.attempt_failed(Outcome.not_run() if never else Outcome.failed())

    def answered(self, response: Any) -> None:
        """The answer is there, or its head."""
        if self.is_answered:
            return
        self.is_answered = True
        if response.is_closed:
            self.call.finish(outcome_of(response.status_code, response.content, self.shape.answer))
            return
        read = reading(
            self.call,
            response.status_code,
            content_type=response.headers.get("content-type", ""),
            encoding=response.headers.get("content-encoding", "identity"),
            strip_usage=self.strip_usage,
        )
        response.stream = body_class(type(response.stream), http_module(response))(response.stream, read, self.refused)

    def failed(self, error: BaseException) -> None:
        """No answer will come."""
        response = getattr(error, "response", None)
        if self.is_answered:
            # What the SDK made of it failed; the answer has ended the lease, or will when its stream is dropped.
            return
        if response is not None and isinstance(getattr(error, "status_code", None), int):
            self._upstream_refused(response.status_code)
            self.call.finish(outcome_of(response.status_code, response.content, self.shape.answer))
        elif not self.call.is_sent:
            self.call.never_sent()
        elif not isinstance(error, Exception):
            self.call.dropped()
        elif _never_connected(error):
            self.call.finish(Outcome.not_run())
        else:
            self.call.failed()

    def over(self) -> None:
        """The SDK is done: an answer that it has not shown here was not read."""
        if not self.is_answered:
            self.call.no_usage()

    def _upstream_refused(self, status: int) -> None:
        if status in (429, 503):
            self.call.lease.pool_refused()


_running: ContextVar[_Run | None] = ContextVar("quota_running", default=None)


@contextmanager
def _running_as(run: _Run | None) -> Iterator[None]:
    """What a call meets at the seams: its own run, or none, and not that of a call in whose hooks it is made."""
    token = _running.set(run)
    try:
        yield
    finally:
        _running.reset(token)


def _never_connected(error: BaseException | None) -> bool:
    while error is not None:
        if any(kind.__name__ in _NOT_CONNECTED for kind in type(error).__mro__):
            return True
        error = error.__cause__
    return False


@cache
def _refused_class(kind: type[Any]) -> type[Any]:
    def __init__(self: Any, message: str, **told: Any) -> None:
        kind.__init__(self, message, **told)

    return type(f"Refused{kind.__name__}", (Refused, kind), {"__init__": __init__, "__module__": __name__})


def _merged(options: Any) -> Any:
    """The options with `extra_body` in the body, where it is seen."""
    options = options.model_copy()
    if options.extra_json is not None:
        options.json_data = {**(options.json_data or {}), **options.extra_json}
        options.extra_json = None
    return options


@cache
def _sync_class(own: type[Any]) -> type[Any]:
    prepare = getattr(own, "_copy_and_prepare", None)

    def request(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        shape = self._quota.shape(options)
        if shape is None:
            with _running_as(None):
                return own.request(self, cast_to, options, **rest)
        options = _merged(options if prepare is None else prepare(self, options))
        run = _Run(self, shape, options, rest.get("stream", False))
        try:
            decision = run.admit()
            # Where nothing is waited for, a loop may run in this thread: a notebook's, for instance.
            lease = decision.wait().result() if decision.action == "queue" else decision.granted()
        except Refused as refused:
            raise run.refused(refused) from None
        run.admitted(lease)
        with _running_as(run):
            try:
                answer = own.request(self, cast_to, run.options, **rest)
            except BaseException as error:
                run.failed(error)
                raise
        run.over()
        return answer

    def _prepare_request(self: Any, request: Any) -> None:
        own._prepare_request(self, request)
        run = _running.get()
        if run is not None:
            run.sending()

    def _process_response(self: Any, **told: Any) -> Any:
        run = _running.get()
        if run is not None:
            run.answered(told["response"])
        return own._process_response(self, **told)

    def _sleep_for_retry(self: Any, **told: Any) -> None:
        run = _running.get()
        if run is not None:
            run.retries(told["response"])
        own._sleep_for_retry(self, **told)

    return _class(own, request, _prepare_request, _process_response, _sleep_for_retry)


@cache
def _async_class(own: type[Any]) -> type[Any]:
    prepare = getattr(own, "_copy_and_prepare", None)

    async def request(self: Any, cast_to: Any, options: Any, **rest: Any) -> Any:
        shape = self._quota.shape(options)
        if shape is None:
            with _running_as(None):
                return await own.request(self, cast_to, options, **rest)
        options = _merged(options if prepare is None else await prepare(self, options))
        run = _Run(self, shape, options, rest.get("stream", False))
        try:
            decision = run.admit()
            lease = await decision.wait() if decision.action == "queue" else decision.granted()
        except Refused as refused:
            raise run.refused(refused) from None
        run.admitted(lease)
        with _running_as(run):
            try:
                answer = await own.request(self, cast_to, run.options, **rest)
            except BaseException as error:
                run.failed(error)
                raise
        run.over()
        return answer

    async def _prepare_request(self: Any, request: Any) -> None:
        await own._prepare_request(self, request)
        run = _running.get()
        if run is not None:
            run.sending()

    async def _process_response(self: Any, **told: Any) -> Any:
        run = _running.get()
        if run is not None:
            run.answered(told["response"])
        return await own._process_response(self, **told)

    async def _sleep_for_retry(self: Any, **told: Any) -> None:
        run = _running.get()
        if run is not None:
            run.retries(told["response"])
        await own._sleep_for_retry(self, **told)

    return _class(own, request, _prepare_request, _process_response, _sleep_for_retry)


def _class(own: type[Any], *seams: Callable[..., Any]) -> type[Any]:
    def copy(self: Any, **changes: Any) -> Any:
        made = own.copy(self, **changes)
        made.__class__ = type(self)
        made._quota = self._quota
        return made

    def no_websocket(self: Any, *_: object, **__: object) -> Any:
        raise QuotaError("calls over a websocket can't be metered", code="call_not_metered")

    members: dict[str, Any] = {seam.__name__: seam for seam in seams}
    members |= {"copy": copy, "with_options": copy, "__module__": own.__module__}
    members |= {name: no_websocket for name in _WEBSOCKETS if hasattr(own, name)}
    return type(own.__name__, (own,), members)


def wrap(client: Any, terms: Terms, *, is_async: bool) -> Any:
    """A copy of a client whose calls are made on these terms."""
    own: Any = type(client)
    if hasattr(client, "_quota"):
        raise ValueError("this client is wrapped already")
    missing = [name for name in _SEAMS if not callable(getattr(own, name, None))]
    if missing:
        raise QuotaError(f"this version of the SDK has no {missing[0]!r}", code="sdk_not_supported")
    made = client.copy()
    made.__class__ = _async_class(own) if is_async else _sync_class(own)
    made._quota = terms
    return made


def unmetered_paths(usual: Iterable[str], more: Iterable[str]) -> tuple[str, ...]:
    """Paths that may pass: those that cost nothing, and those that the host lists."""
    if isinstance(more, str):
        raise TypeError("unmetered is a list of paths, not one text")
    return (*usual, *more)
