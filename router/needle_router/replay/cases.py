"""A case: one request as a client would send it, and what is known of its right answer."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needle_router.replay.grading import TheseCalls, Wanted
from needle_router.turn import Call

#: The model's name in requests that are made up here; no upstream sees it.
MODEL = "replay"


class SourceProblem(Exception):
    """A source that cannot be replayed; each line says what is wrong, and what to do about it."""

    def __init__(self, *lines: str) -> None:
        super().__init__("\n".join(lines))
        self.lines = lines


@dataclass(frozen=True, slots=True)
class Case:
    """`body` is the request body; `wanted` is None where nobody knows the right answer."""

    name: str
    category: str
    body: bytes
    wanted: Wanted | None = None


@dataclass(frozen=True, slots=True)
class Example:
    """A sentence of a data set: flat tool declarations, and the calls `{"name", "arguments"}` that it stands for."""

    name: str
    category: str
    query: str
    tools: Sequence[Mapping[str, Any]]
    calls: Sequence[Mapping[str, Any]]
    system: str | None = None


def case_of(example: Example) -> Case:
    """The example as a chat completion request."""
    system = [] if example.system is None else [{"role": "system", "content": example.system}]
    messages = [*system, {"role": "user", "content": example.query}]
    body = request_body(messages, example.tools)
    wanted = TheseCalls(tuple(Call(call["name"], call["arguments"]) for call in example.calls))
    return Case(example.name, example.category, body, wanted)


def request_body(messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]) -> bytes:
    """A request body with flat declarations as function tools."""
    declared = [{"type": "function", "function": tool} for tool in tools]
    return json.dumps({"model": MODEL, "messages": messages, "tools": declared}).encode()
