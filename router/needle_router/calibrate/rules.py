"""Rules that choose a threshold and pay for having chosen.

Each returns the lowest threshold that it can certify, or None. Where a walk begins is decided by scores alone: a start
that looked at labels would be one more choice to pay for.

- fixed sequence (Learn then Test, arXiv 2110.01052): walk a fixed grid downwards, each step tested at the full delta,
  until one fails. It begins where enough calls are selected for a test to have a chance: at the very top there is none.
- multi-start: several walks with a share of delta each, for scores that are unreliable at the very top.
- SGR (Geifman & El-Yaniv, arXiv 1705.08500): a binary search over the scores, delta divided by its number of steps.
- best: the first two at half of delta each, or the first alone where the data allow no more.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import takewhile

from needle_router.calibrate.binomial import needed, p_value
from needle_router.calibrate.samples import Sample

#: From high to low, fixed once and for all; finer near 1, where scores crowd.
GRID: tuple[float, ...] = (0.9999, 0.9995, 0.999, 0.998, 0.995, *(step / 100 for step in range(99, -1, -1)))
MAX_STARTS = 4


@dataclass(frozen=True, slots=True)
class Choice:
    """A threshold, None when nothing can be certified, and the rule that spoke."""

    threshold: float | None
    method: str


Rule = Callable[[Sample, float, float], Choice]


def passes(sample: Sample, threshold: float, alpha: float, delta: float) -> bool:
    """Whether the error above `threshold` is shown to be at most `alpha`, by this one test."""
    n, errors = sample.cut(threshold)
    return p_value(errors, n, alpha) <= delta


def start(sample: Sample, wanted: int) -> float | None:
    """The highest threshold of the grid that selects at least `wanted` calls; None when none does."""
    return next((threshold for threshold in GRID if sample.count(threshold) >= wanted), None)


def walk(sample: Sample, first: float | None, alpha: float, delta: float) -> float | None:
    """The last threshold that passes on the way down from `first`; of several with the same calls, the highest."""
    if first is None:
        return None
    below = (threshold for threshold in GRID if threshold <= first)
    passed = list(takewhile(lambda threshold: passes(sample, threshold, alpha, delta), below))
    if not passed:
        return None
    n = sample.count(passed[-1])
    return next(threshold for threshold in passed if sample.count(threshold) == n)


def fixed_sequence(sample: Sample, alpha: float, delta: float) -> Choice:
    """One walk, from where twice the least useful number of calls is selected; from that number in small samples."""
    least = needed(alpha, delta)
    first = start(sample, 2 * least if sample.n >= 2 * least else least)
    return Choice(walk(sample, first, alpha, delta), "fixed-sequence")


def multi_start(sample: Sample, alpha: float, delta: float) -> Choice:
    """Up to `MAX_STARTS` walks, each from twice as many calls as the one before; the lowest threshold of all counts."""
    least = needed(alpha, delta / MAX_STARTS)
    firsts = {start(sample, least * 2**doubling) for doubling in range(MAX_STARTS)} - {None}
    share = delta / max(1, len(firsts))
    ends = [end for first in firsts if (end := walk(sample, first, alpha, share)) is not None]
    return Choice(min(ends, default=None), "multi-start")


def sgr(sample: Sample, alpha: float, delta: float) -> Choice:
    """A binary search for the largest part of the sample that passes."""
    # As many tests as halvings of n ranks: 2 ** steps > n.
    steps = max(1, sample.n.bit_length())
    low, high, found = 0, sample.n, None
    while low < high:
        rank = (low + high) // 2
        if passes(sample, sample.scores[rank], alpha, delta / steps):
            found, low = sample.scores[rank], rank + 1
        else:
            high = rank
    return Choice(found, "sgr")


def best(sample: Sample, alpha: float, delta: float) -> Choice:
    """Fixed sequence and multi-start at `delta` / 2 each, the lower threshold of both."""
    # Decided by the number of calls, not by labels: a small sample cannot afford to share delta out.
    if sample.n < 2 * needed(alpha, delta / 2):
        return fixed_sequence(sample, alpha, delta)
    choices = [rule(sample, alpha, delta / 2) for rule in (fixed_sequence, multi_start)]
    certified = [choice for choice in choices if choice.threshold is not None]
    # Of two equal ones the first, the plainer rule.
    return min(certified, key=lambda choice: choice.threshold or 0.0, default=choices[0])


RULES: Mapping[str, Rule] = {
    "best": best,
    "fixed-sequence": fixed_sequence,
    "multi-start": multi_start,
    "sgr": sgr,
}
