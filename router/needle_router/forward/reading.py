"""One answer of an upstream, out of the bytes of its connection: no I/O, httptools parses.

An `AnswerReader` is fed what comes and can be asked at any time how far the answer is. What is wrong with it stands in
`lost`, and bytes that nobody asked for make it `spoilt`: they must not be taken for the answer to the next request.
"""

from __future__ import annotations

from collections import deque

import httptools

from needle_router.errors import UpstreamBroken
from needle_router.forward.headers import Header

MAX_HEAD_BYTES = 256 * 1024
CHUNKED = b"chunked"
CUT = "The upstream closed the connection before its answer was complete."


class AnswerReader:
    """Reads one answer after the other; the methods `on_...` are called by the parser."""

    __slots__ = (
        "_framed",
        "_head_size",
        "_parser",
        "answered",
        "buffered",
        "complete",
        "head_done",
        "headers",
        "keep_alive",
        "lost",
        "may_switch",
        "method",
        "pieces",
        "spoilt",
        "status",
        "switched",
    )

    def __init__(self) -> None:
        self.spoilt = False
        self.lost: Exception | None = None
        self.begin(b"GET")

    def begin(self, method: bytes) -> None:
        """Ready for the answer to a request of this method; what was lost or spoilt before stays so."""
        self.method = method
        self.status = 0
        self.headers: list[Header] = []
        #: What of the body has come and was not taken yet, and its bytes.
        self.pieces: deque[bytes] = deque()
        self.buffered = 0
        self.answered = False
        self.head_done = False
        self.complete = False
        self.keep_alive = False
        #: Whether the request asks for another protocol, and whether this answer has gone over to it.
        self.may_switch = False
        self.switched = False
        self._framed = False
        self._head_size = 0
        self._parser = httptools.HttpResponseParser(self)

    def feed(self, data: bytes) -> None:
        """Take in what came; never raises."""
        if self.switched:
            return self._keep(data)
        if self.complete:
            self.spoilt = True
            return
        self.answered = True
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserUpgrade as upgrade:
            self._upgraded(data[upgrade.args[0] :], upgrade)
        except httptools.HttpParserError as error:
            self._misread(error)

    def _upgraded(self, rest: bytes, upgrade: Exception) -> None:
        if self.switched:
            self._keep(rest)
        else:
            self._misread(upgrade)

    def _misread(self, error: Exception) -> None:
        if self.complete:
            self.spoilt = True
        else:
            self._fail(f"The upstream's answer is not HTTP/1.1: {type(error).__name__}.")

    def end(self, *, orderly: bool) -> None:
        """The connection is over; `orderly` when the other side closed it and nothing was lost."""
        if self.head_done and not self._framed and orderly and self.lost is None:
            # Neither a length nor chunks: the body ends with the connection (RFC 9112 section 6.3).
            self.complete = True
        if not self.complete:
            self._fail(CUT)

    def take(self) -> bytes:
        """Everything of the body that has come and was not taken yet, as one piece."""
        data = self.pieces.popleft() if len(self.pieces) == 1 else b"".join(self.pieces)
        self.pieces.clear()
        self.buffered = 0
        return data

    def _fail(self, text: str) -> None:
        self.lost = self.lost or UpstreamBroken(text)

    # --------------------------------------------------------------------- called by the parser

    def on_message_begin(self) -> None:
        """The first byte of an answer: of a second one, if there was one already."""
        if self.complete:
            self.spoilt = True

    def on_header(self, name: bytes, value: bytes) -> None:
        """A field."""
        if self.head_done:
            return  # a trailer: dropped on purpose, nothing downstream expects it
        self.headers.append((name, value))
        self._head_size += len(name) + len(value)
        if self._head_size > MAX_HEAD_BYTES:
            self._fail(f"The upstream's headers have more than {MAX_HEAD_BYTES} bytes.")

    def on_headers_complete(self) -> None:
        """The end of the head."""
        if self.complete or self.lost is not None:
            return
        status = self._parser.get_status_code()
        if status == 101 and self.may_switch and to_websocket(self.headers):
            self.status, self.head_done, self.switched = status, True, True
            return
        if status < 200:
            self.headers, self._head_size = [], 0  # an interim answer (RFC 9110 section 15.2)
            return
        if problem := unusable(status, self.headers):
            return self._fail(problem)
        self.status, self.head_done = status, True
        # Asked here, because the parser forgets how the message was framed once it is over.
        self.keep_alive = self._parser.should_keep_alive()
        for name, value in self.headers:
            lowered = name.lower()
            if lowered == b"content-length" or (lowered == b"transfer-encoding" and CHUNKED in value.lower()):
                self._framed = True
        if self.method == b"HEAD" or status in (204, 304):
            # No body, whatever content-length says (RFC 9112 section 6.3); the parser would wait for one.
            self.complete = True

    def on_body(self, body: bytes) -> None:
        """A piece of the body."""
        if self.complete:
            self.spoilt = True
            return
        self._keep(body)

    def _keep(self, data: bytes) -> None:
        if data:
            self.pieces.append(data)
            self.buffered += len(data)

    def on_message_complete(self) -> None:
        """The end of an answer, which an interim one also has."""
        if self.head_done and not self.switched:
            self.complete = True


def to_websocket(headers: list[Header]) -> bool:
    """Whether an answer says that it goes over to the WebSocket protocol (RFC 6455 section 4.1)."""
    found = {name.lower(): value.strip().lower() for name, value in headers}
    options = {option.strip() for option in found.get(b"connection", b"").split(b",")}
    return found.get(b"upgrade") == b"websocket" and b"upgrade" in options


def unusable(status: int, headers: list[Header]) -> str:
    """Why a head cannot be passed on, "" if it can.

    A status beyond 599 is no HTTP status (RFC 9110 section 15). A transfer coding other than chunked was not asked for
    (RFC 9112 section 7.4); with the field dropped on this hop, the client would take the coded bytes for the body.
    """
    if status > 599:
        return f"The upstream's status {status} is none that HTTP has."
    coded = any(name.lower() == b"transfer-encoding" and value.lower() != CHUNKED for name, value in headers)
    return "The upstream's answer has a transfer coding that nobody asked for." if coded else ""
