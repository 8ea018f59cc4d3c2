"""Each request field of POST /v1/chat/completions and what a local answer does about it, as one table.

The four dispositions: HONOUR (a local answer does what the field says), FORWARD (only the upstream can: the row gives
the reason slug), WARN (accepted, has no effect on a deterministic engine, named in `x_needle.warnings`), IGNORE (no
effect on a local answer). Nearly every field is nullable, and null means absent. Fields that the table does not know
are the upstream's business: they go on unchanged and change nothing here.

Source: openai-python `CompletionCreateParams`, OpenAPI `CreateChatCompletionRequest`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any


class Disposition(StrEnum):
    """What a local answer does about a field."""

    HONOUR = "honour"
    FORWARD = "forward"
    WARN = "warn"
    IGNORE = "ignore"


def present(_: Any) -> bool:
    """Any value but null."""
    return True


def truthy(value: Any) -> bool:
    """A value that switches something on: not false, 0, "" or an empty container."""
    return bool(value)


def not_one(value: Any) -> bool:
    """`n` other than 1: more choices than the engine gives, or a value that only the upstream may refuse."""
    return value is True or bool(value != 1)


def not_default_format(value: Any) -> bool:
    """`modalities` other than text alone."""
    return bool(value != ["text"])


@dataclass(frozen=True, slots=True)
class Field:
    """One row: the field, its disposition, when the row applies, and the reason slug of a FORWARD."""

    name: str
    disposition: Disposition
    when: Callable[[Any], bool] = present
    reason: str = ""


def _rows(disposition: Disposition, names: str) -> tuple[Field, ...]:
    return tuple(Field(name, disposition) for name in names.split())


#: In the order in which obstacles are reported.
FIELDS: tuple[Field, ...] = (
    Field("functions", Disposition.FORWARD, present, "legacy-functions"),
    Field("function_call", Disposition.FORWARD, present, "legacy-functions"),
    Field("n", Disposition.FORWARD, not_one, "many-choices"),
    Field("logprobs", Disposition.FORWARD, truthy, "logprobs"),
    Field("top_logprobs", Disposition.FORWARD, truthy, "logprobs"),
    Field("logit_bias", Disposition.FORWARD, truthy, "logprobs"),
    Field("modalities", Disposition.FORWARD, not_default_format, "modalities"),
    Field("audio", Disposition.FORWARD, present, "modalities"),
    Field("web_search_options", Disposition.FORWARD, present, "web-search"),
    Field("moderation", Disposition.FORWARD, present, "moderation"),
    Field("store", Disposition.FORWARD, truthy, "stored"),
    *_rows(
        Disposition.HONOUR,
        "messages tools tool_choice parallel_tool_calls response_format stop max_tokens max_completion_tokens stream "
        "stream_options",
    ),
    *_rows(
        Disposition.WARN,
        "seed temperature top_p presence_penalty frequency_penalty prediction reasoning_effort verbosity metadata",
    ),
    *_rows(
        Disposition.IGNORE,
        "model service_tier prompt_cache_key prompt_cache_options prompt_cache_retention safety_identifier user",
    ),
)


FORWARDED = {row.name: row for row in FIELDS if row.disposition is Disposition.FORWARD}


def obstacles(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Reason slugs of the fields that only the upstream can honour, in table order, each once."""
    if FORWARDED.keys().isdisjoint(body):
        return ()
    found = (row.reason for name, row in FORWARDED.items() if body.get(name) is not None and row.when(body[name]))
    return tuple(dict.fromkeys(found))


#: Keys whose second occurrence would change the decision: orjson keeps the last, another parser may keep the first.
DECISION_KEYS = (
    "model",
    *(row.name for row in FIELDS if row.disposition in (Disposition.HONOUR, Disposition.FORWARD)),
)
#: Each of them as it stands in a body that writes it without escapes.
DECISION_TEXTS = {key: b'"%b"' % key.encode("ascii") for key in DECISION_KEYS}
WARNED = frozenset(row.name for row in FIELDS if row.disposition is Disposition.WARN)


def warnings(body: Mapping[str, Any]) -> tuple[str, ...]:
    """Names of the fields that a local answer accepts without effect."""
    return tuple(
        f"{name} has no effect on a local answer" for name in body if name in WARNED and body[name] is not None
    )
