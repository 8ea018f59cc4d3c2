"""Reading what a ledger holds, through a connection of its own that cannot write."""

from __future__ import annotations

from collections.abc import Iterator

from needle_router.ledger.place import Place
from needle_router.ledger.rows import record_of
from needle_router.ledger.store import ALL
from needle_router.ledger.stores import store_of
from needle_router.records import DecisionRecord


def read_ledger(path: Place, *, since_s: float = 0.0, newest: int = ALL) -> Iterator[DecisionRecord]:
    """The records since `since_s` (Unix seconds), oldest first; of those only the `newest` ones that were written.

    Raises `LedgerError` where it cannot be read, and `ValueError` at a row that is no record.
    """
    with store_of(path).reading() as ledger:
        for _, text in ledger.records(since_s, newest):
            yield record_of(text)


def costs(path: Place, *, since_s: float, before_s: float) -> list[tuple[float, float]]:
    """Time and USD of the requests that cost something; [] where there is no ledger yet. Raises `LedgerError`."""
    if not path.exists():
        return []
    with store_of(path).reading() as ledger:
        return list(ledger.costs(since_s, before_s))
