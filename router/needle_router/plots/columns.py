"""Columns side by side, each stacked of the same parts: requests a day by route, for instance."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from needle_router.plots.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    plain,
    round_top,
    rules,
    up,
    whole,
    words,
)
from needle_router.plots.lines import LEGEND_COLUMNS, LEGEND_LINE
from needle_router.plots.style import escaped, number, series

MAX_LABELS = 6
WIDEST = 56.0


def columns_svg(
    names: Sequence[str],
    parts: Mapping[str, Sequence[float]],
    *,
    title: str,
    label: str,
    show: Callable[[float], str] = plain,
    standalone: bool = True,
) -> str:
    """One column for each of `names`; `parts` holds a value, at least 0, for each of them by part."""
    sums = [sum(values) for values in zip(*parts.values(), strict=True)]
    y = Axis(label, high=round_top(sums, least=1e-6), show=show)
    drawn = [rules(y)]
    if not names:
        drawn.append(words((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2, "no data yet", anchor="middle"))
    room = (WIDTH - LEFT - RIGHT) / max(1, len(names))
    every = -(-len(names) // MAX_LABELS)
    for index, name in enumerate(names):
        middle = LEFT + room * (index + 0.5)
        values = {part: column[index] for part, column in parts.items()}
        drawn.append(stack(name, values, middle, min(WIDEST, room * 0.72), y))
        if index % every == 0:
            drawn.append(words(middle, HEIGHT - BOTTOM + 18, name, anchor="middle", kind="soft", limit=12))
    drawn += swatches(list(parts)) if len(parts) > 1 else []
    height = HEIGHT + LEGEND_LINE * (-(-len(parts) // LEGEND_COLUMNS) if len(parts) > 1 else 0) - 14
    told = "; ".join(f"{name}: {show(value)}" for name, value in zip(names, sums, strict=True))
    return whole(
        "".join(drawn), title=title, description=f"{label}. {told or 'No data'}.", height=height, standalone=standalone
    )


def stack(name: str, values: Mapping[str, float], middle: float, width: float, y: Axis) -> str:
    """One column, from the bottom up; a pointer over a part tells its value."""
    drawn, below = [], 0.0
    for index, (part, value) in enumerate(values.items()):
        low, high = up(y, below), up(y, below + value)
        below += value
        if value > 0:
            told = escaped(f"{name}, {part}: {y.show(value)}")
            drawn.append(
                f'<rect class="f{series(index)}" x="{number(middle - width / 2)}" y="{number(high)}" '
                f'width="{number(width)}" height="{number(low - high)}"><title>{told}</title></rect>'
            )
    return "".join(drawn)


def swatches(names: Sequence[str]) -> list[str]:
    """What each colour is."""
    found = []
    for index, name in enumerate(names):
        left = LEFT + (index % LEGEND_COLUMNS) * (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS
        place = HEIGHT - 10 + LEGEND_LINE * (index // LEGEND_COLUMNS)
        sample = f'<rect class="f{series(index)}" x="{number(left)}" y="{number(place - 4)}" width="12" height="12"/>'
        found.append(sample + words(left + 20, place + 7, name, limit=24))
    return found
