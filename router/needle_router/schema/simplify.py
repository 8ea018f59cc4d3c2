"""The client's schema as the engine can hold it: flat objects of scalars, enums, arrays and nested objects.

References are written out, nulls taken out of unions, whatever says nothing to the engine dropped. What it cannot hold
(recursion, unions of objects, tuples, free-form objects) is refused with the JSON path where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

MAX_SCHEMA_DEPTH = 8
MAX_SCHEMA_NODES = 400
SCALARS = ("string", "number", "integer", "boolean")
#: Kept for the engine beside type, properties, items, required and enum.
KEPT = ("description", "format", "minimum", "maximum")


class UnsupportedSchema(ValueError):
    """A feature that the engine cannot hold, with the JSON path where it stands."""

    def __init__(self, path: str, what: str) -> None:
        super().__init__(f"{path}: {what}")


def simplify(schema: Any) -> Mapping[str, Any]:
    """The engine's schema for a tool's parameters; raises `UnsupportedSchema`."""
    if not isinstance(schema, dict):
        raise UnsupportedSchema("$", "the schema is not an object")
    walk = Simplifier(schema)
    node = walk.resolve(schema, "$", ())
    if node.get("type", "object") != "object" or "enum" in node:
        raise UnsupportedSchema("$", "the root is not an object")
    return walk.object(node, "$", 0, ())


class Simplifier:
    """Walks one schema; bounded in depth and in the number of nodes, since `$ref` can multiply."""

    def __init__(self, root: Mapping[str, Any]) -> None:
        self.root = root
        self.nodes = 0

    def node(self, schema: Any, path: str, depth: int, seen: tuple[str, ...]) -> Mapping[str, Any]:
        """One schema anywhere below the root."""
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
        """The target of a local `$ref`."""
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
        """An anyOf or oneOf, where it comes down to one type or to constants."""
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
        """null taken out of a type list and an enum, const turned into an enum."""
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
        """The one type of a node: a scalar, "enum", "object" or "array"."""
        kind = schema.get("type")
        if kind is None:
            if isinstance(schema.get("enum"), list):
                return "enum"
            kind = "object" if "properties" in schema else "array" if "items" in schema else None
        if kind in SCALARS or kind in ("object", "array"):
            return str(kind)
        raise UnsupportedSchema(path, "no single type" if kind is None else f"the type {str(kind)[:40]}")

    def object(self, schema: Mapping[str, Any], path: str, depth: int, seen: tuple[str, ...]) -> Mapping[str, Any]:
        """An object with named properties; nullable ones are not required."""
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
            may_be_null = {name for name, part in properties.items() if nullable(part)}
            wanted = [name for name in required if name in properties and name not in may_be_null]
            if wanted:
                result["required"] = wanted
        return result

    def array(self, schema: Mapping[str, Any], path: str, depth: int, seen: tuple[str, ...]) -> Mapping[str, Any]:
        """An array whose items have one schema."""
        if "prefixItems" in schema or isinstance(schema.get("items"), list):
            raise UnsupportedSchema(path, "a tuple (prefixItems)")
        result: dict[str, Any] = {"type": "array"}
        if isinstance(schema.get("description"), str):
            result["description"] = schema["description"]
        result["items"] = self.node(schema.get("items"), f"{path}[]", depth + 1, seen)
        return result

    @staticmethod
    def scalar(schema: Mapping[str, Any], kind: str) -> Mapping[str, Any]:
        """A scalar with what the engine understands of it."""
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


def nullable(schema: Any) -> bool:
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
        or (isinstance(branches, list) and any(nullable(branch) for branch in branches))
    )
