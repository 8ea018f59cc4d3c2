"""Money saved, honestly: less what audits, cancelled races and wrong answers cost, with an interval.

Wrong answers are known only where an answer was audited. Of the others as many are taken to be wrong as among the
audited ones; the interval takes both ends of the exact (Clopper-Pearson) interval of that share. That holds when audits
are a random sample of the local answers and when differing from the upstream is what "wrong" is to mean. Without audits
the share may be anything from 0 to 1, and the interval says so.
"""

from __future__ import annotations

from needle_router.calibrate.binomial import interval
from needle_router.report.model import Amount, Rate, Savings


def savings(
    *,
    avoided: Amount,
    audits: Amount,
    races: Amount,
    answers: int,
    audited: int,
    wrong: int,
    penalty_usd: float,
    delta: float,
) -> Savings:
    """The balance of `answers` local answers, of which `audited` were compared and `wrong` of those differed."""
    before = avoided.usd - audits.usd - races.usd
    low, high = interval(wrong, audited, delta)
    unseen = max(0, answers - audited)

    def balance(share: float) -> float:
        return before - penalty_usd * (wrong + unseen * share)

    return Savings(
        avoided=avoided,
        audits=audits,
        races=races,
        penalty_usd=penalty_usd,
        answers=answers,
        wrong=Rate(wrong, audited, low, high),
        net_usd=balance(0.0),
        estimate_usd=balance(wrong / audited) if audited else None,
        low_usd=balance(high),
        high_usd=balance(low),
    )
