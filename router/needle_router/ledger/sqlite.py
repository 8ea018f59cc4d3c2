"""A ledger in a SQLite file: WAL, so that readers never wait for the writer, and readable by its owner alone.

A file that is damaged or no database at all is put aside under another name, and a new one begun.
"""

from __future__ import annotations

import contextlib
import logging
import os
import sqlite3
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from needle_router.ledger.rows import NAMES, SPENT, Row
from needle_router.ledger.schema import migrate, version_of
from needle_router.ledger.store import ALL, BadRecord, LedgerError, Reading, Summary

logger = logging.getLogger("needle_router.ledger")
#: How long another process may hold the file before a batch is given up.
LOCK_WAIT_S = 2.0
_DAMAGED = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))
_INSERT = f"INSERT INTO decisions ({', '.join(NAMES)}) VALUES ({', '.join('?' * len(NAMES))})"  # noqa: S608


class SqliteStore:
    """Records in the file `path`."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._connection: sqlite3.Connection | None = None

    def open(self) -> None:
        """Open or make the file and bring it up to date."""
        if self._connection is not None:
            return
        with self._faults():
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._connection = _opened(self.path)

    def write(self, rows: Sequence[Row]) -> None:
        """Keep `rows` in one transaction."""
        self.open()
        assert self._connection is not None
        with self._faults():
            self._connection.execute("BEGIN IMMEDIATE")
            self._connection.executemany(_INSERT, rows)
            self._connection.execute("COMMIT")

    def prune(self, before_s: float) -> int:
        """Remove what is older than `before_s`; its room in the file is used again."""
        self.open()
        assert self._connection is not None
        with self._faults():
            return self._connection.execute("DELETE FROM decisions WHERE time_s < ?", (before_s,)).rowcount

    def close(self) -> None:
        """Close the file; an open transaction is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(sqlite3.Error):
                connection.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn what SQLite and the system say into `LedgerError`, with the file closed and, if damaged, put aside."""
        try:
            yield
        # Values that no column takes: a number above 64 bits, half a surrogate pair.
        except (sqlite3.InterfaceError, ValueError, OverflowError) as error:
            self.close()
            raise BadRecord(str(error)) from error
        except (sqlite3.Error, OSError) as error:
            self.close()
            if _is_damage(error):
                with contextlib.suppress(OSError):
                    _put_aside(self.path, error)
            if isinstance(error, LedgerError):
                raise
            raise LedgerError(str(error), shown=getattr(error, "strerror", None) or str(error)) from error

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """A read-only connection; the schema may be any up to ours."""
        try:
            address = f"{self.path.absolute().as_uri()}?mode=ro"
            with closing(sqlite3.connect(address, uri=True, timeout=LOCK_WAIT_S)) as connection:
                yield SqliteReading(connection, self.path, version_of(connection))
        except sqlite3.Error as error:
            raise LedgerError(str(error)) from error


#: What the columns of a schema allow to ask for spend; an older one has the amounts in the JSON alone.
_SPENT = {
    False: "coalesce(cost_usd, 0) + coalesce(json_extract(record, '$.wasted_usd'), 0)"
    " + coalesce(json_extract(record, '$.audit_usd'), 0)",
    True: SPENT,
}


class SqliteReading:
    """Reads a file, also one that an older release wrote, or one that holds nothing yet (`schema` 0)."""

    def __init__(self, connection: sqlite3.Connection, path: Path, schema: int) -> None:
        self._connection = connection
        self._path = path
        self._schema = schema

    def records(self, since_s: float, newest: int = ALL) -> Iterator[tuple[str | None, str]]:
        """Instance and JSON, oldest first."""
        instance = "instance" if self._schema >= 2 else "NULL"
        among = "id > (SELECT max(id) FROM decisions) - ?"
        query = f"SELECT {instance}, record FROM decisions WHERE time_s >= ? AND {among} ORDER BY id"  # noqa: S608
        yield from self._rows(query, since_s, newest)

    def costs(self, since_s: float, before_s: float) -> Iterator[tuple[float, float]]:
        """Time and USD."""
        spent = _SPENT[self._schema >= 3]
        query = f"SELECT time_s, {spent} FROM decisions WHERE time_s >= ? AND time_s < ? AND {spent} > 0"  # noqa: S608
        yield from self._rows(query, since_s, before_s)

    def summary(self) -> Summary:
        """Counted in the file; its size is that of the file and its log."""
        query = "SELECT count(*), min(time_s), max(time_s) FROM decisions"
        records, oldest_s, newest_s = next(self._rows(query), (0, None, None))
        sides = (self._path, self._path.with_name(self._path.name + "-wal"))
        size_bytes = sum(side.stat().st_size for side in sides if side.exists())
        return Summary(self._schema, records, oldest_s, newest_s, size_bytes)

    def _rows(self, query: str, *values: float) -> Iterator[Any]:
        return iter(self._connection.execute(query, values) if self._schema else ())


def _opened(path: Path) -> sqlite3.Connection:
    """A connection in autocommit mode, up to date; a file that is no database is put aside once."""
    try:
        return _connected(path)
    except sqlite3.DatabaseError as error:
        if not _is_damage(error):
            raise
        _put_aside(path, error)
        return _connected(path)


def _connected(path: Path) -> sqlite3.Connection:
    # Made by ourselves: SQLite would let others read it. Its side files get the same mode.
    os.close(os.open(path, os.O_CREAT | os.O_RDONLY, 0o600))
    connection = sqlite3.connect(path, timeout=LOCK_WAIT_S, isolation_level=None, check_same_thread=False)
    try:
        # Before anything is changed: it may be somebody else's.
        version_of(connection)
        if path.stat().st_mode & 0o077:
            path.chmod(0o600)
        connection.execute("PRAGMA journal_mode=WAL")
        # A crash of the machine may cost the last batches, a crash of the process none that was committed.
        connection.execute("PRAGMA synchronous=NORMAL")
        migrate(connection)
    except BaseException:
        connection.close()
        raise
    return connection


def _is_damage(error: Exception) -> bool:
    # The low byte is the kind, the rest says more about it.
    return getattr(error, "sqlite_errorcode", 0) & 0xFF in _DAMAGED


def _put_aside(path: Path, error: Exception) -> None:
    """Rename a damaged file, with its side files, whose pages must not get into the next one."""
    stamp = time.time_ns()
    for side in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + side).replace(path.with_name(f"{path.name}.broken-{stamp}{side}"))
    logger.warning("%s is damaged or no ledger (%s): it was renamed to %s.broken-%s", path, error, path.name, stamp)
