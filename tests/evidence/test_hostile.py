"""Text, arguments and schemas made to hurt: the core answers, in time that grows with the length and no faster.

Times are bounds against quadratic patterns (seconds where a linear one takes milliseconds), not measurements.
"""

import datetime
import json
import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from needle_policies import REASONS
from needle_router.envelopes import read_envelope
from needle_router.evidence import intents, language, weigh, words
from needle_router.features import features
from needle_router.markers import control_marker
from needle_router.task import EngineFailure, Envelope, RawCall
from needle_router.translate import catalogue_of, make_task, system_text
from needle_router.turn import Message, PastCall, Tool, Turn

MONDAY = datetime.date(2026, 11, 30)
SIZE = 20_000
LONG = [
    pytest.param("a" + " " * SIZE + "b", id="blanks"),
    pytest.param("a" + "\n" * SIZE + "b", id="line breaks"),
    pytest.param("a" + "\t \n" * (SIZE // 3) + "b", id="mixed blanks"),
    pytest.param("." * SIZE + "x", id="dots"),
    pytest.param("one " * (SIZE // 4), id="number words"),
    pytest.param("one " + "hundred " * (SIZE // 8), id="a number without end"),
    pytest.param("9" * SIZE, id="a numeral without end"),
    pytest.param("1,234" * (SIZE // 5), id="grouped digits"),
    pytest.param("leave " * (SIZE // 6), id="an open negation"),
    pytest.param("ne a " * (SIZE // 5), id="French particles"),
    pytest.param("hey, " * (SIZE // 5), id="greetings"),
    pytest.param("< | " * (SIZE // 4), id="half markers"),
    pytest.param("and then " * (SIZE // 9), id="joints"),
]
LOOKS = [
    pytest.param(lambda text: system_text([f"user: {text}"], "facts", MONDAY), id="facts"),
    pytest.param(lambda text: control_marker(f"<{text}"), id="markers"),
    pytest.param(intents.wishes, id="wishes"),
    pytest.param(words.read, id="words"),
    pytest.param(language.negated, id="negation"),
    pytest.param(language.conditional, id="condition"),
    pytest.param(language.asks, id="question"),
]


@pytest.mark.parametrize("text", LONG)
@pytest.mark.parametrize("look", LOOKS)
def test_no_text_keeps_the_core_busy(look, text):
    started = time.process_time()
    look(text)
    assert time.process_time() - started < 1.0


TOOL = Tool("f", "Set it", {"type": "object", "properties": {"a": {"type": "string"}, "n": {"type": "integer"}}})


def asked(*messages, tools=(TOOL,), **changes):
    return Turn(raw=b"", model="m", messages=messages, tools=tools, has_tools=True, **changes)


def test_ten_megabytes_of_user_text_are_described_at_once():
    turn = asked(Message("user", "turn on the light and " * 450_000))
    catalogue = catalogue_of(turn.offered)
    task = make_task(turn, catalogue, system="facts", today=MONDAY, max_new_tokens=64)
    started = time.process_time()
    found = features(turn, task, catalogue, prompt_tokens=10**6, tokens_exact=False)
    assert time.process_time() - started < 1.0
    assert found.user_chars == 9_900_000


@pytest.mark.parametrize("opening", ['{"a":', '{"a":[', '{"a":[{"b":'], ids=["objects", "lists", "both"])
def test_arguments_nested_without_end_are_garbage(opening):
    inner = opening.removeprefix('{"a":') or opening
    closing = {"[": "]", "{": "}"}
    text = '{"a":' + inner * 300 + "1" + "".join(closing[c] for c in reversed(inner * 300) if c in closing) + "}"
    outcome = read_envelope({"function_calls": [{"name": "f", "arguments": json.loads(text)}]})
    assert isinstance(outcome, EngineFailure)
    assert outcome.reason == "engine-garbage"


def nested(levels):
    value = 1
    for _ in range(levels):
        value = {"a": value}
    return {"function_calls": [{"name": "f", "arguments": value}]}


def test_thirty_two_levels_are_read_and_thirty_three_are_not():
    assert isinstance(read_envelope(nested(32)), Envelope)
    assert isinstance(read_envelope(nested(33)), EngineFailure)


@pytest.mark.parametrize("levels", [200, 254, 900, 5000])
def test_a_schema_nested_without_end_is_a_problem_and_no_crash(levels):
    schema = {"type": "string"}
    for _ in range(levels):
        schema = {"type": "object", "properties": {"a": schema}}
    assert catalogue_of((Tool("f", "", schema),)).problem is not None


scalars = st.none() | st.booleans() | st.integers(-(2**63), 2**63) | st.floats() | st.text(max_size=12)
values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)
arguments = st.dictionaries(st.sampled_from(["a", "n", "when", "duration_seconds", ""]), values, max_size=4)
schemas = st.fixed_dictionaries(
    {},
    optional={
        "type": st.sampled_from(["object", "array", "junk"]) | values,
        "properties": st.dictionaries(
            st.sampled_from(["a", "n", "when", "duration_seconds"]),
            st.fixed_dictionaries(
                {},
                optional={
                    "type": st.sampled_from(["string", "integer", "number", "boolean", "array"]) | values,
                    "enum": st.lists(scalars, max_size=3) | values,
                    "default": values,
                    "format": st.sampled_from(["date", "date-time", "email"]) | values,
                    "items": values,
                },
            )
            | values,
        )
        | values,
        "required": st.lists(st.sampled_from(["a", "n", "when"]), max_size=3) | values,
    },
)
SENTENCES = ["turn on a", "set it to 5 minutes, not 6", "is a on?", "one hundred and one", "12 march", "9pm", "", "\0"]


@settings(max_examples=300)
@given(
    st.sampled_from(SENTENCES) | st.text(max_size=40),
    st.lists(st.tuples(st.sampled_from(["f", "g", "", "é"]), arguments), max_size=3),
    schemas,
    st.text(max_size=12),
)
def test_weighing_never_raises_and_speaks_in_known_slugs(text, calls, schema, past):
    turn = asked(
        Message("user", text),
        Message("assistant", past, calls=(PastCall("c", "f", past),)),
        Message("user", text),
        tools=(Tool("f", text, schema), Tool("é")),
        stop=(past or "x",),
        max_tokens=9,
    )
    envelope = Envelope(kind="call", calls=tuple(RawCall(name, given_) for name, given_ in calls), confidence=0.5)
    findings = weigh(turn, envelope, catalogue_of(turn.offered), facts="date: 2026-11-30 Mon")
    assert set(findings.evidence.failures) <= set(REASONS)
    assert findings.evidence.calls == tuple(name for name, _ in calls)
    again = weigh(turn, envelope, catalogue_of(turn.offered), facts="date: 2026-11-30 Mon")
    assert again.evidence == findings.evidence
