"""The engine's JSON, read into a typed envelope: tolerantly, and everything odd becomes an outcome with a reason."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from typing import Any

import orjson

from needle_router.task import EngineFailure, Envelope, RawCall

#: Arguments nested deeper than any schema that the engine can hold are garbage.
MAX_ARGUMENT_DEPTH = 32


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


def written(envelope: Envelope) -> tuple[str, str]:
    """What the model wrote to make this envelope: its thoughts, "" where it had none, and its calls between markers.

    The form is that of the vendor's training data, so its tokens are those that the engine spent.
    """
    thoughts = f"<think>\n{envelope.reasoning}\n</think>\n" if envelope.reasoning else ""
    calls = [{"name": call.name, "arguments": call.arguments} for call in envelope.calls]
    try:
        text = orjson.dumps(calls).decode()
    except (TypeError, ValueError):
        # Integers beyond 64 bits and lone surrogates.
        text = json.dumps(calls, separators=(",", ":"))
    return thoughts, f"<tool_call>{text}</tool_call>"


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
