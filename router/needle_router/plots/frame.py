"""Axes: from values to places, with ticks at round numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from needle_router.plots.style import STYLE, escaped, number

WIDTH, HEIGHT = 480.0, 300.0
LEFT, RIGHT, TOP, BOTTOM = 58.0, 24.0, 52.0, 46.0
#: Ticks at 1, 2 or 5 times a power of ten are the ones that people read without counting.
ROUND = (1, 2, 5, 10)


def percent(value: float) -> str:
    """0.05 as "5 %"."""
    return f"{value * 100:.4g} %"


def plain(value: float) -> str:
    """A count or an amount, short."""
    return f"{value:,.6g}"


@dataclass(frozen=True, slots=True)
class Axis:
    """One axis from `low` to `high`; `show` writes a tick."""

    label: str
    low: float = 0.0
    high: float = 1.0
    show: Callable[[float], str] = percent

    def ticks(self, wanted: int = 5) -> tuple[float, ...]:
        """About `wanted` round values on the axis."""
        step = round_step((self.high - self.low) / wanted)
        first = math.ceil(self.low / step - 1e-9)
        last = math.floor(self.high / step + 1e-9)
        return tuple(index * step for index in range(first, last + 1))

    def share(self, value: float) -> float:
        """Where `value` lies between low (0) and high (1); outside of them at the nearer end."""
        return min(1.0, max(0.0, (value - self.low) / (self.high - self.low)))


def round_step(least: float) -> float:
    """The smallest round number of at least `least`, above 0."""
    power = 10.0 ** math.floor(math.log10(least))
    return next(factor * power for factor in ROUND if factor * power >= least * (1 - 1e-9))


def round_top(values: Sequence[float], *, least: float) -> float:
    """A round end for an axis that holds all `values`, and `least` at least."""
    top = max((*values, least))
    step = round_step(top / 5)
    return math.ceil(top / step - 1e-9) * step


def across(axis: Axis, value: float) -> float:
    """The horizontal place of a value."""
    return LEFT + axis.share(value) * (WIDTH - LEFT - RIGHT)


def up(axis: Axis, value: float) -> float:
    """The vertical place of a value."""
    return HEIGHT - BOTTOM - axis.share(value) * (HEIGHT - TOP - BOTTOM)


def rule(kind: str, y: float, left: float = LEFT, right: float = WIDTH - RIGHT) -> str:
    """A level line."""
    return f'<line class="{kind}" x1="{number(left)}" x2="{number(right)}" y1="{number(y)}" y2="{number(y)}"/>'


def rules(y: Axis) -> str:
    """Level lines with their values, and the name of the axis."""
    parts = []
    for tick in y.ticks():
        parts.append(rule("base" if tick == y.low else "rule", up(y, tick)))
        parts.append(words(LEFT - 8, up(y, tick) + 4, y.show(tick), anchor="end", kind="soft"))
    return "".join(parts) + words(4, TOP - 14, y.label, kind="soft")


def marks(x: Axis) -> str:
    """The values below, and the name of the axis."""
    low = HEIGHT - BOTTOM
    ticks = [words(across(x, tick), low + 18, x.show(tick), anchor="middle", kind="soft") for tick in x.ticks()]
    return "".join(ticks) + words(WIDTH - RIGHT, HEIGHT - 8, x.label, anchor="end", kind="soft")


def words(x: float, y: float, text: str, *, anchor: str = "start", kind: str = "", limit: int = 60) -> str:
    """A text at a place."""
    named = f' class="{kind}"' if kind else ""
    turned = f' text-anchor="{anchor}"' if anchor != "start" else ""
    return f'<text x="{number(x)}" y="{number(y)}"{turned}{named}>{escaped(text, limit)}</text>'


def whole(content: str, *, title: str, description: str, height: float = HEIGHT, standalone: bool) -> str:
    """The `<svg>` element, named and described for readers who do not see it."""
    width, tall = number(WIDTH), number(height)
    own = f'<style>{STYLE}</style><rect class="page" width="{width}" height="{tall}"/>' if standalone else ""
    # A file of its own needs the namespace; in a page it does no harm.
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" class="plot" role="img" viewBox="0 0 {width} {tall}">'
        f"<title>{escaped(title)}</title><desc>{escaped(description)}</desc>{own}"
        f"{words(4, 20, title, kind='head')}{content}</svg>"
    )
