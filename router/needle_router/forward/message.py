"""What goes to an upstream, and how long each part of it may take."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from needle_router.errors import BadRequest
from needle_router.forward.headers import Header


@dataclass(frozen=True, slots=True)
class Timeouts:
    """Seconds: to connect, to the first byte of an answer, between its pieces, from its head to its end (0: any)."""

    connect_s: float
    first_byte_s: float
    idle_s: float
    answer_s: float = 0


@dataclass(frozen=True, slots=True)
class Request:
    """What to send. `body` is bytes, or an iterator of pieces that goes out with content-length where the headers
    state one and chunked otherwise. With `upgrade` it is a WebSocket handshake.
    """

    method: bytes
    target: bytes
    headers: list[Header]
    body: bytes | AsyncGenerator[bytes, None] = b""
    upgrade: bool = False

    @property
    def replayable(self) -> bool:
        """Whether the request can be sent a second time."""
        return isinstance(self.body, bytes)

    def head(self) -> tuple[bytes, int | None]:
        """First line and fields, up to and with the empty line, and the length that they state.

        Raises `BadRequest` when a body of bytes has another length.
        """
        lines = [self.method, b" ", self.target, b" HTTP/1.1\r\n"]
        length: int | None = None
        for name, value in self.headers:
            lines += (name, b": ", value, b"\r\n")
            if name.lower() == b"content-length":
                length = int(value)
        if self.upgrade:
            lines.append(b"connection: Upgrade\r\nupgrade: websocket\r\n")
        body = self.body
        if not isinstance(body, bytes):
            lines.append(b"transfer-encoding: chunked\r\n\r\n" if length is None else b"\r\n")
        elif length is None and body:
            lines.append(b"content-length: %d\r\n\r\n" % len(body))
        elif length is not None and length != len(body):
            raise BadRequest(f"The body has {len(body)} bytes, but content-length says {length}.")
        else:
            lines.append(b"\r\n")
        return b"".join(lines), length


class Spawn(Protocol):
    """Starts a task in the caller's task group."""

    def __call__(self, work: Coroutine[Any, Any, None], /) -> asyncio.Task[None]:
        """Start it."""
