"""Which store keeps the records of a place."""

from __future__ import annotations

from needle_router.ledger.place import Database, Place
from needle_router.ledger.sqlite import SqliteStore
from needle_router.ledger.store import Store


def store_of(place: Place) -> Store:
    """The store for `place`; nothing is opened yet."""
    if isinstance(place, Database):
        # Its driver is an extra that most do not install.
        from needle_router.ledger.postgres import PostgresStore

        return PostgresStore(place)
    return SqliteStore(place)
