"""The engine's calls against an upstream's whole answer, for shadow runs and audits alike."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson

from needle_router.compare import compare
from needle_router.pipeline import Attempt
from needle_router.preparing import Prepared
from needle_router.surfaces.chat_read import answered_calls, answered_text
from needle_router.turn import Call


def comparison_of(attempt: Attempt, content_type: str, body: bytes) -> str:
    """The outcome's slug; "" where the engine or the upstream gave nothing that can be compared."""
    if attempt.findings is None:
        return ""
    prepared = attempt.prepared
    if prepared.features.extraction:
        theirs = extracted(prepared, content_type, body)
    else:
        theirs = answered_calls(content_type, body)
    return "" if theirs is None else compare(attempt.findings.calls, theirs, defaults_of(prepared)).slug


def extracted(prepared: Prepared, content_type: str, body: bytes) -> tuple[Call, ...] | None:
    """The object of a structured answer as the call that it is here; none where the upstream gave no object."""
    text = answered_text(content_type, body)
    if text is None:
        return None
    try:
        found = orjson.loads(text)
    except orjson.JSONDecodeError:
        return ()
    return (Call(prepared.features.tool_names[0], found),) if isinstance(found, dict) else ()


def defaults_of(prepared: Prepared) -> dict[str, Mapping[str, Any]]:
    """The defaults that each tool's own schema declares, by tool name: an argument left out means that."""
    return {name: _defaults(tool.original.get("properties")) for name, tool in prepared.catalogue.tools.items()}


def _defaults(properties: Any) -> Mapping[str, Any]:
    if not isinstance(properties, dict):
        return {}
    return {
        key: schema["default"] for key, schema in properties.items() if isinstance(schema, dict) and "default" in schema
    }
