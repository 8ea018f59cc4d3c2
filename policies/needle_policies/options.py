"""Values of options, checked by the types of their fields: one small check a type, each fault a line with its path."""

from __future__ import annotations

import re
import typing
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from needle_policies.patterns import compiled
from needle_policies.templates import pieces
from needle_policies.threshold import NEVER


def value_problems(path: str, value: Any, hint: Any) -> list[str]:
    """What is wrong with the value of an option whose field has the type `hint`, each line with the path."""
    if typing.get_origin(hint) is typing.Literal:
        known = typing.get_args(hint)
        return [] if value in known else [f"{path}: {value!r} is none of {', '.join(map(repr, known))}"]
    check = _CHECKS.get(hint)
    return check(path, value) if check is not None else []


def _text(path: str, value: Any) -> list[str]:
    return [] if isinstance(value, str) else [f"{path}: {value!r} is not a text"]


def _whole(path: str, value: Any) -> list[str]:
    good = isinstance(value, int) and not isinstance(value, bool) and value >= 1
    return [] if good else [f"{path}: {value!r} is not a whole number of at least 1"]


def _share(path: str, value: Any) -> list[str]:
    return [] if _is_share(value) else [f"{path}: {value!r} is not a number from 0 to 1"]


def _number_list(path: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)):
        return [f"{path}: {value!r} is not a list of numbers from 0 to 1"]
    return [line for index, one in enumerate(value) for line in _share(f"{path}[{index}]", one)]


def _amount(path: str, value: Any) -> list[str]:
    good = isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value < float("inf")
    return [] if good else [f"{path}: {value!r} is not an amount of at least 0"]


def _patterns(path: str, value: Any) -> list[str]:
    if not isinstance(value, (list, tuple)) or not all(isinstance(one, str) for one in value):
        return [f"{path}: {value!r} is not a list of patterns"]
    return [line for one in value for line in _pattern(path, one)]


def _pattern(path: str, pattern: str) -> list[str]:
    try:
        compiled(pattern)
    except re.error as error:
        return [f"{path}: {pattern!r} is no regular expression: {error}"]
    return []


def _minimums(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is not a table of tool names"]
    return [
        f'{path}.{name}: {minimum!r} is neither a number from 0 to 1 nor "never"'
        for name, minimum in value.items()
        if minimum != NEVER and not _is_share(minimum)
    ]


def _shares(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is not a table of tool names"]
    return [line for name, share in value.items() for line in _share(f"{path}.{name}", share)]


def _templates(path: str, value: Any) -> list[str]:
    if not isinstance(value, Mapping):
        return [f"{path}: {value!r} is not a table of tool names"]
    return [line for name, template in value.items() for line in _template(f"{path}.{name}", template)]


def _template(path: str, template: Any) -> list[str]:
    if not isinstance(template, str) or not template.strip():
        return [f"{path}: {template!r} is no sentence"]
    try:
        list(pieces(template))
    except ValueError as error:
        return [f"{path}: {template!r}: {error}; write {{{{ and }}}} for braces"]
    return []


#: The type of an option -> what its value must satisfy. Options of other types are their policy's own business.
_CHECKS: Mapping[Any, Callable[[str, Any], list[str]]] = MappingProxyType(
    {
        str: _text,
        int: _whole,
        float: _share,
        float | None: _amount,
        tuple[str, ...]: _patterns,
        tuple[float, ...]: _number_list,
        Mapping[str, float]: _shares,
        Mapping[str, str]: _templates,
        Mapping[str, float | typing.Literal["never"]]: _minimums,
    }
)


def _is_share(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 <= value <= 1
