"""What a client hears when the server stops before its answer is complete.

uvicorn then cancels what still runs. A request without an answer gets a 503 that it may repeat, an event stream an
error event, so that nobody takes half an answer for a whole one. Whatever else has begun breaks off.
"""

from __future__ import annotations

import asyncio
import contextlib

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from needle_router.errors import ShuttingDown
from needle_router.forward.answer import send_error, sse_error
from needle_router.forward.headers import Header, is_event_stream

#: A client that does not read must not keep the server from ending.
LAST_WORD_S = 1.0
STOPPED = "The router is stopping, and this answer was not complete in time (server.drain_timeout_s)."


class LastWords:
    """`app`, with an end to every answer that is cancelled from outside."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """One connection of any kind."""
        if scope["type"] != "http":
            return await self._app(scope, receive, send)
        answer = _Answer(send)
        try:
            await self._app(scope, receive, answer)
        except asyncio.CancelledError:
            with contextlib.suppress(Exception):
                async with asyncio.timeout(LAST_WORD_S):
                    await answer.break_off()
            raise


class _Answer:
    """An ASGI `send` that remembers how far its answer is."""

    __slots__ = ("_headers", "_send", "complete")

    def __init__(self, send: Send) -> None:
        self._send = send
        self._headers: list[Header] | None = None
        self.complete = False

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._headers = list(message.get("headers", ()))
        elif not message.get("more_body", False):
            self.complete = True
        await self._send(message)

    async def break_off(self) -> None:
        """Say why nothing more comes, where there is a way to say it."""
        error = ShuttingDown(STOPPED)
        if self._headers is None:
            await send_error(self._send, error)
        elif not self.complete and is_event_stream(self._headers):
            body = b"\n\n" + sse_error(error)
            await self._send({"type": "http.response.body", "body": body, "more_body": True})
