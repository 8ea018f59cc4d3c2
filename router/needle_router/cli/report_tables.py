"""A report in a terminal: tables with colour where there is a terminal, the same words without where there is none."""

from __future__ import annotations

import os
from typing import TextIO

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table as Grid
from rich.text import Text

from needle_router.cli.logs import printable
from needle_router.report.model import Report
from needle_router.report.notes import notes
from needle_router.report.tables import Table, tables

#: Where nothing says how wide the reader is, wide enough for every table.
PIPED_COLUMNS = 160
DEFAULT_BY = ("tool", "model", "reason", "day")


def write(report: Report, out: TextIO, *, title: str, by: str | None) -> None:
    """Every table that has a row, or with `by` the balance and that one; then what has to be said."""
    piped = not out.isatty()
    width = None if not piped or os.environ.get("COLUMNS") else PIPED_COLUMNS
    console = Console(file=out, width=width, highlight=False, markup=False, emoji=False, no_color=piped or None)
    console.print(Text(title, "bold"), soft_wrap=True)
    if not report.total.requests:
        console.print("no request was recorded in this period", soft_wrap=True)
        return
    found = tables(report, DEFAULT_BY if by is None else (by,))
    for table in found if by is None else (found[0], found[-1]):
        console.print()
        console.print(Text(table.title, "bold"), soft_wrap=True)
        console.print(grid(table, plain=piped))
    console.print()
    for note in notes(report):
        console.print(Text(note), soft_wrap=piped)


def grid(table: Table, *, plain: bool) -> Grid:
    """A table as rich draws it; what came from requests is text, never markup or an escape sequence."""
    found = Grid(box=None if plain else SIMPLE_HEAD, pad_edge=False)
    for index, name in enumerate(table.columns):
        found.add_column(name, justify="right" if index else "left", overflow="fold")
    for row in table.rows:
        found.add_row(*(Text(printable(cell)) for cell in row))
    return found
