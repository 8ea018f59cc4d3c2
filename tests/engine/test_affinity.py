import pytest

from needle_router.engine.affinity import Costs, Load, choose, cost_s, key_of, weight

STEP_S, INIT_S = 0.2, 0.15


def pick(*loads, key="k", step_s=STEP_S, init_s=INIT_S):
    return choose(loads, key, step_s=step_s, init_s=init_s)


@pytest.mark.parametrize(
    "load, expected_s",
    [
        pytest.param(Load(0), 0.35, id="idle, not resident"),
        pytest.param(Load(0, resident="k"), 0.2, id="idle, resident"),
        pytest.param(Load(0, running_s=0.0, resident="k"), 0.4, id="busy since now"),
        pytest.param(Load(0, running_s=0.2, resident="k"), 0.4, id="busy for one usual step"),
        pytest.param(Load(0, running_s=3.0, resident="k"), 3.2, id="stuck"),
        pytest.param(Load(0, waiting_steps=2, running_s=0.0, resident="other"), 0.95, id="two waiting"),
        pytest.param(Load(0, resident="k", feed_steps=4), 0.8, id="a conversation to be fed anew"),
    ],
)
def test_the_cost_of_a_worker(load, expected_s):
    assert cost_s(load, "k", step_s=STEP_S, init_s=INIT_S) == pytest.approx(expected_s)


@pytest.mark.parametrize(
    "loads, chosen",
    [
        pytest.param((Load(0), Load(1, resident="k")), 1, id="resident beats empty"),
        pytest.param((Load(0), Load(1, running_s=0.0, resident="k")), 0, id="loading beats waiting a step"),
        pytest.param((Load(0, running_s=0.0), Load(1, running_s=0.0, resident="k")), 1, id="both busy: resident"),
        pytest.param((Load(0), Load(1, resident="k", running_s=4.0)), 0, id="a stuck worker attracts nobody"),
        pytest.param(
            (Load(0, resident="k", feed_steps=5), Load(1, resident="k", feed_steps=1)), 1, id="the one in conversation"
        ),
        pytest.param((Load(0, resident="other"), Load(1)), 1, id="an empty one before one whose tools would be lost"),
        pytest.param((Load(0), Load(1, resident="other")), 0, id="the same, the other way round"),
        pytest.param((Load(3, waiting_steps=9),), 3, id="the only one"),
    ],
)
def test_the_choice(loads, chosen):
    assert pick(*loads) == chosen


def test_waiting_for_a_resident_worker_pays_where_loading_is_dearer():
    loads = (Load(0), Load(1, running_s=0.0, resident="k"))
    assert pick(*loads, init_s=0.19) == 0
    assert pick(*loads, init_s=0.21) == 1


def test_equal_costs_are_settled_by_the_highest_weight():
    for key in ("a", "b", "c", "d", "e"):
        assert pick(Load(0), Load(1), Load(2), key=key) == max(range(3), key=lambda index: weight(key, index))


def test_a_worker_that_goes_moves_only_its_own_keys():
    keys = [f"key {n}" for n in range(200)]
    with_four = {key: pick(*map(Load, range(4)), key=key) for key in keys}
    with_three = {key: pick(*map(Load, range(3)), key=key) for key in keys}
    assert {with_three[key] for key in keys if with_four[key] == 3} == {0, 1, 2}
    assert all(with_three[key] == with_four[key] for key in keys if with_four[key] != 3)


def test_system_and_tools_make_the_key_and_their_border_counts():
    assert key_of("a", "b") == key_of("a", "b")
    assert len({key_of("a", "b"), key_of("ab", ""), key_of("", "ab"), key_of("a", "c")}) == 4


def test_the_first_measurement_counts_whole_and_the_next_a_fifth():
    costs = Costs()
    costs.learn(step_s=1.0, steps=2, init_s=None)
    assert (costs.step_s, costs.init_s) == (0.5, 0.15)
    costs.learn(step_s=1.0, steps=1, init_s=0.4)
    assert (costs.step_s, costs.init_s) == (pytest.approx(0.6), 0.4)
    costs.learn(step_s=0.0, steps=0, init_s=None)
    assert costs.step_s == pytest.approx(0.6)
