"""An HTTP/1.1 client for one origin that sends what it is given and hands out what comes, byte for byte.

httptools parses, asyncio transports carry. It exists because the ready-made clients change what they carry: they
re-quote targets, re-encode header values, add fields; and because it costs a fraction of their time. It does what a
proxy needs and nothing else: no redirects, no cookies, no decoding, no environment.

A connection carries one exchange at a time and goes back to the pool when the answer ended cleanly. Whoever stops
reading early closes it, so that an upstream stops working for a client that has left.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from collections.abc import AsyncIterator
from types import TracebackType
from typing import Any

from needle_router.errors import UpstreamUnreachable
from needle_router.forward.connection import Connection, Stale
from needle_router.forward.message import Request, Spawn, Timeouts
from needle_router.forward.target import Origin

#: An idle connection older than this is not used again; servers commonly close after 60 s and more.
KEEPALIVE_S = 45.0


class Answer:
    """An upstream's answer; leaving the `async with` early closes its connection."""

    def __init__(self, pool: Wire, connection: Connection) -> None:
        self._pool = pool
        self._connection = connection
        self.status = connection.reader.status
        self.headers = connection.reader.headers

    @property
    def whole(self) -> bytes | None:
        """The body, if all of it has come already."""
        reader = self._connection.reader
        return self._connection.take() if reader.complete and reader.lost is None else None

    def body(self) -> AsyncIterator[bytes]:
        """The body's bytes as they come, content-encoded as they are."""
        timeouts = self._pool.timeouts
        return self._connection.body(timeouts.idle_s, timeouts.answer_s)

    def raw(self) -> AsyncIterator[bytes]:
        """What comes after a 101, for as long as it likes to."""
        return self._connection.body(0, 0)

    async def write(self, data: bytes) -> None:
        """Send bytes after a 101; waits while the upstream takes none."""
        await self._connection.write(data, self._pool.timeouts.idle_s)

    def close(self) -> None:
        """Give the connection back, or close it when the answer was not read to its end."""
        self._pool.release(self._connection)

    async def __aenter__(self) -> Answer:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class Wire:
    """The connections to one origin. There is no limit on their number: each client request needs one."""

    def __init__(self, origin: Origin, timeouts: Timeouts, *, tls: ssl.SSLContext | None = None) -> None:
        self.origin = origin
        self.timeouts = timeouts
        self._idle: list[Connection] = []
        self._open: set[Connection] = set()
        self._tls = tls

    async def send(self, request: Request, *, spawn: Spawn | None = None) -> Answer:
        """Send a request and wait for the head of its answer. `spawn` is needed for a body that comes in pieces.

        A pooled connection that the other side closed meanwhile is replaced once, and only when not a byte of an
        answer came; a body that comes in pieces cannot be sent twice and gets a new connection. Raises
        `UpstreamUnreachable`, `UpstreamBroken`, `UpstreamTimeout`.
        """
        pooled = self._pooled() if request.replayable else None
        if pooled is not None:
            with contextlib.suppress(Stale):
                return await self._exchange(pooled, request, spawn)
        return await self._exchange(await self._connect(), request, spawn)

    async def _exchange(self, connection: Connection, request: Request, spawn: Spawn | None) -> Answer:
        try:
            connection.send(request, self.timeouts.idle_s, spawn)
            await connection.head(self.timeouts.first_byte_s)
        except BaseException:
            connection.abort()
            raise
        return Answer(self, connection)

    def _pooled(self) -> Connection | None:
        oldest = time.monotonic() - KEEPALIVE_S
        while self._idle:
            connection = self._idle.pop()
            if connection.reusable and connection.idle_since > oldest and not _closing(connection):
                return connection
            connection.abort()
        return None

    async def _connect(self) -> Connection:
        origin = self.origin
        if origin.tls and self._tls is None:
            self._tls = ssl.create_default_context()
        options: dict[str, Any] = {"ssl": self._tls, "server_hostname": origin.host} if origin.tls else {}
        try:
            async with asyncio.timeout(self.timeouts.connect_s):
                _, connection = await asyncio.get_running_loop().create_connection(
                    lambda: Connection(self.forget), origin.host, origin.port, **options
                )
        except TimeoutError:
            raise UpstreamUnreachable(f"No connection to the upstream within {self.timeouts.connect_s:g} s.") from None
        except (OSError, ssl.SSLError) as error:
            raise UpstreamUnreachable(f"No connection to the upstream: {_short(error)}.") from None
        self._open.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Back into the pool if it can carry another exchange, else closed."""
        if connection.reusable and not connection.reader.pieces:
            connection.idle_since = time.monotonic()
            self._idle.append(connection)
        else:
            connection.abort()

    def forget(self, connection: Connection) -> None:
        """Called when a connection is gone."""
        self._open.discard(connection)
        if connection in self._idle:
            self._idle.remove(connection)

    async def aclose(self) -> None:
        """Close every connection."""
        for connection in list(self._open):
            connection.abort()
        self._open.clear()
        self._idle.clear()


def _closing(connection: Connection) -> bool:
    return connection.transport is None or connection.transport.is_closing()


def _short(error: Exception) -> str:
    """What went wrong without addresses beyond the configured one."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__)[:120]
