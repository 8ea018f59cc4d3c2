"""A ledger in a PostgreSQL database, which several routers may write to.

A server may be down, slow, silent or gone in the middle. Each wait has a deadline, a connection with a fault is given
up, and what was surely not written is kept for the next one. Only a commit that was sent and not answered is of unknown
fate: its records count as lost, although they may be there. No statement is prepared and nothing is set for longer than
a transaction, so a pooler may stand between.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, LiteralString

import psycopg
from psycopg import sql

from needle_router.ledger.place import Database
from needle_router.ledger.postgres_tables import INSERT, TABLE, document, migrate, version_of
from needle_router.ledger.postgres_wire import Connection, connected, limit, message_of, shown_of, within
from needle_router.ledger.rows import SCHEMA_VERSION, SPENT, Row
from needle_router.ledger.store import ALL, BadRecord, LedgerAway, LedgerError, NewerSchema, Reading, Summary

WRITE_S = 5.0
PRUNE_S = 60.0
READ_S = 30.0
#: A step may have to visit every row.
MIGRATE_S = 600.0
FETCH = 2000
#: What the columns of a schema allow to ask for spend; an older one has the amounts in the JSON alone.
_SPENT: Mapping[bool, LiteralString] = {
    False: "coalesce(cost_usd, 0) + coalesce((record ->> 'wasted_usd')::double precision, 0)"
    " + coalesce((record ->> 'audit_usd')::double precision, 0)",
    True: SPENT,
}
_COSTS: LiteralString = "SELECT time_s, SPENT FROM {} WHERE time_s >= %s AND time_s < %s AND SPENT > 0 ORDER BY id"


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
            with within(connection, WRITE_S):
                version = version_of(connection)
            if version < SCHEMA_VERSION:
                with within(connection, MIGRATE_S), connection.transaction():
                    limit(connection, MIGRATE_S)
                    migrate(connection)

    def write(self, rows: Sequence[Row]) -> None:
        """Keep `rows` in one transaction, as one JSON text: the driver's arrays take eight times as long."""
        self.open()
        connection = self._connection
        assert connection is not None
        with self._faults(), within(connection, WRITE_S):
            connection.execute("BEGIN")
            limit(connection, WRITE_S)
            connection.execute(INSERT, (document(rows),))
            self._committing = True
            connection.execute("COMMIT")
            self._committing = False

    def prune(self, before_s: float) -> int:
        """Remove what is older than `before_s`."""
        self.open()
        connection = self._connection
        assert connection is not None
        with self._faults(), within(connection, PRUNE_S), connection.transaction():
            limit(connection, PRUNE_S)
            query = sql.SQL("DELETE FROM {} WHERE time_s < %s").format(sql.Identifier(TABLE))
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
                    limit(connection, READ_S)
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
        spent = _SPENT[self._schema >= 3]
        query = _COSTS.replace("SPENT", spent)
        yield from self._rows(query, since_s, before_s)

    def summary(self) -> Summary:
        """Counted in the table; its size is that with indexes."""
        query: LiteralString = (
            "SELECT count(*), min(time_s), max(time_s), pg_total_relation_size(to_regclass(%s)) FROM {}"
        )
        found = next(self._rows(query, TABLE), (0, None, None, 0))
        return Summary(self._schema, *found)

    def _rows(self, query: LiteralString, *values: object) -> Iterator[Any]:
        if not self._schema:
            return
        with self._connection.cursor(name="ledger") as cursor:
            with within(self._connection, READ_S):
                cursor.execute(sql.SQL(query).format(sql.Identifier(TABLE)), values)
            while True:
                with within(self._connection, READ_S):
                    piece = cursor.fetchmany(FETCH)
                if not piece:
                    return
                yield from piece
