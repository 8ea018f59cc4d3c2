"""Periods as people give them."""

import datetime

import pytest

from needle_router.report.period import moment_s

NOW = datetime.datetime(2026, 11, 30, 12, 0).astimezone()


def local_s(*parts):
    return datetime.datetime(*parts).timestamp()


@pytest.mark.parametrize(
    ("text", "seconds"), [("90m", 5400), ("12h", 43_200), ("7d", 604_800), ("2w", 1_209_600), ("0.5d", 43_200)]
)
def test_a_span_counts_back_from_now(text, seconds):
    assert moment_s(text, NOW) == NOW.timestamp() - seconds


def test_a_date_is_its_first_moment_and_as_an_end_its_last():
    assert moment_s("2026-11-01", NOW) == local_s(2026, 11, 1)
    assert moment_s("2026-11-01", NOW, end=True) == local_s(2026, 11, 2)
    assert moment_s(" 20261101 ", NOW, end=True) == local_s(2026, 11, 2)


def test_a_moment_is_the_machines_unless_it_names_its_zone():
    assert moment_s("2026-11-01T10:30", NOW) == local_s(2026, 11, 1, 10, 30)
    assert moment_s("2026-11-01T10:30", NOW, end=True) == local_s(2026, 11, 1, 10, 30)
    assert moment_s("2026-11-01T10:30+00:00", NOW) == 1793529000.0


@pytest.mark.parametrize("text", ["", "yesterday", "7", "7y", "-7d", "2026-13-01", "2026-02-30", "d"])
def test_what_is_no_moment_is_an_error(text):
    with pytest.raises(ValueError, match=r".+|^$"):
        moment_s(text, NOW)
