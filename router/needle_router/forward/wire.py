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
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol

import httptools

from needle_router.errors import BadRequest, RouterError, UpstreamBroken, UpstreamTimeout, UpstreamUnreachable
from needle_router.forward.headers import Header
from needle_router.forward.target import Origin

#: Unread response bytes at which the socket is no longer read.
HIGH_WATER = 256 * 1024
MAX_HEAD_BYTES = 256 * 1024
#: An idle connection older than this is not used again; servers commonly close after 60 s and more.
KEEPALIVE_S = 45.0
CHUNKED = b"chunked"


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, to the first byte of an answer, between its pieces."""

    connect_s: float
    first_byte_s: float
    idle_s: float


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. `body` is bytes, or an iterator of pieces that goes out with content-length where the headers
    state one and chunked otherwise.
    """

    method: bytes
    target: bytes
    headers: list[Header]
    body: bytes | AsyncGenerator[bytes, None] = b""

    @property
    def replayable(self) -> bool:
        """Whether the request can be sent a second time."""
        return isinstance(self.body, bytes)


class Spawn(Protocol):
    """Starts a task in the caller's task group."""

    def __call__(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]: ...


class _Stale(Exception):
    """A pooled connection was closed by the other side before it answered anything."""


class Connection(asyncio.Protocol):
    """One connection; the callbacks of httptools and of asyncio meet here."""

    def __init__(self, pool: Wire) -> None:
        self._pool = pool
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.used = 0
        self.spoilt = False
        self._sender: asyncio.Task[None] | None = None
        self.lost: Exception | None = None
        self.closed = False
        self._writable: asyncio.Future[None] | None = None
        self._reset(b"GET")

    def _reset(self, method: bytes) -> None:
        """Ready for the next exchange."""
        self.parser = httptools.HttpResponseParser(self)
        self.method = method
        self.headers: list[Header] = []
        self.pieces: deque[bytes] = deque()
        self.buffered = 0
        self.head_size = 0
        self.answered = False
        self.complete = False
        self.sent = False
        self.framed = False
        self.keep_alive = False
        self.head_done = False
        self.status = 0
        self.paused = False
        self.waiter: asyncio.Future[None] | None = None

    # -------------------------------------------------------------- asyncio side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's transports are duck-typed

    def data_received(self, data: bytes) -> None:
        if self.complete:
            return self._surplus()
        self.answered = True
        try:
            self.parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._misread(error)

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._pool.forget(self)
        if self.head_done and not self.framed and exc is None and self.lost is None:
            # Neither a length nor chunks: the body ends with the connection (RFC 9112 section 6.3).
            self.complete = True
        if not self.complete:
            self.lost = self.lost or UpstreamBroken(
                "The upstream closed the connection before its answer was complete."
            )
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable = self._writable or self._loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # ------------------------------------------------------------ httptools side

    def on_message_begin(self) -> None:
        if self.complete:
            self._surplus()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self.head_done:
            return  # a trailer: dropped on purpose, nothing downstream expects it
        self.headers.append((name, value))
        self.head_size += len(name) + len(value)
        if self.head_size > MAX_HEAD_BYTES:
            self._fail(UpstreamBroken(f"The upstream's headers have more than {MAX_HEAD_BYTES} bytes."))

    def on_headers_complete(self) -> None:
        if self.complete or self.lost is not None:
            return
        status = self.parser.get_status_code()
        if status < 200:
            self.headers, self.head_size = [], 0  # an interim answer (RFC 9110 section 15.2)
            return
        if problem := _unusable(status, self.headers):
            return self._fail(UpstreamBroken(problem))
        self.status, self.head_done = status, True
        # Asked here, because the parser forgets how the message was framed once it is over.
        self.keep_alive = self.parser.should_keep_alive()
        for name, value in self.headers:
            lowered = name.lower()
            if lowered == b"content-length" or (lowered == b"transfer-encoding" and CHUNKED in value.lower()):
                self.framed = True
        if self.method == b"HEAD" or status in (204, 304):
            # No body, whatever content-length says (RFC 9112 section 6.3); the parser would wait for one.
            self.complete = True
        self._wake()

    def on_body(self, body: bytes) -> None:
        if self.complete:
            return self._surplus()
        self.pieces.append(body)
        self.buffered += len(body)
        if self.buffered > HIGH_WATER and not self.paused and self.transport is not None:
            self.paused = True
            self.transport.pause_reading()
        self._wake()

    def on_message_complete(self) -> None:
        if self.head_done:
            self.complete = True
            self._wake()

    def _misread(self, error: Exception) -> None:
        if self.complete:
            self._surplus()
        else:
            self._fail(UpstreamBroken(f"The upstream's answer is not HTTP/1.1: {type(error).__name__}."))

    def _surplus(self) -> None:
        """Bytes nobody asked for: they must not be taken for the answer to the next request."""
        self.spoilt = True

    # -------------------------------------------------------------------- exchange

    def send(self, request: Request, idle_s: float, spawn: Spawn | None) -> None:
        """Write the request; a body that comes in pieces is sent by a task of its own, beside the answer."""
        assert self.transport is not None
        self.used += 1
        if self.used > 1 or self.method != request.method:
            self._reset(request.method)
        body = request.body
        lines = [request.method, b" ", request.target, b" HTTP/1.1\r\n"]
        length: int | None = None
        for name, value in request.headers:
            lines += (name, b": ", value, b"\r\n")
            if name.lower() == b"content-length":
                length = int(value)
        if isinstance(body, bytes):
            if length is None and body:
                lines.append(b"content-length: %d\r\n" % len(body))
            elif length is not None and length != len(body):
                raise BadRequest(f"The body has {len(body)} bytes, but content-length says {length}.")
            self.transport.write(b"".join((*lines, b"\r\n", body)))
            self.sent = True
            return
        lines.append(b"transfer-encoding: chunked\r\n\r\n" if length is None else b"\r\n")
        self.transport.write(b"".join(lines))
        assert spawn is not None
        self._sender = spawn(self._send_pieces(body, length, idle_s))

    async def _send_pieces(self, pieces: AsyncGenerator[bytes, None], length: int | None, idle_s: float) -> None:
        written = 0
        try:
            async with contextlib.aclosing(pieces):
                async for piece in pieces:
                    written += len(piece)
                    if self.closed or self.transport is None or (length is not None and written > length):
                        break
                    if piece:
                        self.transport.write(b"%x\r\n%b\r\n" % (len(piece), piece) if length is None else piece)
                    await self._drained(idle_s)
            if length not in (None, written) and not self.closed:
                raise BadRequest(f"The body does not have the {length} bytes that content-length says.")
            if length is None and self.transport is not None:
                self.transport.write(b"0\r\n\r\n")
            self.sent = True
            self._wake()
        except RouterError as error:
            self._fail(error)

    async def _drained(self, idle_s: float) -> None:
        """Wait until the other side has taken most of what was written."""
        if self._writable is None:
            return
        try:
            async with asyncio.timeout(idle_s):
                await self._writable
        except TimeoutError:
            raise UpstreamTimeout(f"The upstream took nothing of the request's body for {idle_s:g} s.") from None

    async def head(self, timeout_s: float) -> None:
        """Wait for status and headers; raises `_Stale`, `UpstreamBroken` or `UpstreamTimeout`.

        The time runs from the end of the request: how long its body takes is the client's affair.
        """
        while not (self.sent or self.head_done or self.lost is not None):
            await self._wait()
        try:
            async with asyncio.timeout(timeout_s):
                while not self.head_done and self.lost is None:
                    await self._wait()
        except TimeoutError:
            raise UpstreamTimeout(f"The upstream sent no answer within {timeout_s:g} s.") from None
        if self.lost is not None and not self.head_done:
            if self.used > 1 and not self.answered:
                raise _Stale
            raise self.lost

    async def body(self, idle_s: float) -> AsyncIterator[bytes]:
        """The body's bytes as they come; raises `UpstreamBroken` or `UpstreamTimeout` when it is cut."""
        while True:
            if self.pieces:
                yield self.take()
            elif self.complete:
                return
            elif self.lost is not None:
                raise self.lost
            else:
                try:
                    async with asyncio.timeout(idle_s):
                        await self._wait()
                except TimeoutError:
                    raise UpstreamTimeout(
                        f"The upstream sent nothing for {idle_s:g} s in the middle of its answer."
                    ) from None

    def take(self) -> bytes:
        """Everything that has come so far, as one piece."""
        data = self.pieces.popleft() if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self.buffered = 0
        if self.paused and self.transport is not None and not self.closed:
            self.paused = False
            self.transport.resume_reading()
        return data

    @property
    def reusable(self) -> bool:
        """Whether the exchange ended in a state from which another can begin."""
        return (
            self.complete
            and self.sent
            and not self.closed
            and self.lost is None
            and not self.spoilt
            and self.keep_alive
        )

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if self._sender is not None:
            self._sender.cancel()
        if self.transport is not None and not self.closed:
            self.transport.abort()

    def _fail(self, error: Exception) -> None:
        self.lost = self.lost or error
        self.abort()
        self._wake()

    async def _wait(self) -> None:
        self.waiter = self._loop.create_future()
        try:
            await self.waiter
        finally:
            self.waiter = None

    def _wake(self) -> None:
        if self.waiter is not None and not self.waiter.done():
            self.waiter.set_result(None)


class Answer:
    """An upstream's answer; leaving the `async with` early closes its connection."""

    def __init__(self, pool: Wire, connection: Connection, idle_s: float) -> None:
        self._pool = pool
        self._connection = connection
        self._idle_s = idle_s
        self.status = connection.status
        self.headers = connection.headers

    @property
    def whole(self) -> bytes | None:
        """The body, if all of it has come already."""
        connection = self._connection
        return connection.take() if connection.complete and connection.lost is None else None

    def body(self) -> AsyncIterator[bytes]:
        """The body's bytes as they come, content-encoded as they are."""
        return self._connection.body(self._idle_s)

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
            with contextlib.suppress(_Stale):
                return await self._exchange(pooled, request, spawn)
        return await self._exchange(await self._connect(), request, spawn)

    async def _exchange(self, connection: Connection, request: Request, spawn: Spawn | None) -> Answer:
        try:
            connection.send(request, self.timeouts.idle_s, spawn)
            await connection.head(self.timeouts.first_byte_s)
        except BaseException:
            connection.abort()
            raise
        return Answer(self, connection, self.timeouts.idle_s)

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
                    lambda: Connection(self), origin.host, origin.port, **options
                )
        except TimeoutError:
            raise UpstreamUnreachable(f"No connection to the upstream within {self.timeouts.connect_s:g} s.") from None
        except (OSError, ssl.SSLError) as error:
            raise UpstreamUnreachable(f"No connection to the upstream: {_short(error)}.") from None
        self._open.add(connection)
        return connection

    def release(self, connection: Connection) -> None:
        """Back into the pool if it can carry another exchange, else closed."""
        if connection.reusable and not connection.pieces:
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


def _unusable(status: int, headers: list[Header]) -> str:
    """Why a head cannot be passed on, "" if it can.

    A status beyond 599 is no HTTP status (RFC 9110 section 15). A transfer coding other than chunked was not asked for
    (RFC 9112 section 7.4); with the field dropped on this hop, the client would take the coded bytes for the body.
    """
    if status > 599:
        return f"The upstream's status {status} is none that HTTP has."
    coded = any(name.lower() == b"transfer-encoding" and value.lower() != CHUNKED for name, value in headers)
    return "The upstream's answer has a transfer coding that nobody asked for." if coded else ""


def _closing(connection: Connection) -> bool:
    return connection.transport is None or connection.transport.is_closing()


def _short(error: Exception) -> str:
    """What went wrong without addresses beyond the configured one."""
    return (error.strerror if isinstance(error, OSError) and error.strerror else type(error).__name__)[:120]
