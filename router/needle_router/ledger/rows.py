"""A record as a row: the columns that queries need, and the whole record as JSON for all that no query needs yet.

A field that another release added or dropped is no fault: what is unknown is passed over, what is missing has its
default.
"""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from operator import attrgetter
from typing import Any, LiteralString

import msgspec
import orjson

from needle_router.records import DecisionRecord

SCHEMA_VERSION = 3

#: Schema version -> the columns that came with it, with types that SQLite and PostgreSQL both know. `record` is last.
COLUMNS: Mapping[int, Mapping[str, str]] = {
    1: {
        "time_s": "DOUBLE PRECISION NOT NULL",
        "route": "TEXT NOT NULL",
        "reason": "TEXT NOT NULL",
        "model": "TEXT NOT NULL",
        "cost_usd": "DOUBLE PRECISION",
        "saved_usd": "DOUBLE PRECISION",
        "record": "TEXT NOT NULL",
    },
    2: {
        "policy": "TEXT",
        "mode": "TEXT",
        "status": "BIGINT",
        "confidence": "DOUBLE PRECISION",
        "fingerprint": "TEXT",
        "comparison": "TEXT",
        # Which router wrote it. Not of the record: a request does not know.
        "instance": "TEXT",
    },
    3: {
        "wasted_usd": "DOUBLE PRECISION",
        "audit_usd": "DOUBLE PRECISION",
        "audit": "TEXT",
    },
}
#: What the upstream took for a request, over its columns: the same sum as `DecisionRecord.spent_usd`.
SPENT: LiteralString = "coalesce(cost_usd, 0) + coalesce(wasted_usd, 0) + coalesce(audit_usd, 0)"
#: Columns that hold a field of the record of the same name.
FIELDS = tuple(name for added in COLUMNS.values() for name in added if name not in ("record", "instance"))
#: The columns of a row, in the order in which `row_of` gives their values.
NAMES = (*FIELDS, "instance", "record")

Row = tuple[Any, ...]
_values = attrgetter(*FIELDS)
_decoder = msgspec.json.Decoder(DecisionRecord)


def row_of(record: DecisionRecord, instance: str) -> Row:
    """The values of `NAMES`."""
    try:
        whole = orjson.dumps(record)
    except TypeError:
        record, whole = _storable(record)
    else:
        if b"\\u0000" in whole:
            record, whole = _storable(record)
    return (*_values(record), instance, whole.decode())


def _storable(record: DecisionRecord) -> tuple[DecisionRecord, bytes]:
    """The record without what no database keeps: halves of surrogate pairs, and NUL, in a model's name for instance."""
    plain = _clean(dataclasses.asdict(record))
    # Not orjson: a count may have more than 64 bits.
    whole = json.dumps(plain, ensure_ascii=False, separators=(",", ":")).encode()
    return dataclasses.replace(record, **{name: plain[name] for name in FIELDS}), whole


def _clean(value: Any) -> Any:
    match value:
        case str():
            return value.encode("utf-8", "replace").decode().replace("\0", "?")
        case dict():
            return {name: _clean(item) for name, item in value.items()}
        case list() | tuple():
            return [_clean(item) for item in value]
        case float() if not math.isfinite(value):
            return None
    return value


def record_of(text: str) -> DecisionRecord:
    """The record of a row's JSON; raises `ValueError` where it is none."""
    try:
        return _decoder.decode(text)
    except (msgspec.MsgspecError, UnicodeError):
        return _lenient(text)


def _lenient(text: str) -> DecisionRecord:
    """As `record_of`, where another release wrote what this one would not: half a surrogate pair, null for a number."""
    try:
        plain = _clean(json.loads(text))
        return msgspec.convert({name: value for name, value in plain.items() if value is not None}, DecisionRecord)
    except (msgspec.MsgspecError, ValueError, AttributeError) as error:
        raise ValueError(f"a row of the ledger is no record of a decision: {error}") from error
