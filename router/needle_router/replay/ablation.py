"""What each verifier does: the same rows weighed again with one of them, or all of them, left out.

The evidence of a row holds every check that failed, not the first alone, so leaving one out needs no second run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from needle_router.calibrate.samples import Sample
from needle_router.evidence import VERIFIERS
from needle_router.replay.rows import NOTHING, Row, labelled, passed

#: Every slug that can be left out, in the order of the verifiers. Without a call there is nothing to answer.
SLUGS: tuple[str, ...] = tuple(dict.fromkeys(verifier.slug for verifier in VERIFIERS if verifier.slug != "no-call"))
ALL_CHECKS = "all checks"
SCORE_ALONE = "no check"


@dataclass(frozen=True, slots=True)
class Ablated:
    """What would be answered without some checks: at any score, and at the threshold.

    `stopped_wrong` and `stopped_right` count calls that nothing but the left-out checks held back.
    """

    left_out: str
    total: int
    answered: int
    wrong: int
    answered_at: int
    wrong_at: int
    stopped_wrong: int
    stopped_right: int


def variants() -> Mapping[str, frozenset[str]]:
    """Name -> the checks that are left out: none, each alone, all of them."""
    each = {f"without {slug}": frozenset({slug}) for slug in SLUGS}
    return {ALL_CHECKS: NOTHING, **each, SCORE_ALONE: frozenset(SLUGS)}


def ablated(rows: Sequence[Row], threshold: float) -> list[Ablated]:
    """One line for each variant, over the rows whose right answer is known."""
    return [_ablated(name, left_out, rows, threshold) for name, left_out in variants().items()]


def _ablated(name: str, left_out: frozenset[str], rows: Sequence[Row], threshold: float) -> Ablated:
    sample = Sample(labelled(rows, left_out))
    answered, wrong = sample.cut(0.0)
    answered_at, wrong_at = sample.cut(threshold)
    stopped = [row for row in rows if row.right is not None and passed(row, left_out) and not passed(row)]
    right = sum(bool(row.right) for row in stopped)
    return Ablated(name, sample.total, answered, wrong, answered_at, wrong_at, len(stopped) - right, right)


def different(lines: Sequence[Ablated]) -> Iterator[Ablated]:
    """The lines that differ from that of all checks, and that one first: checks that held nothing back say nothing."""
    whole = lines[0]
    yield whole
    yield from (line for line in lines[1:] if line.stopped_right + line.stopped_wrong)
