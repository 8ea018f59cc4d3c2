"""A tool's parameters, twice: the client's schema to judge arguments by, and a plain one that the engine can hold.

Judging uses the original schema with jsonschema-rs; its retriever refuses everything, since tool schemas come from
strangers and a validator that fetches `$ref: http://...` is a way into the network. Needle knows flat objects of
scalars, enums, arrays and nested objects; what it cannot hold is named by its JSON path in `problem`.
"""

from __future__ import annotations

import functools
import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import jsonschema_rs
import orjson

from needle_router.turn import Tool

MAX_SCHEMA_DEPTH = 8
MAX_SCHEMA_NODES = 400
MAX_SCHEMA_BYTES = 64 * 1024
SCALARS = ("string", "number", "integer", "boolean")
#: Kept for the engine beside type, properties, items, required and enum.
KEPT = ("description", "format", "minimum", "maximum")
_INTEGER = re.compile(r"-?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"-?(?:0|[1-9][0-9]{0,15})(?:\.[0-9]{1,15})?")


class UnsupportedSchema(ValueError):
    """A feature that the engine cannot hold, with the JSON path where it stands."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")


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
        """None when `arguments` satisfy the original schema, else where and what (never more than 200 characters)."""
        if self.validator is None:
            return self.problem or "the schema does not compile"
        try:
            error = next(iter(self.validator.iter_errors(arguments)), None)
        except (ValueError, RecursionError) as unusable:
            return str(unusable)[:200]
        if error is None:
            return None
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
    try:
        return jsonschema_rs.validator_for(dict(schema), retriever=_refuse, validate_formats=True)
    except (ValueError, RecursionError):
        return None


# ------------------------------------------------------------------ for the engine


def simplify(schema: Any) -> Mapping[str, Any]:
    """The engine's schema for a tool's parameters; raises `UnsupportedSchema`."""
    if not isinstance(schema, dict):
        raise UnsupportedSchema("$", "the schema is not an object")
    walk = _Simplifier(schema)
    node = walk.resolve(schema, "$", ())
    if node.get("type", "object") != "object" or "enum" in node:
        raise UnsupportedSchema("$", "the root is not an object")
    return walk.object(node, "$", 0, ())


class _Simplifier:
    """Walks one schema; bounded in depth and in the number of nodes, since `$ref` can multiply."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.nodes = 0

    def node(self, schema: Any, path: str, depth: int, seen: tuple[str, ...]) -> Mapping[str, Any]:
        self.nodes += 1
        if depth > MAX_SCHEMA_DEPTH:
            raise UnsupportedSchema(path, f"nested deeper than {MAX_SCHEMA_DEPTH}")
        if self.nodes > MAX_SCHEMA_NODES:
            raise UnsupportedSchema(path, f"more than {MAX_SCHEMA_NODES} parts")
        if not isinstance(schema, dict):
            raise UnsupportedSchema(path, "anything is allowed here")
        schema = self.resolve(schema, path, seen)
        seen = (*seen, *([schema["$from"]] if "$from" in schema else []))
        kind = self.kind(schema, path)
        if kind == "object":
            return self.object(schema, path, depth, seen)
        if kind == "array":
            return self.array(schema, path, depth, seen)
        return self.scalar(schema, kind)

    def resolve(self, schema: Mapping[str, Any], path: str, seen: tuple[str, ...]) -> dict[str, Any]:
        """Follow `$ref`, merge a single `allOf`, take the null out of unions; the result says where it came `$from`."""
        result = dict(schema)
        for _ in range(MAX_SCHEMA_DEPTH):
            if "$ref" in result:
                reference = result.pop("$ref")
                if reference in seen or reference == result.get("$from"):
                    raise UnsupportedSchema(path, "the schema refers to itself")
                result = {**self.lookup(reference, path), **result, "$from": reference}
            elif "allOf" in result:
                parts = result.pop("allOf")
                if not isinstance(parts, list) or len(parts) != 1 or not isinstance(parts[0], dict):
                    raise UnsupportedSchema(path, "allOf of several schemas")
                result = {**parts[0], **result}
            elif "anyOf" in result or "oneOf" in result:
                result = self.union(result, path)
            else:
                return self.without_null(result)
        raise UnsupportedSchema(path, "references nested too deeply")

    def lookup(self, reference: Any, path: str) -> Mapping[str, Any]:
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise UnsupportedSchema(path, "a reference outside the schema")
        target: Any = self.root
        for step in reference[1:].split("/")[1:]:
            key = step.replace("~1", "/").replace("~0", "~")
            target = target.get(key) if isinstance(target, dict) else None
        if not isinstance(target, dict):
            raise UnsupportedSchema(path, f"the reference {reference[:60]} leads nowhere")
        return target

    def union(self, schema: dict[str, Any], path: str) -> dict[str, Any]:
        branches = schema.pop("anyOf", None) or schema.pop("oneOf", None)
        schema.pop("oneOf", None)
        schema.pop("discriminator", None)
        if not isinstance(branches, list) or not all(isinstance(branch, dict) for branch in branches):
            raise UnsupportedSchema(path, "a union of an unknown form")
        real = [branch for branch in branches if branch.get("type") != "null" and branch.get("const", 0) is not None]
        if len(real) == 1:
            return {**real[0], **schema}
        constants = [value for branch in real for value in _constants(branch)]
        if real and all(_constants(branch) for branch in real):
            return {**schema, "enum": constants}
        kinds = {branch.get("type") for branch in real}
        if kinds in ({"number", "string"}, {"integer", "string"}):
            return {**next(branch for branch in real if branch.get("type") != "string"), **schema}
        if kinds == {"integer", "number"}:
            return {**schema, "type": "number"}
        raise UnsupportedSchema(path, "a union of several types")

    @staticmethod
    def without_null(schema: dict[str, Any]) -> dict[str, Any]:
        kind = schema.get("type")
        if isinstance(kind, list):
            real = [one for one in kind if one != "null"]
            schema["type"] = real[0] if len(real) == 1 else kind
        if "const" in schema:
            schema["enum"] = [schema.pop("const")]
        if isinstance(schema.get("enum"), list):
            schema["enum"] = [value for value in schema["enum"] if value is not None]
        return schema

    @staticmethod
    def kind(schema: Mapping[str, Any], path: str) -> str:
        kind = schema.get("type")
        if kind is None:
            if isinstance(schema.get("enum"), list):
                return "enum"
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        if kind in SCALARS or kind in ("object", "array"):
            return str(kind)
        raise UnsupportedSchema(path, "no single type" if kind is None else f"the type {str(kind)[:40]}")

    def object(self, schema: Mapping[str, Any], path: str, depth: int, seen: tuple[str, ...]) -> Mapping[str, Any]:
        properties = schema.get("properties", {})
        if not isinstance(properties, dict):
            raise UnsupportedSchema(path, "properties is not an object")
        extra = schema.get("additionalProperties")
        if isinstance(extra, dict) or schema.get("patternProperties") or (path != "$" and not properties):
            raise UnsupportedSchema(path, "a free-form object")
        result: dict[str, Any] = {"type": "object"}
        if depth and isinstance(schema.get("description"), str):
            result["description"] = schema["description"]
        result["properties"] = {
            name: self.node(part, f"{path}.{name}", depth + 1, seen) for name, part in properties.items()
        }
        required = schema.get("required")
        if isinstance(required, list):
            nullable = {name for name, part in properties.items() if _nullable(part)}
            wanted = [name for name in required if name in properties and name not in nullable]
            if wanted:
                result["required"] = wanted
        return result

    def array(self, schema: Mapping[str, Any], path: str, depth: int, seen: tuple[str, ...]) -> Mapping[str, Any]:
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            raise UnsupportedSchema(path, "a tuple (prefixItems)")
        result: dict[str, Any] = {"type": "array"}
        if isinstance(schema.get("description"), str):
            result["description"] = schema["description"]
        result["items"] = self.node(schema.get("items"), f"{path}[]", depth + 1, seen)
        return result

    @staticmethod
    def scalar(schema: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
        result: dict[str, Any] = {} if kind == "enum" else {"type": kind}
        for key in KEPT:
            if isinstance(schema.get(key), (str, int, float)):
                result[key] = schema[key]
        if isinstance(schema.get("enum"), list):
            result["enum"] = schema["enum"]
        return result


def _constants(branch: Mapping[str, Any]) -> list[Any]:
    if "const" in branch:
        return [branch["const"]]
    values = branch.get("enum")
    return values if isinstance(values, list) else []


def _nullable(schema: Any) -> bool:
    """Whether null satisfies `schema` by its form (type list, union branch, `nullable`, enum)."""
    if not isinstance(schema, dict):
        return False
    kind = schema.get("type")
    branches = schema.get("anyOf") or schema.get("oneOf") or []
    values = schema.get("enum")
    return (
        kind == "null"
        or (isinstance(kind, list) and "null" in kind)
        or schema.get("nullable") is True
        or (isinstance(values, list) and None in values)
        or (isinstance(branches, list) and any(_nullable(branch) for branch in branches))
    )


# ------------------------------------------------------------------------ repair


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
            resolved = _Simplifier(root).resolve(schema, "$", ())
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
            elif _nullable(part):
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
