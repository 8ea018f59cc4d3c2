"""The values a report consists of. Times are seconds, money is USD, shares are from 0 to 1."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from needle_router.calibrate.curve import CurvePoint

#: Of every interval.
CONFIDENCE = 0.95
#: What a record can be grouped by.
DIMENSIONS = ("tool", "model", "reason", "day", "policy")


@dataclass(frozen=True, slots=True)
class Amount:
    """A sum of money, and how many amounts are missing from it because their price is not known."""

    usd: float = 0.0
    unknown: int = 0


@dataclass(frozen=True, slots=True)
class Rate:
    """`count` of `n`, and the exact interval that holds the true share with the report's confidence."""

    count: int
    n: int
    low: float
    high: float

    @property
    def share(self) -> float:
        """The observed share; 0 where nothing was observed."""
        return self.count / self.n if self.n else 0.0


@dataclass(frozen=True, slots=True)
class Group:
    """Requests that have something in common. `others` is the number of keys taken together, 0 for one of its own.

    `refused` were answered by nobody, for a budget was spent; `failed` were answered with an error or cut. `compared`
    and `agreed` count decisions that passed every check.
    """

    key: str
    requests: int = 0
    local: int = 0
    merged: int = 0
    upstream: int = 0
    refused: int = 0
    failed: int = 0
    saved: Amount = Amount()
    cost: Amount = Amount()
    compared: int = 0
    agreed: int = 0
    others: int = 0


@dataclass(frozen=True, slots=True)
class Latency:
    """Percentiles of `n` times."""

    n: int
    p50_s: float
    p90_s: float
    p95_s: float
    p99_s: float
    max_s: float


@dataclass(frozen=True, slots=True)
class Savings:
    """What local answers saved, net of what finding out and being wrong cost.

    `net_usd` charges the answers that are known to be wrong; `estimate_usd` charges all that were not audited as often
    as the audited ones were wrong, and `low_usd` to `high_usd` is the same at both ends of the interval of that share.
    Without audits there is no estimate. `by_tool` says that each tool was reckoned by itself.
    """

    avoided: Amount
    audits: Amount
    races: Amount
    penalty_usd: float
    answers: int
    wrong: Rate
    by_tool: bool
    net_usd: float
    estimate_usd: float | None
    low_usd: float
    high_usd: float


@dataclass(frozen=True, slots=True)
class Agreement:
    """How often engine and upstream made the same calls.

    `shadow` and `audit` are about decisions that passed every check, the first where the upstream answered, the second
    where the engine did; `tools` joins both. `kinds` counts every comparison: (passed every check, stopped by one),
    `audits` what came of each audit.
    """

    shadow: Rate
    audit: Rate
    tools: Mapping[str, Rate] = field(default_factory=dict)
    kinds: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    audits: Mapping[str, int] = field(default_factory=dict)

    @property
    def compared(self) -> int:
        """All comparisons."""
        return sum(passed + stopped for passed, stopped in self.kinds.values())


@dataclass(frozen=True, slots=True)
class Cut:
    """What would be answered at a threshold: `wrong` of those, `coverage` of all decided, their price upstream."""

    threshold: float
    wrong: Rate
    coverage: float
    cost: Amount


@dataclass(frozen=True, slots=True)
class Curve:
    """Risk against coverage. `source` is "shadow", "audit" or "" without data; the two are never mixed."""

    source: str = ""
    decided: int = 0
    points: tuple[CurvePoint, ...] = ()
    cuts: tuple[Cut, ...] = ()


@dataclass(frozen=True, slots=True)
class CertificateState:
    """A certificate and what was seen of it: `errors` of `n` calls when it was made, at most `max_error` promised.

    `decided` engine runs of the period had its fingerprint; none means that it is void, or idle. `wrong` is of the
    compared calls that it lets pass. `max_error` and `delta` are None where the file does not say.
    """

    fingerprint: str
    tool: str
    threshold: float
    max_error: float | None
    delta: float | None
    n: int
    errors: int
    decided: int
    wrong: Rate


@dataclass(frozen=True, slots=True)
class Report:
    """Everything about one period. `groups` holds each of `DIMENSIONS`, biggest first, days in order."""

    since_s: float
    until_s: float
    total: Group
    unread: int
    groups: Mapping[str, tuple[Group, ...]]
    latency: Mapping[str, Latency]
    engine_runs: int
    failures: Mapping[str, int]
    savings: Savings
    agreement: Agreement
    curve: Curve
    certificates: tuple[CertificateState, ...]
    confidence: float
