"""One value of one key: text from outside to a typed value, or the line that says what is wrong with it.

TOML brings types of its own; the environment and the command line bring text. Both end in the same check, so that
`port = "80"` in a file is refused while NEEDLE_ROUTER_SERVER_PORT=80 is not.
"""

from __future__ import annotations

import json
import math
import typing
from collections.abc import Iterator, Mapping
from typing import Any, Literal

import msgspec

from needle_router.config.keys import SECRET, Key, did_you_mean
from needle_router.config.schema import Price

TRUE, FALSE = frozenset({"true", "1", "on", "yes"}), frozenset({"false", "0", "off", "no"})

WANTED: Mapping[Any, str] = {
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    str: "a text",
    tuple[str, ...]: "a list of texts",
    tuple[dict[str, Any], ...]: "a list of tables, [[policy]]",
}


class BadValue(ValueError):
    """A value that its key cannot take; each argument is one problem line."""

    @property
    def lines(self) -> tuple[str, ...]:
        """The problem lines; an open table can have several."""
        return self.args


def parse_text(key: Key, text: str) -> Any:
    """The value that `text` spells for `key`; raises `BadValue`."""
    if key.type is bool:
        return _flag(key, text)
    if key.type in (int, float):
        return _number(key, text)
    if key.type == tuple[str, ...] and not text.lstrip().startswith("["):
        return [item for part in text.split(",") if (item := part.strip())]
    if key.type is str or typing.get_origin(key.type) is Literal:
        return text
    try:
        return json.loads(text)
    except ValueError as error:
        raise BadValue(f"{key.path}: expected JSON, {error}") from None


def convert(key: Key, value: Any) -> Any:
    """`value` as the type of `key`; raises `BadValue` with the value (unless secret) and what is wanted."""
    if typing.get_origin(key.type) is Literal:
        return _choice(key, value)
    if key.type == dict[str, Price]:
        return _prices(key, value)
    try:
        converted = msgspec.convert(value, key.type)
    except msgspec.ValidationError:
        raise BadValue(f"{key.path}: expected {WANTED[key.type]}, got {shown(key, value)}") from None
    if isinstance(converted, float) and not math.isfinite(converted):
        raise BadValue(f"{key.path}: expected a finite number, got {value}")
    return converted


def shown(key: Key, value: Any) -> str:
    """`value` for an error line: as JSON, cut, and nothing at all of a secret."""
    if key.path in SECRET:
        return f"something else ({type(value).__name__})"
    text = json.dumps(value, ensure_ascii=False, default=str)
    return text if len(text) <= 80 else text[:77] + "..."


def _flag(key: Key, text: str) -> bool:
    word = text.strip().lower()
    if word not in TRUE | FALSE:
        raise BadValue(f"{key.path}: expected true or false, got {shown(key, text)}")
    return word in TRUE


def _number(key: Key, text: str) -> int | float:
    try:
        return int(text) if key.type is int else float(text)
    except ValueError:
        raise BadValue(f"{key.path}: expected {WANTED[key.type]}, got {shown(key, text)}") from None


def _choice(key: Key, value: Any) -> Any:
    choices = typing.get_args(key.type)
    if value in choices:
        return value
    hint = did_you_mean(value, choices) if isinstance(value, str) else ""
    raise BadValue(f"{key.path}: expected one of {', '.join(choices)}, got {shown(key, value)}{hint}")


def _prices(key: Key, value: Any) -> dict[str, Price]:
    if not isinstance(value, Mapping):
        raise BadValue(f'{key.path}: expected tables, [prices."model"], got {shown(key, value)}')
    lines = [line for model, price in value.items() for line in _price_faults(key, f'{key.path}."{model}"', price)]
    if lines:
        raise BadValue(*lines)
    return msgspec.convert(value, dict[str, Price])


def _price_faults(key: Key, path: str, price: Any) -> Iterator[str]:
    if not isinstance(price, Mapping):
        yield f"{path}: expected a table with input and output, got {shown(key, price)}"
        return
    names = [field.name for field in msgspec.structs.fields(Price)]
    for name, value in price.items():
        if name not in names:
            yield f"{path}.{name}: unknown key{did_you_mean(name, names)}"
        elif not isinstance(value, (int, float)) or isinstance(value, bool):
            yield f"{path}.{name}: expected a number, got {shown(key, value)}"
    for field in msgspec.structs.fields(Price):
        if field.required and field.name not in price:
            yield f"{path}.{field.name}: missing (USD per million tokens)"
