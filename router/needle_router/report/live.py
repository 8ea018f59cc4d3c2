"""What a running router says of itself, as the upper half of its dashboard."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from needle_router.plots.style import escaped
from needle_router.report.notes import money
from needle_router.report.page import Card, cards, table
from needle_router.report.tables import Table


def live(parts: Mapping[str, Any], totals: Mapping[str, Any], reasons: Mapping[str, int], *, running_s: float) -> str:
    """Markup of the state, the totals and the reasons since the start; the values are those of /-/status.json."""
    shown = "".join(f"<li>{escaped(state)}</li>" for state in states(parts))
    requests = sum(totals[route]["requests"] for route in ("local", "merged", "upstream", "refused"))
    rows = tuple((slug, f"{count:,}", f"{count / requests * 100:.1f} %") for slug, count in reasons.items() if requests)
    decided = table(Table("Why, since the start", ("reason", "requests", "share"), rows)) if rows else ""
    return (
        f'<ul class="states">{shown}</ul><h2>Since the start, {age(running_s)} ago</h2>'
        f'{cards(figures(totals))}<section class="tables">{decided}</section>'
    )


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
