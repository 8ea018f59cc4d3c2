"""A ledger in a PostgreSQL database, which several routers may write to.

A server may be down, slow, silent or gone in the middle. Each wait has a deadline, a connection with a fault is given
up, and what was surely not written is kept for the next one. Only a commit that was sent and not answered is of unknown
fate: its records count as lost, although they may be there. No statement is prepared and nothing is set for longer than
a transaction, so a pooler may stand between.
"""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString, TypeAlias

import orjson
import psycopg
from psycopg import sql
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from needle_router.ledger.place import HIDDEN, Database
from needle_router.ledger.rows import COLUMNS, NAMES, SCHEMA_VERSION, Row
from needle_router.ledger.store import ALL, BadRecord, LedgerAway, LedgerError, NewerSchema, Reading, Summary

#: What libpq gets where the URL does not say otherwise: seconds, and milliseconds for `tcp_user_timeout`.
DEFAULTS: Mapping[str, str] = {
    "application_name": "needle-router",
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
}
WRITE_S = 5.0
PRUNE_S = 60.0
READ_S = 30.0
FETCH = 2000
MAX_MESSAGE = 300
#: Held while the schema changes: replicas start together. The number is of no meaning, but must not change.
LOCK = 7_405_110_127
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"

_TYPES = {name: kind for added in COLUMNS.values() for name, kind in added.items()} | {"record": "JSONB NOT NULL"}
_TABLE: LiteralString = "needle_router_decisions"
_VERSION: LiteralString = "needle_router_schema"


class PostgresStore:
    """Records in the tables `needle_router_*` of a database."""

    def __init__(self, place: Database) -> None:
        self._place = place
        self._connection: Connection | None = None
        self._committing = False

    def open(self) -> None:
        """Connect and bring the tables up to date."""
        if self._connection is not None:
            return
        with self._faults():
            self._connection = connection = connected(self._place)
            with within(connection, WRITE_S), connection.transaction():
                _limit(connection, WRITE_S)
                migrate(connection)

    def write(self, rows: Sequence[Row]) -> None:
        """Keep `rows` in one transaction, as one JSON text: the driver's arrays take eight times as long."""
        self.open()
        connection = self._connection
        assert connection is not None
        with self._faults(), within(connection, WRITE_S):
            connection.execute("BEGIN")
            _limit(connection, WRITE_S)
            connection.execute(_INSERT, (document(rows),))
            self._committing = True
            connection.execute("COMMIT")
            self._committing = False

    def prune(self, before_s: float) -> int:
        """Remove what is older than `before_s`."""
        self.open()
        connection = self._connection
        assert connection is not None
        with self._faults(), within(connection, PRUNE_S), connection.transaction():
            _limit(connection, PRUNE_S)
            query = sql.SQL("DELETE FROM {} WHERE time_s < %s").format(sql.Identifier(_TABLE))
            removed: int = connection.execute(query, (before_s,)).rowcount
            return removed

    def close(self) -> None:
        """End the connection; an open transaction is undone."""
        connection, self._connection = self._connection, None
        if connection is not None:
            with contextlib.suppress(psycopg.Error):
                connection.close()

    @contextmanager
    def _faults(self) -> Iterator[None]:
        """Turn the driver's errors into ours, with the connection given up."""
        self._committing = False
        try:
            yield
        except NewerSchema as error:
            self.close()
            # Not for good: whoever wrote it may be rolled back.
            raise LedgerAway(str(error)) from None
        except BadRecord:
            self.close()
            raise
        except psycopg.DataError as error:
            self.close()
            raise BadRecord(message_of(error, self._place)) from None
        except (psycopg.Error, OSError) as error:
            self.close()
            kind = LedgerError if self._committing else LedgerAway
            raise kind(message_of(error, self._place), shown=shown_of(error)) from None

    @contextmanager
    def reading(self) -> Iterator[Reading]:
        """A connection of its own in a read-only transaction."""
        with self._faults():
            connection = connected(self._place)
        try:
            with self._faults():
                with within(connection, READ_S):
                    connection.execute("BEGIN READ ONLY")
                    _limit(connection, READ_S)
                    version = version_of(connection)
                yield PostgresReading(connection, version)
        finally:
            connection.close()


class PostgresReading:
    """Reads in pieces, so that no ledger is too large for the memory."""

    def __init__(self, connection: Connection, schema: int) -> None:
        self._connection = connection
        self._schema = schema

    def records(self, since_s: float, newest: int = ALL) -> Iterator[tuple[str | None, str]]:
        """Instance and JSON, in the order of writing."""
        query: LiteralString = """
            SELECT instance, record::text FROM {0}
            WHERE time_s >= %s AND id > (SELECT max(id) FROM {0}) - %s ORDER BY id
        """
        yield from self._rows(query, since_s, newest)

    def costs(self, since_s: float, before_s: float) -> Iterator[tuple[float, float]]:
        """Time and USD."""
        query: LiteralString = (
            # The same sum as `DecisionRecord.spent_usd`.
            "SELECT time_s, usd FROM (SELECT id, time_s, coalesce(cost_usd, 0) + "
            "coalesce((record::json ->> 'wasted_usd')::double precision, 0) + "
            "coalesce((record::json ->> 'audit_usd')::double precision, 0) AS usd "
            "FROM {} WHERE time_s >= %s AND time_s < %s) AS spent WHERE usd > 0 ORDER BY id"
        )
        yield from self._rows(query, since_s, before_s)

    def summary(self) -> Summary:
        """Counted in the table; its size is that with indexes."""
        query: LiteralString = (
            "SELECT count(*), min(time_s), max(time_s), pg_total_relation_size(to_regclass(%s)) FROM {}"
        )
        found = next(self._rows(query, _TABLE), (0, None, None, 0))
        return Summary(self._schema, *found)

    def _rows(self, query: LiteralString, *values: object) -> Iterator[Any]:
        if not self._schema:
            return
        with self._connection.cursor(name="ledger") as cursor:
            with within(self._connection, READ_S):
                cursor.execute(sql.SQL(query).format(sql.Identifier(_TABLE)), values)
            while True:
                with within(self._connection, READ_S):
                    piece = cursor.fetchmany(FETCH)
                if not piece:
                    return
                yield from piece


def connected(place: Database) -> Connection:
    """A connection in autocommit mode, without prepared statements; raises `psycopg.Error`."""
    given = conninfo_to_dict(place.url)
    missing = {name: value for name, value in DEFAULTS.items() if name not in given}
    return psycopg.connect(make_conninfo(place.url, **missing), autocommit=True, prepare_threshold=None)


def migrate(connection: Connection) -> None:
    """Make the tables, or add what is missing; inside a transaction."""
    if version_of(connection) == SCHEMA_VERSION:
        return
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (LOCK,))
    # Asked again: another replica may have been quicker.
    version = version_of(connection)
    for step in range(version + 1, SCHEMA_VERSION + 1):
        for statement in _steps(step):
            connection.execute(statement)
    if version < SCHEMA_VERSION:
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(_VERSION)))
        connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(sql.Identifier(_VERSION)), (SCHEMA_VERSION,))


def version_of(connection: Connection) -> int:
    """The schema version of the tables, 0 where there are none; raises `NewerSchema`."""
    row = connection.execute("SELECT to_regclass(%s)", (_VERSION,)).fetchone()
    if row is None or row[0] is None:
        return 0
    row = connection.execute(sql.SQL("SELECT max(version) FROM {}").format(sql.Identifier(_VERSION))).fetchone()
    version = int(row[0] or 0) if row is not None else 0
    if version > SCHEMA_VERSION:
        raise NewerSchema(version, SCHEMA_VERSION)
    return version


def _steps(version: int) -> Iterator[sql.Composed]:
    """The statements that lead to a version; the first was never in a database by itself, but is where all begin."""
    table = sql.Identifier(_TABLE)
    columns = [sql.SQL("{} {}").format(sql.Identifier(name), _kind(name)) for name in COLUMNS[version]]
    if version > 1:
        yield from (sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(table, column) for column in columns)
        return
    body = sql.SQL(", ").join([sql.SQL("id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"), *columns])
    yield sql.SQL("CREATE TABLE {} ({})").format(table, body)
    yield sql.SQL("CREATE INDEX ON {} (time_s)").format(table)
    yield sql.SQL("CREATE TABLE {} (version INTEGER NOT NULL)").format(sql.Identifier(_VERSION))


def _kind(name: str, *, constraint: bool = True) -> sql.SQL:
    text = _TYPES[name]
    return sql.SQL(text if constraint else text.removesuffix(" NOT NULL"))


_INSERT = sql.SQL("INSERT INTO {} ({}) SELECT * FROM jsonb_to_recordset(%s::jsonb) AS rows ({})").format(
    sql.Identifier(_TABLE),
    sql.SQL(", ").join(map(sql.Identifier, NAMES)),
    sql.SQL(", ").join(sql.SQL("{} {}").format(sql.Identifier(name), _kind(name, constraint=False)) for name in NAMES),
)


def document(rows: Sequence[Row]) -> str:
    """Rows as a JSON array of objects; the record in each is JSON already. Raises `BadRecord`."""
    # The record is the last column.
    try:
        plain = [dict(zip(NAMES, (*row[:-1], orjson.Fragment(row[-1])), strict=True)) for row in rows]
        return orjson.dumps(plain).decode()
    except TypeError as error:
        raise BadRecord(str(error)) from error


def _limit(connection: Connection, seconds: float) -> None:
    """The server itself ends a statement that takes longer, inside this transaction."""
    connection.execute("SELECT set_config('statement_timeout', %s, true)", (str(int(seconds * 1000)),))


@contextmanager
def within(connection: Connection, seconds: float) -> Iterator[None]:
    """Cut the connection when the block takes longer: the driver itself waits for a silent server for ever."""
    # A socket of our own for the same connection: the number of a closed one may soon belong to somebody else.
    wire = socket.socket(fileno=os.dup(connection.pgconn.socket))
    # A little after the server's own limit, whose error says more.
    timer = threading.Timer(seconds + 1, _cut, (wire,))
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        wire.close()


def _cut(wire: socket.socket) -> None:
    with contextlib.suppress(OSError):
        wire.shutdown(socket.SHUT_RDWR)


def message_of(error: Exception, place: Database) -> str:
    """What went wrong in one line, without the password."""
    text = " ".join(str(error).split()) or type(error).__name__
    try:
        password = conninfo_to_dict(place.url).get("password")
    except psycopg.Error:
        return "ledger.path is no connection URL that libpq understands"
    return (text.replace(str(password), HIDDEN) if password else text)[:MAX_MESSAGE]


def shown_of(error: Exception) -> str:
    """The kind of fault, in words that name no host and no user."""
    if isinstance(error, psycopg.errors.QueryCanceled):
        return "the database took too long"
    if getattr(error, "sqlstate", None) is None:
        return "there is no connection to the database, the log says why"
    return f"the database refused ({type(error).__name__})"
