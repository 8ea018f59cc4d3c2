"""Money saved, honestly: less what audits, cancelled races and wrong answers cost, with an interval.

Wrong answers are known only where an answer was audited. How many of all answers are wrong has an exact interval (see
`finite`), and the balance is reckoned at both of its ends. That holds when audits are a random sample of the local
answers and when differing from the upstream is what "wrong" is to mean. Without audits it may be none or all, and the
interval says so.

Where some tools are audited more than others, all answers together are no random sample, but those of each tool are.
Each tool then has an interval of its own, and they hold together: delta is divided among them. Which way is taken is
decided by how many answers were audited, never by what came of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from needle_router.calibrate.binomial import cdf, interval
from needle_router.calibrate.finite import wrong_among
from needle_router.report.model import Amount, Rate, Savings

#: How seldom audits drawn equally for all tools may look as if they were not.
FALSE_ALARM = 0.001


@dataclass(frozen=True, slots=True)
class Audited:
    """Local answers, how many of them were audited, and how many of those were wrong."""

    answers: int = 0
    audited: int = 0
    wrong: int = 0

    def __add__(self, other: Audited) -> Audited:
        return Audited(self.answers + other.answers, self.audited + other.audited, self.wrong + other.wrong)

    @property
    def unseen(self) -> int:
        """Answers of which nothing is known."""
        return self.answers - self.audited


def savings(
    *, avoided: Amount, audits: Amount, races: Amount, tools: Mapping[str, Audited], penalty_usd: float, delta: float
) -> Savings:
    """The balance of local answers, given by tool."""
    total = sum(tools.values(), Audited())
    before = avoided.usd - audits.usd - races.usd - penalty_usd * total.wrong
    strata = list(tools.values()) if uneven(list(tools.values()), total) else [total]
    low, estimate, high = unseen_errors(strata, delta)
    return Savings(
        avoided=avoided,
        audits=audits,
        races=races,
        penalty_usd=penalty_usd,
        answers=total.answers,
        wrong=Rate(total.wrong, total.audited, *interval(total.wrong, total.audited, delta)),
        by_tool=len(strata) > 1,
        net_usd=before,
        estimate_usd=None if estimate is None else before - penalty_usd * estimate,
        low_usd=before - penalty_usd * high,
        high_usd=before - penalty_usd * low,
    )


def unseen_errors(strata: Sequence[Audited], delta: float) -> tuple[int, float | None, int]:
    """Wrong answers among those that were not audited: at least, about (None where nothing is known), at most."""
    low, about, high, known = 0, 0.0, 0, True
    for one in strata:
        least, most = wrong_among(one.answers, one.audited, one.wrong, delta / len(strata))
        low, high = low + least - one.wrong, high + most - one.wrong
        about += one.unseen * one.wrong / one.audited if one.audited else 0.0
        known &= one.audited > 0 or one.unseen == 0
    return low, about if known else None, high


def uneven(tools: Sequence[Audited], total: Audited) -> bool:
    """Whether some tools were audited more than others, beyond what lots explain."""
    if len(tools) < 2 or not 0 < total.audited < total.answers:
        return False
    share, bar = total.audited / total.answers, FALSE_ALARM / (2 * len(tools))
    return any(
        min(cdf(one.audited, one.answers, share), 1.0 - cdf(one.audited - 1, one.answers, share)) < bar for one in tools
    )
