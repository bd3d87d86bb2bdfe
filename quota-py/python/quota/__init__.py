"""Quotas and scheduling for gateways that share language-model pools among tenants.

    gate = Gate(Policy.from_file("policy.yaml"))
    who = gate.authenticate(bearer)
    async with gate.acquire(who, Request.from_body("openai_chat", body)) as lease:
        lease.sent()
        lease.settle(await call_the_provider())

Durations are whole milliseconds (`…_ms`), money is `decimal.Decimal`, what is refused is a value (`admit`) or raises
`Refused` (`acquire`). A lease that is left without an ending stays charged as reserved until somebody settles it.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, NamedTuple

from . import _native
from ._acquire import Acquiring
from ._errors import (
    EndError,
    ForkedError,
    InputError,
    KeyActError,
    PolicyError,
    QueueRefused,
    QuotaError,
    Refused,
    RequestError,
    UsageError,
)
from ._host import Estimator, Journal, Pool
from ._native import (
    EXACT_TOKENIZERS,
    METRICS_CONTENT_TYPE,
    Alert,
    Amounts,
    Balance,
    Calendar,
    Cost,
    CostLine,
    Decision,
    Degradation,
    Entries,
    Fits,
    FixedPool,
    Gate,
    IssuedKey,
    Keeper,
    Key,
    Lane,
    Lease,
    LimitOverride,
    LoadReport,
    Offer,
    Outcome,
    Period,
    Place,
    Policy,
    PolicyFault,
    PolicyLimit,
    Preview,
    Price,
    PriceList,
    Principal,
    Receipt,
    Refusal,
    ReplicaLoad,
    ReportedPool,
    Request,
    Scheduler,
    Shortage,
    Stream,
    StreamEnd,
    StreamReader,
    Subscription,
    TokenCount,
    Turn,
    Unresolved,
    UpstreamError,
    UpstreamLimit,
    UpstreamLimits,
    Usage,
    __version__,
    balance_headers,
    count_tokens,
    estimate,
    priority_hint,
    read_load,
    upstream_wait_ms,
)

__all__ = [
    "Acquiring",
    "Alert",
    "Amounts",
    "Balance",
    "Calendar",
    "Cost",
    "CostLine",
    "Decision",
    "Degradation",
    "EXACT_TOKENIZERS",
    "EndError",
    "Entries",
    "Estimator",
    "Fits",
    "FixedPool",
    "ForkedError",
    "Gate",
    "InputError",
    "IssuedKey",
    "Journal",
    "Keeper",
    "Key",
    "KeyActError",
    "Lane",
    "Lease",
    "LimitOverride",
    "LoadReport",
    "METRICS_CONTENT_TYPE",
    "Offer",
    "Outcome",
    "Period",
    "Place",
    "Policy",
    "PolicyError",
    "PolicyFault",
    "PolicyLimit",
    "Pool",
    "Preview",
    "Price",
    "PriceList",
    "Principal",
    "QueueRefused",
    "QuotaError",
    "REASONS",
    "Reason",
    "Receipt",
    "Refusal",
    "Refused",
    "ReplicaLoad",
    "ReportedPool",
    "Request",
    "RequestError",
    "Scheduler",
    "Shortage",
    "Stream",
    "StreamEnd",
    "StreamReader",
    "Subscription",
    "TokenCount",
    "Turn",
    "Unresolved",
    "UpstreamError",
    "UpstreamLimit",
    "UpstreamLimits",
    "Usage",
    "UsageError",
    "__version__",
    "balance_headers",
    "count_tokens",
    "estimate",
    "priority_hint",
    "read_load",
    "upstream_wait_ms",
]


class Reason(NamedTuple):
    """One row of the registry of reasons."""

    code: str
    #: The HTTP status that says the same.
    status: int
    #: Whether sending the request again helps: soon, when the period ends, or not as it is.
    retry: Literal["soon", "next_period", "no"]
    text: str


#: Every reason by its code.
REASONS: Mapping[str, Reason] = MappingProxyType({row[0]: Reason(*row) for row in _native._reasons})

# Where they are made is nobody's business: tracebacks and `help` show where they are found.
for _class in (
    Acquiring,
    EndError,
    Estimator,
    ForkedError,
    InputError,
    Journal,
    KeyActError,
    PolicyError,
    Pool,
    QueueRefused,
    QuotaError,
    Refused,
    RequestError,
    UsageError,
):
    _class.__module__ = __name__
del _class

if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_native._forked)
