"""How many of a known number of answers are wrong, when some of them were drawn at random and looked at.

Exact: the number of wrong ones among those drawn is hypergeometric. The binomial of `binomial` would take what was not
drawn for a new sample; it would be too sure of it, the more so the more was drawn.
"""

from __future__ import annotations

import math
from collections.abc import Callable


def wrong_among(total: int, drawn: int, wrong: int, delta: float) -> tuple[int, int]:
    """The least and the most of `total` that are wrong, with probability 1 - `delta`; `wrong` of `drawn` were."""
    share = delta / 2
    # Fewer wrong ones make so many as were found unlikely, more make so few unlikely.
    least = _first(lambda count: 1.0 - cdf(wrong - 1, total, count, drawn) > share, wrong, total - drawn + wrong)
    most = _first(lambda count: cdf(wrong, total, count, drawn) <= share, least, total - drawn + wrong + 1) - 1
    return least, most


def _first(holds: Callable[[int], bool], low: int, high: int) -> int:
    """The smallest number from `low` on for which `holds`, which then holds for all above it; `high` if none below."""
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if holds(middle) else (middle + 1, high)
    return low


def cdf(k: int, total: int, wrong: int, drawn: int) -> float:
    """The probability of at most `k` wrong ones among `drawn` of `total`, of which `wrong` are."""
    if k < max(0, drawn - (total - wrong)):
        return 0.0
    if k >= min(drawn, wrong):
        return 1.0
    if k * total < drawn * wrong:
        return _tail(k, total, wrong, drawn)
    # Summed from its small side, as in `binomial`.
    return 1.0 - _tail(drawn - k - 1, total, total - wrong, drawn)


def _tail(k: int, total: int, wrong: int, drawn: int) -> float:
    """The sum of the terms up to `k`, below the mean, from the largest down to where they no longer count."""
    right = total - wrong
    term = math.exp(_log_choices(wrong, k) + _log_choices(right, drawn - k) - _log_choices(total, drawn))
    found, least = 0.0, max(0, drawn - right)
    for i in range(k, least - 1, -1):
        found += term
        if term < found * 1e-17:
            break
        term *= i * (right - drawn + i) / ((wrong - i + 1) * (drawn - i + 1))
    return min(1.0, found)


def _log_choices(n: int, k: int) -> float:
    return math.lgamma(n + 1) - math.lgamma(k + 1) - math.lgamma(n - k + 1)
