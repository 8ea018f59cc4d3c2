"""Answers that uvicorn would frame otherwise: refusals, those for HTTP/1.0, and what follows a switch of protocols."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from http import HTTPStatus

import orjson
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import RequestResponseCycle

from needle_router.errors import RouterError, envelope

STATUS_LINE = b"HTTP/1.1 "


class GentleTransport:
    """What a cycle of uvicorn writes to: the connection's transport, but for how it is closed and when a head goes out.

    A head waits for the body that usually follows at once, to the end of the loop's round at most: every write is a
    system call and a packet of its own, and the call is among the dearest things that a forwarded request does.
    """

    __slots__ = ("_head", "_loop", "_transport", "_write", "close", "is_closing")

    def __init__(self, transport: asyncio.Transport, close: Callable[[], None]) -> None:
        self._loop = asyncio.get_running_loop()
        self._head = b""
        self._transport, self._write, self.is_closing = transport, transport.write, transport.is_closing
        self.close = close

    def write(self, data: bytes) -> None:
        """Write, or keep a head for a moment."""
        if self._head:
            self._write(self._head + data)
            self._head = b""
        elif data.startswith(STATUS_LINE):
            self._head = data
            self._loop.call_soon(self.flush)
        else:
            self._write(data)

    def flush(self) -> None:
        """Write a head that is still kept."""
        head, self._head = self._head, b""
        if head and not self._transport.is_closing():
            self._write(head)


def refusal(error: RouterError) -> bytes:
    """The whole answer to a request that is not served, which is the last one of its connection."""
    body = orjson.dumps(envelope(error))
    fields = [
        f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}",
        "content-type: application/json",
        f"content-length: {len(body)}",
        f"x-should-retry: {'true' if error.retryable else 'false'}",
        *(["retry-after: 1"] if error.status == HTTPStatus.SERVICE_UNAVAILABLE else []),
        "connection: close",
    ]
    return "\r\n".join((*fields, "", "")).encode("ascii") + body


def without_chunks(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """`app` for an HTTP/1.0 client, which knows no chunks: a body of unknown length ends with the connection."""

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        sized = True

        async def plainly(message: Message) -> None:
            nonlocal sized
            if message["type"] == "http.response.start":
                sized = any(name.lower() == b"content-length" for name, _ in message.get("headers", ()))
                if not sized:
                    cycle.chunked_encoding = False
            elif not sized:
                # uvicorn counts down from what was announced, to nothing at the end.
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, plainly)

    return answering


def raw_after_101(app: ASGIApp, cycle: RequestResponseCycle) -> ASGIApp:
    """`app` for a WebSocket handshake: after a 101 the bytes of its body go out as they are, and what the client sends
    comes as more of the request's body.
    """

    async def answering(scope: Scope, receive: Receive, send: Send) -> None:
        switched = False

        async def plainly(message: Message) -> None:
            nonlocal switched
            if message["type"] == "http.response.start" and message["status"] == HTTPStatus.SWITCHING_PROTOCOLS:
                switched = True
                # Or uvicorn would add fields of its own.
                cycle.chunked_encoding, cycle.keep_alive = False, True
                cycle.more_body = True
                await send(message)
                cycle.keep_alive = False
                return
            if switched:
                cycle.expected_content_length = len(message.get("body", b""))
            await send(message)

        await app(scope, receive, plainly)

    return answering
