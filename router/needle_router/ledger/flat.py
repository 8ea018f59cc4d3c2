"""A record as one flat, typed line: the columns follow from the record's own fields, so that none is forgotten.

Token counts stand beside each other as `usage_prompt_tokens` and so on; lists of names are JSON text; yes and no are 1
and 0. Before them come the moment as text, for eyes, and the router that wrote the record.
"""

from __future__ import annotations

import dataclasses
import datetime
import types
import typing
from collections.abc import Iterator, Mapping
from typing import Any

import orjson

from needle_router.records import DecisionRecord
from needle_router.turn import Usage

#: Python type of a field -> type of its column; whatever else a field may be is JSON text.
KINDS: Mapping[Any, str] = {bool: "INTEGER", int: "INTEGER", float: "REAL", str: "TEXT"}


def _wanted(hint: Any) -> Any:
    """The type of a field without `| None`."""
    if isinstance(hint, types.UnionType):
        return next(kind for kind in typing.get_args(hint) if kind is not types.NoneType)
    return hint


def _fields() -> Iterator[tuple[str, str, str]]:
    """(column, kind, path of attributes) of everything in a record."""
    for name, hint in typing.get_type_hints(DecisionRecord).items():
        wanted = _wanted(hint)
        if wanted is Usage:
            for inner in dataclasses.fields(Usage):
                yield f"{name}_{inner.name}", "INTEGER", f"{name}.{inner.name}"
        else:
            yield name, KINDS.get(wanted, "TEXT"), name


_FIELDS = tuple(_fields())
#: Column -> SQL type, in the order of `flat`.
COLUMNS: Mapping[str, str] = {"time": "TEXT", "instance": "TEXT"} | {name: kind for name, kind, _ in _FIELDS}


def flat(record: DecisionRecord, instance: str | None) -> list[Any]:
    """The values of `COLUMNS`: numbers, texts and None."""
    moment = datetime.datetime.fromtimestamp(record.time_s, datetime.UTC)
    return [moment.isoformat(timespec="milliseconds"), instance, *(_value(record, path) for _, _, path in _FIELDS)]


def _value(record: DecisionRecord, path: str) -> Any:
    name, _, inner = path.partition(".")
    value = getattr(record, name)
    if inner:
        value = None if value is None else getattr(value, inner)
    match value:
        case bool():
            return int(value)
        case None | int() | float() | str():
            return value
    return orjson.dumps(value).decode()
