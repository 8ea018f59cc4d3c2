"""Tool schemas: what the engine sees, what judges arguments, what is repaired, what a hostile schema cannot do."""

import socket
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle_router.schema import compile_tool
from needle_router.turn import Tool


def compiled(schema, name="f"):
    return compile_tool(Tool(name, "", schema))


def with_property(schema):
    return {"type": "object", "properties": {"a": schema}, "required": ["a"]}


@pytest.mark.parametrize(
    ("schema", "seen"),
    [
        pytest.param({"type": "string", "title": "A", "pattern": "x"}, {"type": "string"}, id="title and pattern go"),
        pytest.param(
            {"type": "string", "description": "d"}, {"type": "string", "description": "d"}, id="description stays"
        ),
        pytest.param({"type": ["integer", "null"]}, {"type": "integer"}, id="type list with null"),
        pytest.param({"anyOf": [{"type": "number"}, {"type": "null"}]}, {"type": "number"}, id="anyOf with null"),
        pytest.param({"oneOf": [{"type": "null"}, {"type": "boolean"}]}, {"type": "boolean"}, id="oneOf with null"),
        pytest.param({"allOf": [{"type": "string"}]}, {"type": "string"}, id="a single allOf"),
        pytest.param({"const": "x", "type": "string"}, {"type": "string", "enum": ["x"]}, id="const"),
        pytest.param({"enum": [2, 4, None]}, {"enum": [2, 4]}, id="enum without type, null taken out"),
        pytest.param({"anyOf": [{"const": "a"}, {"const": "b"}]}, {"enum": ["a", "b"]}, id="union of constants"),
        pytest.param({"anyOf": [{"type": "number"}, {"type": "string"}]}, {"type": "number"}, id="Decimal"),
        pytest.param(
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
            {"type": "array", "items": {"type": "array", "items": {"type": "string"}}},
            id="nested arrays",
        ),
        pytest.param(
            {"type": "object", "properties": {"b": {"type": "string"}}, "additionalProperties": False},
            {"type": "object", "properties": {"b": {"type": "string"}}},
            id="nested object",
        ),
    ],
)
def test_what_the_engine_sees(schema, seen):
    tool = compiled(with_property(schema))
    assert tool.problem is None
    assert tool.engine_parameters["properties"]["a"] == seen


def test_references_are_written_out_and_nullable_keys_become_optional():
    tool = compiled(
        {
            "type": "object",
            "$defs": {"When": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]}},
            "properties": {"when": {"$ref": "#/$defs/When"}, "note": {"anyOf": [{"type": "string"}, {"type": "null"}]}},
            "required": ["when", "note"],
        }
    )
    assert tool.engine_parameters == {
        "type": "object",
        "properties": {
            "when": {"type": "object", "properties": {"day": {"type": "string"}}, "required": ["day"]},
            "note": {"type": "string"},
        },
        "required": ["when"],
    }


@pytest.mark.parametrize(
    ("schema", "path"),
    [
        pytest.param(with_property({"$ref": "#"}), "$.a", id="recursion through the root"),
        pytest.param(
            {
                "type": "object",
                "$defs": {"N": with_property({"$ref": "#/$defs/N"})},
                "properties": {"n": {"$ref": "#/$defs/N"}},
            },
            "$.n",
            id="recursion through a definition",
        ),
        pytest.param(with_property({"$ref": "http://127.0.0.1:9/x"}), "$.a", id="reference to the network"),
        pytest.param(with_property({"$ref": "#/nowhere"}), "$.a", id="reference to nowhere"),
        pytest.param(
            with_property({"oneOf": [with_property({"type": "string"}), with_property({"type": "integer"})]}),
            "$.a",
            id="union of objects",
        ),
        pytest.param(with_property({"type": "array", "prefixItems": [{}]}), "$.a", id="tuple"),
        pytest.param(with_property({"type": "array"}), "$.a[]", id="array of anything"),
        pytest.param(with_property({}), "$.a", id="anything"),
        pytest.param(with_property(True), "$.a", id="boolean schema"),
        pytest.param(with_property({"type": "object"}), "$.a", id="free-form object"),
        pytest.param(
            with_property({"type": "object", "additionalProperties": {"type": "string"}}), "$.a", id="a dictionary"
        ),
        pytest.param({"type": "array", "items": {"type": "string"}}, "$", id="array at the root"),
        pytest.param(True, "$", id="boolean at the root"),
        pytest.param([], "$", id="a list at the root"),
        pytest.param("x", "$", id="text at the root"),
    ],
)
def test_what_the_engine_cannot_hold_is_named_by_its_path(schema, path):
    problem = compiled(schema).problem
    assert problem is not None
    assert problem.startswith(f"{path}:") or problem.startswith(f"{path}.")


def test_no_parameters_mean_no_arguments():
    tool = compiled(None)
    assert tool.engine_parameters == {"type": "object", "properties": {}}
    assert tool.validate({}) is None


@pytest.mark.parametrize(
    ("schema", "given", "expected"),
    [
        pytest.param({"type": "integer"}, "30", 30, id="integer as text"),
        pytest.param({"type": "integer"}, "30.5", "30.5", id="not an integer"),
        pytest.param({"type": "integer"}, "030", "030", id="leading zero is a name, not a number"),
        pytest.param({"type": "integer"}, 3.0, 3, id="whole float"),
        pytest.param({"type": "integer"}, 3.5, 3.5, id="broken float"),
        pytest.param({"type": "number"}, "2.5", 2.5, id="number as text"),
        pytest.param({"type": "boolean"}, "True", True, id="boolean as text"),
        pytest.param({"type": "boolean"}, "yes", "yes", id="yes is a guess"),
        pytest.param({"type": "string"}, 5, 5, id="a number is never made text"),
        pytest.param({"enum": [2, 4, 8]}, "8", 8, id="enum number as text"),
        pytest.param({"enum": ["Celsius", "Kelvin"]}, "celsius", "Celsius", id="enum in other case"),
        pytest.param({"enum": ["a", "A"]}, "a ", "a ", id="two members fit"),
        pytest.param({"type": "array", "items": {"type": "integer"}}, ["1", 2], [1, 2], id="inside an array"),
        pytest.param({"anyOf": [{"type": "integer"}, {"type": "null"}]}, "4", 4, id="inside a nullable union"),
    ],
)
def test_repairs_are_lossless(schema, given, expected):
    repaired = compiled(with_property(schema)).repair({"a": given})["a"]
    assert repaired == expected
    assert type(repaired) is type(expected)


def test_missing_required_keys_are_filled_with_default_or_null_and_nothing_else():
    tool = compiled(
        {
            "type": "object",
            "properties": {
                "d": {"type": "integer", "default": 7},
                "n": {"type": ["string", "null"]},
                "x": {"type": "string"},
                "o": {"type": "integer", "default": 1},
            },
            "required": ["d", "n", "x"],
        }
    )
    assert dict(tool.repair({})) == {"d": 7, "n": None}
    assert tool.validate(tool.repair({})) is not None


@pytest.mark.parametrize("required", [[["a"]], [{}], [None, 3], "a", {"a": 1}, 7])
def test_a_list_of_required_names_that_is_junk_changes_nothing(required):
    tool = compiled({"type": "object", "properties": {"a": {"type": "integer", "default": 1}}, "required": required})
    assert dict(tool.repair({"b": 2})) == {"b": 2}
    assert tool.validate({"b": 2}) is not None or tool.problem is None


@pytest.mark.parametrize(
    ("schema", "value", "valid"),
    [
        ({"type": "string", "format": "date"}, "2026-11-30", True),
        ({"type": "string", "format": "date"}, "tomorrow", False),
        ({"type": "string", "format": "email"}, "a@b.example", True),
        ({"type": "string", "format": "email"}, "a at b", False),
        ({"type": "integer", "minimum": 1}, 0, False),
        ({"type": "string", "pattern": "^[a-z]+$"}, "abc", True),
        ({"type": "string", "pattern": "^[a-z]+$"}, "ABC", False),
        ({"enum": [2, 4]}, 7, False),
    ],
)
def test_arguments_are_judged_by_the_clients_own_schema(schema, value, valid):
    assert (compiled(with_property(schema)).validate({"a": value}) is None) is valid


def test_a_pattern_that_explodes_elsewhere_ends_quickly():
    tool = compiled(with_property({"type": "string", "pattern": "^(a+)+$"}))
    assert tool.validate({"a": "a" * 5000 + "!"}) is not None


def test_no_schema_makes_a_network_call():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        listener.settimeout(0.3)
        address = f"http://127.0.0.1:{listener.getsockname()[1]}/schema"
        contacted = []

        def accept():
            try:
                listener.accept()[0].close()
                contacted.append(True)
            except TimeoutError:
                pass

        thread = threading.Thread(target=accept)
        thread.start()
        for schema in (
            {"$schema": address, "type": "object"},
            {"$ref": address},
            with_property({"$ref": f"{address}#/a"}),
            with_property({"$ref": "file:///etc/hostname"}),
        ):
            compiled(schema).validate({"a": 1})
        thread.join()
    assert contacted == []


OPEN = {"type": "object", "properties": {"a": {"type": "integer"}}}
INNER = {"type": "object", "properties": {"b": OPEN, "c": {"type": "array", "items": OPEN}}}


@pytest.mark.parametrize(
    ("schema", "arguments", "fault"),
    [
        pytest.param(OPEN, {"a": 1}, None, id="declared"),
        pytest.param(OPEN, {"a": 1, "z": 2}, "z is not declared", id="one more"),
        pytest.param(None, {"z": 2}, "z is not declared", id="a tool without parameters"),
        pytest.param({"type": "object"}, {"z": 2}, "z is not declared", id="no properties at all"),
        pytest.param({**OPEN, "additionalProperties": True}, {"a": 1, "z": 2}, None, id="others are welcome"),
        pytest.param({**OPEN, "patternProperties": {"^z": {}}}, {"z": 2}, None, id="a pattern"),
        pytest.param({"anyOf": [OPEN, {"type": "null"}]}, {"a": 1, "z": 2}, "z is not declared", id="nullable"),
        pytest.param(INNER, {"b": {"a": 1, "z": 2}}, "b.z is not declared", id="deeper"),
        pytest.param(INNER, {"c": [{"a": 1}, {"z": 2}]}, "c[1].z is not declared", id="in a list"),
    ],
)
def test_a_key_that_is_not_declared_is_a_fault(schema, arguments, fault):
    assert compiled(schema).validate(arguments) == fault


KEYWORDS = """type properties items required enum const anyOf oneOf allOf $ref default format minimum
    additionalProperties a""".split()
json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(KEYWORDS),
            inner,
            max_size=4,
        )
    ),
    max_leaves=15,
)


@settings(max_examples=400)
@given(json_values, st.dictionaries(st.sampled_from("ab"), json_values, max_size=2))
def test_no_schema_and_no_arguments_raise(schema, arguments):
    tool = compiled(schema)
    repaired = tool.repair(arguments)
    assert tool.validate(repaired) is None or isinstance(tool.validate(repaired), str)
    assert tool.problem is None or ":" in tool.problem
