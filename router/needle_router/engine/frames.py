"""Messages between the router and an engine process: a four-byte length, then that many bytes of JSON.

The decoder does no I/O, so bytes may arrive cut anywhere; the two blocking functions are the child's whole transport.
A frame has a cap, because a length is the first thing that a broken peer gets wrong.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

HEADER = struct.Struct("!I")
#: Above the largest engine buffer that makes sense (1 MiB by default) and any prompt that fits a context window.
MAX_FRAME_BYTES = 16 * 1024 * 1024


class FrameError(ValueError):
    """The message cannot be framed, or the bytes are not a frame."""


class FrameTooLarge(FrameError):
    """The payload is longer than the cap."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        super().__init__(f"a frame of {size_bytes} bytes is over the limit of {limit_bytes}")


def encode(message: Mapping[str, Any], *, limit_bytes: int = MAX_FRAME_BYTES) -> bytes:
    """One frame. Raises FrameError for what JSON cannot hold: lone surrogates, integers beyond 64 bits, deep nests."""
    try:
        payload = orjson.dumps(message)
    except orjson.JSONEncodeError as error:
        raise FrameError(str(error)) from error
    if len(payload) > limit_bytes:
        raise FrameTooLarge(len(payload), limit_bytes)
    return HEADER.pack(len(payload)) + payload


class FrameDecoder:
    """Bytes in, however cut; whole messages out."""

    def __init__(self, *, limit_bytes: int = MAX_FRAME_BYTES) -> None:
        self.limit_bytes = limit_bytes
        self._pending = bytearray()

    def feed(self, data: bytes) -> Iterator[dict[str, Any]]:
        """Yield every message that `data` completes. Raises FrameError; the stream is then of no further use."""
        self._pending += data
        while len(self._pending) >= HEADER.size:
            (size,) = HEADER.unpack_from(self._pending)
            if size > self.limit_bytes:
                raise FrameTooLarge(size, self.limit_bytes)
            end = HEADER.size + size
            if len(self._pending) < end:
                return
            payload = bytes(self._pending[HEADER.size : end])
            del self._pending[:end]
            yield decode(payload)


def decode(payload: bytes) -> dict[str, Any]:
    """The message in one frame's payload."""
    try:
        message = orjson.loads(payload)
    except orjson.JSONDecodeError as error:
        raise FrameError(f"a frame is not JSON: {error}") from error
    if not isinstance(message, dict):
        raise FrameError("a frame is not a JSON object")
    return message


def read_frames(descriptor: int) -> Iterator[dict[str, Any]]:
    """Messages from a blocking descriptor until its end."""
    decoder = FrameDecoder()
    while data := os.read(descriptor, 65536):
        yield from decoder.feed(data)


def write_frame(descriptor: int, frame: bytes) -> None:
    """Write all of `frame` to a blocking descriptor."""
    rest = memoryview(frame)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
