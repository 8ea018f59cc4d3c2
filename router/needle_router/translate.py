"""From a `Turn` to what the engine reads.

The engine gets three texts. *System* is facts to Needle (`date: 2026-11-30 Mon`), never instructions, so of an OpenAI
system prompt only recognised `key: value` facts pass. *Tools* is one flat JSON list with the keys in the order name,
description, parameters: with the description first a tool can become invisible. *Steps* is what is fed, one completion
each (`history`). The way back is `envelopes`.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

import orjson

from needle_router.history import replayable_steps
from needle_router.markers import control_marker
from needle_router.schema import CompiledTool, compile_tool
from needle_router.task import Task
from needle_router.turn import ResponseFormat, Tool, Turn

#: The keys that Needle knows as facts.
FACT_KEYS = ("date", "time", "locale", "device", "battery", "network", "location", "user", "assistant")
FACT = re.compile(rf"^\s*(?:[-*]\s*)?({'|'.join(FACT_KEYS)})\s*:\s*(\S.*?)\s*$", re.IGNORECASE)
MAX_FACT_CHARS = 120
MAX_KEY_CHARS = 20
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")


@dataclass(frozen=True, slots=True)
class Catalogue:
    """The tools that may be called: their text for the engine, each compiled, and the first problem among them.

    `digest` names them with their whole schemas, also with what the engine is not told.
    """

    text: str
    tools: Mapping[str, CompiledTool]
    problem: str | None = None
    marker: bool = False
    digest: str = ""


def catalogue_of(tools: Sequence[Tool]) -> Catalogue:
    """Translate the offered tools; quick when the same set was seen before."""
    return _catalogue(tuple(compile_tool(tool) for tool in tools))


class _Key(tuple[CompiledTool, ...]):
    """Compiled tools are cached objects, so a set of them is known by identity."""

    __slots__ = ()

    def __hash__(self) -> int:
        return hash(tuple(map(id, self)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Key) and len(self) == len(other) and all(map(_same, self, other))


def _same(one: CompiledTool, other: CompiledTool) -> bool:
    return one is other


def _catalogue(compiled: tuple[CompiledTool, ...]) -> Catalogue:
    return _cached_catalogue(_Key(compiled))


@functools.lru_cache(maxsize=512)
def _cached_catalogue(compiled: _Key) -> Catalogue:
    flat = [
        {"name": tool.name, "description": tool.description, "parameters": tool.engine_parameters} for tool in compiled
    ]
    problem = next((f"{tool.name} {tool.problem}" for tool in compiled if tool.problem), None)
    text = orjson.dumps(flat).decode()
    whole = orjson.dumps([tool.original for tool in compiled])
    return Catalogue(
        text=text,
        tools=MappingProxyType({tool.name: tool for tool in compiled}),
        problem=problem,
        marker=control_marker(text),
        digest=hashlib.sha256(text.encode() + b"\0" + whole).hexdigest(),
    )


def make_task(
    turn: Turn,
    catalogue: Catalogue,
    *,
    system: Literal["facts", "verbatim", "none"],
    today: datetime.date,
    max_new_tokens: int,
    session: Literal["isolated", "replay"] = "isolated",
    from_engine: Callable[[str], bool] = lambda _: False,
    remembered: bool = False,
) -> Task:
    """What to ask the engine. `from_engine` tells whether a tool call's id was minted for an engine's call.

    `remembered` says that answers are kept, so the task must name everything that makes it another question.
    """
    steps: tuple[str, ...] = (turn.user_text,)
    replay = False
    if session == "replay":
        whole = replayable_steps(turn, from_engine)
        replay = whole is not None
        steps = whole or steps
    return Task(
        system=system_text(turn.system_texts, system, today),
        tools=catalogue.text,
        steps=steps,
        max_new_tokens=max_new_tokens,
        replay=replay,
        context=context_of(turn, catalogue) if remembered else "",
    )


def context_of(turn: Turn, catalogue: Catalogue) -> str:
    """What makes a question another one although the engine reads the same: tool_choice, schemas, system text."""
    choice = turn.tool_choice
    said = "\0".join((choice.mode, *(choice.names or ()), "", *turn.system_texts, "", catalogue.digest))
    return hashlib.blake2b(said.encode("utf-8", "surrogatepass"), digest_size=16).hexdigest()


# ------------------------------------------------------------------------- system


def system_text(texts: Sequence[str], mode: Literal["facts", "verbatim", "none"], today: datetime.date) -> str:
    """The system text for the engine; with "facts" the day is added when the client gave no date."""
    if mode == "none":
        return ""
    if mode == "verbatim":
        return "\n".join(texts)
    found = facts(texts)
    if "date" not in found:
        found = {"date": date_fact(today), **found}
    return "\n".join(f"{key}: {value}" for key, value in found.items())


@functools.lru_cache(maxsize=4)
def date_fact(today: datetime.date) -> str:
    """The day as the engine was trained to read it."""
    return f"{today.isoformat()} {WEEKDAYS[today.weekday()]}"


def facts(texts: Sequence[str]) -> dict[str, str]:
    """Recognised `key: value` facts of system and developer texts; they end at a line break or a semicolon."""
    found: dict[str, str] = {}
    for text in texts:
        for piece in map(str.strip, re.split(r"[\n;]", text)):
            # Length first: the pattern is slow on long runs of blanks.
            match = FACT.match(piece) if len(piece) <= MAX_FACT_CHARS + MAX_KEY_CHARS else None
            if match and len(match[2]) <= MAX_FACT_CHARS:
                found[match[1].lower()] = match[2]
    return found


# --------------------------------------------------------------------- extraction


def extraction_tool(wanted: ResponseFormat) -> Tool | None:
    """The tool whose arguments are the structured answer; None when the schema's root is not an object."""
    schema = wanted.schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object" or not schema.get("properties"):
        return None
    description = schema.get("description")
    return Tool(wanted.name, description if isinstance(description, str) else "", schema, strict=True)
