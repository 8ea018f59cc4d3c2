"""A `Reply` as the bytes of a chat completion, streamed or not.

The order and the keys of a stream are what seven SDKs were seen to need: role in the first chunk, each call opened by a
chunk with index, id, type and name, later pieces without id and name (openai-python concatenates repeated ones),
consecutive indices from 0, `finish_reason` on every choice and set once, on an empty delta, and a chunk with empty
`choices` only for usage that was asked for.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from needle_router.turn import AnsweredCall, Reply, Usage

DONE = b"data: [DONE]\n\n"


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Arguments as the JSON text that goes into `function.arguments`; "{}" when there are none."""
    if not arguments:
        return "{}"
    try:
        return orjson.dumps(arguments).decode()
    except (TypeError, ValueError):
        # Integers beyond 64 bits and lone surrogates: slower, escaped where it must be.
        return json.dumps(arguments, ensure_ascii=True, separators=(",", ":"))


def usage_object(usage: Usage) -> dict[str, Any]:
    """`usage` with its details; `estimated` only when no tokenizer counted."""
    shown: dict[str, Any] = {
        "prompt_tokens": usage.prompt_tokens,
        "completion_tokens": usage.completion_tokens,
        "total_tokens": usage.total_tokens,
        "prompt_tokens_details": {"cached_tokens": usage.cached_tokens, "audio_tokens": 0},
        "completion_tokens_details": {
            "reasoning_tokens": usage.reasoning_tokens,
            "audio_tokens": 0,
            "accepted_prediction_tokens": 0,
            "rejected_prediction_tokens": 0,
        },
    }
    if usage.estimated:
        shown["estimated"] = True
    return shown


def call_object(call: AnsweredCall) -> dict[str, Any]:
    """One entry of `message.tool_calls`."""
    return {"id": call.id, "type": "function", "function": {"name": call.name, "arguments": call.arguments}}


def message_object(reply: Reply) -> dict[str, Any]:
    """`choices[0].message`."""
    message: dict[str, Any] = {
        "role": "assistant",
        "content": reply.content,
        "refusal": reply.refusal,
        "annotations": [],
    }
    if reply.calls:
        message["tool_calls"] = [call_object(call) for call in reply.calls]
    if reply.reasoning:
        message["reasoning_content"] = reply.reasoning
    return message


def completion(reply: Reply) -> dict[str, Any]:
    """The `chat.completion` object."""
    body: dict[str, Any] = {
        "id": reply.id,
        "object": "chat.completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [
            {"index": 0, "message": message_object(reply), "logprobs": None, "finish_reason": reply.finish_reason}
        ],
        "usage": usage_object(reply.usage),
        "system_fingerprint": reply.fingerprint,
    }
    if reply.extension is not None:
        body["x_needle"] = reply.extension
    return body


def dump(value: Any) -> bytes:
    """JSON bytes; text that is no Unicode (a lone surrogate) is escaped rather than refused."""
    try:
        return orjson.dumps(value)
    except (TypeError, ValueError):
        return json.dumps(value, ensure_ascii=True, separators=(",", ":")).encode()


def render(reply: Reply) -> bytes:
    """The body of a non-streaming answer."""
    return dump(completion(reply))


def event(chunk: Mapping[str, Any]) -> bytes:
    """One server-sent event; JSON holds no raw line break, so one data line is enough."""
    return b"data: " + dump(chunk) + b"\n\n"


class ChunkWriter:
    """Writes `chat.completion.chunk` events that share one id, time, model and fingerprint."""

    def __init__(self, reply: Reply, *, include_usage: bool) -> None:
        self._head: dict[str, Any] = {
            "id": reply.id,
            "object": "chat.completion.chunk",
            "created": reply.created,
            "model": reply.model,
            "system_fingerprint": reply.fingerprint,
        }
        self._include_usage = include_usage

    def chunk(
        self, delta: Mapping[str, Any], finish: str | None = None, more: Mapping[str, Any] | None = None
    ) -> bytes:
        """One chunk of choice 0; `more` are keys beside its choices."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return event({**self._head, "choices": [choice], **self._no_usage(), **(more or {})})

    def usage(self, usage: Mapping[str, Any] | None) -> bytes:
        """The last chunk before [DONE]: no choices, only usage."""
        return event({**self._head, "choices": [], "usage": usage})

    def _no_usage(self) -> dict[str, None]:
        return {"usage": None} if self._include_usage else {}


def call_chunks(writer: ChunkWriter, index: int, identifier: str, name: str, arguments: str) -> Iterator[bytes]:
    """One tool call: the chunk that opens it, then its arguments."""
    opened = {"index": index, "id": identifier, "type": "function", "function": {"name": name, "arguments": ""}}
    yield writer.chunk({"tool_calls": [opened]})
    yield writer.chunk({"tool_calls": [{"index": index, "function": {"arguments": arguments}}]})


def opening(writer: ChunkWriter, reply: Reply) -> Iterator[bytes]:
    """The role, the reasoning if it is shown, and the calls."""
    yield writer.chunk({"role": "assistant", "content": None, "refusal": None})
    if reply.reasoning:
        yield writer.chunk({"reasoning_content": reply.reasoning})
    for index, call in enumerate(reply.calls):
        yield from call_chunks(writer, index, call.id, call.name, call.arguments)


def chunks(reply: Reply, *, include_usage: bool) -> Iterator[bytes]:
    """The events of a streamed answer, `[DONE]` included."""
    writer = ChunkWriter(reply, include_usage=include_usage)
    yield from opening(writer, reply)
    if reply.content:
        yield writer.chunk({"content": reply.content})
    if reply.refusal:
        yield writer.chunk({"refusal": reply.refusal})
    extra = {} if reply.extension is None else {"x_needle": reply.extension}
    yield writer.chunk({}, reply.finish_reason, extra)
    if include_usage:
        yield writer.usage(usage_object(reply.usage))
    yield DONE
