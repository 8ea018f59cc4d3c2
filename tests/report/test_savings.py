"""The balance: what was avoided less audits, races and wrong answers, and how far it may be off."""

import pytest
from tests.report.support import local, reported, shadow, upstream

from needle_router.calibrate.binomial import interval
from needle_router.calibrate.finite import wrong_among
from needle_router.report.model import Amount
from needle_router.report.savings import Audited, savings


def balance(*tools, **changes):
    values = {
        "avoided": Amount(10.0),
        "audits": Amount(1.0),
        "races": Amount(0.5),
        "tools": {str(name): tool for name, tool in enumerate(tools or (Audited(1000, 100, 2),))},
        "penalty_usd": 0.01,
        "delta": 0.05,
    }
    return savings(**{**values, **changes})


def test_the_known_balance_takes_off_audits_races_and_what_was_found_wrong():
    assert balance().net_usd == pytest.approx(10.0 - 1.0 - 0.5 - 2 * 0.01)


def test_the_estimate_charges_the_unaudited_at_the_audited_rate():
    assert balance().estimate_usd == pytest.approx(8.5 - 0.01 * (2 + 900 * 0.02))


def test_the_interval_takes_the_fewest_and_the_most_that_can_be_wrong():
    found = balance()
    assert (found.wrong.low, found.wrong.high) == pytest.approx((0.0024311, 0.0703839), abs=1e-6)
    assert wrong_among(1000, 100, 2, 0.05) == (3, 67)
    assert found.low_usd == pytest.approx(8.5 - 0.01 * 67)
    assert found.high_usd == pytest.approx(8.5 - 0.01 * 3)


def test_without_audits_anything_may_be_wrong_and_nothing_is_estimated():
    found = balance(Audited(1000))
    assert (found.net_usd, found.estimate_usd) == (8.5, None)
    assert (found.low_usd, found.high_usd) == pytest.approx((8.5 - 10.0, 8.5))


def test_when_all_was_audited_nothing_is_uncertain():
    found = balance(Audited(100, 100, 2))
    assert found.net_usd == found.estimate_usd == found.low_usd == found.high_usd


def test_the_balance_can_be_a_loss():
    assert balance(penalty_usd=10.0).net_usd == pytest.approx(-11.5)


def test_tools_that_are_audited_alike_are_one_sample():
    found = balance(Audited(500, 60, 2), Audited(500, 40, 0))
    assert not found.by_tool
    assert found.estimate_usd == balance().estimate_usd
    assert (found.low_usd, found.high_usd) == (balance().low_usd, balance().high_usd)


def test_tools_that_are_audited_unlike_are_reckoned_each_by_itself():
    # All of the dangerous tool is audited, and a tenth of the other: together a sixth of what was seen is wrong.
    found = balance(Audited(100, 100, 30), Audited(1000, 100, 2))
    assert found.by_tool
    assert (found.wrong.count, found.wrong.n) == (32, 200)
    assert found.net_usd == pytest.approx(8.5 - 0.32)
    assert found.estimate_usd == pytest.approx(8.5 - 0.32 - 0.01 * 900 * 0.02)
    least, most = wrong_among(1000, 100, 2, 0.025)
    assert (found.low_usd, found.high_usd) == pytest.approx((8.5 - 0.01 * (30 + most), 8.5 - 0.01 * (30 + least)))


def test_a_tool_that_is_never_audited_among_others_leaves_no_estimate():
    found = balance(Audited(1000, 500, 5), Audited(1000))
    assert found.by_tool
    assert found.estimate_usd is None
    assert found.low_usd < 8.5 - 0.01 * 1000


@pytest.mark.parametrize(("audited", "apart"), [(25, False), (18, False), (17, True), (0, True)])
def test_lots_explain_small_differences_only(audited, apart):
    # Two tools of 400 answers each, 55 of the first audited: 18 of the other happen by chance, 17 do not.
    assert balance(Audited(400, 55, 0), Audited(400, audited, 0)).by_tool is apart


@pytest.mark.parametrize(
    ("count", "n", "low", "high"),
    [(0, 10, 0.0, 0.3084971), (10, 10, 0.6915029, 1.0), (5, 10, 0.1870860, 0.8129140), (0, 0, 0.0, 1.0)],
)
def test_intervals_are_those_of_clopper_and_pearson(count, n, low, high):
    assert interval(count, n, 0.05) == pytest.approx((low, high), abs=1e-6)


def test_the_records_of_local_answers_make_the_balance():
    found = reported(
        *[local()] * 8, local(comparison="agree"), local(comparison="name-differs"), penalty_usd=0.02
    ).savings
    assert (found.avoided, found.answers, found.wrong.count, found.wrong.n) == (Amount(pytest.approx(0.1)), 10, 1, 2)
    assert found.net_usd == pytest.approx(0.1 - 0.02)
    assert found.estimate_usd == pytest.approx(0.1 - 0.02 * 5)


def test_a_price_that_nobody_knows_is_counted_and_never_zero():
    found = reported(local(), local(saved_usd=None), upstream(cost_usd=None), upstream())
    assert found.savings.avoided == Amount(0.01, 1)
    assert found.total.cost == Amount(0.02, 1)


@pytest.mark.parametrize(
    "record",
    [
        local(reason="local-model", saved=None, saved_usd=None),
        local(reason="no-upstream", saved=None, saved_usd=None),
        local(status=429, reason="budget-exceeded", saved=None, saved_usd=None),
        upstream(),
        shadow("name-differs"),
    ],
)
def test_only_answers_given_in_the_upstreams_stead_can_be_wrong_ones(record):
    assert reported(record).savings.answers == 0


@pytest.mark.parametrize(
    "record",
    [
        upstream(reason="not-chat", chat=False, cost_usd=None),
        upstream(status=503, cost_usd=None),
        upstream(cost_usd=0.0),
    ],
)
def test_what_has_no_cost_is_no_unknown_cost(record):
    assert reported(record).total.cost == Amount(0.0, 0)


def test_a_merged_answer_is_paid_and_saves_nothing():
    merged = upstream(route="merged", reason="merged", saved=local().saved, saved_usd=0.01)
    found = reported(merged)
    assert (found.savings.avoided, found.total.cost) == (Amount(), Amount(0.02))
