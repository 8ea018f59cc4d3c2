"""One row per replayed request, and what is counted over them. Pure functions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needle_router.calibrate.samples import Labelled

DIGITS = 6
NOTHING: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True)
class Row:
    """What became of one request.

    `route` is local, merged, upstream or refused; `tools` are the names that the engine called. `asked` says whether
    the engine ran. `right` says whether the engine's calls, checks and score aside, are the right answer, and `silent`
    whether that is to call nothing; both are None where nobody knows. `failures` are the slugs of all failed checks.
    """

    name: str
    category: str
    route: str
    reason: str
    policy: str = ""
    tools: tuple[str, ...] = ()
    confidence: float | None = None
    failures: tuple[str, ...] = ()
    asked: bool = False
    right: bool | None = None
    silent: bool | None = None
    fingerprint: str = ""
    engine_s: float = 0.0

    @property
    def answered(self) -> bool:
        """Answered here alone."""
        return self.route == "local"


@dataclass(frozen=True, slots=True)
class Count:
    """The requests of a category. Everything from `labelled` on counts those whose right answer is known.

    `right` and `wrong` are answered ones, `needless` those of `wrong` where no call is wanted. `engine_right` counts
    what the engine said, before any check, where it was asked: `engine_asked`.
    """

    cases: int
    answered: int
    merged: int
    refused: int
    labelled: int
    right: int
    wrong: int
    needless: int
    engine_asked: int
    engine_right: int
    reasons: Mapping[str, int]

    @property
    def accuracy(self) -> float | None:
        """The share of right answers among those given; None without any."""
        return share(self.right, self.right + self.wrong)

    @property
    def engine_accuracy(self) -> float | None:
        """The share of right answers of the engine where it was asked, before any check."""
        return share(self.engine_right, self.engine_asked)


def share(part: int, whole: int) -> float | None:
    """A rounded share, None of nothing."""
    return round(part / whole, DIGITS) if whole else None


def count(rows: Sequence[Row]) -> Count:
    """The figures of some rows."""
    known = [row for row in rows if row.right is not None]
    wrong = [row for row in known if row.answered and not row.right]
    return Count(
        cases=len(rows),
        answered=sum(row.answered for row in rows),
        merged=sum(row.route == "merged" for row in rows),
        refused=sum(row.route in ("upstream", "refused") for row in rows),
        labelled=len(known),
        right=sum(row.answered and bool(row.right) for row in known),
        wrong=len(wrong),
        needless=sum(bool(row.silent) for row in wrong),
        engine_asked=sum(row.asked for row in known),
        engine_right=sum(row.asked and bool(row.right) for row in known),
        reasons=dict(Counter(row.reason for row in rows).most_common()),
    )


def by_category(rows: Iterable[Row]) -> dict[str, Count]:
    """The figures of each category, in the order in which they come."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row.category, []).append(row)
    return {name: count(group) for name, group in groups.items()}


def passed(row: Row, without: frozenset[str] = NOTHING) -> bool:
    """Whether the engine called something and no check speaks against it, those of `without` left out."""
    return bool(row.tools) and without.issuperset(row.failures)


def labelled(rows: Iterable[Row], without: frozenset[str] = NOTHING) -> list[Labelled]:
    """The rows whose right answer is known, as calibration wants them; `without` names checks that do not count."""
    return [
        Labelled(
            tool="+".join(sorted(set(row.tools))),
            confidence=row.confidence or 0.0,
            verified=passed(row, without) and row.confidence is not None,
            correct=bool(row.right),
            fingerprint=row.fingerprint,
        )
        for row in rows
        if row.right is not None
    ]


def sample_lines(rows: Iterable[Row], without: frozenset[str] = NOTHING, *, bound: bool) -> Iterator[dict[str, Any]]:
    """The lines that `calibrate --from` reads; `bound` keeps the fingerprint of each request's tools."""
    known = [row for row in rows if row.right is not None]
    for row, sample in zip(known, labelled(known, without), strict=True):
        line: dict[str, Any] = {
            "tool": sample.tool,
            "confidence": row.confidence,
            "verified": sample.verified,
            "correct": sample.correct,
        }
        yield {**line, "fingerprint": row.fingerprint} if bound else line
