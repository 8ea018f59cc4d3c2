"""Content codings undone piece by piece, to look into an answer that passes by (RFC 9110 section 8.4.1).

gzip and deflate come with Python. br needs the package brotli and zstd, before Python 3.14, backports.zstd: both are in
the extra `encodings`, and without them such an answer is not looked into. No piece may unfold to more than a cap, and
no coding may ask for a window beyond 16 MB, so a small answer cannot fill the memory.
"""

from __future__ import annotations

import functools
import importlib
import zlib
from collections.abc import Callable, Mapping
from typing import Any, Protocol

#: RFC 9659 section 3: a zstd answer over HTTP needs a window of at most 8 MB.
ZSTD_WINDOW_LOG = 23


class Undecodable(ValueError):
    """The bytes are not what the coding's name says, or unfold to too much."""


class Decoder(Protocol):
    """Undoes one coding of one body."""

    def decode(self, piece: bytes, limit: int) -> bytes:
        """What a piece, which is not empty, unfolds to; raises `Undecodable` for more than `limit` bytes and for what
        is broken.
        """


class _Zlib:
    """gzip, and deflate with or without the zlib head that it should have (RFC 9110 section 8.4.1.2)."""

    def __init__(self, *, gzip: bool) -> None:
        self._gzip = gzip
        self._inflate: Any = None

    def decode(self, piece: bytes, limit: int) -> bytes:
        if self._inflate is None:
            # The low half of a zlib head's first byte is 8, and its top bit is 0 (RFC 1950 section 2.2).
            bare = not self._gzip and piece[0] & 0x8F != 0x08
            self._inflate = zlib.decompressobj(31 if self._gzip else -15 if bare else 15)
        try:
            data: bytes = self._inflate.decompress(piece, limit)
        except zlib.error as error:
            raise Undecodable(str(error)) from None
        if self._inflate.unconsumed_tail:
            raise Undecodable(f"a piece unfolds to more than {limit} bytes")
        return data


class _Brotli:
    """br (RFC 7932); its windows have at most 16 MB."""

    def __init__(self, brotli: Any) -> None:
        self._error = brotli.error
        self._decompressor = brotli.Decompressor()

    def decode(self, piece: bytes, limit: int) -> bytes:
        try:
            data: bytes = self._decompressor.process(piece, output_buffer_limit=limit)
        except self._error as error:
            raise Undecodable(str(error)) from None
        if len(data) > limit or not self._decompressor.can_accept_more_data():
            raise Undecodable(f"a piece unfolds to more than {limit} bytes")
        return data


class _Zstd:
    """zstd (RFC 8878), the first frame of it."""

    def __init__(self, zstd: Any) -> None:
        self._error = zstd.ZstdError
        options = {zstd.DecompressionParameter.window_log_max: ZSTD_WINDOW_LOG}
        self._decompressor = zstd.ZstdDecompressor(options=options)

    def decode(self, piece: bytes, limit: int) -> bytes:
        if self._decompressor.eof:
            return b""
        try:
            data: bytes = self._decompressor.decompress(piece, limit)
        except self._error as error:
            raise Undecodable(str(error)) from None
        if not (self._decompressor.needs_input or self._decompressor.eof):
            raise Undecodable(f"a piece unfolds to more than {limit} bytes")
        return data


@functools.cache
def _module(*names: str) -> Any:
    """The first of these modules that is installed, or None."""
    for name in names:
        try:
            return importlib.import_module(name)
        except ImportError:
            continue
    return None


def _brotli() -> Decoder | None:
    module = _module("brotli")
    # Before 1.2 it unfolds without a limit.
    bounded = module is not None and hasattr(module.Decompressor, "can_accept_more_data")
    return _Brotli(module) if bounded else None


def _zstd() -> Decoder | None:
    module = _module("compression.zstd", "backports.zstd")
    return None if module is None else _Zstd(module)


_CODINGS: Mapping[str, Callable[[], Decoder | None]] = {
    "gzip": lambda: _Zlib(gzip=True),
    "x-gzip": lambda: _Zlib(gzip=True),
    "deflate": lambda: _Zlib(gzip=False),
    "br": _brotli,
    "zstd": _zstd,
}


def decoder_for(content_encoding: str) -> Decoder | None:
    """A decoder for one coding, in lower case; None for one that is not known here, and for several."""
    make = _CODINGS.get(content_encoding)
    return None if make is None else make()
