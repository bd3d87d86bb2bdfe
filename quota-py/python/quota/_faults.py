"""Answers to what is wrong with a request itself, in its asker's manner. Refusals of the gate have their own."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import _Manner

__all__ = ["Fault"]

_OPENAI = {403: "permission_error", 429: "requests"}
_GEMINI = {
    401: "UNAUTHENTICATED",
    403: "PERMISSION_DENIED",
    404: "NOT_FOUND",
    408: "DEADLINE_EXCEEDED",
    409: "ABORTED",
    429: "RESOURCE_EXHAUSTED",
    503: "UNAVAILABLE",
}
_ANTHROPIC = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    413: "request_too_large",
    429: "rate_limit_error",
}


class Fault(Exception):
    """A request that is answered without the gate's word."""

    def __init__(
        self, status: int, code: str, message: str, *, param: str | None = None, retry: bool | None = None
    ) -> None:
        super().__init__(message)
        self.status = status
        self.code = code
        self.message = message
        self.param = param
        #: What `x-should-retry` tells clients.
        self.retry = retry

    def response(self, manner: _Manner) -> tuple[int, dict[str, str], dict[str, Any]]:
        """Status, headers and body."""
        headers = {} if self.retry is None else {"x-should-retry": str(self.retry).lower()}
        if manner == "anthropic":
            kind = _ANTHROPIC.get(self.status, "api_error" if self.status >= 500 else "invalid_request_error")
            details = {"error_code": self.code}
            told = {"type": kind, "message": self.message, "details": details}
            return self.status, headers, {"type": "error", "error": told}
        if manner == "gemini":
            kind = _GEMINI.get(self.status, "INTERNAL" if self.status >= 500 else "INVALID_ARGUMENT")
            info = {"@type": "type.googleapis.com/google.rpc.ErrorInfo", "reason": self.code.upper(), "domain": "quota"}
            error: dict[str, Any] = {"code": self.status, "message": self.message, "status": kind, "details": [info]}
            return self.status, headers, {"error": error}
        kind = _OPENAI.get(self.status, "server_error" if self.status >= 500 else "invalid_request_error")
        error = {"message": self.message, "type": kind, "param": self.param, "code": self.code}
        return self.status, headers, {"error": error}
