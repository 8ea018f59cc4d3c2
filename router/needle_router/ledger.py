"""The record of decisions: SQLite in WAL mode behind one writer thread and a bounded queue.

A request never waits for it and never fails because of it: `put` drops and counts when the queue is full, and a disk
that is full, locked or read-only costs records, which are counted too. A file that is not a ledger is put aside.
"""

from __future__ import annotations

import contextlib
import dataclasses
import json
import logging
import os
import queue
import sqlite3
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import orjson

from needle_router.records import DecisionRecord
from needle_router.turn import Usage

SCHEMA_VERSION = 1
QUEUE_LIMIT = 10_000
BATCH = 500
GATHER_S = 0.05
PRUNE_EVERY_S = 3600.0
logger = logging.getLogger("needle_router.ledger")

_DAMAGED = frozenset((sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB))

#: Column -> how a record fills it. The whole record is kept as JSON too, for fields that no query needs.
_COLUMNS: Mapping[str, str] = {
    "time_s": "REAL NOT NULL",
    "route": "TEXT NOT NULL",
    "reason": "TEXT NOT NULL",
    "model": "TEXT NOT NULL",
    "cost_usd": "REAL",
    "saved_usd": "REAL",
    "record": "TEXT NOT NULL",
}


def default_path(environ: Mapping[str, str]) -> Path:
    """$XDG_STATE_HOME/needle-router/decisions.db, or the same under ~/.local/state."""
    state = environ.get("XDG_STATE_HOME") or os.path.join(environ.get("HOME") or "~", ".local", "state")
    return Path(state).expanduser() / "needle-router" / "decisions.db"


class Ledger:
    """Writes records; `path` None keeps nothing. `connect` opens the file, `open_ledger` when not given."""

    def __init__(
        self,
        path: Path | None,
        *,
        retention_days: float = 30,
        queue_limit: int = QUEUE_LIMIT,
        connect: Callable[[Path], sqlite3.Connection] | None = None,
    ) -> None:
        self.path = path
        self._connect = connect or open_ledger
        self.retention_s = retention_days * 86_400
        # One counter per thread: += on a shared one loses counts.
        self._refused = 0
        self._lost = 0
        self._closing = threading.Event()
        self._queue: queue.Queue[DecisionRecord | None] = queue.Queue(queue_limit)
        self._thread: threading.Thread | None = None
        self._failing = False

    @property
    def dropped(self) -> int:
        """Records that were not written: refused by a full queue, or lost with a disk that could not be written."""
        return self._refused + self._lost

    @property
    def state(self) -> str:
        """off, ok or degraded, for /readyz."""
        if self.path is None:
            return "off"
        return "degraded" if self._failing else "ok"

    def start(self) -> None:
        """Start the writer thread; returns at once, whatever state the file is in."""
        if self.path is not None and self._thread is None:
            self._closing.clear()
            self._thread = threading.Thread(target=self._run, args=(self.path,), name="ledger", daemon=True)
            self._thread.start()

    def put(self, record: DecisionRecord) -> None:
        """Queue a record, or drop and count it."""
        if self._thread is None:
            return
        try:
            self._queue.put_nowait(record)
        except queue.Full:
            self._refused += 1

    def close(self, timeout_s: float = 5.0) -> None:
        """Write what is queued and stop, within `timeout_s` seconds."""
        thread, self._thread = self._thread, None
        if thread is None:
            return
        deadline_s = time.monotonic() + timeout_s
        self._closing.set()
        with contextlib.suppress(queue.Full):
            self._queue.put(None, timeout=timeout_s)
        thread.join(max(0.0, deadline_s - time.monotonic()))

    def _run(self, path: Path) -> None:
        connection: sqlite3.Connection | None = None
        pruned = 0.0
        stopping = False
        while not stopping:
            batch, stopping = self._batch()
            try:
                connection = connection or self._connect(path)
                pruned = self._write(connection, batch, pruned)
                self._failing = False
            # ValueError: a text that SQLite cannot store must cost its batch, not the thread.
            except (sqlite3.Error, OSError, ValueError) as error:
                _close(connection)
                connection = None
                self._give_up(path, batch, error)
        _close(connection)

    def _give_up(self, path: Path, batch: list[DecisionRecord], error: Exception) -> None:
        self._lost += len(batch)
        if not self._failing:
            logger.warning("the ledger cannot be written, records are dropped: %s", error)
        self._failing = True
        if getattr(error, "sqlite_errorcode", None) in _DAMAGED:
            with contextlib.suppress(OSError):
                _put_aside(path, error)

    def _batch(self) -> tuple[list[DecisionRecord], bool]:
        """The waiting records, at most `BATCH`, and whether the end was asked for."""
        batch: list[DecisionRecord] = []
        item = self._queue.get()
        # A transaction costs as much as many rows: let a few requests gather.
        self._closing.wait(GATHER_S)
        while item is not None and len(batch) < BATCH:
            batch.append(item)
            try:
                item = self._queue.get_nowait()
            except queue.Empty:
                return batch, False
        if item is not None:
            batch.append(item)
        return batch, item is None

    def _write(self, connection: sqlite3.Connection, batch: list[DecisionRecord], pruned: float) -> float:
        marks = ", ".join("?" * len(_COLUMNS))
        with connection:
            connection.executemany(
                f"INSERT INTO decisions ({', '.join(_COLUMNS)}) VALUES ({marks})",  # noqa: S608  # our own constants
                [_row(record) for record in batch],
            )
            if time.monotonic() - pruned > PRUNE_EVERY_S or not pruned:
                connection.execute("DELETE FROM decisions WHERE time_s < ?", (time.time() - self.retention_s,))
                pruned = time.monotonic()
        return pruned


def _close(connection: sqlite3.Connection | None) -> None:
    if connection is not None:
        with contextlib.suppress(sqlite3.Error):
            connection.close()


def _row(record: DecisionRecord) -> tuple[Any, ...]:
    try:
        whole = orjson.dumps(record).decode()
    except TypeError:
        # Text that is no Unicode, in a model's name for instance.
        whole = json.dumps(dataclasses.asdict(record), separators=(",", ":"))
    return (record.time_s, record.route, record.reason, record.model, record.cost_usd, record.saved_usd, whole)


def open_ledger(path: Path) -> sqlite3.Connection:
    """Open or make the ledger, readable by its owner alone; a file that is no ledger of ours is renamed aside."""
    path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _private(path)
    try:
        return _opened(path)
    except sqlite3.DatabaseError as error:
        if isinstance(error, sqlite3.OperationalError):
            raise
        _put_aside(path, error)
        _private(path)
        return _opened(path)


def _private(path: Path) -> None:
    """Make the file, or take a loose one back from everybody else; SQLite gives its side files the same mode."""
    os.close(os.open(path, os.O_CREAT | os.O_WRONLY, 0o600))
    if path.stat().st_mode & 0o077:
        path.chmod(0o600)


def _put_aside(path: Path, error: Exception) -> None:
    """Rename a file that is no ledger, with its side files, whose pages must not get into the next one."""
    stamp = time.time_ns()
    for side in ("", "-wal", "-shm"):
        with contextlib.suppress(FileNotFoundError):
            path.with_name(path.name + side).replace(path.with_name(f"{path.name}.broken-{stamp}{side}"))
    logger.warning("%s is no ledger (%s): it was renamed to %s.broken-%s", path, error, path.name, stamp)


def _opened(path: Path) -> sqlite3.Connection:
    connection = sqlite3.connect(path, timeout=2.0, check_same_thread=False)
    try:
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=NORMAL")
        version = connection.execute("PRAGMA user_version").fetchone()[0]
        if version not in (0, SCHEMA_VERSION):
            raise sqlite3.DatabaseError(f"schema version {version}, this router knows {SCHEMA_VERSION}")
        columns = ", ".join(f"{name} {kind}" for name, kind in _COLUMNS.items())
        with connection:
            connection.execute(f"CREATE TABLE IF NOT EXISTS decisions (id INTEGER PRIMARY KEY, {columns})")
            connection.execute("CREATE INDEX IF NOT EXISTS decisions_time ON decisions (time_s)")
            connection.execute(f"PRAGMA user_version={SCHEMA_VERSION}")
    except sqlite3.Error:
        connection.close()
        raise
    return connection


def read_ledger(path: Path, *, since_s: float = 0.0) -> Iterator[DecisionRecord]:
    """The records since `since_s` (Unix seconds), oldest first, through a read-only connection."""
    connection = sqlite3.connect(f"{path.absolute().as_uri()}?mode=ro", uri=True)
    try:
        query = "SELECT record FROM decisions WHERE time_s >= ? ORDER BY id"
        for (text,) in connection.execute(query, (since_s,)):
            yield _record(json.loads(text))
    finally:
        connection.close()


def _record(values: dict[str, Any]) -> DecisionRecord:
    for name in ("usage", "saved"):
        if values.get(name) is not None:
            values[name] = Usage(**_known(Usage, values[name]))
    for name in ("tools_offered", "tools_called", "failures"):
        values[name] = tuple(values.get(name) or ())
    return DecisionRecord(**_known(DecisionRecord, values))


def _known(kind: type[DecisionRecord | Usage], values: Mapping[str, Any]) -> dict[str, Any]:
    """The values that `kind` has a field for: a ledger may have been written by another release."""
    names = {field.name for field in dataclasses.fields(kind)}
    return {name: value for name, value in values.items() if name in names}
