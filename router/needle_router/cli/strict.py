"""The server's reading of requests, stricter than uvicorn's where a proxy has to be.

By the time an app is called, httptools has reduced an absolute-form target to its path, let a second Host pass and put
trailers among the headers; what the client meant cannot be told any more, so it is settled here (`strict_rules`). So
are the limits that uvicorn lacks: bytes and number of header fields, length of the target, number of connections, and
how long a client may keep the server waiting (`strict_gate`).

A request that is refused is the last one of its connection. It is answered after those before it, if it can be: where
one of them is still being answered, the connection ends with that answer.
"""

from __future__ import annotations

import asyncio
from typing import Any

import httptools
from uvicorn.config import Config
from uvicorn.protocols.http.flow_control import HIGH_WATER_LIMIT
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle
from uvicorn.server import ServerState

from needle_router.cli.strict_answers import GentleTransport, raw_after_101, refusal, without_chunks
from needle_router.cli.strict_gate import ANSWER, BODY, HEAD, IDLE, LINGER, Gate
from needle_router.cli.strict_rules import Head, fault, head_too_large, target_too_long
from needle_router.cli.strict_stall import WriteWatch
from needle_router.errors import BadRequest, ClientTooSlow, RouterError, TooManyConnections
from needle_router.forward.hangup import HANGUP, Hangup, hangup_of
from needle_router.forward.tunnel import EXTENSION, wants_websocket

UNREADABLE = "The request is not one that can be read in one way only: see RFC 9112, sections 3 and 6."


class StrictProtocol(HttpToolsProtocol):
    """uvicorn's httptools protocol with limits, deadlines, and refusals in OpenAI's shape.

    `gate` is shared by the connections of a server; without one the connection has the default limits for itself.
    """

    def __init__(
        self,
        config: Config,
        server_state: ServerState,
        app_state: dict[str, Any],
        _loop: asyncio.AbstractEventLoop | None = None,
        *,
        gate: Gate | None = None,
    ) -> None:
        super().__init__(config, server_state, app_state, _loop)
        self.gate = gate or Gate()
        self.phase = IDLE
        self.since = 0.0
        #: Bytes that came since the last that led to something.
        self.loose_bytes = 0
        #: True from a WebSocket handshake on: whatever comes after it is the app's, unread.
        self.upgraded = False
        #: True once nothing more is read from this client.
        self.deaf = False
        self.fault: RouterError | None = None
        self.gentle: GentleTransport | None = None
        self.running: RequestResponseCycle | None = None

    # ------------------------------------------------------------------------------------------- the connection

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as in uvicorn
        """Take the connection in, or say that there are too many."""
        if self.gate.enter(self):
            self.written = WriteWatch(self.since)
            super().connection_made(transport)
            self.gentle = GentleTransport(transport, self.part)
            return
        self.transport, self.deaf, self.written = transport, True, WriteWatch(self.gate.now)
        limit = self.gate.limits.max_connections
        self._say(TooManyConnections(f"All {limit} connections of this router are taken (server.max_connections)."))

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        self.gate.leave(self)
        super().connection_lost(exc)
        if self.running is not None and not self.running.response_complete:
            _hang_up(self.running)

    def data_received(self, data: bytes) -> None:
        """Parse what came, as long as it makes sense and stays within the limits."""
        if self.deaf:
            return
        if self.upgraded:
            return self._pass_raw(data)
        self.loose_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgrade(data[upgrade.args[0] :])
        except httptools.HttpParserError:
            self._refuse(self.fault or BadRequest(UNREADABLE))
        else:
            # Fields, chunk extensions and trailers without an end are kept by the parser, which has no limit itself.
            if self.loose_bytes > self.gate.max_head_bytes:
                in_target = self.phase == HEAD and len(self.url) > self.gate.max_url_bytes
                self._refuse(target_too_long(self.gate) if in_target else head_too_large(self.gate))

    def _upgrade(self, rest: bytes) -> None:
        """What follows may be in another protocol, so no other request is read here."""
        self.cycle.keep_alive = False
        if self.upgraded:
            self._pass_raw(rest)
        else:
            # The app answers the request as the plain one that it also is.
            self.deaf = True

    def _pass_raw(self, data: bytes) -> None:
        """Bytes behind a handshake, for the app to fetch as if they were the request's body."""
        cycle = self.cycle
        if cycle.response_complete:
            return
        cycle.body += data
        if len(cycle.body) > HIGH_WATER_LIMIT:
            self.flow.pause_reading()
        cycle.message_event.set()

    def waits_for_us(self) -> bool:
        """Whether the client cannot send: reading is paused, or it waits for our 100."""
        if self.phase not in (HEAD, BODY):
            return False
        return self.flow.read_paused or (self.phase == BODY and self.cycle.waiting_for_100_continue)

    def takes_nothing(self, now: float, allowed_s: float) -> bool:
        """Whether the client has stopped reading its answer."""
        return self.written.stalls(self.transport, now, allowed_s)

    def drop(self) -> None:
        """End the connection with what is still unsent; the app sees its client leave."""
        self.transport.abort()

    def expire(self) -> None:
        """End what the client does not end."""
        limits = self.gate.limits
        if self.phase == HEAD:
            text = f"The head of the request took longer than {limits.header_timeout_s:g} s"
            self._refuse(ClientTooSlow(f"{text} (server.header_timeout_s)."))
        elif self.phase == BODY:
            text = f"No further piece of the body came within {limits.body_timeout_s:g} s"
            self._refuse(ClientTooSlow(f"{text} (server.body_timeout_s)."))
        elif self.phase == LINGER:
            self.transport.abort()
        else:
            self.transport.close()

    # ----------------------------------------------------------------------------------------- parser callbacks

    def on_message_begin(self) -> None:
        """The first byte of a request."""
        super().on_message_begin()
        self.phase, self.since = HEAD, self.gate.now

    def on_headers_complete(self) -> None:
        """Check what the app will not see. An error raised here makes the parser stop."""
        parser = self.parser
        head = Head(self.url, self.headers, parser.get_http_version(), parser.should_upgrade())
        self.fault = fault(head, self.gate)
        if self.fault is not None:
            raise self.fault
        self.scope["extensions"] = {HANGUP: {HANGUP: Hangup()}}
        if head.upgrade and self.parser.get_method() == b"GET" and wants_websocket(self.headers):
            self.upgraded = True
            self.scope["extensions"][EXTENSION] = {}
        super().on_headers_complete()
        self.cycle.transport = self.gentle  # type: ignore[assignment]  # all that it uses of one
        # Trailers would join the header fields, after those were checked; so they go nowhere.
        self.headers = []
        self.phase, self.since, self.loose_bytes = BODY, self.gate.now, 0

    def on_body(self, body: bytes) -> None:
        """A piece of the body; what still comes after the answer buys no more time."""
        super().on_body(body)
        self.loose_bytes = 0
        if not self.cycle.response_complete:
            self.since = self.gate.now

    def on_message_complete(self) -> None:
        """The last byte of a request."""
        super().on_message_complete()
        self.loose_bytes = 0
        self.phase, self.since = IDLE if self.cycle.response_complete else ANSWER, self.gate.now

    def on_response_complete(self) -> None:
        """The end of an answer; as in uvicorn, but for its timer."""
        self.server_state.total_requests += 1
        if self.transport.is_closing():
            return
        self.flow.resume_reading()
        if self.pipeline:
            self._start_asgi_task(*self.pipeline.pop())
        else:
            self.since = self.gate.now
            if self.phase == ANSWER:
                self.phase = IDLE

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: Any) -> None:
        self.running = cycle
        if cycle.scope["http_version"] == "1.0":
            app = without_chunks(app, cycle)
        elif EXTENSION in cycle.scope["extensions"]:
            app = raw_after_101(app, cycle)
        super()._start_asgi_task(cycle, app)

    # -------------------------------------------------------------------------------------------------- refusing

    def _refuse(self, error: RouterError) -> None:
        """Read no more; say why, if the client can take it for the answer to this request."""
        self.deaf = True
        own = self.cycle if self.phase == BODY else None
        if own is not None and own is self.running:
            self._end_running(own, error)
            return
        if own is not None:
            self.pipeline.popleft()  # its own place in the queue, which it got when its head was read
        last = self.pipeline[0][0] if self.pipeline else self.running
        if last is None or last.response_complete:
            self._say(error)
        else:
            last.keep_alive, self.phase = False, ANSWER

    def _end_running(self, cycle: RequestResponseCycle, error: RouterError) -> None:
        """The request under way turned out to be broken."""
        told = cycle.response_started
        cycle.disconnected = True
        cycle.message_event.set()
        _hang_up(cycle)
        self.flow.resume_writing()
        if told:
            self._flush()
            self.transport.close()
        else:
            self._say(error)

    def _say(self, error: RouterError) -> None:
        """Write the refusal, and close."""
        self._flush()
        self.transport.write(refusal(error))
        self._linger()

    def part(self) -> None:
        """The last answer of the connection has been written. Its client may still be sending the request."""
        self._flush()
        if self.phase == BODY and not self.transport.is_closing():
            self.deaf = True
            self._linger()
        else:
            self.transport.close()

    def _flush(self) -> None:
        if self.gentle is not None:
            self.gentle.flush()

    def _linger(self) -> None:
        """Close, but read on for a while: a reset at once could overtake what was written."""
        if not self.gate.linger(self) or not self.transport.can_write_eof():
            self.transport.close()
            return
        self.transport.write_eof()
        if self.flow is not None:
            self.flow.resume_reading()


def _hang_up(cycle: RequestResponseCycle) -> None:
    """The client of a running request has gone."""
    hangup = hangup_of(cycle.scope)
    if hangup is not None:
        hangup.happened()
