"""JSON lines of recorded requests.

A line is a chat completion request body; `expected`, `category` and `id` may stand in it. Or it is an object with the
body under `request` and those three beside it, where `response` may hold the completion that the upstream gave: its
calls are then what is expected. Without either the request is replayed, but nothing can be said about right or wrong.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from needle_router.replay.cases import Case, SourceProblem
from needle_router.replay.grading import TheseCalls
from needle_router.surfaces.chat_read import decoded, first_message, message_calls
from needle_router.turn import Call

MAX_PROBLEMS = 10
OURS = ("expected", "category", "id")


class BadRequests(SourceProblem):
    """Lines that are no requests, each named with its number, at most `MAX_PROBLEMS`."""


def read_requests(lines: Iterable[bytes]) -> list[Case]:
    """The cases of JSON lines; empty lines are passed over. Raises BadRequests."""
    found: list[Case] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        case = _read(number, line)
        if isinstance(case, Case):
            found.append(case)
        else:
            problems.append(f"line {number}: {case}")
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise BadRequests(*problems)
    return found


def _read(number: int, line: bytes) -> Case | str:
    """The case, or what is wrong with the line."""
    try:
        row = json.loads(line)
    # RecursionError: brackets nested by the thousand.
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error})"
    body = row.get("request", row) if isinstance(row, dict) else None
    if not isinstance(body, dict) or "messages" not in body:
        return 'expected a request body with "messages", or an object with one under "request"'
    if body is row:
        body = {key: value for key, value in row.items() if key not in OURS}
    wanted = _wanted(row, body)
    if isinstance(wanted, str):
        return wanted
    category, name = row.get("category", "all"), row.get("id", f"line {number}")
    if not isinstance(category, str) or not category:
        return '"category" must be text'
    return Case(str(name), category, json.dumps(body).encode(), wanted)


def _wanted(row: Mapping[str, Any], body: Mapping[str, Any]) -> TheseCalls | str | None:
    """The right answer, None where the line has none, or what is wrong with it."""
    if row.get("expected") is not None:
        calls = _calls(row["expected"])
        if calls is None:
            return '"expected" must be a list of calls {"name": text, "arguments": object}, [] for none'
    elif body is not row and row.get("response") is not None:
        calls = _answered(body, row["response"])
        if calls is None:
            return '"response" must be a chat completion, with calls whose arguments are JSON objects'
    else:
        return None
    return TheseCalls(calls)


def _calls(value: Any) -> tuple[Call, ...] | None:
    if not isinstance(value, list):
        return None
    found = [Call(item["name"], item.get("arguments", {})) for item in value if _is_call(item)]
    return tuple(found) if len(found) == len(value) else None


def _is_call(item: Any) -> bool:
    return isinstance(item, dict) and isinstance(item.get("name"), str) and isinstance(item.get("arguments", {}), dict)


def _answered(body: Mapping[str, Any], response: Any) -> tuple[Call, ...] | None:
    """The calls of a recorded answer; of a structured one, its object as the call that it is here."""
    message = first_message(response)
    if message is None:
        return None
    schema = _wanted_schema(body)
    if schema is not None:
        value = _object(message.get("content"))
        return () if value is None else (Call(schema, value),)
    found = [decoded(call) for call in message_calls(message)]
    return None if None in found else tuple(call for call in found if call is not None)


def _wanted_schema(body: Mapping[str, Any]) -> str | None:
    """The name of the schema that a request without tools asks for."""
    wanted = body.get("response_format")
    schema = wanted.get("json_schema") if isinstance(wanted, dict) and not body.get("tools") else None
    name = schema.get("name") if isinstance(schema, dict) else None
    return name if isinstance(name, str) else None


def _object(content: Any) -> dict[str, Any] | None:
    try:
        found = json.loads(content) if isinstance(content, str) else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
