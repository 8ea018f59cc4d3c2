"""Server-sent events from bytes, however the network cut them (HTML standard, section 9.2.6 "Interpreting an event
stream").

Lines end with LF, CR or CRLF, in any mixture, and a CRLF may be cut in the middle; a comment begins with a colon; one
space after the field's colon is dropped; several data lines join with LF. Data stays bytes: what is not UTF-8 is the
reader's concern.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

MAX_EVENT_BYTES = 8 * 1024 * 1024
_LINE_END = re.compile(rb"\r\n|\n|\r")
_BOM = b"\xef\xbb\xbf"


class EventTooLong(ValueError):
    """An event passed the size cap; the rest of the stream cannot be interpreted."""


class EventSplitter:
    """Feed bytes, get the data of each complete event; events without data give nothing."""

    def __init__(self, *, max_event_bytes: int = MAX_EVENT_BYTES) -> None:
        self._limit = max_event_bytes
        self._pieces: list[bytes] = []
        self._held = 0
        self._data: list[bytes] = []
        self._data_size = 0
        self._after_cr = False
        self._started = False

    def feed(self, chunk: bytes) -> Iterator[bytes]:
        """The data of the events that `chunk` completes; raises `EventTooLong`."""
        if self._after_cr and chunk:
            # The LF of a CRLF that was cut between its two bytes.
            chunk = chunk.removeprefix(b"\n")
            self._after_cr = False
        if not chunk:
            return
        if chunk.endswith(b"\r"):
            self._after_cr = True
        if b"\n" not in chunk and b"\r" not in chunk:
            self._hold(chunk)
            return
        text = b"".join((*self._pieces, chunk))
        self._pieces, self._held = [], 0
        # Nearly every stream has plain LFs only, which are found in a tenth of the time.
        *lines, tail = text.split(b"\n") if b"\r" not in text else _LINE_END.split(text)
        for line in lines:
            if not self._started:
                self._started, line = True, line.removeprefix(_BOM)  # noqa: PLW2901  # the mark is no part of it
            if line:
                self._field(line)
            elif self._data:
                data, self._data, self._data_size = b"\n".join(self._data), [], 0
                yield data
        if tail:
            self._hold(tail)

    def _hold(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._held += len(piece)
        self._check(self._held + self._data_size)

    def _field(self, line: bytes) -> None:
        name, _, value = line.partition(b":")
        if name == b"data":
            value = value.removeprefix(b" ")
            self._data.append(value)
            self._data_size += len(value) + 1
            self._check(self._data_size)

    def _check(self, size: int) -> None:
        if size > self._limit:
            raise EventTooLong(f"an event has more than {self._limit} bytes")
