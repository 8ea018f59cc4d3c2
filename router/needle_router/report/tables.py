"""The tables of a report as rows of text, the same for a terminal and for a page."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from needle_router.calibrate.samples import ALL_TOOLS
from needle_router.report.model import Amount, Group, Latency, Rate, Report
from needle_router.report.notes import money, share, span, sure

#: What comes of audits without a comparison.
LOST = ("unread", "failed", "timeout", "dropped")
#: Of a table by something, so many rows are shown before the rest.
SHOWN = 12


@dataclass(frozen=True, slots=True)
class Table:
    """A title, names of columns and rows of as many texts; the first column is text, the others are numbers."""

    title: str
    columns: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]


def tables(report: Report, by: Iterable[str]) -> list[Table]:
    """The tables that have a row, the balance first."""
    found = [
        balance(report),
        routes(report),
        agreement(report),
        kinds(report),
        thresholds(report),
        certificates(report),
        latency(report),
        failures(report),
        *(grouped(report, name) for name in by),
    ]
    return [table for table in found if table.rows]


def balance(report: Report) -> Table:
    """From what was avoided to what is left."""
    savings, wrong = report.savings, report.savings.wrong
    each = f"{money(savings.penalty_usd)} each" if savings.penalty_usd else "at no price"
    estimate = "no audits" if savings.estimate_usd is None else money(savings.estimate_usd)
    rows = (
        ("avoided upstream cost", amount(savings.avoided)),
        ("audits", amount(savings.audits, taken=True)),
        ("cancelled races", amount(savings.races, taken=True)),
        (f"answers found wrong: {wrong.count}, {each}", money(-savings.penalty_usd * wrong.count)),
        ("net of what is known", money(savings.net_usd)),
        ("net if the others are wrong as often as the audited", estimate),
        (f"its {sure(report.confidence)} interval", f"{money(savings.low_usd)} to {money(savings.high_usd)}"),
    )
    return Table("Savings", ("", "USD"), rows if report.total.requests else ())


def amount(value: Amount, *, taken: bool = False) -> str:
    """A sum, negative when it is taken off, with how many unknown ones are missing."""
    text = money(-value.usd if taken else value.usd)
    return f"{text} + {value.unknown} unknown" if value.unknown else text


def routes(report: Report) -> Table:
    """Who answered."""
    total = report.total
    names = {"local": "answered here", "merged": "merged", "upstream": "upstream", "refused": "refused"}
    counts = [(text, getattr(total, name)) for name, text in names.items()]
    counts += [("failed, of all these", total.failed)]
    rows = [(text, f"{count:,}", share(count / total.requests)) for text, count in counts if total.requests]
    return Table("Requests", ("", "requests", "share"), tuple(rows))


def rate_cells(value: Rate) -> tuple[str, str, str]:
    """Count, share and interval."""
    if not value.n:
        return "0", "-", "-"
    return f"{value.count:,} of {value.n:,}", share(value.share), f"{share(value.low)} to {share(value.high)}"


def agreement(report: Report) -> Table:
    """Engine against upstream, overall and for each tool."""
    found = report.agreement
    rows = [("shadow: passed every check", found.shadow), ("audits: answered here", found.audit)]
    rows += [(f"tool {name}", value) for name, value in found.tools.items()]
    shown = [(name, *rate_cells(value)) for name, value in rows if value.n]
    return Table(
        "Agreement with the upstream", ("", "agreed", "share", f"{sure(report.confidence)} interval"), tuple(shown)
    )


def kinds(report: Report) -> Table:
    """How the calls of both compare."""
    rows = [(name, f"{passed:,}", f"{stopped:,}") for name, (passed, stopped) in report.agreement.kinds.items()]
    rows += [(f"audit {name}", f"{count:,}", "") for name, count in report.agreement.audits.items() if name in LOST]
    return Table("Comparisons", ("", "passed every check", "stopped by a check"), tuple(rows))


def thresholds(report: Report) -> Table:
    """What would be answered at a threshold."""
    rows = [
        (
            f"{cut.threshold:g}",
            share(cut.coverage),
            *rate_cells(cut.wrong),
            amount(cut.cost),
        )
        for cut in report.curve.cuts
    ]
    columns = ("threshold", "answered", "wrong", "share", f"{sure(report.confidence)} interval", "upstream's price")
    return Table("Risk and coverage by threshold", columns, tuple(rows))


def certificates(report: Report) -> Table:
    """What was certified, and what was seen of it."""
    columns = ("tool", "fingerprint", "threshold", "promised", "certified on", "engine runs", "wrong since", "interval")
    rows = [
        (
            "all tools" if one.tool == ALL_TOOLS else one.tool,
            one.fingerprint,
            f"{one.threshold:g}",
            "-" if one.max_error is None else share(one.max_error),
            f"{one.errors:,} of {one.n:,} wrong",
            f"{one.decided:,}" if one.decided else "not met",
            *rate_cells(one.wrong)[::2],
        )
        for one in report.certificates
    ]
    return Table("Certificates", columns, tuple(rows))


SPANS: Mapping[str, str] = {
    "engine": "engine",
    "queue": "waiting for the engine",
    "overhead": "added by the router",
    "local": "whole local answer",
    "merged": "whole merged answer",
    "upstream": "whole upstream answer",
}


def latency(report: Report) -> Table:
    """Percentiles."""
    rows = [(text, *times(report.latency[name])) for name, text in SPANS.items() if name in report.latency]
    return Table("Times", ("", "n", "p50", "p90", "p95", "p99", "max"), tuple(rows))


def times(value: Latency) -> tuple[str, ...]:
    """Count and percentiles."""
    found = (value.p50_s, value.p90_s, value.p95_s, value.p99_s, value.max_s)
    return (f"{value.n:,}", *(span(seconds) for seconds in found))


def failures(report: Report) -> Table:
    """Why the engine's answer was not used, among its runs."""
    rows = [(name, f"{count:,}", share(count / report.engine_runs)) for name, count in report.failures.items()]
    return Table(f"What stopped the engine, of {report.engine_runs:,} runs", ("", "runs", "share"), tuple(rows))


#: Column of a table of groups -> how a group fills it.
CELLS: Mapping[str, Callable[[Group], str]] = {
    "requests": lambda row: f"{row.requests:,}",
    "here": lambda row: f"{row.local:,}",
    "merged": lambda row: f"{row.merged:,}",
    "upstream": lambda row: f"{row.upstream:,}",
    "refused": lambda row: f"{row.refused:,}",
    "failed": lambda row: f"{row.failed:,}",
    "avoided": lambda row: amount(row.saved),
    "upstream cost": lambda row: amount(row.cost),
    "agreed": lambda row: f"{row.agreed:,} of {row.compared:,}" if row.compared else "-",
}
#: Columns that are left out where they are 0 in every row.
SELDOM = frozenset(("merged", "refused", "failed"))


def grouped(report: Report, dimension: str, shown: int = SHOWN) -> Table:
    """The groups of one dimension; of days the last ones."""
    rows = report.groups[dimension]
    kept = rows[-shown:] if dimension == "day" else rows[:shown]
    columns = {name: [cell(row) for row in kept] for name, cell in CELLS.items()}
    columns = {name: cells for name, cells in columns.items() if name not in SELDOM or set(cells) != {"0"}}
    title = f"By {dimension}" if len(kept) == len(rows) else f"By {dimension}, {len(kept)} of {len(rows)}"
    names = [named(row) for row in kept]
    return Table(title, (dimension, *columns), tuple(zip(names, *columns.values(), strict=True)))


def named(row: Group) -> str:
    """The key of a group, in words where it is none."""
    return f"{row.others} others" if row.others else row.key or "none"
