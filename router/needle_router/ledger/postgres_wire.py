"""A connection to a database server that may fall silent: every wait has a deadline, and no message a password."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TypeAlias

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo

from needle_router.ledger.place import HIDDEN, Database

#: What libpq gets where the URL does not say otherwise: seconds, and milliseconds for `tcp_user_timeout`.
DEFAULTS: Mapping[str, str] = {
    "application_name": "needle-router",
    "connect_timeout": "5",
    "tcp_user_timeout": "10000",
}
MAX_MESSAGE = 300
Connection: TypeAlias = "psycopg.Connection[tuple[Any, ...]]"


def connected(place: Database) -> Connection:
    """A connection in autocommit mode, without prepared statements; raises `psycopg.Error`."""
    given = conninfo_to_dict(place.url)
    missing = {name: value for name, value in DEFAULTS.items() if name not in given}
    return psycopg.connect(make_conninfo(place.url, **missing), autocommit=True, prepare_threshold=None)


def limit(connection: Connection, seconds: float) -> None:
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
