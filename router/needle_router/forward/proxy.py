"""The streaming reverse proxy: an ASGI app whose every answer is the upstream's.

Bytes go through as they are. A watcher waits for the client to hang up from the moment the request is read; when it
does, the upstream's connection is closed, before its headers as well as in the middle of its body. An upstream that
fails before its first byte becomes an OpenAI error; one that fails later leaves an answer that visibly broke off.
"""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncGenerator, Callable
from urllib.parse import quote

import orjson
from starlette.types import Message, Receive, Scope, Send

from needle_router.config.schema import Upstream
from needle_router.errors import (
    LoopDetected,
    RouterError,
    UpstreamBroken,
    UpstreamError,
    UpstreamTimeout,
    UpstreamUnreachable,
    WebSocketRefused,
    envelope,
)
from needle_router.forward.answer import send_error, sse_error
from needle_router.forward.breaker import Breaker
from needle_router.forward.hangup import Hangup, UntilHangup, hangup_of
from needle_router.forward.headers import (
    PSEUDONYM,
    Header,
    is_event_stream,
    passed_before,
    request_headers,
    response_headers,
)
from needle_router.forward.inner import hung_up
from needle_router.forward.message import Request, Spawn, Timeouts
from needle_router.forward.target import Origin, check_target, upstream_target
from needle_router.forward.tunnel import EXTENSION, SWITCHED, ClientGone, Tunnel, wants_websocket
from needle_router.forward.upstreams import Upstream as Member
from needle_router.forward.upstreams import Upstreams
from needle_router.forward.wire import Answer, Wire

ERROR_KINDS = {UpstreamUnreachable: "unreachable", UpstreamTimeout: "timeout", UpstreamBroken: "disconnected"}


NO_WEBSOCKETS = "WebSockets are not passed on here; use HTTP."
#: Required with a 426 (RFC 9110 section 15.5.22).
UPGRADE_TO_HTTP = (b"upgrade", b"HTTP/1.1")
#: Raw path and query of a request, as they came.
Target = tuple[bytes, bytes]


class ResponseCut(Exception):
    """Raised after an answer had begun, so that the server closes the connection without ending the body properly."""


class ReverseProxy:
    """Forwards HTTP requests to the configured upstream, or to the first of several that can be reached.

    `on_error` is told the kind of each upstream failure: unreachable, timeout or disconnected.
    """

    def __init__(
        self, settings: Upstream, *, wire: Wire | None = None, on_error: Callable[[str], None] = lambda _: None
    ) -> None:
        timeouts = Timeouts(
            settings.connect_timeout_s,
            settings.first_byte_timeout_s,
            settings.idle_timeout_s,
            settings.answer_timeout_s,
        )
        failures, open_s = settings.breaker_failures, settings.breaker_open_s
        if wire is not None:
            self.upstreams = Upstreams([Member(wire.origin, wire, Breaker(failures, open_s))])
        else:
            urls = (settings.base_url, *settings.fallback_urls)
            self.upstreams = Upstreams.of(urls, timeouts, failures=failures, open_s=open_s)
        self._idle_s, self._websockets = settings.idle_timeout_s, settings.websockets
        self.key = settings.api_key if settings.inject_key else ""
        self.via = PSEUDONYM + secrets.token_hex(4).encode()
        self._on_error = on_error

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Forward one request."""
        if scope["type"] == "websocket":
            return await refuse_websocket(scope, receive, send)
        upgrade = wants_websocket(scope["headers"])
        if upgrade and not (self._websockets and EXTENSION in scope.get("extensions", {})):
            # uvicorn without a WebSocket protocol shows a handshake as the plain GET that it also is.
            return await send_error(send, WebSocketRefused(NO_WEBSOCKETS), headers=[UPGRADE_TO_HTTP])
        try:
            path, query = scope.get("raw_path") or quote(scope["path"]).encode("ascii"), scope["query_string"]
            check_target(path, query)
            if passed_before(scope["headers"], self.via):
                raise LoopDetected("The request has already passed through this router: the upstream leads back to it.")
            headers = request_headers(scope["headers"], host=b"", via=self.via, key=self.key)
        except RouterError as error:
            return await send_error(send, error)
        cut: ResponseCut | None = None
        try:
            if upgrade:
                await self._upgrade((path, query), headers, receive, send)
            else:
                request = (scope["method"].encode(), (path, query), headers)
                await self._forward(request, receive, send, hangup_of(scope))
        except* ClientGone:
            pass
        except* ResponseCut as group:
            cut = next(error for error in group.exceptions if isinstance(error, ResponseCut))
        if cut is not None:
            raise cut

    async def _forward(
        self, request: tuple[bytes, Target, list[Header]], receive: Receive, send: Send, hangup: Hangup | None
    ) -> None:
        method, target, headers = request
        first = await receive()
        if first["type"] == "http.disconnect" or (hangup is not None and hangup.gone):
            return
        body: bytes | AsyncGenerator[bytes, None] = first.get("body", b"")
        more, consumed = first.get("more_body", False), asyncio.Event()
        if more:
            body = _pieces(first, receive, consumed)

        def request_for(origin: Origin) -> Request:
            # The first field is Host, whose value depends on who is asked.
            fields = [(b"host", origin.host_header), *headers[1:]]
            return Request(method, upstream_target(origin, *target), fields, body)

        if hangup is not None and not more:
            with UntilHangup(hangup):
                await self._relay(request_for, send, None)
            return
        async with asyncio.TaskGroup() as group:
            watcher = group.create_task(_watch(receive, consumed if more else None))
            try:
                await self._relay(request_for, send, group.create_task)
            finally:
                watcher.cancel()

    async def _upgrade(self, target: Target, headers: list[Header], receive: Receive, send: Send) -> None:
        """A WebSocket handshake, and what follows where the upstream takes it up; else its answer."""

        def request_for(origin: Origin) -> Request:
            fields = [(b"host", origin.host_header), *headers[1:]]
            return Request(b"GET", upstream_target(origin, *target), fields, upgrade=True)

        tunnel = Tunnel(receive, send, self._idle_s)
        async with asyncio.TaskGroup() as group:
            client = group.create_task(tunnel.upward())
            try:
                await self._relay(request_for, send, group.create_task, tunnel)
            finally:
                client.cancel()

    async def _relay(
        self, request_for: Callable[[Origin], Request], send: Send, spawn: Spawn | None, tunnel: Tunnel | None = None
    ) -> None:
        try:
            answer = await self.upstreams.send(request_for, spawn=spawn)
        except RouterError as error:
            if isinstance(error, UpstreamError):
                self._note(error)
            return await send_error(send, error)
        async with answer:
            headers = response_headers(answer.headers)
            if answer.status in (204, 304):
                # What content-length says there is not the length of a body that follows (RFC 9110 section 8.6).
                headers = [header for header in headers if header[0].lower() != b"content-length"]
            if tunnel is not None and answer.status == 101:
                headers += SWITCHED
            await send({"type": "http.response.start", "status": answer.status, "headers": headers})
            whole = answer.whole
            if whole is not None:
                return await send({"type": "http.response.body", "body": whole})
            await self._stream(answer, send, tunnel)

    async def _stream(self, answer: Answer, send: Send, tunnel: Tunnel | None) -> None:
        try:
            if tunnel is not None and answer.status == 101:
                await tunnel.downward(answer)
            else:
                async for chunk in answer.body():
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except UpstreamError as error:
            self._note(error)
            if is_event_stream(answer.headers):
                await send({"type": "http.response.body", "body": b"\n\n" + sse_error(error), "more_body": True})
            raise ResponseCut(error.code) from None
        await send({"type": "http.response.body", "body": b""})

    def _note(self, error: UpstreamError) -> None:
        self._on_error(ERROR_KINDS.get(type(error), "disconnected"))

    async def aclose(self) -> None:
        """Close the connections to the upstream."""
        await self.upstreams.aclose()


async def _pieces(first: Message, receive: Receive, consumed: asyncio.Event) -> AsyncGenerator[bytes, None]:
    message = first
    try:
        while True:
            if message["type"] == "http.disconnect":
                raise ClientGone
            yield message.get("body", b"")
            if not message.get("more_body", False):
                return
            message = await receive()
    finally:
        consumed.set()


async def _watch(receive: Receive, consumed: asyncio.Event | None) -> None:
    """Raise when the client hangs up; a body that is still coming has its own reader."""
    if consumed is not None:
        await consumed.wait()
    if await hung_up(receive):
        raise ClientGone


async def refuse_websocket(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a WebSocket handshake with 426, so that a client can fall back to HTTP at once."""
    await receive()
    if "websocket.http.response" in (scope.get("extensions") or {}):
        body = orjson.dumps(envelope(WebSocketRefused(NO_WEBSOCKETS)))
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            UPGRADE_TO_HTTP,
        ]
        await send({"type": "websocket.http.response.start", "status": 426, "headers": headers})
        await send({"type": "websocket.http.response.body", "body": body})
    else:
        await send({"type": "websocket.close", "code": 1003})
