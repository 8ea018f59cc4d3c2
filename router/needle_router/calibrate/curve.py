"""Risk against coverage: how many of the answered calls would be wrong if answers began at a lower and lower score.

The curve describes the sample. A threshold read off it promises nothing (see `rules`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from needle_router.calibrate.samples import Labelled, Sample

MAX_POINTS = 200


@dataclass(frozen=True, slots=True)
class CurvePoint:
    """What happens at one threshold: `n` answered, `errors` of them wrong, `coverage` of all decided, `risk` of `n`."""

    threshold: float
    n: int
    errors: int
    coverage: float
    risk: float


def risk_coverage(decisions: Iterable[Labelled], *, max_points: int = MAX_POINTS) -> tuple[CurvePoint, ...]:
    """The points from the highest score down, one for each score that occurs, thinned to about `max_points`.

    Decisions that the verifiers did not pass are never answered: they count in the coverage alone.
    """
    sample = Sample(decisions)
    if not sample.n:
        return ()
    points = [_point(sample, threshold) for threshold in _scores(sample, max_points)]
    return tuple(points)


def pairs(points: Sequence[CurvePoint]) -> tuple[tuple[float, float], ...]:
    """(coverage, risk) of each point, as plots take them."""
    return tuple((point.coverage, point.risk) for point in points)


def _point(sample: Sample, threshold: float) -> CurvePoint:
    n, errors = sample.cut(threshold)
    return CurvePoint(threshold, n, errors, n / sample.total, errors / n)


def _scores(sample: Sample, max_points: int) -> list[float]:
    """The scores to cut at, high to low: each once, and no more than one in `sample.n / max_points` calls."""
    ends = [rank for rank, (one, two) in enumerate(pairwise((*sample.scores, -1.0)), 1) if one != two]
    apart = max(1, sample.n // max_points)
    kept, last = [], 0
    for rank in ends:
        if rank - last >= apart or rank == sample.n:
            kept.append(sample.scores[rank - 1])
            last = rank
    return kept
