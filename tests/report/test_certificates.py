"""What was seen of a certificate."""

import pytest
from tests.report.support import local, reported, shadow

from needle_router.calibrate.certificates import read_certificates
from needle_router.report.certificates import broken
from needle_router.report.document import document
from needle_router.report.notes import notes
from needle_router.report.tables import certificates as table_of

FILE = {
    "version": 2,
    "certificates": [
        {
            "fingerprint": "here",
            "max_error": 0.05,
            "delta": 0.1,
            "per_tool": True,
            "tools": {"f": {"threshold": 0.8, "n": 59, "errors": 0}, "g": {"threshold": 0.5, "max_error": 0.01}},
        },
        {"fingerprint": "gone", "per_tool": False, "tools": {"*": {"threshold": 0.9}}},
    ],
}


def states(*records):
    found = reported(*records, certificates=[FILE]).certificates
    return {(one.fingerprint, one.tool): one for one in found}


def test_the_file_of_these_tests_is_one_that_the_router_reads():
    import json

    assert set(read_certificates(json.dumps(FILE).encode()).sets) == {"here", "gone"}


def test_a_certificate_counts_the_compared_calls_that_it_lets_pass():
    found = states(
        shadow(fingerprint="here", confidence=0.8),
        shadow("name-differs", fingerprint="here", confidence=0.9),
        local(fingerprint="here", comparison="agree"),
        shadow("name-differs", fingerprint="here", confidence=0.79),
        shadow("name-differs", fingerprint="here", confidence=0.9, failures=("negated",)),
        shadow("name-differs", fingerprint="other", confidence=0.9),
        shadow(fingerprint="here", tools_called=("g",), confidence=0.6),
        local(fingerprint="here"),
    )
    one, two = found["here", "f"], found["here", "g"]
    assert (one.wrong.count, one.wrong.n, one.decided, one.n, one.errors) == (1, 3, 7, 59, 0)
    assert (one.threshold, one.max_error, one.delta) == (0.8, 0.05, 0.1)
    assert (two.wrong.count, two.wrong.n, two.max_error) == (0, 1, 0.01)


def test_one_whose_fingerprint_was_not_met_says_so():
    report = reported(shadow(fingerprint="here"), certificates=[FILE])
    one = {one.fingerprint: one for one in report.certificates}["gone"]
    assert (one.decided, one.wrong.n, one.max_error) == (0, 0, None)
    assert table_of(report).rows[2][:6] == ("all tools", "gone", "0.9", "-", "0 of 0 wrong", "not met")
    assert any("no request of the period had: 1." in note for note in notes(report))


@pytest.mark.parametrize(("wrong", "says"), [(0, False), (2, False), (3, False), (4, True)])
def test_a_promise_is_at_odds_where_so_many_errors_are_seen_once_in_twenty_times(wrong, says):
    # P(Bin(24, 0.05) >= 3) = 0.116 and P(Bin(24, 0.05) >= 4) = 0.030.
    records = [shadow("name-differs", fingerprint="here")] * wrong + [shadow(fingerprint="here")] * (24 - wrong)
    report = reported(*records, certificates=[FILE])
    assert broken(report.certificates[0]) is says
    assert any("Calibrate again" in note for note in notes(report)) is says


def test_the_document_has_them_with_their_promise():
    found = document(reported(shadow(fingerprint="here"), certificates=[FILE]), by=())["certificates"][0]
    assert found == {
        "fingerprint": "here",
        "tool": "f",
        "threshold": 0.8,
        "max_error": 0.05,
        "delta": 0.1,
        "certified": {"n": 59, "errors": 0},
        "decided": 1,
        "compared": {"n": 1, "wrong": 0, "share": 0.0, "low": 0.0, "high": 0.975},
        "broken": False,
    }


@pytest.mark.parametrize(("alarms", "told"), [(0, False), (2, True)])
def test_an_alarm_in_the_period_is_told(alarms, told):
    report = reported(*[shadow(reason="alarm")] * alarms, shadow())
    assert any("Requests that an alarm kept upstream: 2. " in note for note in notes(report)) is told
