"""Local calls and the upstream's answer as one: one id, one list of calls, one end.

The local calls come first and stand. Of the upstream's answer everything is kept but calls that are equal to a local
one, which a client would otherwise run twice. In a stream an upstream call can only be compared once its arguments are
complete, so upstream calls are held until the stream ends and words pass at once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import orjson

from needle_router.compare import same_call
from needle_router.surfaces.chat_answers import DONE, ChunkWriter, call_chunks, call_object, completion, event, opening
from needle_router.surfaces.chat_read import CallCollector, decoded, first_delta, first_message, message_calls
from needle_router.turn import AnsweredCall, Call, Reply

#: Parts of a delta that are handled here; whatever else a provider sends is kept.
_HANDLED = frozenset(("role", "tool_calls"))
#: The same for a chunk. `obfuscation` pads the chunk that carries it and means nothing on another.
_CHUNK_HANDLED = frozenset(
    ("id", "object", "created", "model", "choices", "usage", "system_fingerprint", "obfuscation", "x_needle")
)
#: Ends in the middle of an answer.
_CUT_SHORT = frozenset(("length", "content_filter"))


def missing_calls(
    local: Sequence[AnsweredCall], upstream: Sequence[AnsweredCall], finish: str | None = None
) -> tuple[AnsweredCall, ...]:
    """The upstream's calls that no local call is equal to, with ids that do not collide.

    Where `finish` says that the upstream was cut short, a call without whole arguments is left out: under the merged
    `finish_reason` tool_calls it would pass for one to run.
    """
    known: list[Call] = [call for answered in local if (call := decoded(answered)) is not None]
    taken = {call.id for call in local}
    kept: list[AnsweredCall] = []
    for answered in upstream:
        call = decoded(answered)
        cut = call is None and finish in _CUT_SHORT
        if cut or (call is not None and any(same_call(call, other) for other in known)):
            continue
        identifier = answered.id or f"{local[0].id[:-1]}{len(kept)}" if local else answered.id
        while identifier in taken:
            identifier = f"{identifier[:36]}_{len(taken)}"
        taken.add(identifier)
        kept.append(AnsweredCall(identifier, answered.name, answered.arguments or "{}"))
    return tuple(kept)


def merge_json(local: Reply, upstream: Any) -> dict[str, Any]:
    """One `chat.completion` object; raises ValueError when `upstream` is not a completion."""
    message = first_message(upstream)
    if message is None:
        raise ValueError("the upstream's answer is not a chat completion")
    extra = missing_calls(local.calls, message_calls(message), _finish_reason(upstream))
    body = completion(local)
    merged = body["choices"][0]["message"]
    for key, value in message.items():
        if key not in _HANDLED and value is not None:
            merged[key] = value
    if local.calls or extra:
        merged["tool_calls"] = [call_object(call) for call in (*local.calls, *extra)]
    body["usage"] = upstream.get("usage")
    for key, value in upstream.items():
        body.setdefault(key, value)
    return body


class StreamMerger:
    """Rewrites an upstream's stream behind the local calls; feed it the data of each event."""

    def __init__(self, local: Reply, *, include_usage: bool) -> None:
        self._local = local
        self._writer = ChunkWriter(local, include_usage=include_usage)
        self._include_usage = include_usage
        self._calls = CallCollector()
        self._usage: Mapping[str, Any] | None = None
        self._finish: str | None = None
        self._more: dict[str, Any] = {}
        self.done = False
        self.failed = False

    def opening(self) -> bytes:
        """Role, reasoning and the local calls."""
        return b"".join(opening(self._writer, self._local))

    def feed(self, data: bytes) -> bytes:
        """What the client gets for one event of the upstream."""
        if self.done or self.failed:
            return b""
        if data == b"[DONE]":
            self.done = True
            return b""
        try:
            chunk = orjson.loads(data)
        except orjson.JSONDecodeError:
            return b""  # keep-alives and the like carry no JSON
        if not isinstance(chunk, dict):
            return b""
        if chunk.get("error") is not None:
            self.failed = True
            return event({"error": chunk["error"]})
        if isinstance(chunk.get("usage"), dict):
            self._usage = chunk["usage"]
        self._finish = _finish_reason(chunk) or self._finish
        self._more.update((key, value) for key, value in chunk.items() if key not in _CHUNK_HANDLED)
        delta = first_delta(chunk)
        self._calls.add(delta.get("tool_calls"))
        words = {key: value for key, value in delta.items() if key not in _HANDLED and value not in (None, "", [])}
        return self._writer.chunk(words) if words else b""

    @property
    def complete(self) -> bool:
        """Whether the upstream's stream came to a regular end."""
        return self.done or self._finish is not None

    def close(self) -> bytes:
        """The upstream's missing calls, the one finish chunk, usage where asked for and known, and `[DONE]`.

        What the upstream's chunks carried beside their choices (citations, service tier) goes on the finish chunk.
        """
        local = self._local
        pieces: list[bytes] = []
        extra = missing_calls(local.calls, self._calls.calls(), self._finish)
        for index, call in enumerate(extra, len(local.calls)):
            pieces += call_chunks(self._writer, index, call.id, call.name, call.arguments)
        more = self._more if local.extension is None else {**self._more, "x_needle": local.extension}
        pieces.append(self._writer.chunk({}, local.finish_reason, more))
        if self._include_usage and self._usage is not None:
            pieces.append(self._writer.usage(self._usage))
        return b"".join((*pieces, DONE))

    @property
    def usage(self) -> Mapping[str, Any] | None:
        """The last usage that the upstream reported."""
        return self._usage


def _finish_reason(chunk: Mapping[str, Any]) -> str | None:
    choices = chunk.get("choices")
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and isinstance(choice.get("finish_reason"), str):
            return str(choice["finish_reason"])
    return None
