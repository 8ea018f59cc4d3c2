"""How many of a known number are wrong, from a sample of them."""

import random
from fractions import Fraction
from math import comb

import pytest

from needle_router.calibrate.finite import cdf, wrong_among


def exactly(k, total, wrong, drawn):
    """The distribution by its definition, in whole numbers."""
    ways = sum(comb(wrong, i) * comb(total - wrong, drawn - i) for i in range(k + 1) if i <= drawn)
    return Fraction(ways, comb(total, drawn))


@pytest.mark.parametrize(("total", "drawn"), [(1, 1), (12, 5), (30, 29), (40, 1), (60, 30)])
def test_the_distribution_is_that_of_its_definition(total, drawn):
    for wrong in range(total + 1):
        for k in range(-1, drawn + 1):
            assert cdf(k, total, wrong, drawn) == pytest.approx(float(exactly(k, total, wrong, drawn)), abs=1e-12)


@pytest.mark.parametrize(("total", "drawn"), [(12, 5), (30, 8), (30, 29)])
def test_the_bounds_are_those_of_their_definition(total, drawn):
    for wrong in range(drawn + 1):
        possible = [
            count
            for count in range(wrong, total - drawn + wrong + 1)
            if exactly(wrong, total, count, drawn) > Fraction(1, 20)
            and 1 - exactly(wrong - 1, total, count, drawn) > Fraction(1, 20)
        ]
        assert wrong_among(total, drawn, wrong, 0.1) == (min(possible), max(possible))


def test_nothing_drawn_says_nothing_and_everything_drawn_says_all():
    assert wrong_among(100, 0, 0, 0.05) == (0, 100)
    assert wrong_among(100, 100, 7, 0.05) == (7, 7)
    assert wrong_among(0, 0, 0, 0.05) == (0, 0)


def test_large_numbers_are_no_trouble():
    assert wrong_among(1_000_000, 50_000, 1_000, 0.05) == (18821, 21233)


@pytest.mark.parametrize(("drawn", "wrong"), [(50, 30), (500, 30), (900, 30), (100, 400)])
def test_the_true_number_lies_between_the_bounds_in_as_many_samples_as_promised(drawn, wrong):
    draw, answers = random.Random(5), [True] * wrong + [False] * (1000 - wrong)
    held = 0
    for _ in range(400):
        least, most = wrong_among(1000, drawn, sum(draw.sample(answers, drawn)), 0.1)
        held += least <= wrong <= most
    # 0.90 are promised; two and a half standard deviations of 400 samples are 0.04.
    assert held / 400 >= 0.86
