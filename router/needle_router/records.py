"""One record per request, and the running totals of them."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from needle_router.turn import Call, Usage


@dataclass(frozen=True, slots=True)
class DecisionRecord:
    """What happened to one request. Times are seconds, money USD; nothing here holds text of a request or an answer.

    `chat` is false for requests that were passed on unread. `usage` is what the upstream reported, None when unknown or
    not asked; `saved` is what a local answer kept from it, priced as the upstream would have. `raced` says that the
    upstream was asked beside the engine, `wasted` what it was then asked for in vain, estimated, None for nothing.
    `content` is empty unless the operator asked for it (`ledger.content`): see `content_of`. `risks` is what the
    schemas of the called tools declare of themselves.
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
    risks: tuple[str, ...] = ()
    overhead_s: float = 0.0
    engine_s: float = 0.0
    queue_s: float = 0.0
    total_s: float = 0.0
    usage: Usage | None = None
    cost_usd: float | None = None
    saved: Usage | None = None
    saved_usd: float | None = None
    raced: bool = False
    wasted: Usage | None = None
    wasted_usd: float | None = None
    comparison: str = ""
    error: str = ""
    reinitialized: bool = False
    engine_ran: bool = False
    content: str = ""

    @property
    def spent_usd(self) -> float:
        """All that the upstream took for this request, as far as it is known."""
        return (self.cost_usd or 0.0) + (self.wasted_usd or 0.0)


#: What may be a credential: key prefixes of providers, bearer tokens, and long runs of letters and digits mixed.
_SECRET = re.compile(
    r"(?i)\b(?:bearer\s+\S+|(?:sk|rk|pk|hf|ghp|gho|xox[abp])[-_][A-Za-z0-9_-]{6,})|\b(?=\w*\d)(?=\w*[A-Za-z])\w{24,}\b"
)
MAX_CONTENT_CHARS = 4000


def content_of(user_text: str, calls: Sequence[Call]) -> str:
    """The text that the ledger keeps on request: the user's last message and the engine's calls, as JSON."""
    made = [{"name": call.name, "arguments": dict(call.arguments)} for call in calls]
    kept = _redacted({"user": user_text[:MAX_CONTENT_CHARS], "calls": made})
    return json.dumps(kept, ensure_ascii=True, default=str)


def _redacted(value: Any) -> Any:
    if isinstance(value, str):
        return _SECRET.sub("[redacted]", value)
    if isinstance(value, Mapping):
        return {str(key): _redacted(item) for key, item in value.items()}
    return [_redacted(item) for item in value] if isinstance(value, list) else value


#: Where requests are counted that nobody answered, because a budget is spent.
REFUSED = "refused"


class Totals:
    """Running sums since the start; money in decimals, so that sums do not drift."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._money: dict[str, Decimal] = {"upstream": Decimal(0), "saved": Decimal(0), "wasted": Decimal(0)}
        self._reasons: Counter[str] = Counter()
        self._races: Counter[str] = Counter()

    def add(self, record: DecisionRecord) -> None:
        """Count one finished request."""
        self._requests[REFUSED if record.reason == "budget-exceeded" else record.route] += 1
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
        self._races[record.route] += record.raced
        if record.wasted is not None:
            self._counts["wasted"] += 1
            self._counts["wasted_prompt"] += record.wasted.prompt_tokens
            self._counts["wasted_unknown"] += record.wasted_usd is None
            self._money["wasted"] += Decimal(str(record.wasted_usd or 0))

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
            REFUSED: {"requests": requests[REFUSED]},
            "saved": {
                "prompt_tokens": counts["saved_prompt"],
                "completion_tokens": counts["saved_completion"],
                "cost_usd": float(self._money["saved"]),
                "cost_unknown": counts["saved_unknown"],
            },
            "races": {route: self._races[route] for route in ("local", "upstream", "merged")},
            "wasted": {
                "requests": counts["wasted"],
                "prompt_tokens": counts["wasted_prompt"],
                "cost_usd": float(self._money["wasted"]),
                "cost_unknown": counts["wasted_unknown"],
            },
        }

    def reasons(self) -> dict[str, int]:
        """How often each reason decided, most frequent first."""
        return dict(self._reasons.most_common())
