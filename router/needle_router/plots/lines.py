"""Lines over two axes: curves of risk against coverage above all."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from needle_router.plots.frame import (
    BOTTOM,
    HEIGHT,
    LEFT,
    RIGHT,
    TOP,
    WIDTH,
    Axis,
    across,
    marks,
    percent,
    round_top,
    rule,
    rules,
    up,
    whole,
    words,
)
from needle_router.plots.style import number, series

Points = Sequence[tuple[float, float]]
LEGEND_LINE = 20.0
LEGEND_COLUMNS = 2


def risk_coverage_svg(
    curves: Mapping[str, Points],
    *,
    title: str = "Risk against coverage",
    risk_label: str = "wrong among answered",
    coverage_label: str = "answered here, of all decided",
    target: float | None = None,
    standalone: bool = True,
) -> str:
    """Curves of (coverage, risk) pairs, both from 0 to 1, by name; `target` draws a line at a wanted risk."""
    risks = [risk for points in curves.values() for _, risk in points]
    top = min(1.0, round_top(risks, least=max(0.05, (target or 0.0) * 1.2)))
    ends = [
        f"{name}: {percent(round(points[-1][1], 4))} at {percent(round(points[-1][0], 4))}"
        for name, points in curves.items()
        if points
    ]
    return lines_svg(
        curves,
        x=Axis(coverage_label),
        y=Axis(risk_label, high=top),
        title=title,
        description=f"{risk_label}, against {coverage_label}. " + ("; ".join(ends) or "No data.") + ".",
        target=target,
        standalone=standalone,
    )


def lines_svg(
    curves: Mapping[str, Points],
    *,
    x: Axis,
    y: Axis,
    title: str,
    description: str,
    target: float | None = None,
    standalone: bool = True,
) -> str:
    """One line a curve over the axes; values outside of an axis are drawn at its end."""
    drawn = [rules(y), marks(x), *(line(points, index, x, y) for index, points in enumerate(curves.values()))]
    if not any(curves.values()):
        drawn.append(words((LEFT + WIDTH - RIGHT) / 2, (TOP + HEIGHT - BOTTOM) / 2, "no data yet", anchor="middle"))
    if target is not None:
        drawn.append(goal(target, y))
    rows = legend(list(curves)) if len(curves) > 1 else []
    height = HEIGHT + LEGEND_LINE * ((len(rows) + LEGEND_COLUMNS - 1) // LEGEND_COLUMNS)
    return whole("".join((*drawn, *rows)), title=title, description=description, height=height, standalone=standalone)


def line(points: Points, index: int, x: Axis, y: Axis) -> str:
    """One curve; a single point is a dot."""
    places = [(number(across(x, one)), number(up(y, two))) for one, two in points]
    if len(places) == 1:
        return f'<circle class="f{series(index)}" cx="{places[0][0]}" cy="{places[0][1]}" r="4"/>'
    path = " ".join(f"{one},{two}" for one, two in places)
    return f'<polyline class="l{series(index)}" points="{path}"/>' if path else ""


def goal(value: float, y: Axis) -> str:
    """A dotted line at a wanted value."""
    place = up(y, value)
    return rule("goal", place) + words(WIDTH - RIGHT, place - 5, y.show(value), anchor="end", kind="soft")


def legend(names: Sequence[str]) -> list[str]:
    """What each line is, two to a row below the axes."""
    found = []
    for index, name in enumerate(names):
        left = LEFT + (index % LEGEND_COLUMNS) * (WIDTH - LEFT - RIGHT) / LEGEND_COLUMNS
        place = HEIGHT + LEGEND_LINE * (index // LEGEND_COLUMNS) + 6
        found.append(rule(f"l{series(index)}", place, left, left + 28) + words(left + 36, place + 4, name, limit=24))
    return found
