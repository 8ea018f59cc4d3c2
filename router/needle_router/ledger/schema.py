"""Brings a SQLite ledger to the newest schema: one step a version, all of them in one transaction.

Whoever is killed in the middle leaves the file as it was, and whoever comes second finds the work done. A new file
takes the same steps as an old one. Files of later releases and databases of others are refused and left alone.
"""

from __future__ import annotations

import functools
import sqlite3
from collections.abc import Callable, Mapping

from needle_router.ledger.rows import COLUMNS, SCHEMA_VERSION
from needle_router.ledger.store import ForeignLedger, NewerSchema

#: How long another process may take to migrate before this one gives up for now, in milliseconds.
MIGRATION_WAIT_MS = 30_000


def migrate(connection: sqlite3.Connection) -> None:
    """Take the missing steps; `connection` is in autocommit mode. Raises `LedgerError` and `sqlite3.Error`."""
    if version_of(connection) == SCHEMA_VERSION:
        return
    waited_ms = connection.execute("PRAGMA busy_timeout").fetchone()[0]
    connection.execute(f"PRAGMA busy_timeout={MIGRATION_WAIT_MS}")
    connection.execute("BEGIN IMMEDIATE")
    try:
        # Asked again: only now nobody else can change it.
        for step in range(version_of(connection) + 1, SCHEMA_VERSION + 1):
            STEPS[step](connection)
        connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise
    connection.execute(f"PRAGMA busy_timeout={waited_ms}")


def version_of(connection: sqlite3.Connection) -> int:
    """The schema version of a ledger, 0 of an empty file; raises `NewerSchema` and `ForeignLedger`, changes nothing."""
    version = int(connection.execute("PRAGMA user_version").fetchone()[0])
    if version > SCHEMA_VERSION:
        raise NewerSchema(version, SCHEMA_VERSION)
    tables = {name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
    if not tables and not version:
        return 0
    if "decisions" not in tables:
        raise ForeignLedger(f"no table decisions, but {', '.join(sorted(tables)[:3]) or 'a version'}")
    # Releases with schema 1 made the table before they set the version.
    version = max(version, 1)
    found = {row[1] for row in connection.execute("PRAGMA table_info(decisions)")}
    missing = {name for since in range(1, version + 1) for name in COLUMNS[since]} - found
    if missing:
        raise ForeignLedger(f"its table decisions has no {', '.join(sorted(missing))}")
    return version


def _first(connection: sqlite3.Connection) -> None:
    columns = ", ".join(f"{name} {kind}" for name, kind in COLUMNS[1].items())
    connection.execute(f"CREATE TABLE decisions (id INTEGER PRIMARY KEY, {columns})")
    connection.execute("CREATE INDEX decisions_time ON decisions (time_s)")


def _added(version: int, connection: sqlite3.Connection) -> None:
    """Columns that reports ask for. They stood in the JSON before; who wrote a row did not."""
    for name, kind in COLUMNS[version].items():
        connection.execute(f"ALTER TABLE decisions ADD COLUMN {name} {kind}")
    known = [name for name in COLUMNS[version] if name != "instance"]
    taken = ", ".join(f"{name} = json_extract(record, '$.{name}')" for name in known)
    connection.execute(f"UPDATE decisions SET {taken} WHERE json_valid(record)")  # noqa: S608  # our own constants


STEPS: Mapping[int, Callable[[sqlite3.Connection], None]] = {1: _first} | {
    version: functools.partial(_added, version) for version in COLUMNS if version > 1
}
