"""Token counts of answers that pass through, seen without touching them.

The reader is fed every chunk of a forwarded body. Of a stream only events that mention usage are decoded, and the last
figures win (some providers send provisional ones first); of a JSON body at most `MAX_BODY_BYTES` are kept. What cannot
be read is unknown, never zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from needle_router.decoding import Undecodable, decoder_for
from needle_router.sse import EventSplitter, EventTooLong
from needle_router.turn import Usage

MAX_BODY_BYTES = 4 * 1024 * 1024


class UsageReader:
    """Reads `usage` out of one response body, JSON or event stream, in any coding that `decoding` can undo."""

    def __init__(self, content_type: str, content_encoding: str = "") -> None:
        kind = content_type.partition(";")[0].strip().lower()
        encoding = content_encoding.strip().lower()
        self._events = EventSplitter() if kind == "text/event-stream" else None
        self._readable = kind == "text/event-stream" or kind.endswith("json")
        self._decoder = None
        if self._readable and encoding not in ("", "identity"):
            self._decoder = decoder_for(encoding)
            self._readable = self._decoder is not None
        self._body: list[bytes] = []
        self._size = 0
        self._usage: Usage | None = None

    def feed(self, chunk: bytes) -> None:
        """Look at a chunk; never raises."""
        if not self._readable or not chunk:
            return
        try:
            if self._decoder is not None:
                chunk = self._decoder.decode(chunk, MAX_BODY_BYTES)
            if self._events is None:
                self._keep(chunk)
            else:
                for data in self._events.feed(chunk):
                    self._event(data)
        except (Undecodable, EventTooLong):
            # Figures seen before the part that cannot be read may have been provisional.
            self._readable, self._usage, self._body = False, None, []

    def _keep(self, chunk: bytes) -> None:
        self._size += len(chunk)
        if self._size > MAX_BODY_BYTES:
            self._readable, self._body = False, []
            return
        self._body.append(chunk)

    def _event(self, data: bytes) -> None:
        if b'"usage"' in data:
            found = usage_of(_loads(data))
            self._usage = found or self._usage

    def finish(self) -> Usage | None:
        """The figures, or None when they are unknown."""
        if self._events is None and self._readable and self._body:
            self._usage = usage_of(_loads(b"".join(self._body)))
            self._body = []
        return self._usage


def _loads(data: bytes) -> Any:
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError:
        return None


def usage_of(body: Any) -> Usage | None:
    """`usage` of a decoded completion, chunk or Responses object; None where it is absent or makes no sense."""
    if not isinstance(body, dict):
        return None
    found = body.get("usage")
    if found is None and isinstance(body.get("response"), dict):
        found = body["response"].get("usage")
    if not isinstance(found, dict):
        return None
    prompt, completion = _sides(found)
    if prompt is None or completion is None:
        return None
    cached = _detail(found, ("prompt_tokens_details", "input_tokens_details"), "cached_tokens")
    reasoning = _detail(found, ("completion_tokens_details", "output_tokens_details"), "reasoning_tokens")
    return Usage(prompt, completion, min(cached, prompt), reasoning)


def _sides(found: Mapping[str, Any]) -> tuple[int | None, int | None]:
    """Tokens read and written; a side that is missing is what the other leaves of the total, else unknown.

    All of the total that was not read was written: xAI and Gemini bill reasoning, but not as `completion_tokens`.
    """
    prompt = _count(found, "prompt_tokens", "input_tokens")
    completion = _count(found, "completion_tokens", "output_tokens")
    total = _count(found, "total_tokens")
    if total is None:
        return prompt, completion
    if prompt is None and completion is not None:
        prompt = max(0, total - completion)
    if prompt is not None:
        completion = max(completion or 0, total - prompt)
    return prompt, completion


def _count(found: Mapping[str, Any], *names: str) -> int | None:
    for name in names:
        value = found.get(name)
        if isinstance(value, (int, float)) and not isinstance(value, bool) and value >= 0 and value == int(value):
            return int(value)
    return None


def _detail(found: Mapping[str, Any], places: tuple[str, ...], name: str) -> int:
    for place in places:
        if isinstance(found.get(place), dict):
            return _count(found[place], name) or 0
    return 0
