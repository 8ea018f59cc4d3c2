"""How many connections there may be, and how long each may keep the server waiting.

A timer for each request would cost more than reading it. Connections note instead, in two plain attributes, what they
wait for and since when; one sweep over all of them, a few times within the shortest deadline, finds those that have
waited too long. A deadline is therefore met up to two sweeps late and never early.
"""

from __future__ import annotations

import asyncio
import errno
import logging
import math
import os
from typing import Any, Protocol

from needle_router.config.schema import Server

logger = logging.getLogger("needle_router.server")

#: What a connection waits for: the next request, the rest of a head, the rest of a body, our answer, the client's end.
IDLE, HEAD, BODY, ANSWER, LINGER = range(5)
#: For how long what a refused client still sends is read and thrown away. Closing at once would answer it with a reset,
#: which can overtake the refusal.
LINGER_S = 2.0
#: Refused connections that are waited for in that way; the next ones are closed at once.
MAX_LINGERING = 128
LONGEST_TICK_S = 1.0
TICKS_PER_DEADLINE = 8
NO_DESCRIPTORS = (errno.EMFILE, errno.ENFILE)


class Connection(Protocol):
    """What the gate has to know of a connection."""

    phase: int
    since: float

    def waits_for_us(self) -> bool:
        """Whether it is the server that holds things up, not the client."""

    def expire(self) -> None:
        """The client has had its time."""

    def takes_nothing(self, now: float, allowed_s: float) -> bool:
        """Whether nothing of what is ready for the client was taken for so long."""

    def drop(self) -> None:
        """End the connection at once."""


class Gate:
    """The connections of one server, and the limits of `[server]` that hold for them."""

    def __init__(self, limits: Server | None = None) -> None:
        self.limits = limits = limits or Server()
        self.max_head_bytes = round(limits.max_header_kb * 1024)
        self.max_url_bytes = round(limits.max_url_kb * 1024)
        #: Loop time of the last sweep.
        self.now = 0.0
        self._allowed_s = (limits.idle_timeout_s, limits.header_timeout_s, limits.body_timeout_s, math.inf, LINGER_S)
        shortest_s = min(*self._allowed_s, limits.write_timeout_s)
        self._tick_s = min(LONGEST_TICK_S, shortest_s / TICKS_PER_DEADLINE)
        self._served: set[Connection] = set()
        self._lingering: set[Connection] = set()
        self._sweeping = False
        self._starved = False

    def enter(self, connection: Connection) -> bool:
        """Whether one more connection may be served; from now on it is watched."""
        self._sweep_from_now_on()
        if len(self._served) >= self.limits.max_connections:
            return False
        connection.phase, connection.since = IDLE, self.now
        self._served.add(connection)
        return True

    def linger(self, connection: Connection) -> bool:
        """Whether the end of a refused connection may be waited for; it no longer counts as one that is served."""
        self._served.discard(connection)
        if len(self._lingering) >= MAX_LINGERING:
            return False
        connection.phase, connection.since = LINGER, self.now
        self._lingering.add(connection)
        return True

    def leave(self, connection: Connection) -> None:
        """The connection is over."""
        self._served.discard(connection)
        self._lingering.discard(connection)

    def on_loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """asyncio's exception handler: of each accept that finds no file descriptor it would print a traceback."""
        error = context.get("exception")
        if isinstance(error, OSError) and error.errno in NO_DESCRIPTORS:
            self._note_descriptors(missing=True)
        else:
            loop.default_exception_handler(context)

    # ------------------------------------------------------------------------------------------------ the sweep

    def _sweep_from_now_on(self) -> None:
        if self._sweeping:
            return
        self._sweeping = True
        loop = asyncio.get_running_loop()
        self.now = loop.time()
        loop.call_later(self._tick_s, self._sweep, loop)

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = loop.time()
        allowed_s, now, write_s = self._allowed_s, self.now, self.limits.write_timeout_s
        for connection in (*self._served, *self._lingering):
            if connection.takes_nothing(now, write_s):
                connection.drop()
            if now - connection.since <= allowed_s[connection.phase]:
                continue
            if connection.waits_for_us():
                connection.since = now
            else:
                connection.expire()
        self._look_for_descriptors()
        self._sweeping = bool(self._served or self._lingering)
        if self._sweeping:
            loop.call_later(self._tick_s, self._sweep, loop)

    def _look_for_descriptors(self) -> None:
        # uvloop drops connections for which there is no descriptor without a word.
        try:
            os.close(os.open(os.devnull, os.O_RDONLY))
        except OSError as error:
            if error.errno in NO_DESCRIPTORS:
                self._note_descriptors(missing=True)
        else:
            self._note_descriptors(missing=False)

    def _note_descriptors(self, *, missing: bool) -> None:
        if missing and not self._starved:
            logger.error(
                "no file descriptor is left (%s connections): new ones fail until others close; "
                "lower server.max_connections or raise the limit of open files (ulimit -n)",
                len(self._served),
            )
        self._starved = missing
