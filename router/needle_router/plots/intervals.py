"""Shares with what is certain about them: one row each, a dot and the interval around it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from needle_router.plots.frame import RIGHT, WIDTH, Axis, percent, rule, whole, words
from needle_router.plots.style import escaped, number

ROW = 26.0
HEAD = 40.0
NAMES = 150.0
COUNTS = 84.0


@dataclass(frozen=True, slots=True)
class Interval:
    """A share from 0 to 1 between its bounds; `note` stands at the end of the row."""

    name: str
    low: float
    value: float
    high: float
    note: str = ""


def intervals_svg(rows: Sequence[Interval], *, title: str, label: str, standalone: bool = True) -> str:
    """One row each, over an axis from 0 to 100 %."""
    axis = Axis(label)
    height = HEAD + ROW * max(1, len(rows)) + 46
    bottom = height - 40
    drawn = []
    for tick in axis.ticks(4):
        place = number(across(axis, tick))
        drawn.append(f'<line class="rule" x1="{place}" x2="{place}" y1="{number(HEAD)}" y2="{number(bottom)}"/>')
        drawn.append(words(across(axis, tick), bottom + 16, percent(tick), anchor="middle", kind="soft"))
    drawn += [row_of(row, HEAD + ROW * (index + 0.5), axis) for index, row in enumerate(rows)]
    drawn.append(words(across(axis, 1.0), bottom + 36, label, anchor="end", kind="soft"))
    told = "; ".join(f"{row.name}: {told_of(row)}" for row in rows)
    return whole(
        "".join(drawn), title=title, description=f"{label}. {told or 'No data'}.", height=height, standalone=standalone
    )


def across(axis: Axis, value: float) -> float:
    """The horizontal place of a share, between the names and the notes."""
    return NAMES + axis.share(value) * (WIDTH - RIGHT - NAMES - COUNTS)


def told_of(row: Interval) -> str:
    """A row in words."""
    return f"{row.value:.1%}, between {row.low:.1%} and {row.high:.1%} {row.note}".rstrip()


def row_of(row: Interval, y: float, axis: Axis) -> str:
    """Name, interval, dot and note."""
    low, value, high = (across(axis, share) for share in (row.low, row.value, row.high))
    dot = f'<circle class="f0" cx="{number(value)}" cy="{number(y)}" r="5"/>'
    return (
        words(NAMES - 12, y + 4, row.name, anchor="end", limit=21)
        + f"<g><title>{escaped(told_of(row))}</title>{rule('l0', y, low, high)}{dot}</g>"
        + words(WIDTH - RIGHT, y + 4, row.note, anchor="end", kind="soft", limit=16)
    )
