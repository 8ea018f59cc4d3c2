"""Asking a streamed completion for its usage although the client did not, unnoticed by the client.

Upstreams count a stream's tokens only where `stream_options.include_usage` asks for it, in one more chunk with empty
`choices` before `[DONE]` (OpenAPI `ChatCompletionStreamOptions`). The request is not written anew for that: the option
is put in, and every other byte stays. On the way back that one event is left out, and every other byte stays.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

import orjson

from needle_router.sse import EventSplitter

#: The event that is left out has some hundred bytes; a longer one is passed on while it comes.
MAX_HELD_BYTES = 64 * 1024
#: The longest end of an event is CR LF CR LF; one byte less of it may stand in a piece that does not end the event.
_KEPT = 3
#: An empty line. Atomic, or the two bytes of a CR LF would pass for two line ends.
_EVENT_END = re.compile(rb"(?>\r\n|\n|\r)(?>\r\n|\n|\r)")
_TOKEN = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"|[{}\[\],:]')
_OPENING, _CLOSING = b"{[", b"}]"
_BLANK = b" \t\r\n"


def with_usage(raw: bytes) -> bytes:
    """A request body with `stream_options.include_usage` true, by one insertion or one replaced value.

    `raw` must be a JSON object that is not empty and holds no `stream_options` twice.
    """
    found = _member(raw, 0, "stream_options") if _may_hold(raw, b"stream_options") else None
    if found is None:
        end = raw.rindex(b"}")
        return b'%b,"stream_options":{"include_usage":true}%b' % (raw[:end], raw[end:])
    start, end = found
    if raw[start : start + 1] != b"{":
        return b'%b{"include_usage":true}%b' % (raw[:start], raw[end:])
    inner = _member(raw, start, "include_usage")
    if inner is not None:
        return b"%btrue%b" % (raw[: inner[0]], raw[inner[1] :])
    comma = b"" if raw[start + 1 : end - 1].strip(_BLANK) == b"" else b","
    return b'%b"include_usage":true%b%b' % (raw[: start + 1], comma, raw[start + 1 :])


def _may_hold(raw: bytes, key: bytes) -> bool:
    """Whether a key may stand in the text; one without escapes can only stand there as it is."""
    return key in raw or b"\\u" in raw


def _member(raw: bytes, start: int, name: str) -> tuple[int, int] | None:
    """Where the value of a member begins and ends in the object that opens first from `start` on."""
    for key, begin, end in _members(raw, start):
        if key == name:
            value = raw[begin:end]
            return begin + len(value) - len(value.lstrip(_BLANK)), begin + len(value.rstrip(_BLANK))
    return None


def _members(raw: bytes, start: int) -> Iterator[tuple[str, int, int]]:
    """Key, and where the value stands with the blanks around it, of each member of one object."""
    depth, begin, key = 0, 0, None
    for token in _TOKEN.finditer(raw, start):
        kind = raw[token.start()]
        if kind in _OPENING:
            depth += 1
        elif kind in _CLOSING:
            depth -= 1
        elif depth == 1 and kind == ord(":"):
            begin = token.end()
        elif depth == 1 and kind == ord('"') and key is None:
            key = orjson.loads(token.group())
        if key is not None and (depth == 0 or (depth == 1 and kind == ord(","))):
            yield key, begin, token.start()
            key = None
        if depth == 0:
            return


class UsageHider:
    """Feed a stream as it comes, get what the client shall have: all of it but the chunk with nothing but usage.

    Only the last, unfinished event is held back, so an event comes with the piece that ends it.
    """

    def __init__(self) -> None:
        self._held = bytearray()
        #: True while an event passes that is too long to be held.
        self._passing = False
        #: What of a line end may still follow the last event, and whether that event was left out.
        self._after_cr = False
        self._left_out = False

    def feed(self, piece: bytes) -> bytes:
        """What goes on to the client now."""
        shown: list[bytes] = []
        if self._after_cr and piece:
            self._after_cr = False
            if piece.startswith(b"\n"):
                shown += () if self._left_out else (b"\n",)
                piece = piece[1:]
        held, position = self._held, max(0, len(self._held) - _KEPT)
        held += piece
        while (end := _EVENT_END.search(held, position)) is not None:
            event = bytes(held[: end.end()])
            del held[: end.end()]
            position = 0
            self._left_out = not self._passing and is_usage_only(event)
            self._passing = False
            self._after_cr = not held and event.endswith(b"\r")
            if not self._left_out:
                shown.append(event)
        if self._passing or len(held) > MAX_HELD_BYTES:
            self._passing = True
            shown.append(bytes(held[:-_KEPT]))
            del held[:-_KEPT]
        return b"".join(shown)

    def finish(self) -> bytes:
        """What is left at the end of the stream."""
        rest = bytes(self._held)
        self._held.clear()
        return b"" if not self._passing and is_usage_only(rest + b"\n\n") else rest


def is_usage_only(event: bytes) -> bool:
    """Whether an event is the chunk that `include_usage` adds: usage, and no choice."""
    if b'"usage"' not in event:
        return False
    try:
        chunk = orjson.loads(next(EventSplitter().feed(event), b""))
    except orjson.JSONDecodeError:
        return False
    return isinstance(chunk, dict) and chunk.get("choices") == [] and isinstance(chunk.get("usage"), dict)
