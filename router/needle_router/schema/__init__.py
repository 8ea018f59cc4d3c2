"""A tool's parameters, twice: the client's schema to judge arguments by, and a plain one that the engine can hold.

Judging uses the original schema with jsonschema-rs; its retriever refuses everything, since tool schemas come from
strangers and a validator that fetches `$ref: http://...` is a way into the network. Needle knows flat objects of
scalars, enums, arrays and nested objects; what it cannot hold is named by its JSON path in `problem`.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import orjson

from needle_router.schema.repair import leaves, repaired, undeclared
from needle_router.schema.simplify import UnsupportedSchema, simplify
from needle_router.turn import Tool

__all__ = ["CompiledTool", "compile_tool", "leaves"]
MAX_SCHEMA_BYTES = 64 * 1024


def _refuse(uri: str) -> Any:
    raise ValueError(f"references outside the schema are not followed: {uri[:80]}")


@dataclass(frozen=True, slots=True)
class CompiledTool:
    """One tool, ready for use. `engine_parameters` is {} when `problem` says why the engine cannot hold the schema."""

    name: str
    description: str
    original: Mapping[str, Any]
    engine_parameters: Mapping[str, Any]
    problem: str | None
    validator: Any

    def validate(self, arguments: Mapping[str, Any]) -> str | None:
        """None when `arguments` satisfy the original schema, else where and what (never more than 200 characters).

        A key that the schema does not declare is a fault too, unless it says that others may come.
        """
        if self.validator is None:
            return self.problem or "the schema does not compile"
        try:
            error = next(iter(self.validator.iter_errors(arguments)), None)
        except (ValueError, RecursionError) as unusable:
            return str(unusable)[:200]
        if error is None:
            stranger = undeclared(arguments, self.original, self.original)
            return None if stranger is None else f"{stranger} is not declared"[:200]
        path = ".".join(str(step) for step in error.instance_path)
        return f"{path or 'arguments'}: {error.message}"[:200]

    def repair(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        """Lossless repairs only: see `repaired`."""
        fixed = repaired(arguments, self.original, self.original)
        return fixed if isinstance(fixed, Mapping) else arguments


def compile_tool(tool: Tool) -> CompiledTool:
    """Compile `tool`, from the cache when the same tool was seen before; never raises."""
    parameters = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
    try:
        text = orjson.dumps(parameters)
    except (TypeError, ValueError):
        return CompiledTool(tool.name, tool.description, {}, {}, "$: not representable as JSON", None)
    return _compile(tool.name, tool.description, text)


@functools.lru_cache(maxsize=2048)
def _compile(name: str, description: str, text: bytes) -> CompiledTool:
    original = orjson.loads(text)
    engine: Mapping[str, Any] = {}
    problem: str | None = None
    try:
        if len(text) > MAX_SCHEMA_BYTES:
            raise UnsupportedSchema("$", f"the schema has {len(text)} bytes, the limit is {MAX_SCHEMA_BYTES}")
        engine = simplify(original)
    except UnsupportedSchema as unsupported:
        problem = str(unsupported)
    except (TypeError, AttributeError, RecursionError):
        # Values of impossible types (a list for `type`'s name, a number in `required`): junk, whatever it meant.
        problem = "$: the schema is malformed"
    validator = _validator(original) if isinstance(original, dict) else None
    if validator is None and problem is None:
        problem = "$: the schema is not valid JSON Schema"
    return CompiledTool(name, description, original if isinstance(original, dict) else {}, engine, problem, validator)


def _validator(schema: Mapping[str, Any]) -> Any:
    # 3 MB that a router which only passes on never needs.
    import jsonschema_rs

    try:
        return jsonschema_rs.validator_for(dict(schema), retriever=_refuse, validate_formats=True)
    except (ValueError, RecursionError):
        return None
