"""Arguments mended without loss or guessing, and their leaves, both guided by the client's own schema."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from needle_router.schema.simplify import MAX_SCHEMA_DEPTH, Simplifier, UnsupportedSchema, nullable

_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?")


def repaired(value: Any, schema: Any, root: Mapping[str, Any], depth: int = 0) -> Any:
    """`value` with what can be mended without loss or guessing.

    A missing required key is filled with its `default`, or with null where null is allowed (strict clients make every
    parameter required and nullable); exact number and boolean texts become what the schema wants; 3.0 becomes 3 for an
    integer; an enum member given as text, or in other letter case where only one member fits, becomes that member.
    """
    if depth > MAX_SCHEMA_DEPTH or not isinstance(schema, dict):
        return value
    schema = _effective(schema, root)
    if isinstance(value, Mapping):
        return _repaired_object(value, schema, root, depth)
    if isinstance(value, list) and isinstance(schema.get("items"), dict):
        return [repaired(item, schema["items"], root, depth + 1) for item in value]
    return _repaired_scalar(value, schema)


def _effective(schema: Mapping[str, Any], root: Mapping[str, Any]) -> Mapping[str, Any]:
    """The one real schema behind a local `$ref`, a single `allOf` or a nullable union; else `schema` itself."""
    for _ in range(MAX_SCHEMA_DEPTH):
        try:
            resolved = Simplifier(root).resolve(schema, "$", ())
        except (UnsupportedSchema, TypeError, AttributeError):
            return schema
        if resolved.get("$from") is None:
            return resolved
        resolved.pop("$from")
        schema = resolved
    return schema


def _repaired_object(value: Mapping[str, Any], schema: Mapping[str, Any], root: Mapping[str, Any], depth: int) -> Any:
    properties = schema.get("properties")
    properties = properties if isinstance(properties, dict) else {}
    result = {
        key: repaired(item, properties[key], root, depth + 1) if key in properties else item
        for key, item in value.items()
    }
    required = schema.get("required")
    for name in required if isinstance(required, list) else ():
        if isinstance(name, str) and name not in result and isinstance(properties.get(name), dict):
            part = properties[name]
            if "default" in part:
                result[name] = part["default"]
            elif nullable(part):
                result[name] = None
    return result


def _repaired_scalar(value: Any, schema: Mapping[str, Any]) -> Any:
    members = schema.get("enum")
    if isinstance(members, list) and members:
        return _enum_member(value, members)
    kind = schema.get("type")
    if isinstance(value, str):
        text = value.strip()
        if kind == "integer" and _INTEGER.fullmatch(text):
            return int(text)
        if kind == "number" and _NUMBER.fullmatch(text):
            return int(text) if _INTEGER.fullmatch(text) else float(text)
        if kind == "boolean" and text.lower() in ("true", "false"):
            return text.lower() == "true"
    if kind == "integer" and isinstance(value, float) and math.isfinite(value) and value == int(value):
        return int(value)
    return value


def _enum_member(value: Any, members: list[Any]) -> Any:
    if any(value == member and isinstance(value, bool) == isinstance(member, bool) for member in members):
        return value
    if isinstance(value, str):
        folded = value.strip().casefold()
        fitting = [m for m in members if (m if isinstance(m, str) else _plain(m)).casefold() == folded]
        if len(fitting) == 1:
            return fitting[0]
    return value


def _plain(member: Any) -> str:
    return str(member) if isinstance(member, (int, float, bool)) else "\0"


def leaves(
    value: Any, schema: Any, root: Mapping[str, Any], path: str = ""
) -> Iterator[tuple[str, Any, Mapping[str, Any]]]:
    """Every scalar of an argument value with its dotted path and its schema ({} where the schema is silent)."""
    schema = _effective(schema, root) if isinstance(schema, dict) else {}
    if isinstance(value, Mapping):
        properties = schema.get("properties")
        properties = properties if isinstance(properties, dict) else {}
        for key, item in value.items():
            yield from leaves(item, properties.get(key), root, f"{path}.{key}" if path else str(key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from leaves(item, schema.get("items"), root, f"{path}[{index}]")
    else:
        yield path, value, schema


#: Where one of these stands, other keys than those under `properties` may be meant.
_OPEN = ("additionalProperties", "patternProperties", "unevaluatedProperties", "anyOf", "oneOf", "allOf", "$ref")


def undeclared(value: Any, schema: Any, root: Mapping[str, Any], path: str = "") -> str | None:
    """The path of the first key that the schema does not know, None without one.

    JSON Schema allows such keys where it is silent; the function behind the tool hardly does.
    """
    schema = _effective(schema, root) if isinstance(schema, dict) else {}
    if isinstance(value, list):
        parts = [(f"{path}[{index}]", item, schema.get("items")) for index, item in enumerate(value)]
    elif isinstance(value, Mapping):
        properties = schema.get("properties", {} if not path else None)
        if not isinstance(properties, dict):
            return None
        named = {key: f"{path}.{key}" if path else str(key) for key in value}
        if not any(keyword in schema for keyword in _OPEN):
            stranger = next((key for key in value if key not in properties), None)
            if stranger is not None:
                return named[stranger]
        parts = [(named[key], item, properties.get(key)) for key, item in value.items()]
    else:
        return None
    found = (undeclared(item, part, root, where) for where, item, part in parts if part is not None)
    return next((where for where in found if where is not None), None)
