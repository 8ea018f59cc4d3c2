"""How the demo is shown: a rich table on a terminal, plain aligned columns elsewhere."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needle_router._version import __version__
from needle_router.cli.banner import upstream
from needle_router.config.schema import Config

COLUMNS = ("turn", "request", "route", "reason", "score", "ms", "answer")
#: Columns that may be cut to fit.
FLEXIBLE = frozenset({"turn", "request", "answer"})
TEXT_WIDTH = 44
WIDE_COLUMNS = 120
STYLES = {"local": "green", "merged": "yellow", "upstream": "cyan"}


@dataclass(frozen=True, slots=True)
class Row:
    """One turn and what became of it."""

    shows: str
    text: str
    route: str
    reason: str
    confidence: str
    waited_ms: float
    outcome: str

    def cells(self) -> tuple[str, ...]:
        """As text, in the order of `COLUMNS`."""
        score = f"{float(self.confidence):.2f}" if self.confidence else "-"
        request, answer = cut(self.text), cut(self.outcome)
        return (self.shows, request, self.route, self.reason, score, f"{self.waited_ms:.1f}", answer)


def cut(text: str) -> str:
    """At most `TEXT_WIDTH` characters."""
    return text if len(text) <= TEXT_WIDTH else text[: TEXT_WIDTH - 3] + "..."


def heading(url: str, config: Config) -> Iterator[str]:
    """What is about to run."""
    yield f"needle-router {__version__} demo: router on {url}, canned upstream at {upstream(config).split()[0]}"
    yield "The model is a demo model with five tools, ten rooms and twelve cities: not Needle's quality."
    yield ""


def table(rows: Sequence[Row]) -> Iterator[str]:
    """The lines of the table."""
    if sys.stdout.isatty():
        yield _rich(rows)
        return
    cells = [COLUMNS, *(row.cells() for row in rows)]
    widths = [max(len(line[index]) for line in cells) for index in range(len(COLUMNS))]
    for line in cells:
        yield "  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip()


def _rich(rows: Sequence[Row]) -> str:
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    # The answer is what a narrow terminal can do without.
    columns = COLUMNS if console.width >= WIDE_COLUMNS else COLUMNS[:-1]
    shown = Table()
    for index, name in enumerate(columns):
        longest = max(len(name), *(len(row.cells()[index]) for row in rows))
        shown.add_column(name, no_wrap=True, min_width=None if name in FLEXIBLE else longest)
    for row in rows:
        cells = [Text(cell) for cell in row.cells()[: len(columns)]]
        cells[COLUMNS.index("route")].stylize(STYLES.get(row.route, ""))
        shown.add_row(*cells)
    with console.capture() as capture:
        console.print(shown)
    return capture.get().rstrip("\n")


def closing(totals: Mapping[str, Any], rows: Sequence[Row]) -> Iterator[str]:
    """What was saved, as the router counted it."""
    saved, paid = totals["saved"], totals["upstream"]
    routes = {route: sum(row.route == route for row in rows) for route in STYLES}
    tokens = saved["prompt_tokens"] + saved["completion_tokens"]
    yield ""
    yield f"{len(rows)} turns: " + ", ".join(f"{count} {route}" for route, count in routes.items())
    yield f"saved: {tokens} tokens, {saved['cost_usd']:.6f} USD (at the demo's price of 2.50 / 10.00 USD per million)"
    yield (
        f"paid to the upstream: {paid['prompt_tokens'] + paid['completion_tokens']} tokens, {paid['cost_usd']:.6f} USD"
    )
    yield "Demo model: these scores and times say nothing about Needle itself."
