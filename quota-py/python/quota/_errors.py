"""Exceptions: all of them derive from `QuotaError` and have a stable `code`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ._native import PolicyFault, Refusal

__all__ = [
    "EndError",
    "ForkedError",
    "InputError",
    "KeyActError",
    "PolicyError",
    "QueueRefused",
    "QuotaError",
    "Refused",
    "RequestError",
    "UsageError",
]


class QuotaError(Exception):
    """What this package raises. `code` never changes its meaning and is the same in every language."""

    code: str
    #: Whether the same call may succeed later without anybody changing anything.
    is_retryable: bool

    def __init__(self, message: str, *, code: str = "quota_error", is_retryable: bool = False) -> None:
        super().__init__(message)
        self.code = code
        self.is_retryable = is_retryable

    def __reduce__(self) -> tuple[Any, ...]:
        # An exception is made again from its message alone, but these have more that is needed.
        return _made_again, (type(self), self.args, self.__dict__)


def _made_again(kind: type[QuotaError], args: tuple[Any, ...], fields: dict[str, Any]) -> QuotaError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(fields)
    return error


class InputError(QuotaError, ValueError):
    """What was given can't be read: no JSON (`json_invalid`), nested too deep (`too_deep`), no price list
    (`price_list_invalid`), no refusal or balance (`data_invalid`)."""


class PolicyError(InputError):
    """A policy with everything that is wrong with it, in the order of its text."""

    errors: list[PolicyFault]
    #: How many more there are than `errors` tells.
    omitted: int
    #: The file's name; `policy` for a text.
    source_name: str

    def __init__(
        self,
        message: str,
        *,
        errors: list[PolicyFault],
        omitted: int = 0,
        source_name: str = "policy",
        code: str = "policy_invalid",
        is_retryable: bool = False,
    ) -> None:
        super().__init__(message, code=code, is_retryable=is_retryable)
        self.errors = errors
        self.omitted = omitted
        self.source_name = source_name


class RequestError(InputError):
    """A body that is no request of its kind. Nothing of its text is in here."""

    #: Where in the body (`messages[2].content`).
    field: str
    found: str
    allowed: str

    def __init__(
        self, message: str, *, field: str, found: str, allowed: str, code: str = "request_invalid", **rest: Any
    ) -> None:
        super().__init__(message, code=code, **rest)
        self.field = field
        self.found = found
        self.allowed = allowed


class UsageError(InputError):
    """A provider's report that can't be charged as it stands. The lease goes on as it was."""


class Refused(QuotaError):
    """A request that was not admitted. `code` is the reason."""

    refusal: Refusal

    def __init__(self, message: str, *, refusal: Refusal, code: str, is_retryable: bool = False) -> None:
        super().__init__(message, code=code, is_retryable=is_retryable)
        self.refusal = refusal

    @property
    def reason(self) -> str:
        """The same as `code`."""
        return self.code

    @property
    def status(self) -> int:
        """The HTTP status that says the same."""
        return self.refusal.status

    @property
    def retry_after_ms(self) -> int | None:
        """After how long the limits have room, where that is known."""
        return self.refusal.retry_after_ms


class EndError(QuotaError):
    """An ending that changed nothing: `lease_unknown`, `lease_conflict`, `cancel_after_sent`, `store_unavailable`."""

    #: Of a conflict: the first field that differs, its value at the first ending and its value now.
    field: str | None
    first: str | None
    second: str | None

    def __init__(
        self,
        message: str,
        *,
        code: str,
        is_retryable: bool = False,
        field: str | None = None,
        first: str | None = None,
        second: str | None = None,
    ) -> None:
        super().__init__(message, code=code, is_retryable=is_retryable)
        self.field = field
        self.first = first
        self.second = second


class KeyActError(QuotaError):
    """A key that was not made, rotated or revoked. Nothing was changed."""


class QueueRefused(QuotaError):
    """A place in a scheduler's queue that is refused."""

    retry_after_ms: int | None

    def __init__(
        self, message: str, *, code: str, is_retryable: bool = False, retry_after_ms: int | None = None
    ) -> None:
        super().__init__(message, code=code, is_retryable=is_retryable)
        self.retry_after_ms = retry_after_ms


class ForkedError(QuotaError, RuntimeError):
    """A gate that was made before the process was forked: its accounts are those of the other process."""
