"""Colours and text of all plots, and how text from outside gets into markup."""

from __future__ import annotations

import html

#: Colour on light, colour on dark, dashes. Each keeps a contrast of 3:1 or more on its background, and a line is never
#: told by its colour alone.
SERIES = (
    ("#1f6fd1", "#6aa9f4", ""),
    ("#c2571a", "#f0965a", "7 3"),
    ("#2b8a57", "#5cc48d", "2 3"),
    ("#8a4fc4", "#c093f0", "10 3 2 3"),
    ("#a3304d", "#ef8098", "5 5"),
    ("#6b6b1d", "#c9c964", "1 4"),
)
LIGHT = {"ink": "#1c2430", "soft": "#5b6675", "rule": "#d9dee5", "page": "#ffffff"}
DARK = {"ink": "#e6eaf0", "soft": "#9aa5b4", "rule": "#323b48", "page": "#12161c"}
RULES = """
.plot{display:block;width:100%;height:auto;font:13px system-ui,-apple-system,"Segoe UI",sans-serif}
.plot text{fill:var(--ink)}.plot .soft{fill:var(--soft)}.plot .head{font-weight:600}.plot .page{fill:var(--page)}
.plot .rule{stroke:var(--rule);stroke-width:1}.plot .base{stroke:var(--soft);stroke-width:1}
.plot .goal{stroke:var(--soft);stroke-width:1.5;stroke-dasharray:2 4}
""".strip()


def _colours(scheme: int, plain: dict[str, str]) -> str:
    series = {f"s{index}": entry[scheme] for index, entry in enumerate(SERIES)}
    return ".plot{" + ";".join(f"--{name}:{colour}" for name, colour in {**plain, **series}.items()) + "}"


def _series(index: int, dashes: str) -> str:
    dashed = f";stroke-dasharray:{dashes}" if dashes else ""
    line = f"fill:none;stroke-width:2;stroke-linejoin:round;stroke:var(--s{index}){dashed}"
    return f".plot .l{index}{{{line}}}.plot .f{index}{{fill:var(--s{index})}}"


#: The style sheet of every plot: follows the reader's wish for light or dark.
STYLE = "\n".join(
    (
        _colours(0, LIGHT),
        f"@media (prefers-color-scheme:dark){{{_colours(1, DARK)}}}",
        RULES,
        *(_series(index, dashes) for index, (_, _, dashes) in enumerate(SERIES)),
    )
)


def escaped(text: str, limit: int = 0) -> str:
    """`text` as markup shows it; what no document may hold becomes U+FFFD, more than `limit` characters an ellipsis."""
    if limit and len(text) > limit:
        text = text[: limit - 1] + "…"
    return html.escape("".join(char if char.isprintable() else "\ufffd" for char in text))


def number(value: float) -> str:
    """A coordinate, to a tenth of a unit."""
    return f"{value:.1f}".removesuffix(".0")


def series(index: int) -> int:
    """The place of a series among the colours; the seventh begins again."""
    return index % len(SERIES)
