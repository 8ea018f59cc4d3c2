"""The promise itself, simulated: guarded rules break it in at most delta of the draws, the plain rule far more often.

Scores are uniform on [0, 1) and the chance of an error is a known function of the score, so that the true error above
any threshold is an integral.
"""

from math import sqrt
from random import Random

import pytest

from needle_router.calibrate.betting import Alarm, Promotion
from needle_router.calibrate.rules import GRID, RULES
from needle_router.calibrate.samples import Labelled, Sample

ALPHA, DELTA = 0.05, 0.10
DRAWS = 1000
#: Three standard deviations above delta: a rule that keeps its promise exactly fails once in 700 runs of other seeds.
MOST_BROKEN = DRAWS * DELTA + 3 * sqrt(DRAWS * DELTA * (1 - DELTA))
CELLS = 4000
POPULATIONS = {
    "errors fall with the score": lambda score: 0.2 * (1 - score),
    "errors at the very top": lambda score: 0.3 if score > 0.97 else 0.16 * (1 - score),
    "a step": lambda score: 0.02 if score > 0.7 else 0.25,
    "never good enough": lambda score: 0.065,
}


def true_risks(chance):
    """The error above the lower end of each cell of scores."""
    risks, total = [0.0] * CELLS, 0.0
    for cell in range(CELLS - 1, -1, -1):
        total += chance((cell + 0.5) / CELLS)
        risks[cell] = total / (CELLS - cell)
    return risks


def draw(chance, n, random):
    scores = [random.random() for _ in range(n)]
    return Sample(Labelled("f", score, True, random.random() >= chance(score)) for score in scores)


def plain(sample):
    """The lowest threshold whose observed error is at most alpha."""
    cuts = ((threshold, *sample.cut(threshold)) for threshold in reversed(GRID))
    return next((threshold for threshold, n, errors in cuts if n and errors <= ALPHA * n), None)


@pytest.mark.parametrize("n", [150, 500])
@pytest.mark.parametrize("population", POPULATIONS)
def test_guarded_rules_keep_their_promise_and_the_plain_rule_does_not(population, n):
    chance, random = POPULATIONS[population], Random(f"{population} {n}")
    risks = true_risks(chance)
    broken = dict.fromkeys((*RULES, "plain"), 0)
    for _ in range(DRAWS):
        sample = draw(chance, n, random)
        found = {name: rule(sample, ALPHA, DELTA).threshold for name, rule in RULES.items()} | {"plain": plain(sample)}
        for name, threshold in found.items():
            broken[name] += threshold is not None and risks[int(threshold * CELLS)] > ALPHA + 1e-3
    assert {name: count for name, count in broken.items() if name != "plain" and count > MOST_BROKEN} == {}
    assert broken["plain"] > MOST_BROKEN
    assert broken["plain"] > 3 * max(count for name, count in broken.items() if name != "plain")


def test_guarded_rules_answer_most_of_what_could_be_answered():
    # At best half of the requests: the error above 0.5 is just alpha.
    chance, random = POPULATIONS["errors fall with the score"], Random("coverage")
    covered = dict.fromkeys(RULES, 0.0)
    for _ in range(60):
        sample = draw(chance, 2000, random)
        for name, rule in RULES.items():
            threshold = rule(sample, ALPHA, DELTA).threshold
            covered[name] += 0 if threshold is None else (1 - threshold) / 60
    assert 0.32 < covered["fixed-sequence"] < 0.42
    assert 0.29 < covered["multi-start"] < 0.42
    assert 0.22 < covered["sgr"] < 0.42
    assert 0.29 < covered["best"] < 0.42


def runs(state, error, length, random):
    """Whether the state was reached at any time within `length` answers."""
    for _ in range(length):
        state = state.after(wrong=random.random() < error)
        if getattr(state, "reached", False) or getattr(state, "raised", False):
            return True
    return False


def test_promotion_looks_after_every_answer_and_is_still_rarely_wrong():
    random = Random("promotion")
    wrong = sum(runs(Promotion(ALPHA, DELTA), ALPHA, 500, random) for _ in range(DRAWS))
    assert wrong <= MOST_BROKEN


def test_promotion_comes_when_errors_are_rare():
    random = Random("rare")
    assert sum(runs(Promotion(ALPHA, DELTA), ALPHA / 10, 500, random) for _ in range(100)) >= 95


def test_the_alarm_is_rarely_false_and_comes_when_errors_are_frequent():
    random = Random("alarm")
    false = sum(runs(Alarm(ALPHA, DELTA, 400), ALPHA, 400, random) for _ in range(DRAWS))
    assert false <= MOST_BROKEN
    assert sum(runs(Alarm(ALPHA, DELTA, 400), 0.2, 400, random) for _ in range(100)) >= 99
