"""The presets load, and keep the order of caution that their names promise."""

import tomllib
from importlib.resources import files

import pytest

from needle_policies import Action, Situation, Standing
from needle_policies.registry import build
from needle_policies.testing import evidence, features

PRESETS = {
    entry.name.removesuffix(".toml"): tomllib.loads(entry.read_text("utf-8"))
    for entry in files("needle_policies").joinpath("presets").iterdir()
}


def answers(preset, tool, confidence):
    cascade = build(PRESETS[preset]["policy"])
    # The conversation named 7 is inside every share of at least a tenth.
    # The lot of this conversation is inside a canary of a tenth.
    seen = features(tool, conversation="0")
    return cascade.judge(seen, Situation(), evidence(tool, confidence=confidence)).action is Action.ANSWER


def test_there_are_three():
    assert sorted(PRESETS) == ["balanced", "cautious", "saver"]


@pytest.mark.parametrize("preset", PRESETS)
def test_a_preset_holds_policies_alone_and_begins_with_the_guards(preset):
    assert set(PRESETS[preset]) == {"policy"}
    assert PRESETS[preset]["policy"][0] == {"kind": "guards"}
    assert build(PRESETS[preset]["policy"]).policies[-1].kind == "threshold"


@pytest.mark.parametrize(
    ("raised", "action"),
    [pytest.param(False, Action.ANSWER, id="no alarm"), pytest.param(True, Action.SHADOW, id="alarm")],
)
def test_the_cautious_one_only_watches_a_tool_in_alarm(raised, action):
    standings = {"get_weather": Standing(alarm=raised)}
    seen = features("get_weather", conversation="0")
    said = build(PRESETS["cautious"]["policy"]).judge(
        seen, Situation(standings=standings), evidence("get_weather", confidence=0.95)
    )
    assert said.action is action


def test_the_balanced_one_audits_every_twentieth_answer():
    cascade, said = build(PRESETS["balanced"]["policy"]), evidence("get_weather", confidence=0.9)
    drawn = [cascade.audit_of(features("get_weather", turn=str(n)), Situation(), said) for n in range(4000)]
    assert 160 < sum(one is not None for one in drawn) < 240


@pytest.mark.parametrize(
    ("tool", "confidence", "answering"),
    [
        pytest.param("get_weather", 0.75, {"saver"}, id="a reading call with a modest score"),
        pytest.param("get_weather", 0.9, {"saver", "balanced"}, id="a reading call with a good score"),
        pytest.param("get_weather", 0.95, {"saver", "balanced", "cautious"}, id="a reading call with a high score"),
        pytest.param("set_light", 0.9, {"saver"}, id="a writing call with a good score"),
        pytest.param("set_light", 0.96, {"saver", "balanced"}, id="a writing call with a high score"),
        pytest.param("delete_file", 1.0, set(), id="a call that is never answered here"),
    ],
)
def test_what_they_answer(tool, confidence, answering):
    assert {preset for preset in PRESETS if answers(preset, tool, confidence)} == answering
