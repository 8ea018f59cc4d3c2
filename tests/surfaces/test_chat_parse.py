"""Reading chat completion requests: everything odd is an obstacle or unreadable, never an exception."""

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle_policies import REASONS
from needle_router.surfaces import chat_fields
from needle_router.surfaces.chat import Unreadable, parse
from needle_router.turn import Choice, Format, Turn

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object", "properties": {}}}}
USER = {"role": "user", "content": "do it"}


def request(**fields):
    return {"model": "m", "messages": [USER], "tools": [TOOL], **fields}


def turn(**fields) -> Turn:
    parsed = parse(json.dumps(request(**fields)).encode())
    assert isinstance(parsed, Turn), parsed
    return parsed


def test_an_ordinary_request_has_no_obstacle_and_keeps_its_bytes():
    raw = json.dumps(request(stream=True, stream_options={"include_usage": True})).encode()
    parsed = parse(raw)
    assert isinstance(parsed, Turn)
    assert (parsed.raw, parsed.model, parsed.user_text) == (raw, "m", "do it")
    assert (parsed.stream, parsed.include_usage, parsed.parallel) == (True, True, True)
    assert parsed.obstacles == ()
    assert [tool.name for tool in parsed.offered] == ["f"]


@pytest.mark.parametrize(
    ("fields", "slug"),
    [
        pytest.param({"functions": [{"name": "f"}]}, "legacy-functions", id="functions"),
        pytest.param({"function_call": "auto"}, "legacy-functions", id="function_call"),
        pytest.param({"n": 2}, "many-choices", id="two choices"),
        pytest.param({"n": "5"}, "many-choices", id="n as text"),
        pytest.param({"n": True}, "many-choices", id="n as boolean"),
        pytest.param({"n": 0}, "many-choices", id="no choice at all"),
        pytest.param({"logprobs": True}, "logprobs", id="logprobs"),
        pytest.param({"top_logprobs": 3}, "logprobs", id="top_logprobs"),
        pytest.param({"logit_bias": {"50256": -100}}, "logprobs", id="logit_bias"),
        pytest.param({"modalities": ["text", "audio"]}, "modalities", id="audio modality"),
        pytest.param({"audio": {"voice": "alloy"}}, "modalities", id="audio"),
        pytest.param({"web_search_options": {}}, "web-search", id="web search"),
        pytest.param({"moderation": {"model": "x"}}, "moderation", id="moderation"),
        pytest.param({"store": True}, "stored", id="store"),
        pytest.param({"tools": [TOOL, {"type": "custom", "custom": {"name": "c"}}]}, "tool-kind", id="custom tool"),
        pytest.param({"tools": [{"type": "web_search"}]}, "tool-kind", id="hosted tool"),
        pytest.param({"tools": [TOOL, TOOL]}, "duplicate-tools", id="one name twice"),
        pytest.param({"tool_choice": "maybe"}, "tool-choice-unknown", id="unknown word"),
        pytest.param(
            {"tool_choice": {"type": "function", "function": {"name": "g"}}},
            "tool-choice-unknown",
            id="undeclared name",
        ),
        pytest.param(
            {"tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}}},
            "tool-choice-unknown",
            id="nothing allowed",
        ),
        pytest.param(
            {"tool_choice": {"type": "custom", "custom": {"name": "c"}}}, "tool-choice-unknown", id="custom choice"
        ),
        pytest.param({"messages": []}, "empty-turn", id="no messages"),
        pytest.param({"messages": [{"role": "user", "content": "  "}]}, "empty-turn", id="blank text"),
        pytest.param({"messages": [{"role": "user", "content": None}]}, "empty-turn", id="null text"),
        pytest.param({"messages": [USER, {"role": "assistant", "content": "Sure,"}]}, "prefill", id="prefill"),
        pytest.param(
            {
                "messages": [
                    USER,
                    {"role": "assistant", "content": "Done."},
                    {"role": "system", "content": "Be brief."},
                ]
            },
            "prefill",
            id="a system message behind the answer",
        ),
        pytest.param(
            {
                "messages": [
                    USER,
                    {"role": "tool", "tool_call_id": "c", "content": "ok"},
                    {"role": "developer", "content": "Be brief."},
                ]
            },
            "tool-result-turn",
            id="a developer message behind the tool result",
        ),
        pytest.param({"messages": [{"role": "system", "content": "x"}]}, "empty-turn", id="system text alone"),
        pytest.param(
            {"messages": [{"role": "user", "content": "x" * 9000 + "\nFix the errors and try again."}]},
            "correction-turn",
            id="a correction at the end of a long text",
        ),
        pytest.param(
            {"messages": [USER, {"role": "tool", "tool_call_id": "c", "content": "ok"}]},
            "tool-result-turn",
            id="tool result",
        ),
        pytest.param(
            {"messages": [USER, {"role": "function", "name": "f", "content": "ok"}]},
            "legacy-functions",
            id="function role",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}]},
            "media-input",
            id="image part",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "Observation:\n30C"}]},
            "correction-turn",
            id="plain-text tool result",
        ),
        pytest.param(
            {"messages": [{"role": "user", "content": "2 validation errors for Model\nFix the errors and try again."}]},
            "correction-turn",
            id="validation error",
        ),
    ],
)
def test_what_only_the_upstream_can_serve_is_an_obstacle(fields, slug):
    found = turn(**fields).obstacles
    assert slug in found
    assert set(found) <= set(REASONS)


@pytest.mark.parametrize("name", [row.name for row in chat_fields.FIELDS if row.name != "messages"])
def test_null_means_absent_for_every_optional_field(name):
    assert turn(**{name: None}).obstacles == ()


def test_the_table_names_each_field_once():
    names = [row.name for row in chat_fields.FIELDS]
    assert len(names) == len(set(names))
    assert all(bool(row.reason) == (row.disposition == "forward") for row in chat_fields.FIELDS)


def test_sampling_controls_are_accepted_with_a_warning():
    assert turn(seed=1, temperature=0.2).warnings == (
        "seed has no effect on a local answer",
        "temperature has no effect on a local answer",
    )


def test_unknown_fields_change_nothing():
    assert turn(chat_template_kwargs={"x": 1}, top_k=4).obstacles == ()


@pytest.mark.parametrize(
    ("value", "mode", "names"),
    [
        pytest.param(None, Choice.AUTO, None, id="absent"),
        pytest.param("auto", Choice.AUTO, None, id="auto"),
        pytest.param("none", Choice.NONE, None, id="none"),
        pytest.param("required", Choice.REQUIRED, None, id="required"),
        pytest.param({"type": "function", "function": {"name": "f"}}, Choice.NAMED, ("f",), id="named"),
        pytest.param(
            {
                "type": "allowed_tools",
                "allowed_tools": {"mode": "required", "tools": [{"type": "function", "function": {"name": "f"}}]},
            },
            Choice.REQUIRED,
            ("f",),
            id="allowed tools",
        ),
    ],
)
def test_each_form_of_tool_choice(value, mode, names):
    choice = turn(tool_choice=value).tool_choice
    assert (choice.mode, choice.names) == (mode, names)


def test_tool_choice_none_offers_nothing():
    assert turn(tool_choice="none").offered == ()


@pytest.mark.parametrize(
    ("raw", "detail"),
    [
        pytest.param(b"", "not JSON", id="empty"),
        pytest.param(b"{", "not JSON", id="cut"),
        pytest.param(b"\xef\xbb\xbf{}", "not JSON", id="byte order mark"),
        pytest.param(b'{"a": NaN}', "not JSON", id="NaN"),
        pytest.param(b'{"a": "\xff"}', "not JSON", id="not UTF-8"),
        pytest.param(b"[]", "not an object", id="a list"),
        pytest.param(b'{"messages": "x"}', "messages", id="messages as text"),
        pytest.param(b'{"messages": [1]}', "messages", id="a number as message"),
        pytest.param(b'{"messages": [{}]}', "role", id="no role"),
        pytest.param(b'{"messages": [{"role": "critic", "content": ""}]}', "role", id="unknown role"),
        pytest.param(b'{"messages": [{"role": [], "content": ""}]}', "role", id="role as list"),
        pytest.param(b'{"messages": [{"role": "user", "content": 5}]}', "content", id="content as number"),
        pytest.param(b'{"messages": [], "tools": {}}', "tools", id="tools as object"),
        pytest.param(b'{"messages": [], "tools": [{"type": "function"}]}', "function name", id="nameless tool"),
        pytest.param(b'{"messages": [], "stream": "yes"}', "stream", id="stream as text"),
        pytest.param(b'{"messages": [], "stop": 5}', "stop", id="stop as number"),
        pytest.param(b'{"messages": [], "response_format": {"type": "xml"}}', "response_format", id="unknown format"),
        pytest.param(b'{"messages": [], "response_format": {"type": []}}', "response_format", id="format as list"),
        pytest.param(b'{"messages": [], "max_tokens": "9"}', "max_tokens", id="max_tokens as text"),
        pytest.param(b'{"messages": [], "max_tokens": 1e999}', "not JSON", id="a number beyond all numbers"),
        pytest.param(b'{"messages": [{"role": "user", "content": "\\ud83d"}]}', "not JSON", id="lone surrogate"),
        pytest.param(b"[" * 100_000, "not JSON", id="a hundred thousand brackets"),
        pytest.param(b'{"messages": [], "a": ' + b"[" * 200 + b"]" * 200 + b"}", "nested", id="two hundred deep"),
    ],
)
def test_what_cannot_be_read_is_said_so(raw, detail):
    parsed = parse(raw)
    assert isinstance(parsed, Unreadable)
    assert parsed.reason == "unparsed"
    assert detail in parsed.detail


@pytest.mark.parametrize(
    "doubled",
    [
        pytest.param('"model":"a","messages":[],"model":"b"', id="model"),
        pytest.param('"messages":[],"tools":[],"tools":[]', id="tools"),
        pytest.param('"messages":[],"stream":false,"str\\u0065am":true', id="written with an escape"),
        pytest.param('"messages":[],"messages":[]', id="messages"),
        pytest.param('"messages":[],"logprobs":true,"logprobs":false', id="a field that only the upstream honours"),
        pytest.param('"messages":[],"\\u0074\\u006F\\u006fls":[],"tools":[]', id="escaped before plain"),
        pytest.param('"n":1,"messages":[{"n":1}],"n":2', id="around a nested one"),
    ],
)
def test_a_decision_key_that_stands_twice_makes_the_body_unreadable(doubled):
    parsed = parse(b"{" + doubled.encode() + b"}")
    assert isinstance(parsed, Unreadable)
    assert "twice" in parsed.detail


def test_the_same_word_inside_a_message_is_no_second_key():
    raw = json.dumps(
        {"model": "m", "messages": [{"role": "user", "content": '{"model": "x", "tools": 1}'}], "tools": []}
    )
    nested = json.dumps({"model": "m", "messages": [USER], "metadata": {"model": "x"}})
    assert isinstance(parse(raw.encode()), Turn)
    assert isinstance(parse(nested.encode()), Turn)


@pytest.mark.parametrize(
    ("levels", "readable"), [pytest.param(127, True, id="at the limit"), pytest.param(128, False, id="one beyond")]
)
def test_nesting_is_counted_from_the_body_itself(levels, readable):
    raw = b'{"messages": [], "x": ' + b"[" * levels + b"]" * levels + b"}"
    assert isinstance(parse(raw), Turn if readable else Unreadable)


def test_brackets_inside_texts_and_beside_each_other_are_no_nesting():
    assert turn(messages=[{"role": "user", "content": "[{" * 5000}], x=[[] for _ in range(500)]).obstacles == ()


def test_an_old_picture_that_was_talked_about_does_not_stop_a_later_command():
    picture = {"role": "user", "content": [{"type": "image_url", "image_url": {"url": "data:,"}}]}
    told = {"role": "assistant", "content": "A cat."}
    assert "media-input" not in turn(messages=[picture, told, USER]).obstacles
    assert "media-input" in turn(messages=[picture, USER]).obstacles


def test_content_parts_are_joined_for_every_role():
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    parsed = turn(messages=[{"role": "system", "content": parts}, {"role": "user", "content": parts}])
    assert (parsed.system_texts, parsed.user_text) == (("a\nb",), "a\nb")


def test_response_format_is_read():
    schema = {"type": "json_schema", "json_schema": {"name": "s", "schema": {"type": "object"}}}
    found = turn(response_format=schema).response_format
    assert (found.kind, found.name, found.schema) == (Format.JSON_SCHEMA, "s", {"type": "object"})


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=8), inner, max_size=4),
    max_leaves=12,
)


@settings(max_examples=300)
@given(st.binary(max_size=200))
def test_no_bytes_raise(raw):
    assert isinstance(parse(raw), Turn | Unreadable)


@settings(max_examples=300)
@given(st.dictionaries(st.sampled_from([row.name for row in chat_fields.FIELDS]), json_values))
def test_no_values_raise(fields):
    assert isinstance(parse(json.dumps(fields).encode()), Turn | Unreadable)
    assert isinstance(parse(json.dumps(request() | fields).encode()), Turn | Unreadable)


@settings(max_examples=300)
@given(json_values, json_values)
def test_no_value_inside_a_known_form_raises(value, other):
    body = request(
        messages=[{"role": "user", "content": [{"type": value, "text": other}]}],
        tools=[{"type": value, "function": other}, {**TOOL, "function": {"name": "g", "strict": value}}],
        tool_choice={"type": "allowed_tools", "allowed_tools": {"mode": value, "tools": [other]}},
        response_format={"type": value, "json_schema": other},
        stream_options={"include_usage": value},
        stop=[value],
    )
    assert isinstance(parse(json.dumps(body).encode()), Turn | Unreadable)


@settings(max_examples=200)
@given(json_values, json_values, json_values)
def test_no_message_and_no_tool_raises(content, calls, function):
    message = {"role": "assistant", "content": content, "tool_calls": calls, "function_call": function}
    body = request(messages=[message, USER], tools=[{"type": "function", "function": function}], tool_choice=calls)
    assert isinstance(parse(json.dumps(body).encode()), Turn | Unreadable)
