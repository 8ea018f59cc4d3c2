"""Running totals of the records, since the start."""

from __future__ import annotations

from collections import Counter
from decimal import Decimal
from typing import Any

from needle_router.records import AUDITS, UNPAID_AUDITS, DecisionRecord
from needle_router.turn import Usage

#: Where requests are counted that nobody answered, because a budget is spent.
REFUSED = "refused"


class Totals:
    """Running sums since the start; money in decimals, so that sums do not drift."""

    def __init__(self) -> None:
        self._requests: Counter[str] = Counter()
        self._counts: Counter[str] = Counter()
        self._money: dict[str, Decimal] = {name: Decimal(0) for name in ("upstream", "saved", "wasted", "audits")}
        self._reasons: Counter[str] = Counter()
        self._races: Counter[str] = Counter()
        self._audits: Counter[str] = Counter()

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
        if record.audit:
            self._add_audit(record)

    def _add_audit(self, record: DecisionRecord) -> None:
        self._audits[record.audit] += 1
        self._audits["agree"] += record.comparison == "agree"
        if record.audit in UNPAID_AUDITS:
            return
        usage = record.audit_usage or Usage()
        self._counts["audit_prompt"] += usage.prompt_tokens
        self._counts["audit_completion"] += usage.completion_tokens
        self._counts["audit_unknown"] += record.audit_usd is None
        self._money["audits"] += Decimal(str(record.audit_usd or 0))

    def _add_upstream(self, record: DecisionRecord) -> None:
        if record.usage is None:
            self._counts["usage_unknown"] += record.cost_unknown
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
            "audits": {
                **{outcome: self._audits[outcome] for outcome in (*AUDITS, "agree")},
                "prompt_tokens": counts["audit_prompt"],
                "completion_tokens": counts["audit_completion"],
                "cost_usd": float(self._money["audits"]),
                "cost_unknown": counts["audit_unknown"],
            },
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
