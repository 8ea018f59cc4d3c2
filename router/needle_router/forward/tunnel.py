"""A WebSocket through the proxy: once the upstream has switched protocols, the bytes of both sides pass unread.

To ASGI such a connection is one exchange whose request body and answer body never end and flow at the same time, which
is how HTTP/2 carries WebSockets as well (RFC 8441). A server that can do this offers `EXTENSION` in the scope. Not a
byte of the client goes up before the upstream's 101: an upstream that does not switch would read it as a request.
"""

from __future__ import annotations

import asyncio

from starlette.types import Receive, Send

from needle_router.errors import UpstreamTimeout
from needle_router.forward.headers import Header
from needle_router.forward.wire import Answer

#: In `scope["extensions"]` where the server hands on the bytes that follow a handshake.
EXTENSION = "needle_router.upgrade"
#: Both fields belong to this hop, so they are written anew.
SWITCHED: tuple[Header, ...] = ((b"connection", b"Upgrade"), (b"upgrade", b"websocket"))


class ClientGone(Exception):
    """The client hung up."""


def wants_websocket(headers: list[Header]) -> bool:
    """Whether a request is a WebSocket handshake."""
    return any(name == b"upgrade" and value.lower() == b"websocket" for name, value in headers)


class Tunnel:
    """The bytes of one client and one upstream; `idle_s` is how long none may pass in either direction."""

    def __init__(self, receive: Receive, send: Send, idle_s: float) -> None:
        self._receive, self._send, self._idle_s = receive, send, idle_s
        self._opened: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        self._idle: asyncio.Timeout | None = None

    async def upward(self) -> None:
        """Take what the client sends, from before there is an answer to its end; raises `ClientGone`."""
        while True:
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientGone
            if data := message.get("body", b""):
                answer = await self._opened
                self._touch()
                await answer.write(data)

    async def downward(self, answer: Answer) -> None:
        """Open the tunnel, and pass what the upstream sends until it closes; raises `UpstreamError` when it breaks."""
        self._opened.set_result(answer)
        try:
            async with asyncio.timeout(self._idle_s) as self._idle:
                async for piece in answer.raw():
                    self._touch()
                    await self._send({"type": "http.response.body", "body": piece, "more_body": True})
        except TimeoutError:
            raise UpstreamTimeout(f"Nothing passed through the WebSocket for {self._idle_s:g} s.") from None

    def _touch(self) -> None:
        if self._idle is not None and not self._idle.expired():
            self._idle.reschedule(asyncio.get_running_loop().time() + self._idle_s)
