"""POST /v1/completions, the legacy text completion, as Needle alone serves it.

A prompt is read as the only message of a chat, so every rule about texts, tools and limits is the chat's own. The
answer's text is the reasoning trace, or the calls as JSON where the client declared tools (an extension that
needle-openai has too: the legacy API itself knows none).

Source: openai-python `CompletionCreateParams` and `Completion`, OpenAPI `CreateCompletionRequest`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import orjson

from needle_router.surfaces import chat
from needle_router.surfaces.chat import Unreadable
from needle_router.surfaces.chat_answers import DONE, dump, event, usage_object
from needle_router.turn import Reply, Turn

#: Fields with the same meaning in a chat.
SHARED = (
    "model stream stream_options max_tokens n stop seed temperature top_p presence_penalty frequency_penalty "
    "logit_bias tools tool_choice user"
).split()
#: Fields that no chat has, with the value that asks for nothing: anything else is accepted without effect.
WITHOUT_EFFECT = {"best_of": 1, "echo": False, "logprobs": 0, "suffix": ""}


def parse(raw: bytes) -> Turn | Unreadable:
    """Read a request body as a turn of one user message; never raises."""
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        return Unreadable("unparsed", f"not JSON: {error.msg}")
    if not isinstance(body, dict):
        return Unreadable("unparsed", f"the body is {type(body).__name__}, not an object")
    if chat.too_deep(body):
        return Unreadable("unparsed", "nested too deeply")
    prompt = prompt_text(body.get("prompt"))
    if prompt is None:
        return Unreadable("unparsed", "prompt is neither a text nor a list of one text")
    shared = {name: body[name] for name in SHARED if name in body}
    turn = chat.parse(dump({**shared, "messages": [{"role": "user", "content": prompt}]}))
    if isinstance(turn, Unreadable):
        return turn
    return replace(turn, raw=raw, warnings=(*turn.warnings, *_warnings(body)))


def prompt_text(prompt: Any) -> str | None:
    """The one text of a prompt; None for token ids and for several prompts, which would need several answers."""
    if isinstance(prompt, list) and len(prompt) == 1:
        (prompt,) = prompt
    return prompt if isinstance(prompt, str) else None


def _warnings(body: Mapping[str, Any]) -> tuple[str, ...]:
    given = (name for name, nothing in WITHOUT_EFFECT.items() if body.get(name) not in (None, nothing))
    return tuple(f"{name} has no effect on a local answer" for name in given)


def text_of(reply: Reply) -> str:
    """`choices[0].text`: the words, or the calls as a JSON list of name and arguments."""
    if reply.calls:
        calls = ({"name": call.name, "arguments": orjson.loads(call.arguments)} for call in reply.calls)
        return dump(list(calls)).decode()
    return reply.content or ""


def _completion(reply: Reply, text: str, finish: str | None) -> dict[str, Any]:
    return {
        "id": reply.id.replace("chatcmpl-", "cmpl-", 1),
        "object": "text_completion",
        "created": reply.created,
        "model": reply.model,
        "choices": [{"index": 0, "text": text, "logprobs": None, "finish_reason": finish}],
        "system_fingerprint": reply.fingerprint,
    }


def _extension(reply: Reply) -> dict[str, Any]:
    return {} if reply.extension is None else {"x_needle": reply.extension}


def render(reply: Reply) -> bytes:
    """The body of a non-streaming answer."""
    body = _completion(reply, text_of(reply), "stop")
    return dump({**body, "usage": usage_object(reply.usage), **_extension(reply)})


def chunks(reply: Reply, *, include_usage: bool) -> Iterator[bytes]:
    """The events of a streamed answer, `[DONE]` included; chunks have the shape of the whole answer."""
    pending = {"usage": None} if include_usage else {}
    yield event({**_completion(reply, text_of(reply), None), **pending})
    yield event({**_completion(reply, "", "stop"), **pending, **_extension(reply)})
    if include_usage:
        yield event({**_completion(reply, "", None), "choices": [], "usage": usage_object(reply.usage)})
    yield DONE
