"""Sentences with places for values: `{room}` of a call's arguments, `{result}` or `{result.day}` of its result.

Nothing is guessed: where a place has no value that can be said in a sentence, there is no sentence.
"""

from __future__ import annotations

import json
import math
import string
from collections.abc import Iterator, Mapping
from typing import Any

#: A value of more characters is no part of a sentence.
MAX_VALUE_CHARS = 500
RESULT, ARGUMENTS = "result", "arguments"


def pieces(template: str) -> Iterator[tuple[str, str | None]]:
    """Literal text and the place after it, None after the last; raises ValueError for a template that is none."""
    for literal, place, form, conversion in string.Formatter().parse(template):
        if place is not None and (form or conversion or not _is_place(place)):
            raise ValueError(
                f"the place {{{place}}} is none of {{argument}}, {{arguments.name}}, {{result}}, {{result.field}}"
            )
        yield literal, place


def _is_place(place: str) -> bool:
    first, dot, rest = place.partition(".")
    return bool(first) and not set(place) & set("[]!:{}") and (not dot or (first in (RESULT, ARGUMENTS) and bool(rest)))


def filled(template: str, arguments: Mapping[str, Any], result: Any) -> str | None:
    """The sentence, or None where a place has no value; `result` is the decoded result, a text where it is no JSON."""
    said = []
    for literal, place in pieces(template):
        value = "" if place is None else spoken(_value(place, arguments, result))
        if value is None:
            return None
        said.append(literal + value)
    return "".join(said)


def _value(place: str, arguments: Mapping[str, Any], result: Any) -> Any:
    first, dot, rest = place.partition(".")
    if first == RESULT and dot:
        return result.get(rest) if isinstance(result, Mapping) else None
    if first == RESULT:
        return result
    return arguments.get(rest if dot else place)


def spoken(value: Any) -> str | None:
    """A text, a number, true or false as it is said; None for what is no single value, or too long."""
    if isinstance(value, str):
        return value if len(value) <= MAX_VALUE_CHARS else None
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        value = int(value) if value.is_integer() and abs(value) < 1e15 else value
    if isinstance(value, (bool, int, float)):
        text = json.dumps(value)
        return text if len(text) <= MAX_VALUE_CHARS else None
    return None
