"""Tool calls and text read out of an upstream's chat completion, JSON or stream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from needle_router.sse import EventSplitter, EventTooLong
from needle_router.turn import AnsweredCall, Call

DONE = b"[DONE]"


@dataclass(slots=True)
class CallPieces:
    """One call of a stream while its pieces come in."""

    id: str = ""
    name: str = ""
    arguments: str = ""


class CallCollector:
    """Puts the tool calls of a stream together, by their index (OpenAPI `ChatCompletionMessageToolCallChunk`).

    Some servers give every call index 0 or none at all; there, a new id with a name opens the next call.
    """

    def __init__(self) -> None:
        self._calls: list[CallPieces] = []
        self._open: dict[int, CallPieces] = {}

    def add(self, deltas: Any) -> None:
        """Take `delta.tool_calls` of one chunk."""
        for position, delta in enumerate(deltas if isinstance(deltas, list) else ()):
            if not isinstance(delta, dict):
                continue
            index = delta.get("index")
            function = delta.get("function")
            function = function if isinstance(function, dict) else {}
            identifier, name = _text(delta.get("id")), _text(function.get("name"))
            pieces = self._pieces(index if isinstance(index, int) else position, identifier, name)
            pieces.id = pieces.id or identifier
            pieces.name = pieces.name or name
            pieces.arguments += _text(function.get("arguments"))

    def _pieces(self, index: int, identifier: str, name: str) -> CallPieces:
        found = self._open.get(index)
        if found is None or (name and found.name and identifier not in ("", found.id)):
            found = self._open[index] = CallPieces()
            self._calls.append(found)
        return found

    def calls(self) -> tuple[AnsweredCall, ...]:
        """The calls in the order in which they were opened."""
        return tuple(AnsweredCall(p.id, p.name, p.arguments or "{}") for p in self._calls)


def decoded(call: AnsweredCall) -> Call | None:
    """The call with its arguments decoded; None when they are no JSON object."""
    try:
        arguments = orjson.loads(call.arguments or "{}")
    except orjson.JSONDecodeError:
        return None
    return Call(call.name, arguments) if isinstance(arguments, dict) else None


def message_calls(message: Mapping[str, Any]) -> tuple[AnsweredCall, ...]:
    """The calls of a whole message."""
    found = []
    calls = message.get("tool_calls")
    for item in calls if isinstance(calls, list) else ():
        function = item.get("function") if isinstance(item, dict) else None
        if isinstance(function, dict):
            found.append(
                AnsweredCall(_text(item.get("id")), _text(function.get("name")), _text(function.get("arguments")))
            )
    return tuple(found)


def first_message(body: Any) -> Mapping[str, Any] | None:
    """`choices[0].message` of a chat completion; None when the body is something else."""
    choices = body.get("choices") if isinstance(body, dict) else None
    first = choices[0] if isinstance(choices, list) and choices else None
    message = first.get("message") if isinstance(first, dict) else None
    return message if isinstance(message, dict) else None


def answered_calls(content_type: str, body: bytes) -> tuple[Call, ...] | None:
    """The tool calls of an answer; None when it cannot be read."""
    if content_type.startswith("text/event-stream"):
        return _decoded_all(_stream_calls(body))
    try:
        message = first_message(orjson.loads(body))
    except orjson.JSONDecodeError:
        return None
    return None if message is None else _decoded_all(message_calls(message))


def answered_text(content_type: str, body: bytes) -> str | None:
    """The text of an answer, "" where it has none; None when the answer cannot be read."""
    if content_type.startswith("text/event-stream"):
        deltas = _deltas(body)
        return None if deltas is None else "".join(_text(delta.get("content")) for delta in deltas)
    try:
        message = first_message(orjson.loads(body))
    except orjson.JSONDecodeError:
        return None
    return None if message is None else _text(message.get("content"))


def _stream_calls(body: bytes) -> tuple[AnsweredCall, ...] | None:
    deltas = _deltas(body)
    if deltas is None:
        return None
    collector = CallCollector()
    for delta in deltas:
        collector.add(delta.get("tool_calls"))
    return collector.calls()


def _deltas(body: bytes) -> list[Mapping[str, Any]] | None:
    """Every delta of choice 0 of a whole stream; None where it cannot be read."""
    try:
        events = [data for data in EventSplitter().feed(body) if data != DONE]
        return [first_delta(orjson.loads(data or b"null")) for data in events]
    except (orjson.JSONDecodeError, EventTooLong):
        return None


def first_delta(chunk: Any) -> Mapping[str, Any]:
    """`delta` of choice 0 of a chunk, {} where there is none."""
    choices = chunk.get("choices") if isinstance(chunk, dict) else None
    for choice in choices if isinstance(choices, list) else ():
        if isinstance(choice, dict) and choice.get("index", 0) == 0 and isinstance(choice.get("delta"), dict):
            return dict(choice["delta"])
    return {}


def _decoded_all(calls: tuple[AnsweredCall, ...] | None) -> tuple[Call, ...] | None:
    if calls is None:
        return None
    found = [decoded(call) for call in calls]
    return None if None in found else tuple(call for call in found if call is not None)


def _text(value: Any) -> str:
    return value if isinstance(value, str) else ""
