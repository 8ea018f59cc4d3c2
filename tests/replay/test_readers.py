"""From each source to cases: literal pieces of every format."""

import json
import random

import pytest

from needle_router.replay import bfcl, home
from needle_router.replay.cases import Case, SourceProblem
from needle_router.replay.environments import environments
from needle_router.replay.files import read_requests
from needle_router.replay.grading import AnyCall, TheseCalls
from needle_router.replay.sources import chosen, data_set, read_source
from needle_router.turn import Call

LIGHTS = {
    "name": "set_lights",
    "parameters": {"type": "object", "properties": {"room": {"type": "string"}, "level": {"default": 100}}},
}
BODY = {
    "model": "m",
    "messages": [{"role": "user", "content": "dim"}],
    "tools": [{"type": "function", "function": LIGHTS}],
}
DIM = [{"name": "set_lights", "arguments": {"room": "den"}}]


def line(**fields):
    return json.dumps(fields).encode()


# -------------------------------------------------------------------------------------------------------- JSON lines


def test_a_request_body_with_what_is_expected_in_it():
    (case,) = read_requests([line(**BODY, expected=DIM, category="home", id=7)])
    assert (case.name, case.category, json.loads(case.body)) == ("7", "home", BODY)
    assert case.wanted == TheseCalls((Call("set_lights", {"room": "den"}),))


def test_a_request_beside_what_is_expected():
    (case,) = read_requests([line(request=BODY, expected=[])])
    assert (case.name, case.category, json.loads(case.body)) == ("line 1", "all", BODY)
    assert case.wanted.silent


def test_a_recorded_answer_says_what_is_expected():
    call = {"id": "c1", "type": "function", "function": {"name": "set_lights", "arguments": '{"room": "den"}'}}
    response = {"choices": [{"index": 0, "message": {"role": "assistant", "tool_calls": [call]}}]}
    (case,) = read_requests([line(request=BODY, response=response)])
    assert case.wanted.calls == (Call("set_lights", {"room": "den"}),)


def test_a_recorded_answer_without_calls_says_that_none_is_expected():
    (case,) = read_requests([line(request=BODY, response={"choices": [{"message": {"content": "hello"}}]})])
    assert case.wanted.silent


@pytest.mark.parametrize(
    ("content", "calls"),
    [
        pytest.param('{"city": "Oslo"}', (Call("place", {"city": "Oslo"}),), id="the object"),
        pytest.param("I cannot tell", (), id="words"),
    ],
)
def test_a_recorded_structured_answer_is_the_call_that_it_is_here(content, calls):
    schema = {"name": "place", "schema": {"type": "object", "properties": {"city": {"type": "string"}}}}
    wanted = {"type": "json_schema", "json_schema": schema}
    request = {"messages": BODY["messages"], "response_format": wanted}
    (case,) = read_requests([line(request=request, response={"choices": [{"message": {"content": content}}]})])
    assert case.wanted.calls == calls


def test_a_request_alone_says_nothing_about_right_or_wrong():
    cases = read_requests([b"\n", line(**BODY)])
    assert [(case.name, case.wanted) for case in cases] == [("line 2", None)]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        pytest.param(b"{", "no JSON (", id="cut off"),
        pytest.param(b"[" * 100_000, "no JSON (", id="nested by the thousand"),
        pytest.param(b"[]", 'expected a request body with "messages"', id="a list"),
        pytest.param(line(request=3), 'expected a request body with "messages"', id="a number for a request"),
        pytest.param(
            line(**BODY, expected=[{"arguments": {}}]), '"expected" must be a list', id="a call without a name"
        ),
        pytest.param(line(**BODY, expected={}), '"expected" must be a list', id="an object for a list"),
        pytest.param(line(request=BODY, response={}), '"response" must be a chat completion', id="no completion"),
        pytest.param(line(**BODY, category=""), '"category" must be text', id="an empty category"),
    ],
)
def test_a_bad_line_is_named_with_its_number(text, problem):
    with pytest.raises(SourceProblem) as caught:
        read_requests([line(**BODY), text])
    assert caught.value.lines[0].startswith(f"line 2: {problem}")


def test_no_more_than_ten_bad_lines_are_named():
    with pytest.raises(SourceProblem) as caught:
        read_requests([b"{"] * 50)
    assert len(caught.value.lines) == 10


def test_a_ledger_is_refused_in_words(tmp_path):
    (tmp_path / "decisions.db").write_bytes(b"SQLite format 3\0" + bytes(100))
    with pytest.raises(SourceProblem, match="a ledger cannot be replayed, because it keeps no tools"):
        read_source(str(tmp_path / "decisions.db"), 1)


def test_a_name_that_is_neither_file_nor_data_set_is_told_the_data_sets():
    with pytest.raises(SourceProblem) as caught:
        read_source("bfkl", 1)
    assert caught.value.lines == (
        "bfkl cannot be read: No such file or directory",
        "data sets by name:",
        "  bfcl: BFCL v4, single turns (package bfcl-eval)",
        "  needle-environments: the 192 frozen cases of needle.environments (package cactus-needle)",
        "  home-assistant-intents: 700 sentences about lights, climate and timers (package home-assistant-intents)",
    )


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("needle-environments", "needle-environments"),
        ("needle.environments", "needle-environments"),
        ("home-assistant", "home-assistant-intents"),
        ("requests.jsonl", None),
    ],
)
def test_data_sets_are_known_by_their_packages_names_too(source, name):
    assert data_set(source) == name


# -------------------------------------------------------------------------------------------------------------- BFCL

FUNCTION = {
    "name": "spotify.play",
    "description": "Play tracks",
    "parameters": {
        "type": "dict",
        "required": ["artist"],
        "properties": {
            "artist": {"type": "string"},
            "seconds": {"type": "float", "optional": True},
            "range": {"type": "tuple", "items": {"type": "any"}},
            "extra": {"type": "dict", "properties": {"type": {"type": "integer"}}},
        },
    },
}
SCHEMA = {
    "type": "object",
    "required": ["artist"],
    "properties": {
        "artist": {"type": "string"},
        "seconds": {"type": "number"},
        "range": {"type": "array", "items": {"type": "string"}},
        "extra": {"type": "object", "properties": {"type": {"type": "integer"}}},
    },
}
ROW = {"id": "simple_python_0", "question": [[{"role": "user", "content": "Play Prince"}]], "function": [FUNCTION]}


@pytest.fixture
def bfcl_folder(tmp_path):
    (tmp_path / "possible_answer").mkdir()
    for category in ("simple_python", "irrelevance", "live_relevance"):
        (tmp_path / f"BFCL_v4_{category}.json").write_text(json.dumps(ROW) + "\n")
    answer = {
        "id": "simple_python_0",
        "ground_truth": [{"spotify.play": {"artist": ["Prince"], "seconds": ["", 30.0]}}],
    }
    (tmp_path / "possible_answer" / "BFCL_v4_simple_python.json").write_text(json.dumps(answer) + "\n")
    return tmp_path


def test_a_bfcl_function_becomes_a_tool_with_json_schema(bfcl_folder):
    (case,) = bfcl.read_category(bfcl_folder, "simple_python")
    body = json.loads(case.body)
    assert (case.name, case.category) == ("simple_python_0", "simple_python")
    assert body["messages"] == [{"role": "user", "content": "Play Prince"}]
    declared = {"name": "spotify_play", "description": "Play tracks", "parameters": SCHEMA}
    assert body["tools"] == [{"type": "function", "function": declared}]


def test_what_is_right_in_a_bfcl_category_without_answers(bfcl_folder):
    (irrelevant,) = bfcl.read_category(bfcl_folder, "irrelevance")
    (relevant,) = bfcl.read_category(bfcl_folder, "live_relevance")
    assert (irrelevant.wanted, relevant.wanted) == (TheseCalls(()), AnyCall())


def test_bfcl_answers_are_graded_by_its_own_checker(bfcl_folder):
    pytest.importorskip("bfcl_eval", reason="bfcl-eval is not installed: pip install --no-deps bfcl-eval")
    (case,) = bfcl.read_category(bfcl_folder, "simple_python")
    assert case.wanted.met([Call("spotify_play", {"artist": "Prince"})])
    assert case.wanted.met([Call("spotify_play", {"artist": "prince", "seconds": 30})])
    assert not case.wanted.met([Call("spotify_play", {"artist": "Prince", "seconds": 31.0})])
    assert not case.wanted.met([Call("play", {"artist": "Prince"})])
    assert not case.wanted.met([])


# ---------------------------------------------------------------------------------------------- needle.environments


def test_there_are_192_frozen_cases_and_their_expected_calls_name_declared_tools():
    found = list(environments())
    assert len(found) == 192
    assert sorted({example.category for example in found}) == [
        "invalid", "irrelevant", "missing", "negation", "parallel", "positive",
    ]  # fmt: skip
    for example in found:
        assert {call["name"] for call in example.calls} <= {tool["name"] for tool in example.tools}, example.name
        assert example.system


def test_a_frozen_case_is_this_one():
    found = {example.name: example for example in environments(with_system=False)}["smart_home/0"]
    assert (found.query, found.system) == ("turn on the kitchen lights", None)
    assert found.calls == [{"name": "control_lights", "arguments": {"room": "kitchen", "action": "on"}}]


# ------------------------------------------------------------------------------------------- home-assistant-intents


def block(combination, *sentences):
    return {"data": [{"metadata": {"slot_combination": combination}, "sentences": list(sentences)}]}


HOME = {
    "expansion_rules": {"the": "(the|my)"},
    "intents": {
        "HassTurnOn": block("area_domain", "turn on <the> {area} light[s]", "turn on {floor}"),
        "HassTurnOff": block("area_domain", "turn off <the> {area} light[s]"),
        "HassLightSet": block("area_brightness", "({area};to {brightness}) percent"),
        "HassClimateSetTemperature": block("area_temperature", "{area} to {temperature} degrees"),
        "HassClimateGetTemperature": block("area_only", "how warm is <the> {area}"),
        "HassStartTimer": block("minutes_only", "{timer_half:minutes} an hour timer"),
    },
}


def test_templates_become_sentences_with_their_calls():
    found = list(home.expanded(HOME, 14, seed=3))
    by_intent = {example.category: example for example in found}
    lights = by_intent["HassTurnOn"]
    room = lights.calls[0]["arguments"]["room"]
    assert lights.query in {f"turn on {the} {room} light{s}" for the in ("the", "my") for s in ("", "s")}
    assert lights.calls == [{"name": "set_light", "arguments": {"room": room, "on": True}}]
    assert [e.calls for e in found if e.category == "HassStartTimer"] == [
        [{"name": "set_timer", "arguments": {"minutes": 30}}]
    ]


def test_the_same_seed_draws_the_same_sentences():
    assert list(home.expanded(HOME, 21, 5)) == list(home.expanded(HOME, 21, 5))
    assert list(home.expanded(HOME, 21, 5)) != list(home.expanded(HOME, 21, 6))


def test_a_source_with_few_sentences_ends():
    timers = [e for e in home.expanded(HOME, 7000, 1) if e.category == "HassStartTimer"]
    assert [e.query for e in timers] == ["half an hour timer"]


def test_a_template_expands_with_its_slots():
    expander = home.Expander(random.Random(2), {"the": "(the|my)"})
    said = expander.expand("set <the> {area} light to {brightness}")
    assert said in {
        f"set {the} {expander.slots['area']} light to {expander.slots['brightness']}" for the in ("the", "my")
    }
    assert expander.slots["area"] in home.AREAS


def test_a_template_with_an_open_bracket_is_an_error():
    with pytest.raises(ValueError, match="no \\) after position 2"):
        home.closing("a (b", 2)


def test_the_slots_of_a_sentence_become_arguments_of_the_tool():
    assert home.wanted("set_timer", {"timer_half": 30}) == {"name": "set_timer", "arguments": {"minutes": 30}}
    assert home.wanted("set_light", {"area": "attic", "on": True})["arguments"] == {"room": "attic", "on": True}


# ---------------------------------------------------------------------------------------------------------- choosing

CASES = [Case(str(number), "ab"[number % 2], b"") for number in range(10)]


def names(cases):
    return [case.name for case in cases]


def test_a_limit_draws_from_everywhere_and_keeps_the_order():
    assert names(chosen(CASES, (), 4, seed=1)) == names(chosen(CASES, (), 4, seed=1))
    assert names(chosen(CASES, (), 4, seed=1)) != names(chosen(CASES, (), 4, seed=2))
    drawn = names(chosen(CASES, (), 9, seed=1))
    assert (len(drawn), drawn) == (9, sorted(drawn))


def test_a_limit_of_all_or_more_leaves_all():
    assert chosen(CASES, (), 10, 1) == chosen(CASES, (), 11, 1) == CASES


def test_categories_are_chosen_before_the_limit():
    assert names(chosen(CASES, ("b",), 5, 1)) == ["1", "3", "5", "7", "9"]


def test_an_unknown_category_is_told_the_known_ones():
    with pytest.raises(SourceProblem, match="there is no category c; there are a, b"):
        chosen(CASES, ("a", "c"), None, 1)
