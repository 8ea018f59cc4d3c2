"""From sums to a report."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import accumulate
from typing import Any

from needle_router.calibrate.binomial import interval
from needle_router.calibrate.curve import risk_coverage
from needle_router.calibrate.samples import Labelled, Sample
from needle_router.report.certificates import states
from needle_router.report.model import (
    CONFIDENCE,
    DIMENSIONS,
    Agreement,
    Amount,
    Curve,
    Cut,
    Group,
    Latency,
    Rate,
    Report,
)
from needle_router.report.savings import Audited, savings
from needle_router.report.tally import Cell, Key, Tally

#: Rows of a table; what is left is taken together. Names come from requests, and there may be any number of them.
MAX_GROUPS = 50
MAX_DAYS = 400
THRESHOLDS = (0.99, 0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.0)
ALONE = frozenset(("local-model", "no-upstream"))
KEYS: Mapping[str, Callable[[Key], str]] = {
    "tool": lambda key: key.tool,
    "model": lambda key: key.model,
    "reason": lambda key: key.reason,
    "day": lambda key: key.day,
    "policy": lambda key: key.policy,
}


def summary(tally: Tally, *, penalty_usd: float = 0.0, certificates: Iterable[Mapping[str, Any]] = ()) -> Report:
    """The report on everything that `tally` took; `certificates` are contents of certificate files."""
    cells = tally.cells()
    total = group_of("", cells)
    agreement = agreement_of(cells)
    return Report(
        since_s=tally.since_s,
        until_s=tally.until_s,
        total=total,
        unread=sum(cell.requests for key, cell in cells if key.reason == "not-chat"),
        groups={name: groups(name, cells) for name in DIMENSIONS},
        latency={name: latency(times) for name, times in tally.times.items() if times},
        engine_runs=sum(cell.requests for key, cell in cells if key.engine_ran),
        failures=failures(cells),
        savings=savings(
            avoided=total.saved,
            audits=Amount(sum(cell.audit_usd for _, cell in cells), sum(cell.audit_unknown for _, cell in cells)),
            races=Amount(sum(cell.race_usd for _, cell in cells), sum(cell.race_unknown for _, cell in cells)),
            tools=audited(cells),
            penalty_usd=penalty_usd,
            delta=1 - CONFIDENCE,
        ),
        agreement=agreement,
        curve=curve_of(tally),
        certificates=tuple(one for content in certificates for one in states(content, tally)),
        confidence=CONFIDENCE,
    )


def answered(key: Key) -> bool:
    """Whether calls were answered here in the upstream's stead; a request for the local model asked for just that."""
    return key.route == "local" and key.passed and not key.failed and key.reason not in ALONE


def audited(cells: Iterable[tuple[Key, Cell]]) -> dict[str, Audited]:
    """The local answers by tool, with what audits found."""
    found: defaultdict[str, Audited] = defaultdict(Audited)
    for key, cell in cells:
        if answered(key):
            compared = cell.requests * bool(key.comparison)
            found[key.tool] += Audited(cell.requests, compared, compared * (key.comparison != "agree"))
    return dict(found)


def rate(count: int, n: int) -> Rate:
    """A share with its interval."""
    return Rate(count, n, *interval(count, n, 1 - CONFIDENCE))


def group_of(name: str, cells: Iterable[tuple[Key, Cell]], *, others: int = 0) -> Group:
    """The sums of some cells."""
    counts: Counter[str] = Counter()
    saved, cost = [0.0, 0], [0.0, 0]
    for key, cell in cells:
        counts["requests"] += cell.requests
        counts[key.served] += cell.requests
        counts["failed"] += cell.requests * key.failed
        counts["compared"] += cell.requests * (key.passed and bool(key.comparison))
        counts["agreed"] += cell.requests * (key.passed and key.comparison == "agree")
        saved = [saved[0] + cell.saved_usd, saved[1] + cell.saved_unknown]
        cost = [cost[0] + cell.cost_usd, cost[1] + cell.cost_unknown]
    known = {field: counts[field] for field in COUNTED}
    return Group(
        name, **known, saved=Amount(saved[0], int(saved[1])), cost=Amount(cost[0], int(cost[1])), others=others
    )


COUNTED = ("requests", "local", "merged", "upstream", "refused", "failed", "compared", "agreed")


def groups(dimension: str, cells: Sequence[tuple[Key, Cell]]) -> tuple[Group, ...]:
    """The groups of one dimension: the biggest first and the smallest together, days in their order."""
    by_key: defaultdict[str, list[tuple[Key, Cell]]] = defaultdict(list)
    for key, cell in cells:
        by_key[KEYS[dimension](key)].append((key, cell))
    sizes = {name: sum(cell.requests for _, cell in rows) for name, rows in by_key.items()}
    if dimension == "day":
        kept = sorted(by_key)[-MAX_DAYS:]
    else:
        kept = sorted(by_key, key=lambda name: (-sizes[name], name))[:MAX_GROUPS]
    rest = by_key.keys() - set(kept)
    found = [group_of(name, by_key[name]) for name in kept]
    pooled = [row for name in rest for row in by_key[name]]
    return (*found, group_of("", pooled, others=len(rest))) if rest else tuple(found)


def latency(times: Sequence[float]) -> Latency:
    """Percentiles by nearest rank: each is a time that was measured."""
    ordered = sorted(times)
    p50, p90, p95, p99 = (ordered[math.ceil(len(ordered) * share) - 1] for share in (0.5, 0.9, 0.95, 0.99))
    return Latency(len(ordered), p50, p90, p95, p99, ordered[-1])


def failures(cells: Iterable[tuple[Key, Cell]]) -> dict[str, int]:
    """How often the engine ran and a check or the engine itself said no, by reason; the first one counts."""
    counts: Counter[str] = Counter()
    for key, cell in cells:
        if key.engine_ran and key.failures:
            counts[key.failures[0]] += cell.requests
    return dict(counts.most_common())


def agreement_of(cells: Iterable[tuple[Key, Cell]]) -> Agreement:
    """How often both made the same calls."""
    seen: Counter[str] = Counter()
    same: Counter[str] = Counter()
    tools: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    kinds: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0])
    audits: Counter[str] = Counter()
    for key, cell in cells:
        if key.audit:
            audits[key.audit] += cell.requests
        if not key.comparison:
            continue
        kinds[key.comparison][not key.passed] += cell.requests
        if key.passed:
            source = "audit" if key.route == "local" else "shadow"
            agreed = cell.requests * (key.comparison == "agree")
            seen[source] += cell.requests
            same[source] += agreed
            tools[key.tool][0] += agreed
            tools[key.tool][1] += cell.requests
    most = sorted(tools, key=lambda name: (-tools[name][1], name))[:MAX_GROUPS]
    return Agreement(
        shadow=rate(same["shadow"], seen["shadow"]),
        audit=rate(same["audit"], seen["audit"]),
        tools={name: rate(*tools[name]) for name in most},
        kinds={name: (passed, stopped) for name, (passed, stopped) in sorted(kinds.items())},
        audits=dict(sorted(audits.items())),
    )


def curve_of(tally: Tally) -> Curve:
    """The curve of shadow comparisons, or where there are none of audits, which only saw what was answered."""
    source = "shadow" if tally.scored["shadow"] else "audit"
    scored = tally.scored[source]
    if not scored:
        return Curve()
    rows = [row for row, _ in scored]
    sample = Sample(rows)
    bounds = [sample.cut(threshold) for threshold in THRESHOLDS]
    cuts = [
        Cut(threshold, rate(errors, n), n / sample.total, cost)
        for threshold, (n, errors), cost in zip(THRESHOLDS, bounds, costs(scored), strict=True)
        if n
    ]
    return Curve(source, sample.total, risk_coverage(rows), tuple(cuts))


def costs(scored: Iterable[tuple[Labelled, float | None]]) -> list[Amount]:
    """For each of `THRESHOLDS`, what the upstream charged for the decisions that would be answered there."""
    rising = THRESHOLDS[::-1]
    usd, unknown = [0.0] * len(rising), [0] * len(rising)
    for row, price in scored:
        if row.verified:
            reached = bisect_right(rising, row.confidence) - 1
            usd[reached] += price or 0.0
            unknown[reached] += price is None
    # What a score reaches, all lower thresholds let pass as well.
    return [Amount(*sums) for sums in zip(accumulate(usd[::-1]), accumulate(unknown[::-1]), strict=True)]
