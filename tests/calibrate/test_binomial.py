"""Exact tests against known values, and the table of sample sizes to the unit."""

from fractions import Fraction
from itertools import takewhile
from math import comb, log

import pytest

from needle_router.calibrate.binomial import (
    allowed,
    cdf,
    hoeffding_bentkus,
    needed,
    needed_for_power,
    p_value,
    power,
    upper_bound,
)

#: (alpha, delta) -> calls needed with 0, 1, 2, 5 and 10 errors among them.
SIZES = {
    (0.10, 0.05): (29, 46, 61, 103, 167),
    (0.05, 0.10): (45, 77, 105, 184, 306),
    (0.05, 0.05): (59, 93, 124, 208, 336),
    (0.02, 0.05): (149, 236, 313, 523, 845),
    (0.01, 0.05): (299, 473, 628, 1049, 1693),
}
#: (alpha, delta) -> calls for 80 % power at a true error of alpha / 5, alpha / 2 and 0.7 alpha, in steps of 3 %.
POWERS = {
    (0.05, 0.10): (77, 288, 896),
    (0.05, 0.05): (125, 393, 1175),
    (0.02, 0.05): (316, 980, 3053),
    (0.01, 0.05): (642, 1952, 6226),
}
TRUE_SHARES = (0.2, 0.5, 0.7)


def exact_cdf(k, n, p):
    p = Fraction(p)
    return float(sum(comb(n, i) * p**i * (1 - p) ** (n - i) for i in range(k + 1)))


@pytest.mark.parametrize(
    ("alpha", "delta", "errors", "size"),
    [(*row, k, size) for row, sizes in SIZES.items() for k, size in zip((0, 1, 2, 5, 10), sizes, strict=True)],
)
def test_the_size_of_a_sample_is_that_of_the_table_and_one_call_less_does_not_do(alpha, delta, errors, size):
    assert needed(alpha, delta, errors) == size
    assert exact_cdf(errors, size, alpha) <= delta < exact_cdf(errors, size - 1, alpha)


@pytest.mark.parametrize(
    ("alpha", "delta", "share", "size"),
    [(*row, share, size) for row, sizes in POWERS.items() for share, size in zip(TRUE_SHARES, sizes, strict=True)],
)
def test_the_size_for_80_percent_power_is_that_of_the_table(alpha, delta, share, size):
    sizes = [1]
    while sizes[-1] < size:
        sizes.append(int(sizes[-1] * 1.03) + 1)
    short = list(takewhile(lambda n: power(n, alpha, delta, share * alpha) < 0.8, sizes))
    assert sizes[len(short)] == size


@pytest.mark.parametrize(
    ("alpha", "delta", "sizes"),
    [(0.05, 0.10, (77, 282, 829)), (0.05, 0.05, (124, 361, 1148)), (0.01, 0.05, (628, 1941, 5876))],
)
def test_the_smallest_size_with_power_is_not_above_that_of_the_table(alpha, delta, sizes):
    assert tuple(needed_for_power(alpha, delta, share * alpha) for share in TRUE_SHARES) == sizes
    assert all(power(n, alpha, delta, share * alpha) >= 0.8 for n, share in zip(sizes, TRUE_SHARES, strict=True))


@pytest.mark.parametrize("true_error", [0.0, 0.05, 0.2])
def test_power_is_asked_for_between_nothing_and_alpha(true_error):
    with pytest.raises(ValueError, match="must be above 0 and below alpha"):
        needed_for_power(0.05, 0.05, true_error)


@pytest.mark.parametrize("n", [1, 2, 10, 59, 208, 400])
@pytest.mark.parametrize("p", [0.01, 0.05, 0.5, 0.93])
def test_the_distribution_is_exact(n, p):
    for k in {0, 1, n // 20, n // 2, n - 1}:
        assert cdf(k, n, p) == pytest.approx(exact_cdf(k, n, p), rel=1e-10, abs=1e-300)


def test_the_distribution_ends_in_nothing_and_in_everything():
    assert (cdf(-1, 10, 0.5), cdf(10, 10, 0.5), cdf(11, 10, 0.5)) == (0.0, 1.0, 1.0)


def test_a_hundred_thousand_calls_are_no_problem():
    assert cdf(5000, 100_000, 0.05) == pytest.approx(0.5038, abs=1e-3)
    assert 0 < cdf(4000, 100_000, 0.05) < 1e-45


def test_no_data_prove_nothing():
    assert p_value(0, 0, 0.05) == 1.0
    assert allowed(0, 0.05, 0.05) == -1


@pytest.mark.parametrize(
    ("errors", "n", "delta", "bound"),
    [
        pytest.param(0, 59, 0.05, 1 - 0.05 ** (1 / 59), id="no error has a closed form"),
        pytest.param(0, 10, 0.05, 0.2588656, id="none of ten"),
        pytest.param(1, 10, 0.025, 0.4450161, id="one of ten"),
        pytest.param(5, 100, 0.05, 0.1022532, id="five of a hundred"),
        pytest.param(10, 10, 0.05, 1.0, id="all wrong"),
        pytest.param(0, 0, 0.05, 1.0, id="no data"),
    ],
)
def test_the_clopper_pearson_bound_is_that_of_the_books(errors, n, delta, bound):
    assert upper_bound(errors, n, delta) == pytest.approx(bound, abs=1e-6)


@pytest.mark.parametrize(("n", "errors"), [(58, 0), (59, 0), (92, 1), (93, 1), (335, 10), (336, 10)])
def test_the_bound_and_the_test_agree(n, errors):
    assert (upper_bound(errors, n, 0.05) <= 0.05) == (p_value(errors, n, 0.05) <= 0.05)


@pytest.mark.parametrize(("n", "errors"), [(58, -1), (59, 0), (92, 0), (93, 1), (335, 9), (336, 10)])
def test_so_many_errors_are_allowed(n, errors):
    assert allowed(n, 0.05, 0.05) == errors


def test_the_bound_for_graded_losses_is_weaker_than_the_exact_test_but_holds():
    assert hoeffding_bentkus(0.0, 100, 0.05) == pytest.approx(0.95**100, rel=1e-9)
    exact = p_value(2, 200, 0.05)
    assert exact < hoeffding_bentkus(2 / 200, 200, 0.05) < 10 * exact
    assert hoeffding_bentkus(0.05, 200, 0.05) == 1.0
    assert hoeffding_bentkus(0.5, 0, 0.05) == 1.0


def test_the_smallest_clean_sample_is_the_ratio_of_logarithms():
    assert all(needed(a, d) - 1 < log(d) / log(1 - a) <= needed(a, d) for a, d in SIZES)
