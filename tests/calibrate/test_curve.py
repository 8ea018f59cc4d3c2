"""The curve of risk against coverage."""

from itertools import pairwise

from needle_router.calibrate.curve import CurvePoint, pairs, risk_coverage
from needle_router.calibrate.samples import Labelled


def row(confidence, *, correct=True, verified=True):
    return Labelled("f", confidence, verified, correct)


def test_each_score_is_a_point_with_what_would_be_answered_there():
    rows = [row(0.9), row(0.7, correct=False), row(0.7), row(0.5)]
    assert risk_coverage(rows) == (
        CurvePoint(0.9, 1, 0, 0.25, 0.0),
        CurvePoint(0.7, 3, 1, 0.75, 1 / 3),
        CurvePoint(0.5, 4, 1, 1.0, 0.25),
    )


def test_what_the_verifiers_stopped_counts_in_the_coverage_alone():
    assert risk_coverage([row(0.9), row(0.95, verified=False, correct=False)]) == (CurvePoint(0.9, 1, 0, 0.5, 0.0),)


def test_nothing_to_answer_is_no_curve():
    assert risk_coverage([]) == ()
    assert risk_coverage([row(0.9, verified=False)]) == ()


def test_a_long_curve_is_thinned_and_keeps_its_end():
    rows = [row(1 - number / 10_000, correct=number % 10 != 0) for number in range(5_000)]
    points = risk_coverage(rows, max_points=100)
    assert len(points) == 100
    assert (points[0].n, points[-1].n, points[-1].errors) == (50, 5_000, 500)
    assert all(one.coverage < two.coverage and one.threshold > two.threshold for one, two in pairwise(points))


def test_one_score_for_all_is_one_point():
    assert pairs(risk_coverage([row(0.8)] * 1_000)) == ((1.0, 0.0),)
