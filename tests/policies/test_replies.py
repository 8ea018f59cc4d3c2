"""Sentences after a tool's result: their places, what counts as an error, and when there is one to say."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from needle_policies import Plan, Planned, Result, Situation
from needle_policies.merge import Merge
from needle_policies.registry import build, problems
from needle_policies.replies import MAX_RESULT_CHARS, Replies
from needle_policies.templates import MAX_VALUE_CHARS, filled, pieces
from needle_policies.testing import check_policy, evidence, features

NOW = Situation()
DONE = Replies(templates={"set_light": "The {room} light is done.", "get_weather": "{result.degrees} degrees."})


def result(text="ok", name="set_light", **arguments):
    return Result(name, json.dumps(arguments or {"room": "kitchen"}), text)


@pytest.mark.parametrize(
    ("template", "found", "said"),
    [
        pytest.param("Done.", "whatever", "Done.", id="no place"),
        pytest.param("{room}: {level}", None, "kitchen: 3", id="arguments"),
        pytest.param("{arguments.room}", None, "kitchen", id="an argument by its long name"),
        pytest.param("{result}", "21 degrees", "21 degrees", id="the whole result"),
        pytest.param("{result}", 21.0, "21", id="a whole number"),
        pytest.param("{result}", 21.5, "21.5", id="a fraction"),
        pytest.param("{result}", True, "true", id="a truth"),
        pytest.param("{result.day}", {"day": "Monday"}, "Monday", id="a field"),
        pytest.param("{result.the day}", {"the day": "Monday"}, "Monday", id="a field with a blank"),
        pytest.param("{{{room}}}", None, "{kitchen}", id="braces"),
        pytest.param("{floor}", None, None, id="no such argument"),
        pytest.param("{result.day}", {}, None, id="no such field"),
        pytest.param("{result.day}", "Monday", None, id="a field of a text"),
        pytest.param("{result}", {"day": "Monday"}, None, id="an object is no sentence"),
        pytest.param("{result}", [1], None, id="a list is none"),
        pytest.param("{result}", None, None, id="null is none"),
        pytest.param("{result}", float("nan"), None, id="no number"),
        pytest.param("{result}", "x" * MAX_VALUE_CHARS, "x" * MAX_VALUE_CHARS, id="as long as may be"),
        pytest.param("{result}", "x" * (MAX_VALUE_CHARS + 1), None, id="too long"),
    ],
)
def test_a_template_is_filled(template, found, said):
    assert filled(template, {"room": "kitchen", "level": 3}, found) == said


@pytest.mark.parametrize(
    "template", ["{", "}", "{}", "{0[x]}", "{room!r}", "{room:>5}", "{room.x}", "{result.}", "{a{b}}"]
)
def test_what_is_no_template(template):
    with pytest.raises(ValueError, match=r"."):
        list(pieces(template))


@pytest.mark.parametrize(
    ("text", "error"),
    [
        pytest.param("ok", False, id="a word"),
        pytest.param("", False, id="nothing"),
        pytest.param("null", False, id="null"),
        pytest.param("true", False, id="true"),
        pytest.param("false", True, id="false"),
        pytest.param('{"on": true}', False, id="an object"),
        pytest.param('{"error": null, "errors": [], "success": true}', False, id="error keys with nothing in them"),
        pytest.param('{"error": "no such room"}', True, id="an error"),
        pytest.param('{"isError": true}', True, id="as MCP says it"),
        pytest.param('{"success": false}', True, id="no success"),
        pytest.param('{"ok": null}', True, id="not ok"),
        pytest.param('{"status": "failed"}', True, id="a failed state"),
        pytest.param('{"status": "ok"}', False, id="a good state"),
        pytest.param('{"status": 200}', False, id="a good status"),
        pytest.param('{"status": 404}', True, id="a bad status"),
        pytest.param("Error: no such room", True, id="an error in words"),
        pytest.param('"Tool execution failed"', True, id="an error as a JSON text"),
        pytest.param("An exception occurred while running the tool.", True, id="in the middle"),
        pytest.param("The request timed out", True, id="too late"),
        pytest.param("terrors", False, id="only whole words"),
        pytest.param("x" * (MAX_RESULT_CHARS + 1), True, id="too long to be read"),
    ],
)
def test_what_counts_as_an_error(text, error):
    assert (Replies(templates={"f": "Done."}).sentence(Result("f", "{}", text)) is None) is error


def test_the_keys_of_an_error_can_be_named():
    policy = Replies(templates={"f": "Done."}, error_keys=("fault*",), success_keys=("good",))
    said = [policy.sentence(Result("f", "{}", text)) for text in ('{"fault_code": 7}', '{"good": 0}', '{"error": "x"}')]
    assert said == [None, None, "Done."]


@pytest.mark.parametrize(
    ("results", "text"),
    [
        pytest.param([result()], "The kitchen light is done.", id="one"),
        pytest.param(
            [result(), result('{"degrees": 7}', "get_weather", city="Oslo")],
            "The kitchen light is done.\n7 degrees.",
            id="two",
        ),
        pytest.param([result(), result()], "The kitchen light is done.", id="the same twice is said once"),
        pytest.param([], None, id="no result"),
        pytest.param([result(name="other")], None, id="a tool without a template"),
        pytest.param([result(), result(name="other")], None, id="one of two without a template"),
        pytest.param([result(), result("Error")], None, id="one of two failed"),
        pytest.param([Result("set_light", "[1]", "ok")], None, id="arguments that are none"),
        pytest.param([Result("set_light", '{"room"', "ok")], None, id="broken arguments"),
    ],
)
def test_a_reply_is_planned_where_every_result_has_its_sentence(results, text):
    said = DONE.plan(features("set_light", results=tuple(results)), NOW)
    assert said == (None if text is None else Planned(Plan.REPLY, "reply-template", "replies", text))
    assert DONE.judge(features("set_light"), NOW, evidence("set_light")) is None
    check_policy(DONE)


@pytest.mark.parametrize("mode", ["shadow", "off"])
def test_only_where_the_router_acts(mode):
    assert DONE.plan(features("set_light", results=(result(),)), Situation(mode=mode)) is None


@pytest.mark.parametrize("merge", [None, Merge(), Merge(when="never")])
def test_replies_come_before_the_guards_wherever_they_stand(merge):
    tables = [{"kind": "guards"}, {"kind": "threshold"}, {"kind": "replies", "templates": {"set_light": "Done."}}]
    seen = features("set_light", obstacles=("tool-result-turn",), results=(result(),))
    assert build(tables, merge).plan(seen, NOW).plan is Plan.REPLY
    assert build(tables[:2], merge).plan(seen, NOW) == Planned(Plan.FORWARD, "tool-result-turn", "guards")


@pytest.mark.parametrize(
    ("templates", "line"),
    [
        pytest.param({"f": "Done."}, None, id="good"),
        pytest.param({"f": 3}, "policy[0].templates.f: 3 is no sentence", id="no text"),
        pytest.param({"f": " "}, "policy[0].templates.f: ' ' is no sentence", id="nothing to say"),
        pytest.param(["f"], "policy[0].templates: ['f'] is not a table of tool names", id="no table"),
        pytest.param({"f": "{a:b}"}, "policy[0].templates.f: '{a:b}': the place {a} is none of", id="a format"),
    ],
)
def test_templates_are_checked_when_they_are_read(templates, line):
    found = problems([{"kind": "replies", "templates": templates}])
    assert found == [] if line is None else found[0].startswith(line)


@given(
    st.text() | st.recursive(st.none() | st.booleans() | st.floats() | st.text(), st.lists).map(json.dumps), st.text()
)
def test_whatever_a_tool_says_there_is_a_sentence_or_none(text, arguments):
    policy = Replies(templates={"f": "{result} {result.a} {b}", "g": "{result}", "h": "Done."})
    for name in ("f", "g", "h"):
        for given_arguments in (arguments, '{"b": 1}'):
            said = policy.sentence(Result(name, given_arguments, text))
            assert said is None or isinstance(said, str)


@given(st.text(alphabet="{}ab.!:[] result", max_size=12))
def test_a_template_that_passes_the_check_can_always_be_filled_or_is_silent(template):
    try:
        list(pieces(template))
    except ValueError:
        return
    said = filled(template, {"a": "A", "b": 2}, {"a": "C"})
    assert said is None or isinstance(said, str)
