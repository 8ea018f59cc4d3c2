"""The one place where a response that is not ours is looked at on its way to the client.

Headers: forged `x-needle-*` go, ours come, an `x-request-id` is minted only where there was none. Body: passed on as it
is; the usage reader, and in shadow mode a bounded copy, only look. One thing is left out of a stream, where the router
itself asked for it: the chunk that `upstream.include_usage` adds.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from starlette.types import Message, Send

from needle_router.usage import UsageReader
from needle_router.usage_option import UsageHider

Header = tuple[bytes, bytes]
PREFIX = b"x-needle-"
REQUEST_ID = b"x-request-id"
MAX_COPY_BYTES = 1024 * 1024


def without_needle(headers: Iterable[Header]) -> list[Header]:
    """The headers that are not in our name space; whoever sets those from outside is pretending."""
    return [header for header in headers if not header[0].lower().startswith(PREFIX)]


def header_value(headers: Iterable[Header], name: bytes) -> str:
    """The first value of a header, "" when it is absent; `name` in lower case."""
    for key, value in headers:
        if key == name or (len(key) == len(name) and key.lower() == name):
            return value.decode("latin-1")
    return ""


def with_request_id(headers: list[Header], mint: Callable[[], str]) -> list[Header]:
    """The headers with an `x-request-id`: the upstream's own, be it empty, else a new one."""
    if any(len(name) == len(REQUEST_ID) and name.lower() == REQUEST_ID for name, _ in headers):
        return headers
    return [*headers, (REQUEST_ID, mint().encode("latin-1"))]


def header_values(headers: Iterable[Header], name: bytes) -> list[str]:
    """Every value of a header, in order; `name` in lower case."""
    return [value.decode("latin-1") for key, value in headers if key.lower() == name]


class ObservedSend:
    """An ASGI `send` that adds our headers to the start of a response and reads along.

    `hide_usage` leaves the chunk of usage that the client did not ask for out of a stream.
    """

    def __init__(
        self,
        send: Send,
        *,
        ours: Callable[[int], list[Header]],
        request_id: Callable[[], str],
        read: bool,
        copy: bool = False,
        hide_usage: bool = False,
    ) -> None:
        self._send = send
        self._ours = ours
        self._request_id = request_id
        self._read = read
        self._copy = copy
        self._hide_usage = hide_usage
        self._hider: UsageHider | None = None
        self.copied: list[bytes] = []
        self._copied_size = 0
        self.reader: UsageReader | None = None
        self.status = 0
        self.content_type = ""
        self.content_encoding = ""
        self.complete = False

    async def __call__(self, message: Message) -> None:
        """Pass one message on."""
        if message["type"] == "http.response.start":
            message = self._started(message)
        elif message["type"] == "http.response.body":
            self._body(message.get("body", b""))
            self.complete = not message.get("more_body", False)
            if self._hider is not None:
                message = self._shown(self._hider, message)
        await self._send(message)

    def _started(self, message: Message) -> Message:
        headers = without_needle(message.get("headers", ()))
        self.status = message["status"]
        if self._read:
            self.content_type = header_value(headers, b"content-type")
            self.content_encoding = header_value(headers, b"content-encoding")
            self.reader = UsageReader(self.content_type, self.content_encoding)
        headers = with_request_id(headers, self._request_id)
        if self._hide_usage and self._is_plain_stream():
            self._hider = UsageHider()
            headers = [header for header in headers if header[0].lower() != b"content-length"]
        return {**message, "headers": headers + self._ours(self.status)}

    def _is_plain_stream(self) -> bool:
        kind = self.content_type.partition(";")[0].strip().lower()
        return kind == "text/event-stream" and self.content_encoding.strip().lower() in ("", "identity")

    def _shown(self, hider: UsageHider, message: Message) -> Message:
        body = hider.feed(message.get("body", b""))
        return {**message, "body": body + hider.finish() if self.complete else body}

    def _body(self, chunk: bytes) -> None:
        if self.reader is not None and chunk:
            self.reader.feed(chunk)
        if self._copy and chunk:
            self._copied_size += len(chunk)
            if self._copied_size <= MAX_COPY_BYTES:
                self.copied.append(chunk)

    @property
    def copy(self) -> bytes | None:
        """The whole body when it was copied and fitted, else None."""
        return b"".join(self.copied) if self._copied_size <= MAX_COPY_BYTES and self.complete else None
