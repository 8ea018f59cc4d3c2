"""Sums, groups, agreement, times and the curve, from records."""

import pytest
from tests.report.support import DAY_S, SAVED, local, reported, shadow, tallied, upstream

from needle_router.report.model import Amount, Group
from needle_router.turn import Usage


def keys(report, dimension):
    return [(row.key, row.requests) for row in report.groups[dimension]]


def test_every_dimension_adds_up_to_the_whole():
    records = [local(), local(tools_called=("g",)), shadow(model="n"), upstream(time_s=2 * DAY_S), upstream(policy="")]
    found = reported(*records)
    for dimension, rows in found.groups.items():
        assert sum(row.requests for row in rows) == found.total.requests == 5, dimension
        assert sum(row.cost.usd for row in rows) == pytest.approx(found.total.cost.usd)


def test_groups_are_told_by_their_key_the_biggest_first():
    found = reported(local(), local(tools_called=("b", "a", "b")), local(), upstream())
    assert keys(found, "tool") == [("f", 2), ("", 1), ("a+b", 1)]
    assert keys(found, "reason") == [("confident", 3), ("no-tools", 1)]
    assert keys(found, "policy") == [("threshold", 4)]


def test_days_stand_in_their_order_in_the_readers_zone():
    found = reported(local(time_s=3 * DAY_S), local(time_s=DAY_S), local(time_s=2 * DAY_S - 0.1), local(time_s=DAY_S))
    assert keys(found, "day") == [("1970-01-02", 3), ("1970-01-04", 1)]


def test_a_group_counts_routes_failures_money_and_comparisons():
    found = reported(
        local(comparison="agree"),
        shadow("name-differs"),
        shadow(failures=("ungrounded",)),
        upstream(tools_called=("f",), status=500, cost_usd=None),
        local(route="merged", saved=None, cost_usd=0.03),
    )
    assert found.groups["tool"] == (
        Group("f", 5, 1, 1, 3, 0, 1, Amount(0.01), Amount(pytest.approx(0.13)), compared=2, agreed=1),
    )


def test_what_a_spent_budget_refused_was_answered_by_nobody():
    found = reported(local(), local(reason="budget-exceeded", status=429, saved=None, saved_usd=None)).total
    assert (found.requests, found.local, found.refused) == (2, 1, 1)


def test_audits_and_races_are_costs_and_what_came_of_each_audit_is_counted():
    wasted = {"raced": True, "wasted": SAVED}
    found = reported(
        local(audit="compared", comparison="agree", audit_usd=0.03),
        local(audit="unread", audit_usd=None),
        local(audit="dropped"),
        local(**wasted, wasted_usd=0.04),
        local(**wasted),
    )
    assert (found.savings.audits, found.savings.races) == (Amount(0.03, 1), Amount(0.04, 1))
    assert found.savings.net_usd == pytest.approx(0.05 - 0.03 - 0.04)
    assert found.agreement.audits == {"compared": 1, "dropped": 1, "unread": 1}


def test_names_beyond_the_limit_are_taken_together():
    found = reported(*(local(model=f"m{number:03}") for number in range(60)), local(model="m000"))
    rows = found.groups["model"]
    assert [row.key for row in rows[:2]] == ["m000", "m001"]
    assert (len(rows), rows[-1].others, rows[-1].requests) == (51, 10, 10)


def test_only_the_period_counts_its_begin_included_and_its_end_not():
    records = [local(time_s=moment) for moment in (9.9, 10.0, 19.9, 20.0)]
    assert reported(*records, since_s=10.0, until_s=20.0).total.requests == 2


def test_what_was_passed_on_unread_is_counted_apart():
    assert reported(upstream(reason="not-chat"), upstream()).unread == 1


def test_what_races_wasted_is_taken_off_the_savings():
    wasted = Usage(50, 0, estimated=True)
    found = reported(
        local(saved=Usage(10, 10), saved_usd=1.0, raced=True, wasted=wasted, wasted_usd=0.25),
        local(saved=Usage(10, 10), saved_usd=1.0, raced=True, wasted=wasted),
        local(saved=Usage(10, 10), saved_usd=1.0),
    ).savings
    assert (found.races.usd, found.races.unknown, found.net_usd) == (0.25, 1, 2.75)


def test_what_audits_cost_is_taken_off_the_savings():
    found = reported(
        local(saved=Usage(10, 10), saved_usd=1.0, audit="compared", comparison="agree", audit_usd=0.25),
        local(saved=Usage(10, 10), saved_usd=1.0, audit="timeout"),
        local(saved=Usage(10, 10), saved_usd=1.0, audit="dropped"),
    ).savings
    assert (found.audits.usd, found.audits.unknown, found.net_usd) == (0.25, 1, 2.75)


def test_percentiles_are_times_that_were_measured():
    found = reported(*(local(engine_s=float(number)) for number in range(1, 101))).latency["engine"]
    assert (found.n, found.p50_s, found.p90_s, found.p95_s, found.p99_s, found.max_s) == (100, 50, 90, 95, 99, 100)


def test_one_time_is_every_percentile_and_none_is_no_row():
    found = reported(upstream(total_s=2.0)).latency
    assert set(found) == {"overhead", "upstream"}
    assert (found["upstream"].p50_s, found["upstream"].max_s) == (2.0, 2.0)


def test_the_first_failure_of_each_engine_run_is_counted():
    found = reported(local(), shadow(failures=("negated", "ungrounded")), upstream(failures=("not-run",)))
    assert (found.engine_runs, found.failures) == (2, {"negated": 1})


def test_agreement_is_of_decisions_that_passed_every_check():
    found = reported(
        shadow(),
        shadow("arguments-differ"),
        shadow("agree", failures=("ungrounded",)),
        shadow("agree", uncovered=True),
        shadow("local-missed", tools_called=()),
        local(comparison="agree"),
        shadow(tools_called=("g",)),
    ).agreement
    assert (found.shadow.count, found.shadow.n) == (2, 3)
    assert (found.audit.count, found.audit.n) == (1, 1)
    assert {name: (row.count, row.n) for name, row in found.tools.items()} == {"f": (2, 3), "g": (1, 1)}
    assert found.kinds == {"agree": (3, 2), "arguments-differ": (1, 0), "local-missed": (0, 1)}
    assert found.compared == 7


def test_an_agreement_has_its_exact_interval():
    found = reported(*[shadow()] * 59).agreement.shadow
    assert (found.share, found.low, found.high) == (1.0, pytest.approx(0.025 ** (1 / 59)), 1.0)


def test_nothing_compared_may_be_anything():
    found = reported(local()).agreement.shadow
    assert (found.n, found.share, found.low, found.high) == (0, 0.0, 0.0, 1.0)


def test_the_curve_is_of_shadow_comparisons_and_says_what_they_cost_upstream():
    found = reported(
        shadow(confidence=0.96),
        shadow("name-differs", confidence=0.9, cost_usd=None),
        shadow(confidence=0.99, failures=("negated",)),
        local(comparison="name-differs", confidence=1.0),
    ).curve
    assert (found.source, found.decided) == ("shadow", 3)
    assert [(point.threshold, point.n, point.errors) for point in found.points] == [(0.96, 1, 0), (0.9, 2, 1)]
    cuts = {cut.threshold: cut for cut in found.cuts}
    assert list(cuts) == [0.95, 0.9, 0.85, 0.8, 0.7, 0.6, 0.5, 0.0]
    assert (cuts[0.95].wrong.n, cuts[0.95].coverage, cuts[0.95].cost) == (1, pytest.approx(1 / 3), Amount(0.05))
    assert (cuts[0.9].wrong.count, cuts[0.9].wrong.n, cuts[0.9].cost) == (1, 2, Amount(0.05, 1))


def test_without_shadow_comparisons_the_curve_is_of_audits():
    assert reported(local(comparison="agree")).curve.source == "audit"
    assert reported(local()).curve.source == ""


def test_alike_records_share_a_cell():
    assert len(tallied(*(local(time_s=float(number), confidence=number / 500) for number in range(500))).cells()) == 1


def test_an_answer_that_was_cut_has_an_unknown_cost_and_an_error_none():
    cut = {"usage": None, "cost_usd": None}
    found = reported(upstream(error="cut", **cut), upstream(status=503, **cut), upstream())
    assert found.total.cost == Amount(0.02, 1)
