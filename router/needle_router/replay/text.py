"""A result as text: aligned columns, figures that can be added up, and the words of calibration."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from needle_router.calibrate.certify import sentence
from needle_router.replay.ablation import different
from needle_router.replay.result import Result, cuts
from needle_router.replay.rows import Count, by_category, count, share

COUNTED = ("category", "requests", "answered", "right", "wrong", "needless", "merged", "refused", "accuracy", "engine")
NO_LABELS = "no request says what is expected, so nothing can be said about right and wrong"
MAX_REASONS = 8


def lines(result: Result) -> Iterator[str]:
    """All of it."""
    yield heading(result)
    yield ""
    yield from categories(result)
    decisions = result.labelled
    if not decisions:
        yield from ("", NO_LABELS) if result.rows else ()
        return
    yield ""
    yield f"risk against coverage, {len(decisions)} requests whose right answer is known, every check passed:"
    table = [(f"{cut.threshold:g}", str(cut.answered), str(cut.wrong), percent(cut.coverage), percent(cut.error))
             for cut in cuts(decisions)]  # fmt: skip
    yield from columns([("threshold", "answered", "wrong", "coverage", "error"), *table])
    if result.lines:
        yield ""
        yield from ablation(result)
    if result.certificate is not None:
        alpha, delta = result.certificate.alpha, result.certificate.delta
        yield ""
        yield f"promise: at most {alpha:.4g} of the answered calls are wrong, with probability {1 - delta:.4g}"
        yield sentence(result.certificate)


def heading(result: Result) -> str:
    """What was replayed, and with what."""
    left_out = f", without {', '.join(sorted(result.without))}" if result.without else ""
    stopped = f", interrupted after {len(result.rows)}" if result.interrupted else ""
    requests = "request" if result.total == 1 else "requests"
    engine = f"{result.backend} {result.model.rpartition('/')[2]}"
    return f"{result.source}: {result.total} {requests}{stopped}, engine {engine}, day {result.today}{left_out}"


def categories(result: Result) -> Iterator[str]:
    """A line for each category and one for all, then the most frequent reasons."""
    groups = by_category(result.rows)
    whole = count(result.rows)
    rows = [counted(name, found) for name, found in groups.items()]
    yield from columns([COUNTED, *rows, *([counted("all", whole)] if len(groups) > 1 else [])])
    reasons = list(whole.reasons.items())
    rest = len(reasons) - MAX_REASONS
    more = f", {rest} more" if rest > 0 else ""
    yield "reasons: " + ", ".join(f"{reason} {number}" for reason, number in reasons[:MAX_REASONS]) + more


def counted(name: str, found: Count) -> tuple[str, ...]:
    """A line of the first table."""
    numbers = (found.cases, found.answered, found.right, found.wrong, found.needless, found.merged, found.refused)
    return name, *map(str, numbers), percent(found.accuracy), percent(found.engine_accuracy)


def ablation(result: Result) -> Iterator[str]:
    """What each check does, those that held nothing back left out."""
    threshold = f"{result.threshold:g}"
    yield f'checks left out, at any score and at {threshold}; "held back" counts calls that only they stopped:'
    head = ("", "coverage", "error", f"at {threshold}", "error", "held back wrong", "right")
    table = [
        (
            line.left_out,
            percent(share(line.answered, line.total)),
            percent(share(line.wrong, line.answered)),
            percent(share(line.answered_at, line.total)),
            percent(share(line.wrong_at, line.answered_at)),
            str(line.stopped_wrong),
            str(line.stopped_right),
        )
        for line in different(result.lines)
    ]
    yield from columns([head, *table])


def percent(value: float | None) -> str:
    """0.051 as "5.1 %", a dash for nothing."""
    return "-" if value is None else f"{value * 100:.1f} %"


def columns(table: Sequence[Sequence[str]]) -> Iterator[str]:
    """Aligned columns, the first to the left and the others, figures, to the right."""
    widths = [max(len(line[index]) for line in table) for index in range(len(table[0]))]
    for line in table:
        first, *rest = (cell.rjust(width) for cell, width in zip(line, widths, strict=True))
        yield "  ".join((line[0].ljust(len(first)), *rest)).rstrip()
