"""What a running router says of itself, as the upper half of its dashboard."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from needle_router.plots.style import escaped
from needle_router.report.notes import money, share
from needle_router.report.page import Card, cards, table
from needle_router.report.tables import Table


def live(status: Mapping[str, Any], *, running_s: float) -> str:
    """Markup of state, totals, reasons and canary since the start; `status` is the document of /-/status.json."""
    shown = "".join(f"<li>{escaped(state)}</li>" for state in states(status))
    tables = (reasons(status["reasons"]), canary(status["canary"]["tools"]))
    return (
        f'<ul class="states">{shown}</ul><h2>Since the start, {age(running_s)} ago</h2>'
        f"{cards(figures(status['totals']))}"
        f'<section class="tables">{"".join(table(one) for one in tables if one.rows)}</section>'
    )


def reasons(counts: Mapping[str, int]) -> Table:
    """How often each reason decided."""
    requests = sum(counts.values())
    rows = tuple((slug, f"{count:,}", share(count / requests)) for slug, count in counts.items())
    return Table("Why, since the start", ("reason", "requests", "share"), rows)


def canary(trials: Sequence[Mapping[str, Any]]) -> Table:
    """How the tools under trial stand."""
    rows = tuple(
        (
            trial["tool"],
            trial["fingerprint"],
            f"{trial['step']} of {trial['steps']}" if trial["steps"] else "-",
            "-" if trial["share"] is None else share(trial["share"]),
            f"{trial['wrong']:,} of {trial['compared']:,}",
            "alarm" if trial["alarm"] else "-",
        )
        for trial in trials
    )
    return Table("Canary", ("tool", "fingerprint", "step", "answered here", "wrong", "alarm"), rows)


def states(parts: Mapping[str, Any]) -> list[str]:
    """One line each for mode, engine, upstream and ledger."""
    engine, ledger = parts["engine"], parts["ledger"]
    return [
        f"version {parts['version']}",
        f"mode {parts['mode']}",
        f"engine {engine['state']}: {engine['backend']} {engine['model']}",
        f"{engine['workers']} engine processes, {engine['queue_depth']} waiting, {engine['restarts']} restarts",
        f"upstream {parts['upstream']['state']}",
        f"ledger {ledger['state']}, {ledger['dropped']} records dropped",
    ]


def figures(totals: Mapping[str, Any]) -> list[Card]:
    """The totals as cards."""
    saved, upstream, wasted, audits = (totals[name] for name in ("saved", "upstream", "wasted", "audits"))
    refused = totals["refused"]["requests"]
    tokens = saved["prompt_tokens"] + saved["completion_tokens"]
    return [
        ("Answered here", f"{totals['local']['requests']:,}", f"and {totals['merged']['requests']:,} merged"),
        ("Upstream", f"{upstream['requests']:,}", f"{upstream['errors']:,} errors, {refused:,} refused by a budget"),
        ("Avoided upstream cost", money(saved["cost_usd"]), unknown(saved["cost_unknown"], f"{tokens:,} tokens")),
        ("Upstream cost", money(upstream["cost_usd"]), unknown(upstream["cost_unknown"] + upstream["usage_unknown"])),
        (
            "Cancelled races",
            money(wasted["cost_usd"]),
            unknown(wasted["cost_unknown"], f"{wasted['requests']:,} calls"),
        ),
        ("Audits", money(audits["cost_usd"]), unknown(audits["cost_unknown"], f"{audits['compared']:,} compared")),
    ]


def unknown(count: int, text: str = "") -> str:
    """What stands below a sum: `text`, and how many amounts are missing."""
    missing = f"{count:,} of unknown cost" if count else ""
    return ", ".join(part for part in (text, missing) if part)


def age(seconds: float) -> str:
    """A span in the largest unit that fits."""
    units = ((86_400, "day"), (3600, "hour"), (60, "minute"), (1, "second"))
    size, name = next(((size, name) for size, name in units if seconds >= size), (1, "second"))
    count = int(seconds // size)
    return f"{count} {name}{'' if count == 1 else 's'}"
