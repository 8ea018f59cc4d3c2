"""POST /v1/chat/completions: from the client's bytes to a `Turn`.

Parsing serves a decision only; the request itself goes on as the bytes it came in. So anything odd is no error here:
it makes the request unreadable or adds an obstacle, and the upstream, which knows its own API, says what it thinks.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from needle_router.surfaces import chat_fields, chat_messages
from needle_router.turn import Choice, Format, ResponseFormat, Tool, ToolChoice, Turn

#: Nesting beyond this is refused unread; it also bounds every recursive walk over the request.
MAX_DEPTH = 128
#: The last escape of a key that may spell a decision key, which holds only a-z and "_".
_ESCAPED_KEY = re.compile(rb'\\u00[5-7][0-9a-fA-F][a-z_]*"\s*:')


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A body that cannot be read with certainty. `reason` is a slug, `detail` for logs."""

    reason: str
    detail: str


class _Odd(ValueError):
    """A value of a type that the API does not have."""


def parse(raw: bytes) -> Turn | Unreadable:
    """Read a request body; never raises."""
    try:
        body = orjson.loads(raw)
        doubt = _doubt(raw, body)
        return Unreadable("unparsed", doubt) if doubt else _turn(raw, body)
    except orjson.JSONDecodeError as error:
        return Unreadable("unparsed", f"not JSON: {error.msg}")
    except (_Odd, chat_messages.OddMessage) as error:
        return Unreadable("unparsed", str(error))
    except RecursionError:
        return Unreadable("unparsed", "nested too deeply")


def _doubt(raw: bytes, body: Any) -> str:
    """Why the body cannot be read with certainty, "" if it can."""
    if not isinstance(body, dict):
        return f"the body is {type(body).__name__}, not an object"
    duplicate = duplicate_key(raw, body)
    if duplicate:
        return f"the key {duplicate!r} stands twice"
    # There cannot be more levels than there are opening brackets, and most requests have fewer than the limit.
    brackets = raw.count(b"[") + raw.count(b"{")
    return f"nested deeper than {MAX_DEPTH}" if brackets > MAX_DEPTH and too_deep(body) else ""


def too_deep(body: Any) -> bool:
    """Whether lists and objects nest deeper than `MAX_DEPTH`, going down one level of all of them at a time."""
    level = [body]
    for _ in range(MAX_DEPTH):
        level = [
            item
            for outer in level
            for item in (outer.values() if type(outer) is dict else outer)
            if type(item) is dict or type(item) is list
        ]
        if not level:
            return False
    return True


def duplicate_key(raw: bytes, body: Mapping[str, Any]) -> str:
    """A decision key that stands twice at the top level, or "".

    Counting the key's text is cheap and can only overestimate, except for keys written with escapes; those, and texts
    that count more than once, are settled by a parser that keeps pairs.
    """
    suspicious = _ESCAPED_KEY.search(raw) is not None
    if not suspicious:
        texts = chat_fields.DECISION_TEXTS
        suspicious = any(raw.count(texts[key]) > 1 for key in body if key in texts)
    if not suspicious:
        return ""
    doubled: list[str] = []

    def pairs(items: list[tuple[str, Any]]) -> dict[str, Any]:
        decoded = dict(items)
        keys = [key for key, _ in items] if len(decoded) < len(items) else ()
        doubled[:] = [key for key in chat_fields.DECISION_KEYS if keys.count(key) > 1]
        return decoded

    # The outermost object is finished last, so what remains in `doubled` is about the top level.
    # Numbers stay text: their values do not matter here, and `int` refuses very long ones.
    json.loads(raw, object_pairs_hook=pairs, parse_int=str, parse_float=str)
    return doubled[0] if doubled else ""


def _turn(raw: bytes, body: dict[str, Any]) -> Turn:
    messages = chat_messages.messages(body.get("messages"))
    tools, tool_obstacles = _tools(body.get("tools"))
    choice, choice_obstacles = _choice(body.get("tool_choice"), tools)
    has_tools = bool(body.get("tools")) or bool(body.get("functions"))
    options = _typed(body, "stream_options", dict) or {}
    obstacles = (
        *chat_fields.obstacles(body),
        *tool_obstacles,
        *choice_obstacles,
        *chat_messages.obstacles(messages),
    )
    return Turn(
        raw=raw,
        model=_typed(body, "model", str) or "",
        messages=messages,
        tools=tools,
        has_tools=has_tools,
        tool_choice=choice,
        response_format=_format(body.get("response_format")),
        parallel=_typed(body, "parallel_tool_calls", bool) is not False,
        stream=_typed(body, "stream", bool) is True,
        include_usage=_typed(options, "include_usage", bool) is True,
        stop=_stop(body.get("stop")),
        max_tokens=_limit(body),
        obstacles=tuple(dict.fromkeys(obstacles)),
        warnings=chat_fields.warnings(body),
    )


def _typed(body: Mapping[str, Any], key: str, kind: type) -> Any:
    value = body.get(key)
    if value is not None and not isinstance(value, kind):
        raise _Odd(f"{key} is {type(value).__name__}, not {kind.__name__}")
    return value


def _limit(body: Mapping[str, Any]) -> int | None:
    limits = [body[key] for key in ("max_completion_tokens", "max_tokens") if body.get(key) is not None]
    if any(isinstance(limit, bool) or not isinstance(limit, (int, float)) for limit in limits):
        raise _Odd("max_tokens is not a number")
    return int(min(limits)) if limits else None


def _stop(value: Any) -> tuple[str, ...]:
    if value is None:
        return ()
    stops = (value,) if isinstance(value, str) else value
    if not isinstance(stops, (list, tuple)) or not all(isinstance(s, str) for s in stops):
        raise _Odd("stop is neither a string nor a list of strings")
    return tuple(s for s in stops if s)


def _format(value: Any) -> ResponseFormat:
    if value is None:
        return ResponseFormat()
    if not isinstance(value, dict) or value.get("type") not in tuple(Format):
        raise _Odd("response_format has an unknown form")
    kind = Format(value["type"])
    if kind is not Format.JSON_SCHEMA:
        return ResponseFormat(kind)
    wanted = value.get("json_schema")
    if not isinstance(wanted, dict) or not isinstance(wanted.get("name"), str):
        raise _Odd("response_format.json_schema has an unknown form")
    return ResponseFormat(kind, wanted["name"], wanted.get("schema"))


def _tools(value: Any) -> tuple[tuple[Tool, ...], tuple[str, ...]]:
    if value is None:
        return (), ()
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
        raise _Odd("tools is not a list of objects")
    functions = [item for item in value if item.get("type") == "function"]
    tools = tuple(_tool(item.get("function")) for item in functions)
    found = []
    if len(functions) < len(value):
        found.append("tool-kind")
    if len({tool.name for tool in tools}) < len(tools):
        found.append("duplicate-tools")
    return tools, tuple(found)


def _tool(function: Any) -> Tool:
    if not isinstance(function, dict) or not isinstance(function.get("name"), str) or not function["name"]:
        raise _Odd("a tool has no function name")
    return Tool(
        name=function["name"],
        description=_typed(function, "description", str) or "",
        parameters=_parameters(function),
        strict=function.get("strict") is True,
    )


def _parameters(function: Mapping[str, Any]) -> Any:
    # A schema that is no object (true, a list) is kept: compiling it names the problem, and the turn is forwarded.
    return function.get("parameters")


def _choice(value: Any, tools: tuple[Tool, ...]) -> tuple[ToolChoice, tuple[str, ...]]:
    match value:
        case None | "auto":
            return ToolChoice(), ()
        case "none":
            return ToolChoice(Choice.NONE), ()
        case "required":
            return ToolChoice(Choice.REQUIRED), ()
        case {"type": "function", "function": {"name": str(name)}}:
            return _narrowed(Choice.NAMED, (name,), tools)
        case {"type": "allowed_tools", "allowed_tools": {"mode": "auto" | "required" as mode, "tools": list(allowed)}}:
            names = tuple(_allowed_name(item) for item in allowed)
            return _narrowed(Choice(mode), names, tools)
    return ToolChoice(), ("tool-choice-unknown",)


def _allowed_name(item: Any) -> str:
    match item:
        case {"type": "function", "function": {"name": str(name)}} | {"type": "function", "name": str(name)}:
            return name
    return ""


def _narrowed(mode: Choice, names: tuple[str, ...], tools: tuple[Tool, ...]) -> tuple[ToolChoice, tuple[str, ...]]:
    declared = {tool.name for tool in tools}
    if not names or not declared.issuperset(names):
        return ToolChoice(mode, names), ("tool-choice-unknown",)
    return ToolChoice(mode, names), ()
