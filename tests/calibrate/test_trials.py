"""Promotion and alarm of one tool, call by call."""

import json
import random

import pytest

from needle_router.calibrate.betting import FRESH
from needle_router.calibrate.trials import Terms, Trial, as_plain, from_plain

TERMS = Terms(max_error=0.1, delta=0.05, window=200, steps=(0.1, 0.3, 0.9))


def after(trial, outcomes):
    for wrong in outcomes:
        trial = trial.after(wrong=wrong)
    return trial


def calls_until(trial, wanted):
    """Right calls until the trial is as wanted."""
    return next(n for n in range(1, 1000) if wanted(after(trial, [False] * n)))


def test_right_calls_lift_a_tool_step_by_step_to_the_last():
    first = calls_until(Trial.begun(TERMS), lambda trial: trial.level == 1)
    assert 30 < first < 80
    assert after(Trial.begun(TERMS), [False] * (first - 1)).level == 0
    assert calls_until(Trial.begun(TERMS), lambda trial: trial.level == 2) == 2 * first
    high = after(Trial.begun(TERMS), [False] * 900)
    assert (high.level, high.compared, high.wrong, high.alarm.raised) == (2, 900, 0, False)


def test_the_numbers_of_calls_in_the_pages_are_these():
    terms = Terms(0.05, 0.05, 500, (0.1, 0.3, 0.9))
    assert calls_until(Trial.begun(terms), lambda trial: trial.level == 1) == 125
    faulty = after(Trial.begun(terms), [False] * 19 + [True])
    assert 20 + calls_until(faulty, lambda trial: trial.level == 1) == 163


def test_each_step_is_tested_at_its_share_of_delta():
    assert TERMS.promotion.delta == 0.025
    assert Terms(0.1, 0.05, 200, (0.5,)).promotion.delta == 0.05


def test_wrong_calls_raise_the_alarm_and_take_every_step_back():
    high = after(Trial.begun(TERMS), [False] * 400)
    assert high.level == 2
    low = after(high, [True] * 10)
    assert (low.level, low.alarm.raised, low.promotion.logs) == (0, True, FRESH)


def test_an_alarm_ends_the_trial_whatever_comes_after():
    low = after(Trial.begun(TERMS), [True] * 10)
    later = after(low, [False] * 500)
    assert (later.level, later.alarm.raised, later.compared, later.wrong) == (0, True, 510, 10)


def test_without_steps_there_is_only_the_alarm():
    terms = Terms(0.1, 0.05, 200)
    assert after(Trial.begun(terms), [False] * 500).level == 0
    assert after(Trial.begun(terms), [True] * 10).alarm.raised


def test_an_error_at_the_limit_is_seldom_promoted_and_seldom_an_alarm():
    draw = random.Random(20261130)
    promoted = alarmed = 0
    for _ in range(200):
        trial = after(Trial.begun(TERMS), [draw.random() < 0.1 for _ in range(200)])
        promoted += trial.level > 0
        alarmed += trial.alarm.raised
    # At most 2.5 % and 5 % by the theory; the margin is for two hundred draws.
    assert promoted <= 12
    assert alarmed <= 20


@pytest.mark.parametrize(
    "outcomes", [[], [False] * 7 + [True] * 2, [False] * 100, [True] * 10], ids=["begun", "mixed", "promoted", "alarm"]
)
def test_a_trial_outlives_its_file(outcomes):
    trial = after(Trial.begun(TERMS), outcomes)
    assert from_plain(json.loads(json.dumps(as_plain(trial))), TERMS) == trial
    assert Terms.from_plain(json.loads(json.dumps(TERMS.as_plain()))) == TERMS


def test_other_terms_begin_anew_but_an_alarm_stays():
    stricter = Terms(0.02, 0.05, 200, (0.1, 0.9))
    assert after(Trial.begun(TERMS), [False] * 100).under(stricter) == Trial.begun(stricter)
    kept = after(Trial.begun(TERMS), [True] * 10).under(stricter)
    assert (kept.alarm.raised, kept.level, kept.compared) == (True, 0, 0)
    assert kept.under(stricter) is kept


@pytest.mark.parametrize("change", [{"promotion": [0.0]}, {"alarm": None}, {"level": "x"}])
def test_what_is_no_trial_is_refused(change):
    with pytest.raises((ValueError, TypeError, KeyError)):
        from_plain({**as_plain(Trial.begun(TERMS)), **change}, TERMS)
