"""Side effects, shadow, canary, adaptive gate and budget, at their exact boundaries."""

import pytest

from needle_policies import Action, Decision, Plan, Planned, Situation, Standing
from needle_policies.adaptive import Adaptive
from needle_policies.audit import Audit
from needle_policies.budget import Budget
from needle_policies.canary import Canary
from needle_policies.cascade import Cascade
from needle_policies.lots import lot
from needle_policies.merge import Merge
from needle_policies.patterns import matches
from needle_policies.race import Race
from needle_policies.registry import build, problems
from needle_policies.shadow import Shadow
from needle_policies.sideeffects import SideEffects
from needle_policies.testing import check_policy, evidence, features
from needle_policies.threshold import Threshold

NOW = Situation()
SPENT = Situation(usd_today=5.0, usd_month=5.0)


@pytest.mark.parametrize(
    ("name", "patterns", "fits"),
    [
        pytest.param("get_weather", ("get_*",), True, id="glob"),
        pytest.param("forget_me", ("get_*",), False, id="a glob fits the whole name"),
        pytest.param("getWeather", ("get[A-Z]*",), True, id="camel case"),
        pytest.param("gettext", ("get[A-Z]*",), False, id="case counts"),
        pytest.param("my_payment", ("get_*", "*_payment"), True, id="any of several"),
        pytest.param("user_list", ("/_(list|get)$/",), True, id="regular expression"),
        pytest.param("user_listing", ("/_(list|get)$/",), False, id="its anchors hold"),
        pytest.param("f", (), False, id="none"),
    ],
)
def test_patterns(name, patterns, fits):
    assert matches(name, patterns) is fits


@pytest.mark.parametrize(
    ("called", "marked", "confidence", "reason"),
    [
        pytest.param(("get_weather",), "", 0.8, None, id="reading, exactly at"),
        pytest.param(("get_weather",), "", 0.7999, "below-risk", id="reading, just below"),
        pytest.param(("set_light",), "", 0.95, None, id="writing, exactly at"),
        pytest.param(("set_light",), "", 0.9499, "below-risk", id="writing, just below"),
        pytest.param(("delete_file",), "", 1.0, "risk-never", id="never, however sure"),
        pytest.param(("make_payment",), "", 1.0, "risk-never", id="never by its end"),
        pytest.param(("get_and_clear",), "", 0.9, "below-risk", id="the strictest pattern counts"),
        pytest.param(("get_weather",), "", None, "confidence-unknown", id="no score"),
        pytest.param(("report",), "read", 0.8, None, id="a mark decides where no pattern fits"),
        pytest.param(("report",), "", 0.8, "below-risk", id="without a mark it writes"),
        pytest.param(("delete_file",), "read", 1.0, "risk-never", id="a mark cannot loosen"),
        pytest.param(("get_weather",), "never", 1.0, "risk-never", id="a mark can tighten"),
    ],
)
def test_side_effects(called, marked, confidence, reason):
    seen = features(*called, "other", tool_risks=(marked, ""))
    said = SideEffects().judge(seen, NOW, evidence(*called, confidence=confidence))
    assert said == (None if reason is None else Decision(Action.FORWARD, reason, "side-effects"))


def test_the_riskiest_of_several_calls_counts():
    seen = features("get_weather", "set_light")
    assert SideEffects().judge(seen, NOW, evidence("get_weather", "set_light", confidence=0.9)).reason == "below-risk"


def test_side_effects_do_not_ask_the_engine_when_nothing_may_be_answered():
    policy = SideEffects()
    assert policy.plan(features("delete_a", "pay_b"), NOW) == Planned(Plan.FORWARD, "risk-never", "side-effects")
    assert policy.plan(features("delete_a", "get_b"), NOW) is None
    assert policy.plan(features("delete_a", extraction=True), NOW) is None
    assert policy.judge(features("delete_a", extraction=True), NOW, evidence("delete_a")) is None


def test_what_side_effects_pass_is_left_to_the_threshold_and_their_refusal_is_not_merged():
    cascade = build([{"kind": "side-effects"}, {"kind": "threshold", "minimum": 0.9}], Merge(when="always"))
    assert cascade.judge(features("get_a"), NOW, evidence("get_a", confidence=0.85)).reason == "below-threshold"
    assert cascade.judge(features("get_a"), NOW, evidence("get_a", confidence=0.9)).action is Action.MERGE
    assert cascade.judge(features("set_a"), NOW, evidence("set_a", confidence=0.92)).action is Action.FORWARD


def test_lots_are_stable_even_and_independent_of_each_other():
    names = [f"conversation {number}" for number in range(10_000)]
    drawn = [lot("canary", name) for name in names]
    assert lot("canary", "conversation 0") == drawn[0]
    assert all(0 <= value < 1 for value in drawn)
    assert abs(sum(value < 0.2 for value in drawn) / 10_000 - 0.2) < 0.01
    both = sum(lot("shadow", name) < 0.2 for name, value in zip(names, drawn, strict=True) if value < 0.2)
    assert abs(both / 10_000 - 0.04) < 0.01


def conversation_with_lot(purpose, low, high):
    """The first conversation whose lot lies between the two."""
    return next(name for name in map(str, range(10_000)) if low <= lot(purpose, name) < high)


def test_shadow_takes_every_turn_unless_told_otherwise():
    assert Shadow().plan(features("f"), NOW) == Planned(Plan.SHADOW, "shadow-policy", "shadow")
    assert Shadow(share=0.0).plan(features("f"), NOW) is None


def test_a_share_in_shadow_is_the_same_for_the_whole_conversation():
    inside = features("f", conversation=conversation_with_lot("shadow", 0.0, 0.3))
    outside = features("f", conversation=conversation_with_lot("shadow", 0.3, 1.0))
    policy = Shadow(share=0.3)
    assert policy.plan(inside, NOW).plan is Plan.SHADOW
    assert policy.plan(outside, NOW) is None
    assert policy.judge(outside, NOW, evidence("f")) is None


def test_a_tool_in_shadow_is_known_by_its_call_when_others_are_on_offer():
    policy = Shadow(tools=("set_*",))
    assert policy.plan(features("set_a", "set_b"), NOW).plan is Plan.SHADOW
    assert policy.plan(features("set_a", "get_b"), NOW) is None
    assert policy.judge(features("set_a", "get_b"), NOW, evidence("set_a")).action is Action.SHADOW
    assert policy.judge(features("set_a", "get_b"), NOW, evidence("get_b")) is None


@pytest.mark.parametrize(
    ("rest", "plan", "action"),
    [("shadow", Plan.SHADOW, Action.SHADOW), ("forward", Plan.FORWARD, Action.FORWARD)],
)
def test_outside_the_canary_the_rest_happens(rest, plan, action):
    policy = Canary(share=0.5, tools={"f": 0.8}, rest=rest)
    outside = features("f", conversation=conversation_with_lot("canary", 0.8, 1.0))
    between = features("f", "g", conversation=conversation_with_lot("canary", 0.5, 0.8))
    assert policy.plan(outside, NOW) == Planned(plan, "canary-rest", "canary")
    assert policy.plan(between, NOW) is None
    assert policy.judge(between, NOW, evidence("f")) is None
    assert policy.judge(between, NOW, evidence("f", "g")) == Decision(action, "canary-rest", "canary")


def standings(**levels):
    """Levels by tool; None for an alarm."""
    return Situation(standings={name: Standing(level or 0, alarm=level is None) for name, level in levels.items()})


@pytest.mark.parametrize(
    ("situation", "share"),
    [
        pytest.param(NOW, 0.1, id="nothing known yet"),
        pytest.param(standings(f=0), 0.1, id="the first step"),
        pytest.param(standings(f=1), 0.3, id="promoted once"),
        pytest.param(standings(f=2), 0.9, id="the last step"),
        pytest.param(standings(f=7), 0.9, id="no step after the last"),
        pytest.param(standings(f=None), 0.0, id="an alarm"),
        pytest.param(standings(g=None), 0.1, id="another tool's alarm"),
    ],
)
def test_a_tool_has_the_share_of_its_step(situation, share):
    policy = Canary(steps=(0.1, 0.3, 0.9), max_error=0.05)
    assert policy.share_of("f", situation) == share
    inside = features("f", conversation=conversation_with_lot("canary", max(0.0, share - 0.05), share or 0.05))
    outside = features("f", conversation=conversation_with_lot("canary", share, share + 0.05))
    assert (policy.plan(inside, situation) is None) == (share > 0)
    assert policy.plan(outside, situation).plan is Plan.SHADOW
    assert (policy.judge(inside, situation, evidence("f")) is None) == (share > 0)


def test_a_share_of_its_own_is_no_matter_of_steps_but_an_alarm_takes_it_too():
    policy = Canary(steps=(0.1, 0.9), max_error=0.05, tools={"f": 0.5})
    assert policy.share_of("f", standings(f=1)) == 0.5
    assert policy.share_of("f", standings(f=None)) == 0.0


def test_a_tool_in_alarm_is_watched_and_the_others_go_on():
    policy = Canary(share=1.0, max_error=0.05)
    seen, alarm = features("f", "g", conversation="x"), standings(f=None)
    assert policy.plan(seen, alarm) is None
    assert policy.judge(seen, alarm, evidence("g")) is None
    assert policy.judge(seen, alarm, evidence("f")) == Decision(Action.SHADOW, "alarm", "canary")
    assert policy.judge(seen, alarm, evidence("f", "g")) == Decision(Action.SHADOW, "alarm", "canary")
    assert policy.plan(features("f", conversation="x"), alarm) == Planned(Plan.SHADOW, "alarm", "canary")
    forwards = Canary(share=1.0, max_error=0.05, rest="forward")
    assert forwards.plan(features("f", conversation="x"), alarm) == Planned(Plan.FORWARD, "alarm", "canary")


def test_what_is_only_watched_is_judged_as_if_it_were_not():
    as_if = Situation(hypothetical=True, standings={"f": Standing(alarm=True)})
    for policy in (Canary(share=0.0, max_error=0.05), Shadow()):
        assert policy.judge(features("f", conversation="x"), as_if, evidence("f")) is None


def test_a_canary_lets_its_share_of_ten_thousand_conversations_in_and_each_stays_on_its_side():
    names = [f"{number:016x}" for number in range(10_000)]

    def inside(share):
        policy = Canary(share=share)
        return {name for name in names if policy.plan(features("f", conversation=name), NOW) is None}

    for share in (0.05, 0.1, 0.5):
        assert abs(len(inside(share)) / 10_000 - share) < 0.01
        assert inside(share) == inside(share)
    assert inside(0.05) < inside(0.1) < inside(0.5)


def test_all_and_none_are_shares_too():
    seen = features("f", conversation="x")
    assert Canary(share=1.0).plan(seen, NOW) is None
    assert Canary(share=0.0).plan(seen, NOW).plan is Plan.SHADOW


@pytest.mark.parametrize(
    ("acceptance", "attempts", "shut"),
    [
        pytest.param(0.0, 50, True, id="enough attempts, none used"),
        pytest.param(0.0, 49, False, id="one attempt too few"),
        pytest.param(0.049, 50, True, id="just below"),
        pytest.param(0.05, 50, False, id="exactly at"),
        pytest.param(None, 0, False, id="nothing known"),
    ],
)
def test_the_adaptive_gate(acceptance, attempts, shut):
    seen = features("f", conversation=conversation_with_lot("adaptive", 0.05, 1.0))
    said = Adaptive().plan(seen, Situation(acceptance=acceptance, attempts=attempts))
    assert said == (Planned(Plan.FORWARD, "gate-shut", "adaptive") if shut else None)


def test_a_shut_gate_lets_probes_through():
    seen = features("f", conversation=conversation_with_lot("adaptive", 0.0, 0.05))
    assert Adaptive().plan(seen, Situation(acceptance=0.0, attempts=500)) is None


@pytest.mark.parametrize(
    ("tables", "planned"),
    [
        pytest.param([{"kind": "race"}], Planned(Plan.RACE, "race-lost", "race"), id="nobody objects"),
        pytest.param(
            [{"kind": "race"}, {"kind": "threshold", "tools": {"f": "never"}}],
            Planned(Plan.FORWARD, "tool-never", "threshold"),
            id="a later policy forwards",
        ),
        pytest.param(
            [{"kind": "race"}, {"kind": "shadow"}], Planned(Plan.SHADOW, "shadow-policy", "shadow"), id="in shadow"
        ),
        pytest.param(
            [{"kind": "shadow"}, {"kind": "race"}], Planned(Plan.SHADOW, "shadow-policy", "shadow"), id="spoken before"
        ),
        pytest.param(
            [{"kind": "race", "share": 0.0}], Planned(Plan.TRY_LOCAL, "no-policy", "cascade"), id="outside the share"
        ),
    ],
)
@pytest.mark.parametrize("merge", [None, Merge()], ids=["no merging", "merging"])
def test_a_race_is_planned_where_no_later_policy_has_a_plan(tables, planned, merge):
    assert build([{"kind": "guards"}, *tables], merge).plan(features("f"), NOW) == planned


def lots(kind, names):
    return {name: lot(kind, name) for name in names}


@pytest.mark.parametrize(
    ("options", "calls", "drawn"),
    [
        pytest.param({"share": 1.0}, ("f",), True, id="all"),
        pytest.param({"share": 0.0}, ("f",), False, id="none"),
        pytest.param({"share": 0.0, "tools": {"f": 1.0}}, ("f",), True, id="a tool of its own"),
        pytest.param({"share": 1.0, "tools": {"f": 0.0}}, ("f",), False, id="a tool left out"),
        pytest.param({"share": 0.0, "tools": {"g": 1.0}}, ("f", "g"), True, id="the largest share of the calls"),
        pytest.param({"share": 1.0}, (), False, id="no call"),
    ],
)
def test_which_answers_an_audit_draws(options, calls, drawn):
    cascade = build([{"kind": "guards"}, {"kind": "audit", **options}, {"kind": "threshold"}], Merge())
    found = cascade.audit_of(features("f", "g", turn="9f86d081884c7d65"), NOW, evidence(*calls))
    assert (found is not None) is drawn


def test_an_audit_draws_turns_and_a_repeated_one_again():
    turns = [f"turn {number}" for number in range(10_000)]
    drawn = {turn for turn in turns if Audit(share=0.05).draws(features("f", turn=turn), evidence("f"))}
    assert drawn == {turn for turn, value in lots("audit", turns).items() if value < 0.05}
    # The exact share would be 500; four standard deviations are 87.
    assert 413 <= len(drawn) <= 587


def test_nothing_is_audited_once_a_budget_is_spent():
    for then in ("lower", "refuse"):
        cascade = build([{"kind": "audit", "share": 1.0}, {"kind": "budget", "daily_usd": 5.0, "then": then}])
        assert cascade.audit_of(features("f"), SPENT, evidence("f")) is None
        assert cascade.audit_of(features("f"), NOW, evidence("f")) is not None


def test_a_race_s_share_is_of_conversations():
    inside = features("f", conversation=conversation_with_lot("race", 0.0, 0.3))
    outside = features("f", conversation=conversation_with_lot("race", 0.3, 1.0))
    assert Race(share=0.3).plan(inside, NOW).plan is Plan.RACE
    assert Race(share=0.3).plan(outside, NOW) is None
    assert Race(share=0.3).judge(inside, NOW, evidence("f")) is None


@pytest.mark.parametrize(
    ("situation", "spent"),
    [
        pytest.param(Situation(usd_today=2.0, usd_month=2.0), True, id="the day's cap exactly"),
        pytest.param(Situation(usd_today=1.99, usd_month=9.99), False, id="just below both"),
        pytest.param(Situation(usd_today=0.0, usd_month=10.0), True, id="the month's cap"),
        pytest.param(Situation(), False, id="unknown spend"),
        pytest.param(Situation(mode="shadow", usd_today=9.0), False, id="mode shadow changes nothing"),
    ],
)
def test_when_the_budget_is_spent(situation, spent):
    assert Budget(daily_usd=2.0, monthly_usd=10.0).spent(situation) is spent


@pytest.mark.parametrize(
    ("situation", "found", "action", "reason"),
    [
        pytest.param(SPENT, evidence("f", confidence=0.6), Action.ANSWER, "budget-lowered", id="at the lowered"),
        pytest.param(SPENT, evidence("f", confidence=0.599), Action.FORWARD, "below-threshold", id="below it"),
        pytest.param(SPENT, evidence("f", confidence=0.9), Action.ANSWER, "confident", id="needed no lowering"),
        pytest.param(NOW, evidence("f", confidence=0.7), Action.FORWARD, "below-threshold", id="money left"),
        pytest.param(SPENT, evidence("money", confidence=0.9), Action.FORWARD, "below-threshold", id="a tool's own"),
        pytest.param(SPENT, evidence("keep", confidence=1.0), Action.FORWARD, "tool-never", id="a tool kept upstream"),
        pytest.param(SPENT, evidence("f", failures=("negated",)), Action.FORWARD, "negated", id="a failed check"),
        pytest.param(SPENT, evidence("delete_f", confidence=0.99), Action.FORWARD, "risk-never", id="side effects"),
    ],
)
def test_a_spent_budget_lowers_the_general_minimum_alone(situation, found, action, reason):
    tables = [
        {"kind": "budget", "daily_usd": 5.0, "minimum": 0.6},
        {"kind": "side-effects", "write_minimum": 0.0},
        {"kind": "threshold", "minimum": 0.85, "tools": {"money": 0.98, "keep": "never"}},
    ]
    tables[1]["never"] = ["delete_*"]
    said = build(tables).judge(features("f"), situation, found)
    assert (said.action, said.reason) == (action, reason)


@pytest.mark.parametrize(
    ("action", "left"),
    [
        (Action.ANSWER, Action.ANSWER),
        (Action.FORWARD, Action.REFUSE),
        (Action.MERGE, Action.REFUSE),
        (Action.SHADOW, Action.REFUSE),
    ],
)
def test_a_budget_that_refuses_has_the_last_word_on_whatever_costs(action, left):
    cascade = build([{"kind": "guards"}, {"kind": "budget", "daily_usd": 5, "then": "refuse"}], Merge())
    decided = Decision(action, "confident", "threshold")
    assert cascade.last_word(decided, SPENT).action is left
    assert cascade.last_word(decided, NOW) == decided


def test_without_a_budget_nobody_has_a_last_word():
    decided = Decision(Action.FORWARD, "no-tools", "guards")
    assert Cascade([]).last_word(decided, SPENT) == decided
    assert build([{"kind": "budget", "daily_usd": 5}]).last_word(decided, SPENT) == decided


@pytest.mark.parametrize(
    "policy",
    [
        SideEffects(),
        Shadow(),
        Shadow(share=0.5, tools=("f",)),
        Canary(share=0.5),
        Canary(rest="forward"),
        Canary(steps=(0.1, 0.9), max_error=0.05),
        Adaptive(),
        Budget(daily_usd=1.0, inner=(Threshold(),)),
        Budget(monthly_usd=1.0, then="refuse"),
        Race(),
        Race(share=0.5, inner=(Shadow(share=0.5), Threshold())),
        Audit(share=1.0),
    ],
)
def test_each_kind_is_total_deterministic_and_speaks_in_known_reasons(policy):
    check_policy(policy)


@pytest.mark.parametrize(
    ("table", "line"),
    [
        ({"kind": "side-effects", "read": "get_*"}, "policy[0].read: 'get_*' is not a list of patterns"),
        ({"kind": "side-effects", "never": ["/(/"]}, "policy[0].never: '/(/' is no regular expression"),
        (
            {"kind": "side-effects", "reads": []},
            "policy[0].reads: unknown option of side-effects, did you mean 'read'?",
        ),
        ({"kind": "shadows"}, "unknown kind 'shadows', did you mean 'shadow'?"),
        ({"kind": "canary", "share": 10}, "policy[0].share: 10 is not a number from 0 to 1"),
        ({"kind": "canary", "tools": {"f": "never"}}, "policy[0].tools.f: 'never' is not a number from 0 to 1"),
        ({"kind": "canary", "rest": "drop"}, "policy[0].rest: 'drop' is none of 'shadow', 'forward'"),
        ({"kind": "canary", "steps": 0.5}, "policy[0].steps: 0.5 is not a list of numbers from 0 to 1"),
        ({"kind": "canary", "steps": [0.1, 2]}, "policy[0].steps[1]: 2 is not a number from 0 to 1"),
        ({"kind": "canary", "steps": [0.3, 0.3], "max_error": 0.1}, "policy[0].steps: [0.3, 0.3] must rise"),
        ({"kind": "canary", "steps": [0.3]}, "policy[0].steps: need max_error"),
        ({"kind": "canary", "max_error": 1}, "policy[0].max_error: 1 must be below 1"),
        ({"kind": "canary", "delta": 0}, "policy[0].delta: 0 must be above 0 and below 1"),
        ({"kind": "canary", "window": 0}, "policy[0].window: 0 is not a whole number"),
        ({"kind": "budget", "daily_usd": -1}, "policy[0].daily_usd: -1 is not an amount of at least 0"),
        ({"kind": "budget", "then": 3}, "policy[0].then: 3 is none of"),
        ({"kind": "adaptive", "attempts": 0}, "policy[0].attempts: 0 is not a whole number"),
    ],
)
def test_what_is_wrong_with_an_option_is_told(table, line):
    assert any(line in problem for problem in problems([table])), problems([table])


def test_only_one_canary_can_be_tested():
    tested = {"kind": "canary", "max_error": 0.1}
    assert problems([tested, {"kind": "canary"}]) == []
    assert problems([{"kind": "guards"}, tested, tested]) == [
        "policy[2].max_error: policy[1] has one, and only one can"
    ]


def test_lists_of_a_configuration_become_patterns():
    cascade = build([{"kind": "side-effects", "never": ["x"]}])
    assert cascade.policies == (SideEffects(never=("x",)),)
