"""One record per request, and the running totals of them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from needle_router.turn import Usage


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What happened to one request. Times are seconds, money USD; nothing here holds text of a request or an answer.

    `chat` is false for requests that were passed on unread. `usage` is what the upstream reported, None when unknown or
    not asked; `saved` is what a local answer kept from it, priced as the upstream would have.
    """

    time_s: float
    route: str
    reason: str
    policy: str = ""
    mode: str = "on"
    chat: bool = True
    model: str = ""
    stream: bool = False
    status: int = 0
    tools_offered: tuple[str, ...] = ()
    tools_called: tuple[str, ...] = ()
    confidence: float | None = None
    failures: tuple[str, ...] = ()
    uncovered: bool = False
    fingerprint: str = ""
    overhead_s: float = 0.0
    engine_s: float = 0.0
    queue_s: float = 0.0
    total_s: float = 0.0
    usage: Usage | None = None
    cost_usd: float | None = None
    saved: Usage | None = None
    saved_usd: float | None = None
    comparison: str = ""
    error: str = ""
    reinitialized: bool = False
    engine_ran: bool = False


class Totals:
    """Running sums since the start; money in decimals, so that sums do not drift."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._money: dict[str, Decimal] = {"upstream": Decimal(0), "saved": Decimal(0)}
        self._reasons: Counter[str] = Counter()

    def add(self, record: DecisionRecord) -> None:
        """Count one finished request."""
        self._requests[record.route] += 1
        self._reasons[record.reason] += 1
        if record.error or record.status >= 500:
            self._counts["errors"] += record.route != "local"
        if record.route != "local" and record.chat:
            self._add_upstream(record)
        if record.saved is not None:
            self._counts["saved_prompt"] += record.saved.prompt_tokens
            self._counts["saved_completion"] += record.saved.completion_tokens
            self._counts["saved_unknown"] += record.saved_usd is None
            self._money["saved"] += Decimal(str(record.saved_usd or 0))

    def _add_upstream(self, record: DecisionRecord) -> None:
        if record.usage is None:
            self._counts["usage_unknown"] += 1
            return
        self._counts["prompt"] += record.usage.prompt_tokens
        self._counts["completion"] += record.usage.completion_tokens
        self._counts["cached"] += record.usage.cached_tokens
        if record.cost_usd is None:
            self._counts["cost_unknown"] += 1
        else:
            self._money["upstream"] += Decimal(str(record.cost_usd))

    def as_dict(self) -> dict[str, Any]:
        """`totals` of /-/status.json."""
        counts, requests = self._counts, self._requests
        return {
            "local": {"requests": requests["local"], "cost_usd": 0},
            "upstream": {
                "requests": requests["upstream"],
                "errors": counts["errors"],
                "prompt_tokens": counts["prompt"],
                "completion_tokens": counts["completion"],
                "cached_tokens": counts["cached"],
                "cost_usd": float(self._money["upstream"]),
                "cost_unknown": counts["cost_unknown"],
                "usage_unknown": counts["usage_unknown"],
            },
            "merged": {"requests": requests["merged"]},
            "saved": {
                "prompt_tokens": counts["saved_prompt"],
                "completion_tokens": counts["saved_completion"],
                "cost_usd": float(self._money["saved"]),
                "cost_unknown": counts["saved_unknown"],
            },
        }

    def reasons(self) -> dict[str, int]:
        """How often each reason decided, most frequent first."""
        return dict(self._reasons.most_common())
