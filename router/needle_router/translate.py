"""From a `Turn` to what the engine reads, and from the engine's JSON back to a typed envelope.

The engine gets three texts. *System* is facts to Needle (`date: 2026-11-30 Mon`), never instructions, so of an OpenAI
system prompt only recognised `key: value` facts pass. *Tools* is one flat JSON list with the keys in the order name,
description, parameters: with the description first a tool can become invisible. *Steps* is what is fed, one completion
each. The other way round, the envelope is read tolerantly, and everything odd becomes an outcome with a reason.
"""

from __future__ import annotations

import datetime
import functools
import hashlib
import math
import re
import unicodedata
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal

import orjson

from needle_router.schema import CompiledTool, compile_tool
from needle_router.task import EngineFailure, Envelope, RawCall, Task
from needle_router.turn import Message, ResponseFormat, Tool, Turn

#: The keys that Needle knows as facts.
FACT_KEYS = ("date", "time", "locale", "device", "battery", "network", "location", "user", "assistant")
FACT = re.compile(rf"^\s*(?:[-*]\s*)?({'|'.join(FACT_KEYS)})\s*:\s*(\S.*?)\s*$", re.IGNORECASE)
MAX_FACT_CHARS = 120
MAX_KEY_CHARS = 20
#: Arguments nested deeper than any schema that the engine can hold are garbage.
MAX_ARGUMENT_DEPTH = 32
WEEKDAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")

#: Chat-template markers of Needle and of the models that clients copy text from.
_MARKER = re.compile(
    r"<\s*\|\s*[a-z_]{2,24}\s*\|\s*>"
    r"|<\s*/?\s*(?:tool_calls?|tool_results?|tool_response|tools?|schema|function_calls?|think|reasoning|confidence)\s*>"
    r"|\[/?(?:INST|TOOL_CALLS|AVAILABLE_TOOLS|TOOL_RESULTS)\]",
    re.IGNORECASE,
)
_SUSPICIOUS = re.compile(r"[<\[\uff1c\ufe64\u2039\u27e8\u3008]")
#: Characters that show nothing and so can split a marker: format characters, soft hyphen, variation selectors.
_INVISIBLE = re.compile(
    "[\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180e\u200b-\u200f\u202a-\u202e\u2060-\u206f\ufe00-\ufe0f\ufeff]"
)
_ANGLES = str.maketrans({"\u2039": "<", "\u203a": ">", "\u27e8": "<", "\u27e9": ">", "\u3008": "<", "\u3009": ">"})


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
) -> Task:
    """What to ask the engine. `from_engine` tells whether a tool call's id was minted for an engine's call."""
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
    )


# ------------------------------------------------------------------------- system


def system_text(texts: Sequence[str], mode: Literal["facts", "verbatim", "none"], today: datetime.date) -> str:
    """The system text for the engine; with "facts" the day is added when the client gave no date."""
    if mode == "none":
        return ""
    if mode == "verbatim":
        return "\n".join(texts)
    found = facts(texts)
    if "date" not in found:
        found = {"date": f"{today.isoformat()} {WEEKDAYS[today.weekday()]}", **found}
    return "\n".join(f"{key}: {value}" for key, value in found.items())


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


# -------------------------------------------------------------------------- steps


def replayable_steps(turn: Turn, from_engine: Callable[[str], bool]) -> tuple[str, ...] | None:
    """The texts that rebuild this conversation in the engine, or None when it would not be the same conversation.

    The engine writes its own side again, so every assistant turn in the history must have been its own: calls only,
    and each with an id that was minted here.
    """
    for message in turn.messages:
        if message.role == "assistant":
            if message.text or not message.calls:
                return None
            if not all(from_engine(call.id) for call in message.calls):
                return None
    steps = _steps(turn.messages)
    return steps or None


def conversation_steps(turn: Turn, from_engine: Callable[[str], bool]) -> tuple[str, ...]:
    """The steps of the whole conversation where it can be replayed, else those since the last user message."""
    whole = replayable_steps(turn, from_engine)
    if whole is not None:
        return whole
    last = max((i for i, message in enumerate(turn.messages) if message.role == "user"), default=0)
    return _steps(turn.messages[last:]) or (turn.user_text,)


def _steps(messages: Sequence[Message]) -> tuple[str, ...]:
    """User texts, and each run of consecutive tool messages as one JSON array."""
    steps: list[str] = []
    results: list[str] = []
    for message in messages:
        if message.role in ("tool", "function"):
            results.append(message.text)
            continue
        if results:
            steps.append(_results_text(results))
            results = []
        if message.role == "user":
            steps.append(message.text)
    if results:
        steps.append(_results_text(results))
    return tuple(steps)


def _results_text(results: Sequence[str]) -> str:
    values = []
    for text in results:
        try:
            values.append(orjson.loads(text))
        except (orjson.JSONDecodeError, ValueError):
            values.append(text)
    return orjson.dumps(values).decode()


# ------------------------------------------------------------------------ markers


def control_marker(text: str) -> bool:
    """Whether the text spells a chat-template marker, also in full-width letters or split by invisible characters."""
    if not _SUSPICIOUS.search(text):
        return False
    # ASCII has no disguises, and normalising megabytes takes a second.
    plain = text if text.isascii() else unicodedata.normalize("NFKC", _INVISIBLE.sub("", text)).translate(_ANGLES)
    return _MARKER.search(plain) is not None


def unreadable(text: str) -> bool:
    """Whether the text cannot be handed to C code: a NUL cuts it silently, a lone surrogate has no UTF-8."""
    if "\0" in text:
        return True
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


# --------------------------------------------------------------------- extraction


def extraction_tool(wanted: ResponseFormat) -> Tool | None:
    """The tool whose arguments are the structured answer; None when the schema's root is not an object."""
    schema = wanted.schema
    if not isinstance(schema, dict) or schema.get("type", "object") != "object" or not schema.get("properties"):
        return None
    description = schema.get("description")
    return Tool(wanted.name, description if isinstance(description, str) else "", schema, strict=True)


# ----------------------------------------------------------------------- envelope


def read_envelope(raw: Mapping[str, Any]) -> Envelope | EngineFailure:
    """Read the engine's JSON tolerantly (engine generations 2 and 3); never raises."""
    if raw.get("success", True) is False or raw.get("type") == "error":
        return _failed(raw)
    calls = _raw_calls(raw.get("function_calls"))
    if calls is None:
        return EngineFailure("engine-garbage", "function_calls is not a list of calls")
    suppressed = raw.get("suppressed_calls")
    validation = raw.get("validation")
    validation = validation if isinstance(validation, dict) else None
    return Envelope(
        kind=_text(raw.get("type")) or ("call" if calls else "respond"),
        calls=calls,
        suppressed=len(suppressed) if isinstance(suppressed, list) else 0,
        reasoning=_text(raw.get("reasoning")),
        confidence=_probability(raw.get("confidence")),
        ungrounded=None if validation is None else _texts(validation.get("ungrounded")),
        negation=validation is not None and bool(validation.get("negation")),
        prefill_tps=_number(raw.get("prefill_tps")),
        decode_tps=_number(raw.get("decode_tps")),
        peak_ram_mb=_number(raw.get("peak_ram_mb")),
    )


def _failed(raw: Mapping[str, Any]) -> EngineFailure:
    code = raw.get("error_code")
    detail = _text(raw.get("error")) or _text(raw.get("reason")) or "the engine gave no reason"
    reason = "truncated" if code == "truncated" else "prompt-too-long" if code == "context_overflow" else "engine-error"
    return EngineFailure(reason, detail if code is None else f"{detail} (error_code {code})")


def _raw_calls(value: Any) -> tuple[RawCall, ...] | None:
    if value is None:
        return ()
    if not isinstance(value, list):
        return None
    calls = []
    for item in value:
        if not isinstance(item, dict) or not isinstance(item.get("name"), str):
            return None
        arguments = item.get("arguments")
        if isinstance(arguments, str):
            try:
                arguments = orjson.loads(arguments or "{}")
            except orjson.JSONDecodeError:
                return None
        if arguments is None:
            arguments = {}
        if not isinstance(arguments, dict) or _deeper(arguments, MAX_ARGUMENT_DEPTH):
            return None
        calls.append(RawCall(item["name"], arguments))
    return tuple(calls)


def _deeper(value: Any, limit: int) -> bool:
    """Whether `value` has more than `limit` levels of containers."""
    if not isinstance(value, (dict, list)):
        return False
    items = value.values() if isinstance(value, dict) else value
    return limit == 0 or any(_deeper(item, limit - 1) for item in items)


def _number(value: Any) -> float | None:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not math.isfinite(value):
        return None
    return float(value)


def _probability(value: Any) -> float | None:
    number = _number(value)
    return number if number is not None and 0.0 <= number <= 1.0 else None


def _text(value: Any) -> str | None:
    return value if isinstance(value, str) else None


def _texts(value: Any) -> tuple[str, ...]:
    # Anything that is not a list of paths cannot be read as "nothing ungrounded".
    if value is None:
        return ()
    if isinstance(value, list):
        return tuple(str(item) for item in value)
    return (str(value),)
