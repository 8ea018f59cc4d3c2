"""Certified scores in the threshold policy: which score holds, and what happens where none does."""

import pytest

from needle_policies import Action, Plan, Planned, Situation
from needle_policies.certified import Certificates, Missing, Scores
from needle_policies.merge import Merge
from needle_policies.registry import PolicyError, build, problems
from needle_policies.testing import check_policy, evidence, features
from needle_policies.threshold import Threshold

NOW = Situation()
PER_TOOL = Certificates({"ab": Scores({"f": 0.6, "g": 0.9, "f+g": 0.8}), "cd": Scores({"h": 0.5})})
TOGETHER = Certificates({"ab": Scores({}, 0.7)})


@pytest.mark.parametrize(
    ("certificates", "fingerprint", "calls", "score"),
    [
        pytest.param(PER_TOOL, "ab", ("f",), 0.6, id="a tool's own"),
        pytest.param(PER_TOOL, "ab", ("f", "f"), 0.6, id="called twice"),
        pytest.param(PER_TOOL, "ab", ("g", "f"), 0.8, id="two tools together, in any order"),
        pytest.param(PER_TOOL, "ab", ("h",), Missing.NONE, id="refused here, although certified elsewhere"),
        pytest.param(PER_TOOL, "ab", ("f", "h"), Missing.NONE, id="a set that was never certified"),
        pytest.param(PER_TOOL, "ef", ("f",), Missing.VOID, id="other circumstances"),
        pytest.param(PER_TOOL, "", ("f",), Missing.VOID, id="no fingerprint"),
        pytest.param(PER_TOOL, "ef", ("x",), Missing.NONE, id="certified nowhere"),
        pytest.param(TOGETHER, "ab", ("x",), 0.7, id="all tools together"),
        pytest.param(TOGETHER, "ef", ("x",), Missing.VOID, id="all tools together, other circumstances"),
    ],
)
def test_the_score_of_a_request(certificates, fingerprint, calls, score):
    assert certificates.score(fingerprint, calls) == score


def judged(found, *, fingerprint="ab", **options):
    seen = features("f", "g", "h", "keep", fingerprint=fingerprint)
    said = Threshold(**{"certified": PER_TOOL, **options}).judge(seen, NOW, found)
    return said.action, said.reason


@pytest.mark.parametrize(
    ("found", "options", "said"),
    [
        pytest.param(evidence("f", confidence=0.6), {}, (Action.ANSWER, "confident"), id="below minimum, certified"),
        pytest.param(evidence("f", confidence=0.599), {}, (Action.FORWARD, "below-threshold"), id="just below"),
        pytest.param(evidence("g", confidence=0.89), {}, (Action.FORWARD, "below-threshold"), id="above minimum too"),
        pytest.param(
            evidence("f", confidence=0.7),
            {"tools": {"f": 0.8}},
            (Action.FORWARD, "below-threshold"),
            id="own is higher",
        ),
        pytest.param(
            evidence("f", confidence=0.6), {"tools": {"f": 0.2}}, (Action.ANSWER, "confident"), id="own is lower"
        ),
        pytest.param(
            evidence("f", confidence=0.59), {"tools": {"f": 0.2}}, (Action.FORWARD, "below-threshold"), id="own too low"
        ),
        pytest.param(evidence("keep", confidence=1.0), {"tools": {"keep": "never"}}, (Action.FORWARD, "tool-never")),
        pytest.param(evidence("h", confidence=1.0), {}, (Action.SHADOW, "uncertified"), id="none, compared"),
        pytest.param(evidence("h", confidence=1.0), {"void": "forward"}, (Action.FORWARD, "uncertified"), id="forward"),
        pytest.param(evidence("h"), {"uncertified": "minimum"}, (Action.ANSWER, "confident"), id="by the minimum"),
        pytest.param(
            evidence("h", confidence=0.84),
            {"uncertified": "minimum"},
            (Action.FORWARD, "below-threshold"),
            id="below the minimum",
        ),
        pytest.param(evidence("f", confidence=None), {}, (Action.FORWARD, "confidence-unknown"), id="no score"),
        pytest.param(evidence("f", failures=("negated",)), {}, (Action.FORWARD, "negated"), id="a failed check"),
        pytest.param(evidence("f", uncovered=True), {}, (Action.SHADOW, "uncertified"), id="a wish without a call"),
    ],
)
def test_what_holds_where_certificates_are_in_force(found, options, said):
    assert judged(found, **options) == said


@pytest.mark.parametrize("uncertified", ["never", "minimum"])
def test_a_void_certificate_is_never_replaced_by_the_minimum(uncertified):
    found = evidence("f", confidence=1.0)
    assert judged(found, fingerprint="ef", uncertified=uncertified) == (Action.SHADOW, "certificate-void")
    assert judged(found, fingerprint="ef", void="forward") == (Action.FORWARD, "certificate-void")


@pytest.mark.parametrize(
    ("offered", "fingerprint", "options", "plan"),
    [
        pytest.param(("f", "x"), "ab", {}, None, id="one could be answered"),
        pytest.param(("h", "x"), "ab", {}, (Plan.SHADOW, "uncertified"), id="none could"),
        pytest.param(("h", "x"), "ab", {"uncertified": "minimum"}, None, id="by the minimum they could"),
        pytest.param(("f", "x"), "ef", {}, (Plan.SHADOW, "certificate-void"), id="void"),
        pytest.param(("f", "x"), "ef", {"void": "forward"}, (Plan.FORWARD, "certificate-void"), id="void, forward"),
        pytest.param(("x",), "ef", {}, (Plan.SHADOW, "uncertified"), id="certified nowhere"),
        pytest.param(("f", "g"), "ab", {"tools": {"f": "never"}}, None, id="one is kept upstream"),
        pytest.param(("f",), "ab", {"tools": {"f": "never"}}, (Plan.FORWARD, "tool-never"), id="all are"),
        pytest.param(("f", "x"), "ab", {"tools": {"f": "never"}}, (Plan.SHADOW, "uncertified"), id="the rest has none"),
    ],
)
def test_the_engine_is_not_waited_for_where_no_call_could_be_answered(offered, fingerprint, options, plan):
    policy = Threshold(**{"certified": PER_TOOL, **options})
    said = policy.plan(features(*offered, fingerprint=fingerprint), NOW)
    assert said == (None if plan is None else Planned(*plan, "threshold"))


def test_a_set_of_tools_that_is_certified_together_only_is_not_hopeless():
    certificates = Certificates({"ab": Scores({"f+g": 0.8})})
    assert certificates.hopeless("ab", ("f", "g", "h")) is None
    assert certificates.hopeless("ab", ("f", "h")) is Missing.NONE


def test_a_merged_call_is_uncertified_too():
    cascade = build([{"kind": "threshold", "certificates": "c.json"}], Merge(), {"c.json": TOGETHER})
    mixed = evidence("f", confidence=1.0, failures=("intents-uncovered",), uncovered=True)
    said = cascade.judge(features("f", fingerprint="ab"), NOW, mixed)
    assert (said.action, said.reason) == (Action.SHADOW, "uncertified")


def test_a_spent_budget_does_not_lower_what_is_certified():
    tables = [{"kind": "budget", "daily_usd": 1, "minimum": 0.1}, {"kind": "threshold", "certificates": "c.json"}]
    cascade = build(tables, None, {"c.json": TOGETHER})
    spent = Situation(usd_today=2.0)
    assert cascade.judge(features("f", fingerprint="ab"), spent, evidence("f", confidence=0.6)).action is Action.FORWARD


def test_a_file_that_was_not_read_cannot_be_in_force():
    with pytest.raises(PolicyError, match=r"policy\[0\].certificates: c.json has not been read"):
        build([{"kind": "threshold", "certificates": "c.json"}])
    assert build([{"kind": "threshold"}]).policies == (Threshold(),)


def test_every_policy_is_found_also_inside_others():
    tables = [{"kind": "guards"}, {"kind": "budget", "daily_usd": 1}, {"kind": "threshold", "certificates": "c.json"}]
    found = list(build(tables, Merge(), {"c.json": TOGETHER}).every())
    assert [policy.kind for policy in found] == ["guards", "merge", "budget", "threshold", "threshold"]
    assert [getattr(policy, "wants_fingerprint", False) for policy in found] == [False, False, False, True, True]
    assert not Threshold().wants_fingerprint


@pytest.mark.parametrize(
    ("option", "line"),
    [
        ({"certificates": 3}, "policy[0].certificates: 3 is not a text"),
        ({"uncertified": "always"}, "policy[0].uncertified: 'always' is none of 'never', 'minimum'"),
        ({"certified": {}}, "policy[0].certified: unknown option of threshold"),
    ],
)
def test_what_is_wrong_with_an_option_is_told(option, line):
    assert any(line in problem for problem in problems([{"kind": "threshold", **option}]))


@pytest.mark.parametrize("options", [{}, {"uncertified": "minimum"}, {"void": "forward"}])
def test_it_is_total_deterministic_and_speaks_in_known_reasons(options):
    check_policy(Threshold(certified=PER_TOOL, **options))
