"""A report as one page that needs nothing else: no script, no font, no picture from outside, light and dark.

Everything that came from requests is escaped, and the page's own policy forbids whatever escaping might miss: with
`POLICY` a browser runs no script and loads nothing, whether the page is a file or an answer.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Sequence

from needle_router.calibrate.curve import pairs
from needle_router.plots import STYLE as PLOT_STYLE
from needle_router.plots import Interval, columns_svg, intervals_svg, risk_coverage_svg
from needle_router.plots.style import escaped
from needle_router.report.model import DIMENSIONS, Rate, Report
from needle_router.report.notes import money, notes, share, span
from needle_router.report.style import PAGE_STYLE
from needle_router.report.tables import Table, tables

STYLE = f"{PLOT_STYLE}\n{PAGE_STYLE}"
_HASH = base64.b64encode(hashlib.sha256(STYLE.encode()).digest()).decode()
#: The content security policy of every page: this one style sheet and nothing else.
POLICY = f"default-src 'none'; style-src 'sha256-{_HASH}'; base-uri 'none'; form-action 'none'"
#: Rows of a plot; more would not be read.
PLOTTED_TOOLS = 12
PLOTTED_DAYS = 60
MAX_NAME = 80
#: Tables with more columns take the whole width of a page.
NARROW_COLUMNS = 4

#: A figure at the top: what it is, the figure, and what to know about it.
Card = tuple[str, str, str]


def page(report: Report, *, when: Callable[[float], str]) -> str:
    """A report as a whole document; `when` writes a moment."""
    period = f"{when(report.since_s)} to {when(report.until_s)}"
    return sheet("needle-router report", period, content(report))


def sheet(title: str, about: str, body: str) -> str:
    """A document with this title, a line below it, and markup."""
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">'
        f'<meta name="viewport" content="width=device-width, initial-scale=1">'
        f'<meta name="color-scheme" content="light dark"><meta name="referrer" content="no-referrer">'
        f"<title>{escaped(title)}</title><style>{STYLE}</style></head>"
        f"<body><main><header><h1>{escaped(title)}</h1><p>{escaped(about)}</p></header>{body}</main></body></html>\n"
    )


def content(report: Report) -> str:
    """The figures, the plots, what has to be said, and the tables."""
    if not report.total.requests:
        return notice("No request was recorded in this period.")
    told = "".join(f"<li>{escaped(note)}</li>" for note in notes(report))
    drawn = "".join(f"<figure>{plot}</figure>" for plot in plots(report))
    return (
        f"{cards(figures(report))}"
        f'<section class="plots">{drawn}</section>'
        f'<section class="notes"><h2>How to read this</h2><ul>{told}</ul></section>'
        f'<section class="tables">{"".join(table(one) for one in tables(report, DIMENSIONS))}</section>'
    )


def notice(text: str) -> str:
    """A sentence in the place of what cannot be shown."""
    return f'<p class="notes">{escaped(text)}</p>'


def figures(report: Report) -> list[Card]:
    """The figures at the top."""
    savings, total = report.savings, report.total
    overhead = report.latency["overhead"]
    return [
        (
            "Saved, net of what is known",
            money(savings.net_usd),
            f"{money(savings.low_usd)} to {money(savings.high_usd)} with the errors that may be",
        ),
        ("Answered here", share((total.local + total.merged) / total.requests), f"of {total.requests:,} requests"),
        ("Agreement in shadow", *agreement(report.agreement.shadow)),
        ("Agreement in audits", *agreement(report.agreement.audit)),
        ("Added by the router", span(overhead.p50_s), f"{span(overhead.p99_s)} at the 99th percentile"),
    ]


def agreement(rate: Rate) -> tuple[str, str]:
    """A rate and its interval, for a card."""
    if not rate.n:
        return "-", "nothing compared"
    return share(rate.share), f"{share(rate.low)} to {share(rate.high)}, {rate.n:,} compared"


def cards(found: Sequence[Card]) -> str:
    """Figures side by side."""
    shown = (
        f"<div><dt>{escaped(name)}</dt><dd><b>{escaped(value)}</b><span>{escaped(about)}</span></dd></div>"
        for name, value, about in found
    )
    return f'<dl class="cards">{"".join(shown)}</dl>'


def plots(report: Report) -> list[str]:
    """The plots for which there are data."""
    days = report.groups["day"][-PLOTTED_DAYS:]
    names = [day.key[5:] for day in days]
    routes = {
        "answered here": [day.local for day in days],
        "merged": [day.merged for day in days],
        "upstream": [day.upstream for day in days],
    }
    found = [columns_svg(names, routes, title="Requests by day", label="requests", standalone=False)]
    if report.savings.avoided.usd > 0:
        saved = {"avoided": [day.saved.usd for day in days]}
        found.append(
            columns_svg(names, saved, title="Avoided upstream cost by day", label="USD", show=dollars, standalone=False)
        )
    rows = [interval(name, rate) for name, rate in list(report.agreement.tools.items())[:PLOTTED_TOOLS]]
    if rows:
        found.append(
            intervals_svg(rows, title="Agreement with the upstream by tool", label="same calls", standalone=False)
        )
    if report.curve.points:
        label = "differs from the upstream, among answered"
        curve = {report.curve.source: pairs(report.curve.points)}
        found.append(risk_coverage_svg(curve, risk_label=label, standalone=False))
    return found


def dollars(value: float) -> str:
    """USD on an axis."""
    return f"${value:,.4g}"


def interval(name: str, rate: Rate) -> Interval:
    """A tool's row in the plot of agreement."""
    return Interval(name, rate.low, rate.share, rate.high, f"{rate.count:,} of {rate.n:,}")


def table(one: Table) -> str:
    """A table that scrolls by itself where the screen is narrow."""
    head = "".join(f'<th scope="col">{escaped(name)}</th>' for name in one.columns)
    rows = "".join(row(cells) for cells in one.rows)
    kind = "scroll wide" if len(one.columns) > NARROW_COLUMNS else "scroll"
    return (
        f'<div class="{kind}" tabindex="0" role="region" aria-label="{escaped(one.title)}"><table>'
        f"<caption>{escaped(one.title)}</caption><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table></div>"
    )


def row(cells: Sequence[str]) -> str:
    """One row; its first cell names it."""
    rest = "".join(f"<td>{escaped(cell)}</td>" for cell in cells[1:])
    return f'<tr><th scope="row">{escaped(cells[0], MAX_NAME)}</th>{rest}</tr>'
