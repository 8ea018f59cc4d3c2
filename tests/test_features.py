"""A request as the policies see it, and what only translation can find."""

import datetime
import subprocess
import sys

import pytest

from needle_router.features import conversation, features, found_here
from needle_router.translate import catalogue_of, make_task
from needle_router.turn import Choice, Format, Message, ResponseFormat, Tool, ToolChoice, Turn

MONDAY = datetime.date(2026, 11, 30)
LIGHTS = Tool("set_lights", "Set lights", {"type": "object", "properties": {"room": {"type": "string"}}})
FREE = Tool("anything", "", {"type": "object", "properties": {"a": {}}})


def turn(text="turn on the kitchen lights", *, tools=(LIGHTS,), system=(), **changes):
    messages = (*(Message("system", words) for words in system), Message("user", text))
    return Turn(raw=b"", model="m", messages=messages, tools=tools, has_tools=bool(tools), **changes)


def seen(asked, *, system="facts", tokens=60):
    catalogue = catalogue_of(asked.offered)
    task = make_task(asked, catalogue, system=system, today=MONDAY, max_new_tokens=64)
    return features(asked, task, catalogue, prompt_tokens=tokens, tokens_exact=True)


def test_an_ordinary_tool_turn():
    found = seen(turn(stream=True, parallel=False))
    assert (found.has_tools, found.tool_names, found.tool_choice) == (True, ("set_lights",), "auto")
    assert (found.last_role, found.user_chars, found.prompt_tokens, found.tokens_exact) == ("user", 26, 60, True)
    assert (found.stream, found.parallel, found.extraction, found.json_object) == (True, False, False, False)
    assert (found.clauses, found.obstacles) == (1, ())


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("turn on the kitchen lights", 1),
        ("turn on the kitchen lights and tell me a joke", 2),
        ("turn on the kitchen lights\ntell me a joke", 2),
        ("turn on the lights, play jazz; set a timer", 3),
        ("go ahead and turn on the lights", 1),
        ("", 1),
    ],
)
def test_clauses_are_counted(text, clauses):
    assert seen(turn(text)).clauses == clauses


def test_narrowing_leaves_the_named_tool():
    other = Tool("get_weather")
    found = seen(turn(tools=(LIGHTS, other), tool_choice=ToolChoice(Choice.NAMED, ("get_weather",))))
    assert (found.tool_names, found.tool_choice) == (("get_weather",), "named")


def test_an_extraction_is_its_schema_as_the_one_pinned_tool():
    wanted = ResponseFormat(Format.JSON_SCHEMA, "set_lights", LIGHTS.parameters)
    assert seen(turn(response_format=wanted, tool_choice=ToolChoice(Choice.NAMED, ("set_lights",)))).extraction
    assert not seen(turn(response_format=wanted)).extraction


@pytest.mark.parametrize(
    ("asked", "obstacles"),
    [
        pytest.param(turn("a\0b"), ("bad-text",), id="NUL"),
        pytest.param(turn("a \ud83d b"), ("bad-text",), id="lone surrogate"),
        pytest.param(turn("say <|im_end|> now"), ("control-marker",), id="marker in the text"),
        pytest.param(turn(system=["user: <tool_call>"]), ("control-marker",), id="marker in a fact"),
        pytest.param(turn(system=["Never write <tool_call>."]), (), id="marker in an instruction that is not fed"),
        pytest.param(turn(tools=(Tool("f", "</tools>"),)), ("control-marker",), id="marker in a description"),
        pytest.param(turn(tools=(FREE,)), ("schema-unsupported",), id="free-form property"),
        pytest.param(
            turn("\0<think>", tools=(FREE,)), ("bad-text", "control-marker", "schema-unsupported"), id="all three"
        ),
        pytest.param(turn("\0", obstacles=("logprobs",)), ("logprobs", "bad-text"), id="after those of parsing"),
        pytest.param(turn("\0<think>", tools=()), (), id="without tools nothing is fed"),
    ],
)
def test_obstacles_that_show_in_translation(asked, obstacles):
    assert seen(asked).obstacles == obstacles


def test_an_unsupported_tool_does_not_matter_when_the_choice_leaves_it_out():
    asked = turn(tools=(LIGHTS, FREE), tool_choice=ToolChoice(Choice.AUTO, ("set_lights",)))
    assert seen(asked).obstacles == ()


def test_a_conversation_keeps_its_name_as_it_goes_on_and_none_shares_it():
    first = turn(system=("be brief",))
    later = Turn(
        raw=b"",
        model="m",
        messages=(*first.messages, Message("assistant", "ok"), Message("user", "more")),
        tools=first.tools,
        has_tools=True,
    )
    assert conversation(first) == conversation(later)
    assert len(conversation(first)) == 16
    assert conversation(first) != conversation(turn())
    assert conversation(turn("\ud83d")) != conversation(turn("\ud83e"))


def test_the_name_of_a_conversation_is_the_same_in_every_process():
    code = (
        "from needle_router.features import conversation; from needle_router.turn import Message, Turn; "
        "print(conversation(Turn(raw=b'', model='m', messages=(Message('user', 'hi'),))))"
    )
    here = conversation(Turn(raw=b"", model="m", messages=(Message("user", "hi"),)))
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={"PYTHONPATH": ":".join(sys.path), "PYTHONHASHSEED": "7"},
        check=True,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.stdout.strip() == here


def test_nothing_is_found_where_nothing_is_wrong():
    asked = turn()
    catalogue = catalogue_of(asked.offered)
    task = make_task(asked, catalogue, system="facts", today=MONDAY, max_new_tokens=64)
    assert found_here(asked, task, catalogue) == ()


@pytest.mark.parametrize(
    ("marks", "risks"),
    [
        pytest.param({}, (), id="no mark at all"),
        pytest.param({"x-needle-risk": "read"}, ("read", ""), id="read"),
        pytest.param({"x-needle-risk": "write"}, ("write", ""), id="write"),
        pytest.param({"x-needle-risk": "never"}, ("never", ""), id="never"),
        pytest.param({"x-needle-risk": "Read"}, ("write", ""), id="a word that is not known"),
        pytest.param({"x-needle-risk": ["read"]}, ("write", ""), id="no word at all"),
        pytest.param({"x-needle-local": "never", "x-needle-risk": "read"}, ("never", ""), id="never local"),
        pytest.param({"x-needle-local": "always"}, (), id="only never says anything"),
    ],
)
def test_what_a_tool_declares_of_its_risk(marks, risks):
    tool = Tool("set_lights", "", {**LIGHTS.parameters, **marks})
    assert seen(turn(tools=(tool, Tool("other")))).tool_risks == risks


def test_a_turn_has_its_own_name_within_its_conversation():
    def named(*messages):
        return seen(Turn(raw=b"", model="m", messages=messages, tools=(LIGHTS,), has_tools=True))

    first = (Message("system", "s"), Message("user", "lights on"))
    later = (*first, Message("assistant", "Done."), Message("user", "lights on"))
    names = [found.turn for found in (named(*first), named(*first), named(*later), named(Message("user", "lights on")))]
    assert names[0] == names[1]
    assert len(set(names)) == 3
    assert named(*first).conversation == named(*later).conversation
    assert (seen(turn(tools=())).turn, len(names[0])) == ("", 16)
