"""What the engine is given and how its envelope is read."""

import datetime
import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_router.surfaces.ids import LOCAL_CALL_PREFIX, call_id, is_local_call_id
from needle_router.task import EngineFailure, Envelope, RawCall
from needle_router.translate import (
    catalogue_of,
    control_marker,
    conversation_steps,
    extraction_tool,
    make_task,
    read_envelope,
    replayable_steps,
    system_text,
    unreadable,
)
from needle_router.turn import Format, Message, PastCall, ResponseFormat, Tool, Turn

MONDAY = datetime.date(2026, 11, 30)
LOCAL = call_id("x" * 21)


def turn(*messages, tools=()):
    return Turn(raw=b"", model="m", messages=messages, tools=tools, has_tools=bool(tools))


def task_of(asked, **changes):
    settings = {"system": "facts", "today": MONDAY, "max_new_tokens": 64, "from_engine": is_local_call_id}
    return make_task(asked, catalogue_of(asked.offered), **{**settings, **changes})


def test_tools_are_flat_and_their_keys_stand_in_the_one_order_that_works():
    tools = (
        Tool("b", "second", {"type": "object", "properties": {"z": {"type": "string"}, "a": {"type": "string"}}}),
        Tool("a"),
    )
    text = catalogue_of(tools).text
    assert [list(tool) for tool in json.loads(text)] == [["name", "description", "parameters"]] * 2
    assert [tool["name"] for tool in json.loads(text)] == ["b", "a"]
    assert list(json.loads(text)[0]["parameters"]["properties"]) == ["z", "a"]


@pytest.mark.parametrize(
    ("texts", "mode", "expected"),
    [
        pytest.param(["You are a helpful assistant."], "facts", "date: 2026-11-30 Mon", id="instructions are dropped"),
        pytest.param(
            ["date: 2026-03-04 Wed 09:30; Act on the flat."],
            "facts",
            "date: 2026-03-04 Wed 09:30",
            id="the client's date",
        ),
        pytest.param(
            ["Be brief.\n- Location: Oslo\nuser: Ana"],
            "facts",
            "date: 2026-11-30 Mon\nlocation: Oslo\nuser: Ana",
            id="a list",
        ),
        pytest.param(
            ["Note: never call the device: it is broken"], "facts", "date: 2026-11-30 Mon", id="a key inside a sentence"
        ),
        pytest.param(["user: " + "x" * 500], "facts", "date: 2026-11-30 Mon", id="too long for a fact"),
        pytest.param(["a", "b"], "verbatim", "a\nb", id="verbatim"),
        pytest.param(["date: x"], "none", "", id="none"),
    ],
)
def test_the_system_text_is_facts(texts, mode, expected):
    assert system_text(texts, mode, MONDAY) == expected


def test_an_isolated_task_feeds_the_last_user_message_alone():
    asked = turn(Message("user", "one"), Message("assistant", "ok"), Message("user", "two"))
    assert task_of(asked).steps == ("two",)
    assert not task_of(asked).replay


AGENT = (
    Message("user", "weather in Oslo"),
    Message("assistant", calls=(PastCall(LOCAL, "get_weather", "{}"), PastCall(LOCAL, "get_time", "{}"))),
    Message("tool", '{"c": -3}', tool_call_id=LOCAL),
    Message("tool", "noon", tool_call_id=LOCAL),
)


def test_a_replay_feeds_user_texts_and_each_run_of_tool_results_as_one_array():
    task = task_of(turn(*AGENT), session="replay")
    assert task.steps == ("weather in Oslo", '[{"c":-3},"noon"]')
    assert task.replay


@pytest.mark.parametrize(
    "spoken",
    [
        pytest.param(Message("assistant", "Hello."), id="words"),
        pytest.param(
            Message("assistant", calls=(PastCall("call_upstream", "f", "{}"),)), id="a call of the upstream's"
        ),
        pytest.param(Message("assistant"), id="nothing at all"),
    ],
)
def test_a_history_in_which_the_upstream_spoke_is_never_replayed(spoken):
    asked = turn(Message("user", "a"), spoken, Message("user", "b"))
    assert replayable_steps(asked, is_local_call_id) is None
    assert task_of(asked, session="replay").steps == ("b",)
    assert not task_of(asked, session="replay").replay


def test_needle_alone_feeds_what_came_since_the_last_user_message_when_it_cannot_replay():
    asked = turn(Message("user", "a"), Message("assistant", "Hi"), Message("user", "b"), *AGENT[1:])
    assert conversation_steps(asked, is_local_call_id) == ("b", '[{"c":-3},"noon"]')


@pytest.mark.parametrize(
    "text",
    [
        "<|im_start|>user",
        "< | im_end | >",
        "<tool_call>",
        "</tool_call>",
        "a <TOOLS> b",
        "<\u200btool_call>",
        "<tool\u00ad_call>",
        "\uff1ctool_call\uff1e",
        "\uff1c\uff5cim_start\uff5c\uff1e",
        "\u3008tool_result\u3009",
        "[INST] x",
        "<think>",
        "<schema>",
    ],
)
def test_control_markers_are_found_in_every_disguise(text):
    assert control_marker(text)


@pytest.mark.parametrize(
    "text", ["turn on <b>lights</b>", "a < b and c > d", "x[0]", "<toolbox>", "email <me@x.example>", ""]
)
def test_ordinary_signs_are_no_markers(text):
    assert not control_marker(text)


def test_a_marker_in_a_description_is_seen():
    assert catalogue_of((Tool("f", "use <tool_call> now"),)).marker
    assert not catalogue_of((Tool("f", "use it now"),)).marker


@pytest.mark.parametrize(("text", "bad"), [("a\0b", True), ("\ud83d", True), ("\U0001f30d", False), ("", False)])
def test_text_that_c_code_cannot_take(text, bad):
    assert unreadable(text) is bad


ENVELOPE = {
    "type": "call",
    "success": True,
    "function_calls": [{"name": "f", "arguments": {"a": 1}}],
    "reasoning": "r",
    "confidence": 0.9,
    "prefill_tps": 10.0,
    "validation": {"ungrounded": [], "negation": False},
}


def test_an_envelope_is_read():
    assert read_envelope(ENVELOPE) == Envelope(
        kind="call", calls=(RawCall("f", {"a": 1}),), reasoning="r", confidence=0.9, ungrounded=(), prefill_tps=10.0
    )


@pytest.mark.parametrize("confidence", [None, "0.9", True, float("nan"), float("inf"), 2.0, -1, [], {}])
def test_a_score_that_is_none_is_unknown(confidence):
    assert read_envelope({**ENVELOPE, "confidence": confidence}).confidence is None


@pytest.mark.parametrize(("confidence", "read"), [(0, 0.0), (1, 1.0), (0.5, 0.5)])
def test_scores_at_the_edges_are_scores(confidence, read):
    assert read_envelope({**ENVELOPE, "confidence": confidence}).confidence == read


@pytest.mark.parametrize(
    ("changes", "calls"),
    [
        pytest.param({"function_calls": None}, (), id="no list"),
        pytest.param({"function_calls": [{"name": "f", "arguments": None}]}, (RawCall("f", {}),), id="null arguments"),
        pytest.param({"function_calls": [{"name": "f"}]}, (RawCall("f", {}),), id="no arguments"),
        pytest.param(
            {"function_calls": [{"name": "f", "arguments": '{"a":1}'}]}, (RawCall("f", {"a": 1}),), id="as text"
        ),
        pytest.param({"type": "refuse", "function_calls": [], "suppressed_calls": [{"name": "f"}]}, (), id="withheld"),
    ],
)
def test_calls_are_read_tolerantly(changes, calls):
    assert read_envelope({**ENVELOPE, **changes}).calls == calls


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        pytest.param({"success": False, "error_code": "truncated"}, "truncated", id="truncated"),
        pytest.param({"success": False, "error_code": "context_overflow"}, "prompt-too-long", id="overflow"),
        pytest.param({"success": False, "error_code": 7, "error": "boom"}, "engine-error", id="numeric code"),
        pytest.param({"type": "error", "error": "needle_init not called"}, "engine-error", id="error type"),
        pytest.param({"function_calls": "f()"}, "engine-garbage", id="calls as text"),
        pytest.param({"function_calls": [1]}, "engine-garbage", id="a number as call"),
        pytest.param({"function_calls": [{"arguments": {}}]}, "engine-garbage", id="a nameless call"),
        pytest.param({"function_calls": [{"name": "f", "arguments": "{"}]}, "engine-garbage", id="broken arguments"),
        pytest.param({"function_calls": [{"name": "f", "arguments": [1]}]}, "engine-garbage", id="a list as arguments"),
    ],
)
def test_failures_have_their_reasons(changes, reason):
    failure = read_envelope({**ENVELOPE, **changes})
    assert isinstance(failure, EngineFailure)
    assert failure.reason == reason


def test_no_validation_means_that_nothing_was_checked():
    bare = {key: value for key, value in ENVELOPE.items() if key != "validation"}
    assert read_envelope(bare).ungrounded is None
    assert read_envelope({**bare, "validation": {"ungrounded": "f.a"}}).ungrounded == ("f.a",)


@given(st.dictionaries(st.sampled_from(list(ENVELOPE)), st.none() | st.text() | st.lists(st.text()) | st.integers()))
def test_no_envelope_raises(envelope):
    assert isinstance(read_envelope(envelope), Envelope | EngineFailure)


@pytest.mark.parametrize(
    ("schema", "found"),
    [
        ({"type": "object", "properties": {"a": {"type": "string"}}}, True),
        ({"type": "array", "items": {}}, False),
        ({"type": "object"}, False),
        (None, False),
        (True, False),
    ],
)
def test_an_extraction_needs_an_object_at_the_root(schema, found):
    assert (extraction_tool(ResponseFormat(Format.JSON_SCHEMA, "s", schema)) is not None) is found


def test_call_ids_fit_the_apis_limit_and_are_known_again():
    assert len(LOCAL) == 29
    assert LOCAL.startswith(LOCAL_CALL_PREFIX)
    assert is_local_call_id(LOCAL)
    assert not is_local_call_id("call_abc")
    with pytest.raises(ValueError, match="21"):
        call_id("short")
