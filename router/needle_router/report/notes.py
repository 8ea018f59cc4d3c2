"""Numbers for people, and the sentences without which they would mislead."""

from __future__ import annotations

from needle_router.report.certificates import broken
from needle_router.report.model import Report

AGREEMENT = (
    "Agreement bounds how often the engine and the upstream differ. It does not bound error: where they differ the "
    "upstream may be the one that is wrong, and where they agree both may be."
)
NOT_SAVED = "Local answers without a known price: {}. What they saved is not counted."
NOT_COSTED = "Answers of the upstream without a known cost, for want of token counts or of a price: {}."
NOT_AUDITED = "Audits without a known cost: {}. They are not taken off."
NOT_RACED = "Cancelled races without a known cost: {}. They are not taken off."
NOT_COMPARED = "Audits that came to no comparison: {}. If they were not lost at random, the rest is no fair sample."
NO_AUDITS = "No local answer was audited, so nothing is known of how many were wrong."
BY_TOOL = (
    "Some tools were audited more often than others. Errors are therefore reckoned for each tool by itself, and the "
    "interval is the wider for it."
)
NO_PENALTY = "A wrong answer counts as costing nothing: give its price with --penalty-usd or report.penalty_usd."
ESTIMATED = (
    "What was saved is an estimate: the tokens that the engine read and wrote, at the upstream's price. The upstream "
    "would have counted the whole conversation, which is mostly more."
)
NO_COMPARISON = (
    "Nothing was compared: mode shadow, a shadow policy or audits show how often the engine differs from the upstream."
)
AUDITS_ALONE = "The curve is of audited answers alone, so it says nothing about what was not answered here."
NO_PROMISE = (
    "The curve describes this sample. A threshold read off it promises nothing; needle-router calibrate certifies one."
)
VOID = "Certificates whose fingerprint no request of the period had: {}. They are void, or nobody asks."
ALARMED = (
    "Requests that an alarm kept upstream: {}. More calls of their tools differed than a canary allows; needle-router "
    "canary says which."
)
BROKEN = "Certificates of which more compared calls differ than was promised: {}. Calibrate again."


def notes(report: Report) -> list[str]:
    """What has to be said with this report, a sentence or two each."""
    savings, compared, curve = report.savings, report.agreement.compared, report.curve
    counted = (
        (NOT_SAVED, savings.avoided.unknown),
        (NOT_AUDITED, savings.audits.unknown),
        (NOT_RACED, savings.races.unknown),
        (NOT_COSTED, report.total.cost.unknown),
        (NOT_COMPARED, sum(report.agreement.audits.values()) - report.agreement.audits.get("compared", 0)),
        (VOID, sum(not one.decided for one in report.certificates)),
        (ALARMED, requests_for(report, "alarm")),
        (BROKEN, sum(broken(one) for one in report.certificates)),
    )
    told = (
        (ESTIMATED, savings.answers > 0),
        (NO_AUDITS, savings.answers > 0 and savings.wrong.n == 0),
        (BY_TOOL, savings.by_tool),
        (NO_PENALTY, savings.answers > 0 and savings.penalty_usd == 0),
        (AGREEMENT, compared > 0),
        (NO_COMPARISON, compared == 0),
        (AUDITS_ALONE, curve.source == "audit"),
        (NO_PROMISE, bool(curve.points)),
    )
    return [text.format(count) for text, count in counted if count] + [text for text, holds in told if holds]


def requests_for(report: Report, reason: str) -> int:
    """How many requests a reason decided."""
    return sum(group.requests for group in report.groups["reason"] if group.key == reason)


def money(value: float) -> str:
    """USD, with as many digits as a small sum needs."""
    size = abs(value)
    digits = 2 if size >= 1 else 4 if size >= 0.0005 or size == 0 else 6
    return f"{'-' if round(value, digits) < 0 else ''}${size:,.{digits}f}"


def share(value: float) -> str:
    """0.053 as "5.3 %"."""
    return f"{value * 100:.1f} %"


def sure(value: float) -> str:
    """A confidence: "95 %"."""
    return f"{value * 100:g} %"


def span(seconds: float) -> str:
    """A time in milliseconds, or in seconds from one on."""
    if seconds >= 1:
        return f"{seconds:.2f} s"
    return f"{seconds * 1000:.2f} ms" if seconds < 0.01 else f"{seconds * 1000:.0f} ms"
