"""Guards, threshold, merge and cascade, line by line."""

import subprocess
import sys

import pytest

import needle_policies
from needle_policies import REASONS, Action, Decision, Evidence, Features, Plan, Planned, Situation
from needle_policies.cascade import Cascade
from needle_policies.guards import Guards
from needle_policies.merge import Merge
from needle_policies.registry import BUILT_IN, PolicyError, build, problems
from needle_policies.testing import check_policy, evidence, features
from needle_policies.threshold import Threshold

NOW = Situation()
MIXED = {"failures": ("intents-uncovered",), "uncovered": True}


@pytest.mark.parametrize(
    ("seen", "reason"),
    [
        pytest.param(features("f"), None, id="an ordinary tool turn"),
        pytest.param(features(), "no-tools", id="no tools"),
        pytest.param(features(json_object=True), "json-object", id="json_object without tools"),
        pytest.param(features("f", json_object=True), None, id="json_object with tools"),
        pytest.param(features("f", tool_choice="none"), "tool-choice-none", id="tool_choice none"),
        pytest.param(features("f", obstacles=("stored", "logprobs")), "stored", id="the first obstacle"),
        pytest.param(
            features(obstacles=("legacy-functions",)), "legacy-functions", id="legacy functions are not no-tools"
        ),
        pytest.param(features(*"abcdefghijklmnopqrst"), None, id="exactly twenty tools"),
        pytest.param(features(*"abcdefghijklmnopqrstu"), "too-many-tools", id="twenty-one tools"),
        pytest.param(features("f", prompt_tokens=1024), None, id="exactly 1024 tokens"),
        pytest.param(features("f", prompt_tokens=1025), "prompt-too-long", id="1025 tokens"),
        pytest.param(features("f", "g", tool_risks=("never", "never")), "tool-never", id="every tool is marked never"),
        pytest.param(features("f", "g", tool_risks=("never", "")), None, id="one of two tools is marked never"),
    ],
)
def test_guards_before_the_engine(seen, reason):
    assert Guards().plan(seen, NOW) == (None if reason is None else Planned(Plan.FORWARD, reason, "guards"))


@pytest.mark.parametrize(
    ("state", "reason"),
    [("ready", None), ("loading", "engine-loading"), ("failed", "engine-off"), ("off", "engine-off")],
)
def test_guards_spare_an_engine_that_is_not_there(state, reason):
    planned = Guards().plan(features("f"), Situation(engine_state=state))
    assert (planned.reason if planned else None) == reason


def test_guards_after_the_engine_name_the_most_decisive_failure_and_leave_the_mendable_one():
    assert Guards().judge(features("f"), NOW, evidence("f", failures=("negated", "ungrounded"))) == Decision(
        Action.FORWARD, "negated", "guards"
    )
    marked = features("f", "g", tool_risks=("never", ""))
    assert Guards().judge(marked, NOW, evidence("f")) == Decision(Action.FORWARD, "tool-never", "guards")
    assert Guards().judge(marked, NOW, evidence("g")) is None
    assert Guards().judge(features("f"), NOW, evidence("f", **MIXED)) is None
    assert Guards().judge(features("f"), NOW, evidence("f")) is None


@pytest.mark.parametrize(
    ("found", "decision"),
    [
        pytest.param(evidence("f", confidence=0.8), (Action.ANSWER, "confident"), id="exactly at"),
        pytest.param(evidence("f", confidence=0.7999), (Action.FORWARD, "below-threshold"), id="just below"),
        pytest.param(evidence("f", confidence=None), (Action.FORWARD, "confidence-unknown"), id="no score"),
        pytest.param(evidence(), (Action.FORWARD, "no-call"), id="no call however sure"),
        pytest.param(evidence("f", failures=("ungrounded",)), (Action.FORWARD, "ungrounded"), id="a failed check"),
        pytest.param(evidence("f", **MIXED), (Action.FORWARD, "intents-uncovered"), id="a wish without a call"),
        pytest.param(evidence("money", confidence=0.97), (Action.FORWARD, "below-threshold"), id="stricter tool"),
        pytest.param(evidence("money", confidence=0.98), (Action.ANSWER, "confident"), id="stricter tool, exactly at"),
        pytest.param(
            evidence("f", "money", confidence=0.9), (Action.FORWARD, "below-threshold"), id="the strictest counts"
        ),
        pytest.param(evidence("f", "delete", confidence=1.0), (Action.FORWARD, "tool-never"), id="never"),
    ],
)
def test_threshold(found, decision):
    policy = Threshold(minimum=0.8, tools={"money": 0.98, "delete": "never"})
    said = policy.judge(features("f"), NOW, found)
    assert (said.action, said.reason) == decision


def test_threshold_does_not_ask_the_engine_when_no_tool_may_be_answered():
    policy = Threshold(tools={"a": "never", "b": "never"})
    assert policy.plan(features("a", "b"), NOW) == Planned(Plan.FORWARD, "tool-never", "threshold")
    assert policy.plan(features("a", "c"), NOW) is None


@pytest.mark.parametrize(
    ("when", "found", "action"),
    [
        pytest.param("mixed", evidence("f", **MIXED), Action.MERGE, id="mixed, a wish left"),
        pytest.param("mixed", evidence("f"), Action.ANSWER, id="mixed, nothing left"),
        pytest.param("always", evidence("f"), Action.MERGE, id="always"),
        pytest.param("always", evidence("f", confidence=0.1), Action.FORWARD, id="a merged call must be confident too"),
        pytest.param("mixed", evidence("f", confidence=0.1, **MIXED), Action.FORWARD, id="mixed and unsure"),
        pytest.param(
            "mixed", evidence("f", failures=("ungrounded", "intents-uncovered")), Action.FORWARD, id="ungrounded"
        ),
        pytest.param("never", evidence("f", **MIXED), Action.FORWARD, id="never"),
    ],
)
def test_merge(when, found, action):
    cascade = build([{"kind": "guards"}, {"kind": "threshold", "minimum": 0.8}], Merge(when=when))
    assert cascade.judge(features("f"), NOW, found).action is action


@pytest.mark.parametrize(
    "seen",
    [
        pytest.param(features("f", parallel=False), id="parallel calls forbidden"),
        pytest.param(features("f", extraction=True), id="extraction"),
        pytest.param(features("f", stream=True), id="streaming switched off"),
    ],
)
def test_some_requests_are_never_merged(seen):
    cascade = build([{"kind": "threshold", "minimum": 0.8}], Merge(when="always", streaming=False))
    assert cascade.judge(seen, NOW, evidence("f")).action is Action.ANSWER


def test_a_cascade_names_who_spoke_and_its_silence_is_safe():
    silent = Cascade([])
    assert silent.plan(features("f"), NOW) == Planned(Plan.TRY_LOCAL, "no-policy", "cascade")
    assert silent.judge(features("f"), NOW, evidence("f")) == Decision(Action.FORWARD, "no-policy", "cascade")
    spoken = build([{"kind": "guards"}, {"kind": "threshold"}])
    assert spoken.judge(features("f"), NOW, evidence("f")).policy == "threshold"


@pytest.mark.parametrize(
    "policy", [Guards(), Threshold(), Threshold(tools={"f": "never"}), Merge(inner=(Threshold(),))]
)
def test_built_in_policies_are_total_deterministic_and_speak_in_known_reasons(policy):
    check_policy(policy)


def test_check_policy_finds_an_unknown_reason():
    class Chatty:
        kind = "chatty"

        def plan(self, seen, situation):
            return None

        def judge(self, seen, situation, found):
            return Decision(Action.FORWARD, "because", self.kind)

    with pytest.raises(AssertionError, match="unknown reason 'because'"):
        check_policy(Chatty())
    check_policy(Chatty(), extra_reasons=frozenset({"because"}))


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({}, "policy[0].kind: missing"),
        ({"kind": "thresold"}, "unknown kind 'thresold', did you mean 'threshold'?"),
        ({"kind": "guards", "max_tool": 3}, "policy[0].max_tool: unknown option of guards, did you mean 'max_tools'?"),
        ({"kind": "guards", "max_tools": 0}, "policy[0].max_tools: 0 is not a whole number of at least 1"),
        ({"kind": "guards", "max_tools": True}, "policy[0].max_tools: True is not"),
        ({"kind": "threshold", "minimum": 1.5}, "policy[0].minimum: 1.5 is not a number from 0 to 1"),
        ({"kind": "threshold", "tools": {"f": "always"}}, "policy[0].tools.f: 'always' is neither"),
        ({"kind": "threshold", "tools": []}, "policy[0].tools: [] is not a table"),
        ({"kind": "guards", "kinds": 1}, "policy[0].kinds: unknown option"),
    ],
)
def test_what_is_wrong_with_a_table_is_told(table, line):
    assert any(line in problem for problem in problems([table]))


def test_all_problems_come_at_once():
    with pytest.raises(PolicyError) as caught:
        build([{"kind": "x"}, {"kind": "guards", "a": 1, "b": 2}])
    assert len(caught.value.problems) == 3


def test_every_reason_is_a_slug_with_a_sentence():
    assert all(slug == slug.lower() and " " not in slug and len(text) > 10 for slug, text in REASONS.items())


def test_the_public_names_are_those_that_are_listed():
    public = {name for name in vars(needle_policies) if not name.startswith("_") and name[0].isupper()}
    assert set(needle_policies.__all__) == public
    assert all(hasattr(needle_policies, name) for name in needle_policies.__all__)
    assert {"guards", "threshold"} <= set(BUILT_IN)


def test_importing_the_policies_alone_loads_only_the_standard_library():
    code = (
        "import sys; before = set(sys.modules); import needle_policies.registry, needle_policies.testing; "
        "loaded = {name.split('.')[0] for name in set(sys.modules) - before}; "
        "print(sorted(loaded - set(sys.stdlib_module_names) - {'needle_policies'}))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "[]"


def test_builders_make_what_they_say():
    assert features("f") == Features(has_tools=True, tool_names=("f",), user_chars=20, prompt_tokens=60)
    assert evidence("f") == Evidence(calls=("f",), confidence=0.9)
    assert evidence("f").verified
    assert not evidence("f", failures=("negated",)).verified
    assert not evidence().verified
