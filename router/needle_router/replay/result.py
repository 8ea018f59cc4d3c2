"""The result of a replay: what was asked, under which conditions, and a row for each request that was reached."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from needle_router.calibrate.certify import Certificate, document
from needle_router.calibrate.samples import Labelled, Sample
from needle_router.replay.ablation import Ablated
from needle_router.replay.rows import NOTHING, Count, Row, by_category, count, labelled, share

#: Where the table of risk against coverage is cut; the plot has every score.
THRESHOLDS = (0.0, 0.3, 0.5, 0.6, 0.7, 0.8, 0.9, 0.95, 0.98)
FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Result:
    """`total` requests were asked for and `rows` came of it: fewer when it was interrupted. `today` is an ISO date.

    `lines` are those of the ablation at `threshold`, and `certificate` what a wanted error led to; both may be missing.
    """

    source: str
    backend: str
    model: str
    today: str
    total: int
    rows: Sequence[Row]
    without: frozenset[str] = NOTHING
    threshold: float = 0.0
    lines: Sequence[Ablated] = ()
    certificate: Certificate | None = None

    @property
    def interrupted(self) -> bool:
        """Whether some requests were not reached."""
        return len(self.rows) < self.total

    @property
    def labelled(self) -> list[Labelled]:
        """The rows whose right answer is known, for calibration."""
        return labelled(self.rows, self.without)


@dataclass(frozen=True, slots=True)
class Cut:
    """What would be answered at a threshold: `coverage` of the labelled requests, `error` of the answered ones."""

    threshold: float
    answered: int
    wrong: int
    coverage: float | None
    error: float | None


def cuts(decisions: Sequence[Labelled], thresholds: Sequence[float] = THRESHOLDS) -> list[Cut]:
    """Risk against coverage at some thresholds."""
    sample = Sample(decisions)
    found = []
    for threshold in thresholds:
        n, errors = sample.cut(threshold)
        found.append(Cut(threshold, n, errors, share(n, sample.total), share(errors, n)))
    return found


def as_json(result: Result) -> dict[str, Any]:
    """The result as plain values; docs/replay.md names the keys."""
    decisions = result.labelled
    shown: dict[str, Any] = {
        "version": FORMAT_VERSION,
        "source": result.source,
        "engine": {"backend": result.backend, "model": result.model},
        "today": result.today,
        "total": result.total,
        "interrupted": result.interrupted,
        "without": sorted(result.without),
        "all": _counted(count(result.rows)),
        "categories": {name: _counted(found) for name, found in by_category(result.rows).items()},
        "risk_coverage": [asdict(cut) for cut in cuts(decisions)] if decisions else [],
    }
    if result.lines:
        shown["ablation"] = {"threshold": result.threshold, "lines": [_line(line) for line in result.lines]}
    if result.certificate is not None:
        certificate = result.certificate
        shown["certificate"] = document([certificate], alpha=certificate.alpha, delta=certificate.delta)
    return shown


def _counted(found: Count) -> dict[str, Any]:
    return {**asdict(found), "accuracy": found.accuracy, "engine_accuracy": found.engine_accuracy}


def _line(line: Ablated) -> Mapping[str, Any]:
    shares = {
        "coverage": share(line.answered, line.total),
        "error": share(line.wrong, line.answered),
        "coverage_at": share(line.answered_at, line.total),
        "error_at": share(line.wrong_at, line.answered_at),
    }
    return {**asdict(line), **shares}
