"""Each rule on small samples whose answer can be counted by hand."""

import pytest

from needle_router.calibrate.rules import GRID, RULES, Choice, best, fixed_sequence, multi_start, sgr, start
from needle_router.calibrate.samples import Labelled, Sample


def sample(*parts):
    """Of (score, right, wrong) parts."""
    return Sample(
        Labelled("f", score, True, correct)
        for score, right, wrong in parts
        for correct in [True] * right + [False] * wrong
    )


def test_the_grid_goes_down_from_the_top_to_zero():
    assert list(GRID) == sorted(set(GRID), reverse=True)
    assert (GRID[0], GRID[-1]) == (0.9999, 0.0)


@pytest.mark.parametrize("method", RULES)
def test_without_data_no_rule_says_anything(method):
    assert RULES[method](sample(), 0.05, 0.05).threshold is None


@pytest.mark.parametrize(("clean", "threshold"), [(58, None), (59, 0.8), (60, 0.8)])
def test_the_smallest_sample_that_certifies_is_the_one_that_is_announced(clean, threshold):
    assert best(sample((0.8, clean, 0)), 0.05, 0.05) == Choice(threshold, "fixed-sequence")


def test_the_walk_ends_above_the_first_failure():
    # 200 clean calls, then a stretch where every fifth is wrong.
    data = sample((0.9, 100, 0), (0.8, 100, 0), (0.7, 80, 20))
    assert fixed_sequence(data, 0.05, 0.05) == Choice(0.8, "fixed-sequence")


def test_one_error_at_the_very_top_does_not_end_the_walk_before_it_began():
    data = sample((0.99, 10, 1), (0.9, 200, 0))
    assert fixed_sequence(data, 0.05, 0.05).threshold == 0.9


def test_several_starts_get_past_an_unreliable_top():
    data = sample((0.95, 138, 12), (0.6, 1400, 0))
    assert fixed_sequence(data, 0.05, 0.05).threshold is None
    assert multi_start(data, 0.05, 0.05) == Choice(0.6, "multi-start")
    assert best(data, 0.05, 0.05) == Choice(0.6, "multi-start")


def test_the_binary_search_returns_a_score_of_the_sample():
    assert sgr(sample((0.93, 150, 0), (0.61, 150, 0), (0.3, 50, 50)), 0.05, 0.05) == Choice(0.61, "sgr")


def test_of_thresholds_that_select_the_same_calls_the_highest_is_taken():
    assert best(sample((0.625, 300, 0)), 0.05, 0.05).threshold == 0.62


@pytest.mark.parametrize("method", RULES)
def test_calls_that_are_often_wrong_are_never_certified(method):
    assert RULES[method](sample((0.9, 900, 100), (0.8, 900, 100)), 0.05, 0.05).threshold is None


def test_the_start_looks_at_no_label():
    clean, dirty = sample((0.9, 100, 0), (0.5, 50, 0)), sample((0.9, 0, 100), (0.5, 0, 50))
    assert start(clean, 100) == start(dirty, 100) == 0.9
    assert start(clean, 101) == start(dirty, 101) == 0.5
    assert start(clean, 151) is None
