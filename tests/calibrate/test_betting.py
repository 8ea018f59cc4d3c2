"""Stakes after each answer."""

from math import exp

import pytest

from needle_router.calibrate.betting import FRESH, Alarm, Promotion, mixed


def after(state, outcomes):
    for wrong in outcomes:
        state = state.after(wrong=wrong)
    return state


@pytest.mark.parametrize("kind", [Promotion(0.05, 0.1), Alarm(0.05, 0.1, 10)])
def test_a_bet_is_fair_when_the_error_is_just_alpha(kind):
    right, wrong = (exp(mixed(kind.after(wrong=outcome).logs)) for outcome in (False, True))
    assert 0.95 * right + 0.05 * wrong == pytest.approx(1.0)


def test_an_answer_in_either_direction_moves_the_stake_the_right_way():
    assert mixed(Promotion(0.05, 0.1).after(wrong=False).logs) > 0 > mixed(Promotion(0.05, 0.1).after(wrong=True).logs)
    assert mixed(Alarm(0.05, 0.1, 9).after(wrong=False).logs) < 0 < mixed(Alarm(0.05, 0.1, 9).after(wrong=True).logs)


def test_clean_answers_promote_after_somewhat_more_than_a_fixed_sample_needs():
    # 59 clean calls certify 5 % at 95 % when looked at once.
    states = [after(Promotion(0.05, 0.05), [False] * n).reached for n in range(59, 121)]
    assert states == sorted(states)
    assert (states[0], states[-1]) == (False, True)


def test_what_was_reached_stays_reached():
    state = after(Promotion(0.05, 0.05), [False] * 120 + [True] * 50)
    assert state.reached
    assert mixed(state.logs) < 0


def test_two_errors_at_once_do_not_raise_the_alarm_but_three_do():
    assert not after(Alarm(0.05, 0.01, 100), [True]).raised
    assert after(Alarm(0.05, 0.01, 100), [True] * 3).raised


def test_the_alarm_forgets_at_the_end_of_its_window():
    quiet = after(Alarm(0.05, 0.01, 50), [False] * 50)
    assert quiet.seen == 0
    assert quiet.after(wrong=True).logs == Alarm(0.05, 0.01, 50).after(wrong=True).logs
    raised = after(quiet, [True] * 3)
    assert raised.raised
    assert after(raised, [False] * 100).raised


def test_long_runs_neither_overflow_nor_vanish():
    state = after(Promotion(0.05, 0.05), [False] * 20_000)
    assert mixed(state.logs) > 700
    assert after(Promotion(0.05, 0.05), [True] * 2000).logs < FRESH
