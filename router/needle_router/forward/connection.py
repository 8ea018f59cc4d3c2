"""One connection to an upstream, which carries one exchange at a time.

asyncio calls in from below and an `AnswerReader` makes the bytes an answer; whoever sent the request waits here for its
head and its body. What is not read is not fetched either: beyond `HIGH_WATER` unread bytes the socket is left alone
until somebody takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import math
from collections.abc import AsyncGenerator, AsyncIterator, Callable

from needle_router.errors import BadRequest, RouterError, UpstreamTimeout
from needle_router.forward.message import Request, Spawn
from needle_router.forward.reading import AnswerReader

#: Unread bytes of an answer at which the socket is no longer read.
HIGH_WATER = 256 * 1024


class Stale(Exception):
    """A pooled connection was closed by the other side before it answered anything."""


class Connection(asyncio.Protocol):
    """One connection; `forget` is called with it when it is gone."""

    def __init__(self, forget: Callable[[Connection], None]) -> None:
        self._forget = forget
        self._loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.idle_since = 0.0
        self.used = 0
        self.closed = False
        self.reader = AnswerReader()
        self._sent = False
        self._paused = False
        self._sender: asyncio.Task[None] | None = None
        self._waiter: asyncio.Future[bool] | None = None
        self._until = math.inf
        self._alarm: asyncio.TimerHandle | None = None
        self._writable: asyncio.Future[None] | None = None

    # ------------------------------------------------------------------------ called by asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport) or hasattr(transport, "write")
        self.transport = transport  # type: ignore[assignment]  # uvloop's transports are duck-typed

    def data_received(self, data: bytes) -> None:
        reader = self.reader
        reader.feed(data)
        if reader.lost is not None:
            self.abort()
        elif reader.buffered > HIGH_WATER and not self._paused and self.transport is not None:
            self._paused = True
            self.transport.pause_reading()
        self._wake()

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, exc: Exception | None) -> None:
        self.closed = True
        self._forget(self)
        self.reader.end(orderly=exc is None)
        if self._alarm is not None:
            self._alarm.cancel()
        self._wake()
        self.resume_writing()

    def pause_writing(self) -> None:
        self._writable = self._writable or self._loop.create_future()

    def resume_writing(self) -> None:
        waiting, self._writable = self._writable, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    # ------------------------------------------------------------------------------ the request

    def send(self, request: Request, idle_s: float, spawn: Spawn | None) -> None:
        """Write the request; a body that comes in pieces is sent by a task of its own, beside the answer."""
        assert self.transport is not None
        self.used += 1
        if self.used > 1 or self.reader.method != request.method:
            self.reader.begin(request.method)
        self._sent = False
        self.reader.may_switch = request.upgrade
        head, length = request.head()
        if isinstance(request.body, bytes):
            self.transport.write(head + request.body)
            self._sent = True
            return
        self.transport.write(head)
        assert spawn is not None
        self._sender = spawn(self._send_pieces(request.body, length, idle_s))

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
            self._sent = True
            self._wake()
        except RouterError as error:
            self.reader.lost = self.reader.lost or error
            self.abort()
            self._wake()

    async def write(self, data: bytes, idle_s: float) -> None:
        """Send bytes as they are, once another protocol is spoken."""
        if self.transport is not None and not self.closed:
            self.transport.write(data)
            await self._drained(idle_s)

    async def _drained(self, idle_s: float) -> None:
        """Wait until the other side has taken most of what was written."""
        if self._writable is None:
            return
        try:
            async with asyncio.timeout(idle_s):
                await self._writable
        except TimeoutError:
            raise UpstreamTimeout(f"The upstream took nothing of the request's body for {idle_s:g} s.") from None

    # ------------------------------------------------------------------------------- the answer

    async def head(self, timeout_s: float) -> None:
        """Wait for status and headers; raises `Stale`, `UpstreamBroken` or `UpstreamTimeout`.

        The time runs from the end of the request: how long its body takes is the client's affair.
        """
        reader = self.reader
        while not (self._sent or reader.head_done or reader.lost is not None):
            await self._wait()
        until = self._loop.time() + timeout_s
        while not reader.head_done and reader.lost is None:
            if not await self._wait(until):
                raise UpstreamTimeout(f"The upstream sent no answer within {timeout_s:g} s.")
        if reader.lost is not None and not reader.head_done:
            if self.used > 1 and not reader.answered:
                raise Stale
            raise reader.lost

    async def body(self, idle_s: float, answer_s: float) -> AsyncIterator[bytes]:
        """The body's bytes as they come; raises `UpstreamBroken` or `UpstreamTimeout` when it is cut.

        `idle_s` is the time between two pieces and `answer_s` that for all of it from now on, 0 for any.
        """
        reader = self.reader
        end = self._loop.time() + answer_s if answer_s else math.inf
        while True:
            if answer_s and self._loop.time() > end:
                raise UpstreamTimeout(f"The upstream's answer did not end within {answer_s:g} s.")
            if reader.pieces:
                yield self.take()
            elif reader.complete:
                return
            elif reader.lost is not None:
                raise reader.lost
            else:
                await self._more(idle_s, end)

    async def _more(self, idle_s: float, end: float) -> None:
        """Wait for more of the body, up to the loop time `end`, which is the caller's affair."""
        silent_at = self._loop.time() + idle_s if idle_s else math.inf
        if not await self._wait(min(silent_at, end)) and silent_at <= end:
            raise UpstreamTimeout(f"The upstream sent nothing for {idle_s:g} s in the middle of its answer.")

    def take(self) -> bytes:
        """Everything that has come so far, as one piece; from now on there is room for more."""
        data = self.reader.take()
        if self._paused and self.transport is not None and not self.closed:
            self._paused = False
            self.transport.resume_reading()
        return data

    # ------------------------------------------------------------------------------- its end

    @property
    def reusable(self) -> bool:
        """Whether the exchange ended in a state from which another can begin."""
        reader = self.reader
        return (
            reader.complete
            and reader.keep_alive
            and not reader.spoilt
            and reader.lost is None
            and self._sent
            and not self.closed
        )

    def abort(self) -> None:
        """Close at once, whatever is under way."""
        if self._sender is not None:
            self._sender.cancel()
        if self.transport is not None and not self.closed:
            self.transport.abort()

    async def _wait(self, until: float = math.inf) -> bool:
        """Wait for something to happen; false when nothing had by the loop time `until`."""
        self._until = until
        if self._alarm is None or self._alarm.when() > until:
            self._set_alarm()
        self._waiter = self._loop.create_future()
        try:
            return await self._waiter
        finally:
            self._waiter = None

    def _wake(self, *, in_time: bool = True) -> None:
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(in_time)

    def _set_alarm(self) -> None:
        """One timer for all the waits of a connection: it may ring early, and is then set anew.

        Nearly every wait ends long before its time, and a timer for each would cost more than the wait itself.
        """
        if self._alarm is not None:
            self._alarm.cancel()
        self._alarm = self._loop.call_at(self._until, self._ring) if self._until < math.inf else None

    def _ring(self) -> None:
        self._alarm = None
        if self._waiter is None:
            return
        if self._loop.time() >= self._until:
            self._wake(in_time=False)
        else:
            self._set_alarm()
