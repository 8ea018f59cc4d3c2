"""A report as JSON; the keys are documented in docs/report.md and stay."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needle_router.report.certificates import broken
from needle_router.report.model import Agreement, Amount, CertificateState, Curve, Group, Latency, Rate, Report, Savings
from needle_router.report.notes import notes

FORMAT_VERSION = 1


def document(report: Report, *, by: Sequence[str]) -> dict[str, Any]:
    """The whole report; `by` names the dimensions whose groups are wanted."""
    return {
        "version": FORMAT_VERSION,
        "since_s": report.since_s,
        "until_s": report.until_s,
        "requests": report.total.requests,
        "unread": report.unread,
        "failed": report.total.failed,
        "routes": {route: getattr(report.total, route) for route in ("local", "merged", "upstream", "refused")},
        "cost": amount(report.total.cost),
        "savings": savings(report.savings),
        "agreement": agreement(report.agreement),
        "risk_coverage": curve(report.curve),
        "certificates": [certificate(one) for one in report.certificates],
        "latency": {name: latency(row) for name, row in report.latency.items()},
        "engine": {"runs": report.engine_runs, "failures": dict(report.failures)},
        "by": {name: [group(row) for row in report.groups[name]] for name in by},
        "confidence": report.confidence,
        "notes": notes(report),
    }


def usd(value: float | None) -> float | None:
    """Money without the noise of adding up."""
    return None if value is None else round(value, 9)


def amount(value: Amount) -> dict[str, Any]:
    """`usd` of what is known, `unknown` amounts beside it."""
    return {"usd": usd(value.usd), "unknown": value.unknown}


def rate(value: Rate, name: str) -> dict[str, Any]:
    """`n`, how many of them under `name`, their share (null without data) and its interval."""
    share = round(value.share, 6) if value.n else None
    return {"n": value.n, name: value.count, "share": share, "low": round(value.low, 6), "high": round(value.high, 6)}


def savings(value: Savings) -> dict[str, Any]:
    """The balance."""
    return {
        "avoided": amount(value.avoided),
        "audits": amount(value.audits),
        "races": amount(value.races),
        "answers": value.answers,
        "wrong": rate(value.wrong, "wrong"),
        "by_tool": value.by_tool,
        "penalty_usd": value.penalty_usd,
        "net_usd": usd(value.net_usd),
        "estimate_usd": usd(value.estimate_usd),
        "low_usd": usd(value.low_usd),
        "high_usd": usd(value.high_usd),
    }


def agreement(value: Agreement) -> dict[str, Any]:
    """Engine against upstream."""
    return {
        "compared": value.compared,
        "shadow": rate(value.shadow, "agreed"),
        "audit": rate(value.audit, "agreed"),
        "tools": {name: rate(row, "agreed") for name, row in value.tools.items()},
        "kinds": {name: {"passed": passed, "stopped": stopped} for name, (passed, stopped) in value.kinds.items()},
        "audits": dict(value.audits),
    }


def curve(value: Curve) -> dict[str, Any]:
    """The points as [threshold, coverage, risk, n, wrong], and the rows of the table."""
    return {
        "source": value.source,
        "decided": value.decided,
        "points": [
            [point.threshold, round(point.coverage, 6), round(point.risk, 6), point.n, point.errors]
            for point in value.points
        ],
        "thresholds": [
            {
                "threshold": cut.threshold,
                **rate(cut.wrong, "wrong"),
                "coverage": round(cut.coverage, 6),
                "cost": amount(cut.cost),
            }
            for cut in value.cuts
        ],
    }


def certificate(value: CertificateState) -> dict[str, Any]:
    """One certificate and what was seen of it."""
    return {
        "fingerprint": value.fingerprint,
        "tool": value.tool,
        "threshold": value.threshold,
        "max_error": value.max_error,
        "delta": value.delta,
        "certified": {"n": value.n, "errors": value.errors},
        "decided": value.decided,
        "compared": rate(value.wrong, "wrong"),
        "broken": broken(value),
    }


def latency(value: Latency) -> dict[str, Any]:
    """Milliseconds."""
    spans: Mapping[str, float] = {
        "p50_ms": value.p50_s,
        "p90_ms": value.p90_s,
        "p95_ms": value.p95_s,
        "p99_ms": value.p99_s,
        "max_ms": value.max_s,
    }
    return {"n": value.n, **{name: round(span * 1000, 3) for name, span in spans.items()}}


def group(value: Group) -> dict[str, Any]:
    """One row; `others` keys taken together have the key null."""
    return {
        "key": None if value.others else value.key,
        "others": value.others,
        "requests": value.requests,
        "local": value.local,
        "merged": value.merged,
        "upstream": value.upstream,
        "refused": value.refused,
        "failed": value.failed,
        "saved": amount(value.saved),
        "cost": amount(value.cost),
        "compared": value.compared,
        "agreed": value.agreed,
    }
