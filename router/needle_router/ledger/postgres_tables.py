"""The tables of a ledger in PostgreSQL, brought up to date inside one transaction, and what is put into them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import LiteralString

import orjson
from psycopg import sql

from needle_router.ledger.postgres_wire import Connection
from needle_router.ledger.rows import COLUMNS, NAMES, SCHEMA_VERSION, Row
from needle_router.ledger.store import BadRecord, NewerSchema

#: Held while the schema changes: replicas start together. The number is of no meaning, but must not change.
LOCK = 7_405_110_127
TABLE: LiteralString = "needle_router_decisions"
VERSION: LiteralString = "needle_router_schema"
_TYPES = {name: kind for added in COLUMNS.values() for name, kind in added.items()} | {"record": "JSONB NOT NULL"}


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
        connection.execute(sql.SQL("DELETE FROM {}").format(sql.Identifier(VERSION)))
        connection.execute(sql.SQL("INSERT INTO {} VALUES (%s)").format(sql.Identifier(VERSION)), (SCHEMA_VERSION,))


def version_of(connection: Connection) -> int:
    """The schema version of the tables, 0 where there are none; raises `NewerSchema`."""
    # Not to_regclass: within a transaction it may remember that there was none before another replica made them.
    query = "SELECT FROM pg_catalog.pg_class WHERE relname = %s AND pg_catalog.pg_table_is_visible(oid)"
    if connection.execute(query, (VERSION,)).rowcount == 0:
        return 0
    row = connection.execute(sql.SQL("SELECT max(version) FROM {}").format(sql.Identifier(VERSION))).fetchone()
    version = int(row[0] or 0) if row is not None else 0
    if version > SCHEMA_VERSION:
        raise NewerSchema(version, SCHEMA_VERSION)
    return version


def _steps(version: int) -> Iterator[sql.Composed]:
    """The statements that lead to a version; the first was never in a database by itself, but is where all begin."""
    table = sql.Identifier(TABLE)
    columns = [sql.SQL("{} {}").format(sql.Identifier(name), _kind(name)) for name in COLUMNS[version]]
    if version > 1:
        yield from (sql.SQL("ALTER TABLE {} ADD COLUMN {}").format(table, column) for column in columns)
        # Who wrote a row does not stand in its record.
        known = [name for name in COLUMNS[version] if name != "instance"]
        yield sql.SQL("UPDATE {} SET {}").format(table, sql.SQL(", ").join(map(_taken, known)))
        return
    body = sql.SQL(", ").join([sql.SQL("id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY"), *columns])
    yield sql.SQL("CREATE TABLE {} ({})").format(table, body)
    yield sql.SQL("CREATE INDEX ON {} (time_s)").format(table)
    yield sql.SQL("CREATE TABLE {} (version INTEGER NOT NULL)").format(sql.Identifier(VERSION))


def _taken(name: str) -> sql.Composed:
    """A column filled from the record."""
    column = sql.Identifier(name)
    return sql.SQL("{} = (record ->> {})::{}").format(column, sql.Literal(name), _kind(name, constraint=False))


def _kind(name: str, *, constraint: bool = True) -> sql.SQL:
    text = _TYPES[name]
    return sql.SQL(text if constraint else text.removesuffix(" NOT NULL"))


INSERT = sql.SQL("INSERT INTO {} ({}) SELECT * FROM jsonb_to_recordset(%s::jsonb) AS rows ({})").format(
    sql.Identifier(TABLE),
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
