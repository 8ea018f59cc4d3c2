"""One pass over the records: sums by everything that a report may ask for.

Records that are alike in all of it share a cell, and there are few cells; whatever is grouped later is grouped from
them. So the cost of a record does not grow with the number of tables.
"""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

from needle_router.calibrate.samples import Labelled, labelled
from needle_router.records import UNPAID_AUDITS, DecisionRecord

#: Days begin on whole quarters of an hour, in every time zone there is.
SLOT_S = 900


class Key(NamedTuple):
    """What the records of a cell have in common."""

    route: str
    reason: str
    policy: str
    model: str
    tools: tuple[str, ...]
    failures: tuple[str, ...]
    uncovered: bool
    comparison: str
    engine_ran: bool
    failed: bool
    audit: str
    day: str

    @property
    def tool(self) -> str:
        """The tools that the engine called, joined with "+"; "" for none."""
        return "+".join(sorted(set(self.tools)))

    @property
    def served(self) -> str:
        """The route, or that nobody answered because a budget is spent."""
        return "refused" if self.reason == "budget-exceeded" else self.route

    @property
    def passed(self) -> bool:
        """Whether there was a call, and every check before the score passed."""
        return bool(self.tools) and not self.failures and not self.uncovered


@dataclass(slots=True)
class Cell:
    """Sums over the records of one key; the counts of unknown amounts beside each sum of money."""

    requests: int = 0
    saved_usd: float = 0.0
    saved_unknown: int = 0
    cost_usd: float = 0.0
    cost_unknown: int = 0
    audit_usd: float = 0.0
    audit_unknown: int = 0
    race_usd: float = 0.0
    race_unknown: int = 0


class Tally:
    """Takes records of a period in any order. `day_of` names the day of a moment, in the reader's time zone."""

    def __init__(self, *, day_of: Callable[[float], str], since_s: float = 0.0, until_s: float = float("inf")) -> None:
        self.since_s, self.until_s = since_s, until_s
        self.taken = 0
        self._day_of = day_of
        self._days: dict[int, str] = {}
        self._cells: dict[tuple[object, ...], Cell] = {}
        #: Name of a span -> its times.
        self.times: dict[str, array[float]] = {name: array("d") for name in ("overhead", "engine", "queue")}
        #: Fingerprint -> engine runs.
        self.fingerprints: Counter[str] = Counter()
        #: What was compared while the upstream answered, and while the engine did, each with the upstream's price.
        self.scored: dict[str, list[tuple[Labelled, float | None]]] = {"shadow": [], "audit": []}

    def take(self, records: Iterable[DecisionRecord]) -> Tally:
        """Add every record of the period; returns itself."""
        since_s, until_s, add = self.since_s, self.until_s, self.add
        for record in records:
            if since_s <= record.time_s < until_s:
                add(record)
        return self

    def add(self, record: DecisionRecord) -> None:
        """Add one record."""
        self.taken += 1
        slot = int(record.time_s // SLOT_S)
        day = self._days.get(slot)
        if day is None:
            day = self._days[slot] = self._day_of(record.time_s)
        failed = record.status >= 400 or bool(record.error)
        key = (
            record.route,
            record.reason,
            record.policy,
            record.model,
            record.tools_called,
            record.failures,
            record.uncovered,
            record.comparison,
            record.engine_ran,
            failed,
            record.audit,
            day,
        )
        cell = self._cells.get(key)
        if cell is None:
            cell = self._cells[key] = Cell()
        cell.requests += 1
        _add_money(cell, record)
        self._add_times(record)
        if record.comparison:
            audited = record.route == "local"
            price = record.audit_usd if audited else record.cost_usd
            self.scored["audit" if audited else "shadow"].append((labelled(record), price))

    def _add_times(self, record: DecisionRecord) -> None:
        times = self.times
        times["overhead"].append(record.overhead_s)
        if record.engine_ran:
            times["engine"].append(record.engine_s)
            times["queue"].append(record.queue_s)
            self.fingerprints[record.fingerprint] += 1
        total = times.get(record.route)
        if total is None:
            total = times[record.route] = array("d")
        total.append(record.total_s)

    def cells(self) -> list[tuple[Key, Cell]]:
        """Every cell with its key."""
        return [(Key(*key), cell) for key, cell in self._cells.items()]  # type: ignore[arg-type]


def _add_money(cell: Cell, record: DecisionRecord) -> None:
    if record.route == "local":
        if record.saved is not None:
            if record.saved_usd is None:
                cell.saved_unknown += 1
            else:
                cell.saved_usd += record.saved_usd
    elif record.cost_usd is not None:
        cell.cost_usd += record.cost_usd
    else:
        cell.cost_unknown += record.cost_unknown
    if record.wasted is not None:
        cell.race_usd += record.wasted_usd or 0.0
        cell.race_unknown += record.wasted_usd is None
    if record.audit not in UNPAID_AUDITS:
        cell.audit_usd += record.audit_usd or 0.0
        cell.audit_unknown += record.audit_usd is None
