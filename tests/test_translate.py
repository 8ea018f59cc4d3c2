"""What the engine is given."""

import dataclasses
import datetime
import json

import pytest

from needle_router.history import conversation_steps, differs, replayable_steps
from needle_router.surfaces.ids import LOCAL_CALL_PREFIX, call_id, is_local_call_id
from needle_router.translate import catalogue_of, extraction_tool, make_task, system_text
from needle_router.turn import Choice, Format, Message, PastCall, ResponseFormat, Tool, ToolChoice, Turn

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


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        pytest.param((), False, id="nothing was fed before the last text"),
        pytest.param((("get_weather", "get_time"),), False, id="the same calls"),
        pytest.param((("get_time", "get_weather"),), True, id="in another order"),
        pytest.param(((),), True, id="no call"),
    ],
)
def test_a_replay_is_held_against_the_conversation(said, expected):
    assert differs(turn(*AGENT), said) is expected


def test_only_what_was_fed_is_held_against_the_conversation():
    asked = turn(*AGENT, Message("user", "thanks"), Message("user", "and tomorrow?"))
    # Fed: the thanks and the question. No call followed either of the texts before.
    assert not differs(asked, (("get_weather",),))
    assert not differs(asked, ((), ("get_weather",)))
    assert differs(asked, (("get_news",), (), ()))


def test_needle_alone_feeds_what_came_since_the_last_user_message_when_it_cannot_replay():
    asked = turn(Message("user", "a"), Message("assistant", "Hi"), Message("user", "b"), *AGENT[1:])
    assert conversation_steps(asked, is_local_call_id) == ("b", '[{"c":-3},"noon"]')


def test_a_marker_in_a_description_is_seen():
    assert catalogue_of((Tool("f", "use <tool_call> now"),)).marker
    assert not catalogue_of((Tool("f", "use it now"),)).marker


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


CHOICES = [ToolChoice(), ToolChoice(Choice.REQUIRED), ToolChoice(Choice.NAMED, ("f",)), ToolChoice(Choice.AUTO, ("f",))]


def test_a_remembered_task_names_the_choice_the_schemas_and_the_system_text():
    tool = Tool("f", "d", {"type": "object", "properties": {}})
    plain = turn(Message("user", "a"), tools=(tool,))
    others = [
        *(dataclasses.replace(plain, tool_choice=choice) for choice in CHOICES),
        turn(Message("system", "Be brief."), Message("user", "a"), tools=(tool,)),
        turn(Message("user", "a"), tools=(Tool("f", "d", {"type": "object", "additionalProperties": False}),)),
    ]
    tasks = [task_of(asked, remembered=True) for asked in others]
    # The engine reads the same; the question is another one each time.
    assert {dataclasses.replace(task, context="") for task in tasks} == {task_of(plain)}
    assert len({task.context for task in tasks}) == len(others)
    assert tasks[0] == task_of(plain, remembered=True)
