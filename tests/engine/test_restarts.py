import pytest

from needle_router.engine.restarts import Restarts, delay_s


@pytest.mark.parametrize("deaths, expected_s", [(1, 0.0), (2, 0.25), (3, 0.5), (4, 1.0), (5, 30.0), (60, 30.0)])
def test_the_delay_after_deaths_in_a_row(deaths, expected_s):
    assert delay_s(deaths) == expected_s


def test_the_fifth_death_in_a_row_breaks_the_slot():
    restarts = Restarts()
    states = []
    for _ in range(5):
        restarts.died()
        states.append(restarts.broken)
    assert states == [False, False, False, False, True]


def test_an_answer_begins_a_new_count():
    restarts = Restarts()
    for _ in range(7):
        restarts.died()
    restarts.answered()
    assert not restarts.broken
    assert restarts.died() == 0.0
