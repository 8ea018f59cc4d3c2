"""POST /v1/needle/complete and /v1/needle/extract: what Needle can do, without the clothes of the chat API.

`complete` takes a text (`text`, or `query` as needle-openai calls it) or `messages`, tools nested as OpenAI has them or
flat as Needle has them, and gives the engine's envelope as it is. `extract` takes a text and a JSON Schema and gives
the object. Both are read as a chat, so that every rule about texts, schemas and limits is the chat's own.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from needle_router.errors import BadRequest
from needle_router.surfaces import chat
from needle_router.surfaces.chat_answers import dump
from needle_router.task import EngineReply
from needle_router.turn import Reply, Turn

_NAME = re.compile(r"[a-zA-Z0-9_-]{1,64}")
DEFAULT_NAME = "extract"


@dataclass(frozen=True, slots=True)
class NativeRequest:
    """A request of the native API. `system` is read verbatim, None where the configuration decides."""

    turn: Turn
    system: str | None = None
    max_new_tokens: int | None = None


def parse_complete(raw: bytes) -> NativeRequest:
    """Read `{"text" | "query" | "messages", "tools"?, "system"?, "max_new_tokens"?}`. Raises BadRequest."""
    body = _body(raw)
    messages = body.get("messages") or [{"role": "user", "content": _text(body, "text", "query")}]
    tools = [_nested(tool) for tool in _tools(body.get("tools"))]
    system = body.get("system")
    if system is not None and not isinstance(system, str):
        raise BadRequest("system is not a text.", param="system", code="invalid_body")
    turn = _turn({"model": body.get("model"), "messages": messages, "tools": tools or None})
    return NativeRequest(turn, system, _budget(body))


def parse_extract(raw: bytes) -> NativeRequest:
    """Read `{"text", "schema", "name"?, "description"?, "max_new_tokens"?}`. Raises BadRequest."""
    body = _body(raw)
    schema = body.get("schema")
    if not isinstance(schema, dict):
        raise BadRequest("schema is not a JSON Schema object.", param="schema", code="invalid_body")
    if isinstance(body.get("description"), str):
        schema = {**schema, "description": body["description"]}
    wanted = {"name": _name(body.get("name") or schema.get("title")), "schema": schema}
    turn = _turn(
        {
            "model": body.get("model"),
            "messages": [{"role": "user", "content": _text(body, "text")}],
            "response_format": {"type": "json_schema", "json_schema": wanted},
        }
    )
    return NativeRequest(turn, max_new_tokens=_budget(body))


def _body(raw: bytes) -> dict[str, Any]:
    try:
        body = orjson.loads(raw)
    except orjson.JSONDecodeError as error:
        raise BadRequest(f"The request body cannot be read: not JSON: {error.msg}.", code="invalid_body") from error
    if not isinstance(body, dict):
        raise BadRequest(f"The request body is {type(body).__name__}, not an object.", code="invalid_body")
    if chat.too_deep(body):
        raise BadRequest("The request body cannot be read: nested too deeply.", code="invalid_body")
    return body


def _turn(body: Mapping[str, Any]) -> Turn:
    turn = chat.parse(dump(body))
    if isinstance(turn, chat.Unreadable):
        raise BadRequest(f"The request body cannot be read: {turn.detail}.", code="invalid_body")
    return turn


def _text(body: Mapping[str, Any], *names: str) -> str:
    text = next((body[name] for name in names if body.get(name) is not None), None)
    if not isinstance(text, str):
        raise BadRequest(f"{names[0]} is missing or not a text.", param=names[0], code="invalid_body")
    return text


def _tools(tools: Any) -> list[Any]:
    """The tools as a list; needle-openai takes them as JSON text too."""
    if isinstance(tools, str):
        try:
            tools = orjson.loads(tools or "[]")
        except orjson.JSONDecodeError as error:
            raise BadRequest(
                f"tools is a text but not JSON: {error.msg}.", param="tools", code="invalid_body"
            ) from error
    if tools is not None and not isinstance(tools, list):
        raise BadRequest("tools is not a list.", param="tools", code="invalid_body")
    return tools or []


def _nested(tool: Any) -> Any:
    """A flat tool (`name`, `description`, `parameters`) as the chat API nests it."""
    return {"type": "function", "function": tool} if isinstance(tool, dict) and "name" in tool else tool


def _budget(body: Mapping[str, Any]) -> int | None:
    budget = next((body[name] for name in ("max_new_tokens", "max_tokens") if body.get(name) is not None), None)
    if budget is None:
        return None
    if isinstance(budget, bool) or not isinstance(budget, int) or budget < 1:
        raise BadRequest(
            "max_new_tokens is not a whole number of at least 1.", param="max_new_tokens", code="invalid_body"
        )
    return budget


def _name(wanted: Any) -> str:
    return wanted if isinstance(wanted, str) and _NAME.fullmatch(wanted) else DEFAULT_NAME


def render_complete(envelope: Mapping[str, Any], outcome: EngineReply, *, reason: str, show: bool) -> bytes:
    """The engine's envelope, nothing taken away; how it came about stands under `x_needle`, times in seconds."""
    about = {
        "route": "local",
        "reason": reason,
        "queue_wait_seconds": round(outcome.queue_wait_s, 6),
        "compute_seconds": round(outcome.compute_s, 6),
        "replayed_turns": outcome.replayed_turns,
        "reinitialized": outcome.reinitialized,
        "cached": outcome.cached,
    }
    return dump({**envelope, **({"x_needle": about} if show else {})})


def render_extract(reply: Reply) -> bytes:
    """The object found, or null and why; `matched` says which, as needle-openai does."""
    found = None if reply.content is None else orjson.loads(reply.content)
    body: dict[str, Any] = {
        "object": "needle.extraction",
        "data": found,
        "matched": reply.content is not None,
        "refusal": reply.refusal,
    }
    return dump({**body, **({} if reply.extension is None else {"x_needle": reply.extension})})
