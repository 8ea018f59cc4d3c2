"""Grading, counting, leaving checks out, tables: literal rows and figures."""

import json

import pytest

from needle_policies import Evidence
from needle_router.calibrate.certify import certify
from needle_router.calibrate.samples import ALL_TOOLS, read_lines
from needle_router.evidence import left_out
from needle_router.plots import STYLE
from needle_router.replay.ablation import SLUGS, ablated, different
from needle_router.replay.curves import curves, picture, plain
from needle_router.replay.grading import AnyCall, Checked, TheseCalls
from needle_router.replay.result import Cut, Result, as_json, cuts
from needle_router.replay.rows import Row, by_category, count, labelled, passed, sample_lines
from needle_router.replay.text import lines
from needle_router.turn import Call

LIGHT = Call("light", {"room": "den", "level": 30})


# ----------------------------------------------------------------------------------------------------------- grading


@pytest.mark.parametrize(
    ("calls", "right"),
    [
        pytest.param([LIGHT], True, id="the same call"),
        pytest.param([Call("light", {"level": 30.0, "room": " Den "})], True, id="another spelling"),
        pytest.param([Call("light", {"room": "den", "level": 30, "fade": 0})], True, id="a default written out"),
        pytest.param([Call("light", {"room": "den", "level": 31})], False, id="another number"),
        pytest.param([Call("light", {"room": "den", "level": 30, "fade": 5})], False, id="an argument too many"),
        pytest.param([LIGHT, LIGHT], False, id="twice"),
        pytest.param([], False, id="nothing"),
    ],
)
def test_these_calls_are_wanted(calls, right):
    wanted = TheseCalls((LIGHT,))
    assert (wanted.met(calls, {"light": {"fade": 0}}), wanted.silent) == (right, False)


def test_no_call_is_wanted():
    assert TheseCalls(()).silent
    assert TheseCalls(()).met([])
    assert not TheseCalls(()).met([LIGHT])


def test_any_call_is_wanted():
    assert AnyCall().met([LIGHT])
    assert not AnyCall().met([])


def test_a_checker_is_not_asked_about_silence():
    assert Checked(lambda calls: calls == [LIGHT]).met([LIGHT])
    assert not Checked(lambda calls: True).met([])


# ---------------------------------------------------------------------------------------------------------- counting


def row(route="upstream", reason="below-threshold", *, category="a", failures=(), confidence=0.5, **more):
    known = {"tools": ("light",), "asked": True, "right": True, "silent": False}
    return Row("n", category, route, reason, failures=failures, confidence=confidence, **(known | more))


NO_CALL = row(reason="no-call", failures=("no-call",), tools=(), confidence=0.9, category="b")
ROWS = [
    row("local", "confident", confidence=0.9),
    row("local", "confident", confidence=0.8, right=False, category="b", silent=True),
    row("merged", "merged", failures=("intents-uncovered",), confidence=0.7, right=False),
    row(failures=("ungrounded",), confidence=0.6, right=False),
    row(failures=("ungrounded", "conditional"), confidence=0.4, right=False),
    row(failures=("conditional",), confidence=0.3),
    NO_CALL,
    Row("n", "b", "upstream", "prompt-too-long", right=False, silent=False),
    Row("n", "b", "upstream", "no-tools"),
]


def test_a_count_of_everything():
    found = count(ROWS)
    assert (found.cases, found.answered, found.merged, found.refused) == (9, 2, 1, 6)
    assert (found.labelled, found.right, found.wrong, found.needless) == (8, 1, 1, 1)
    assert (found.engine_asked, found.engine_right) == (7, 3)
    assert (found.accuracy, found.engine_accuracy) == (0.5, 0.428571)
    assert found.reasons["below-threshold"] == 3


def test_categories_come_in_their_order():
    assert {name: found.cases for name, found in by_category(ROWS).items()} == {"a": 5, "b": 4}


def test_nothing_has_no_accuracy():
    assert count([]).accuracy is None


def test_a_row_passes_when_it_calls_and_no_check_that_counts_has_failed():
    assert passed(ROWS[0])
    assert not passed(ROWS[3])
    assert passed(ROWS[3], frozenset({"ungrounded"}))
    assert not passed(ROWS[4], frozenset({"ungrounded"}))
    assert not passed(NO_CALL, frozenset({"no-call"}))


def test_labelled_decisions_are_those_whose_right_answer_is_known():
    assert [(d.verified, d.correct) for d in labelled(ROWS)] == [
        (True, True),
        (True, False),
        (False, False),
        (False, False),
        (False, False),
        (False, True),
        (False, True),
        (False, False),
    ]


def test_a_call_without_a_score_is_never_answered_by_a_threshold():
    (decision,) = labelled([row(confidence=None)])
    assert not decision.verified


def test_sample_lines_are_what_calibrate_reads():
    written = [json.dumps(line).encode() for line in sample_lines(ROWS, bound=False)]
    assert json.loads(written[1]) == {"tool": "light", "confidence": 0.8, "verified": True, "correct": False}
    assert read_lines(written) == labelled(ROWS)


def test_bound_lines_have_the_fingerprint():
    (line,) = sample_lines([row(fingerprint="ab")], bound=True)
    assert line["fingerprint"] == "ab"


def test_cuts_are_shares_of_all_labelled_requests():
    assert cuts(labelled(ROWS), (0.0, 0.85, 0.95)) == [
        Cut(0.0, 2, 1, 0.25, 0.5),
        Cut(0.85, 1, 0, 0.125, 0.0),
        Cut(0.95, 0, 0, 0.0, None),
    ]


# ---------------------------------------------------------------------------------------------------------- ablation


def test_a_failure_of_a_check_that_is_left_out_is_gone():
    evidence = Evidence(("light",), ("ungrounded", "intents-uncovered"), 0.5, uncovered=True)
    assert left_out(evidence, frozenset({"ungrounded"})) == Evidence(("light",), ("intents-uncovered",), 0.5, True)
    assert left_out(evidence, frozenset({"intents-uncovered"})) == Evidence(("light",), ("ungrounded",), 0.5, False)
    assert left_out(evidence, frozenset({"negated"})) is evidence


def test_silence_is_no_check_to_leave_out():
    assert "no-call" not in SLUGS
    assert SLUGS[:2] == ("negated", "ungrounded")


def test_each_check_is_left_out_alone_and_then_all_of_them():
    found = {line.left_out: line for line in ablated(ROWS, 0.65)}
    assert list(found) == ["all checks", *(f"without {slug}" for slug in SLUGS), "no check"]
    figures = {
        name: (f.answered, f.wrong, f.answered_at, f.wrong_at, f.stopped_wrong, f.stopped_right)
        for name, f in found.items()
    }
    assert figures["all checks"] == (2, 1, 2, 1, 0, 0)
    assert figures["without ungrounded"] == (3, 2, 2, 1, 1, 0)
    assert figures["without conditional"] == (3, 1, 2, 1, 0, 1)
    assert figures["without intents-uncovered"] == (3, 2, 3, 2, 1, 0)
    assert figures["no check"] == (6, 4, 3, 2, 3, 1)


def test_checks_that_held_nothing_back_are_not_shown():
    names = [line.left_out for line in different(ablated(ROWS, 0.0))]
    assert names == [
        "all checks", "without ungrounded", "without conditional", "without intents-uncovered", "no check",
    ]  # fmt: skip


# ------------------------------------------------------------------------------------------------------------ curves


def test_there_is_a_curve_for_all_checks_for_none_and_for_those_that_matter():
    assert curves(ROWS) == {
        "all checks": ((0.125, 0.0), (0.25, 0.5)),
        "w/o ungrounded": ((0.125, 0.0), (0.25, 0.5), (0.375, 2 / 3)),
        "w/o conditional": ((0.125, 0.0), (0.25, 0.5), (0.375, 1 / 3)),
        "w/o intents-uncovered": ((0.125, 0.0), (0.25, 0.5), (0.375, 2 / 3)),
        "no check": ((0.125, 0.0), (0.25, 0.5), (0.375, 2 / 3), (0.5, 0.75), (0.625, 0.8), (0.75, 2 / 3)),
    }


def test_the_plain_picture_holds_no_variable_and_no_dark_scheme():
    svg = picture(ROWS, title="a <title>")
    assert STYLE in svg
    assert "a &lt;title&gt;" in svg
    drawn = plain(svg)
    assert "var(" not in drawn
    assert "@media" not in drawn
    assert "fill:#1c2430" in drawn
    assert '"DejaVu Sans"' in drawn
    assert "system-ui" not in drawn
    assert drawn.endswith("</svg>")


# ------------------------------------------------------------------------------------------------------------- tables

RESULT = Result("data", "rust", "models/x.cact", "2026-11-30", 10, ROWS)


def test_the_text_of_a_result():
    certificate = certify(ALL_TOOLS, RESULT.labelled, alpha=0.1, delta=0.05)
    whole = Result(**{**fields(RESULT), "lines": ablated(ROWS, 0.5), "threshold": 0.5, "certificate": certificate})
    assert "\n".join(lines(whole)) == EXPECTED.strip("\n")


def fields(result):
    return {name: getattr(result, name) for name in result.__slots__}


EXPECTED = """
data: 10 requests, interrupted after 9, engine rust x.cact, day 2026-11-30

category  requests  answered  right  wrong  needless  merged  refused  accuracy  engine
a                5         1      1      0         0       1        3   100.0 %  40.0 %
b                4         1      0      1         1       0        3     0.0 %  50.0 %
all              9         2      1      1         1       1        6    50.0 %  42.9 %
reasons: below-threshold 3, confident 2, merged 1, no-call 1, prompt-too-long 1, no-tools 1

risk against coverage, 8 requests whose right answer is known, every check passed:
threshold  answered  wrong  coverage   error
0                 2      1    25.0 %  50.0 %
0.3               2      1    25.0 %  50.0 %
0.5               2      1    25.0 %  50.0 %
0.6               2      1    25.0 %  50.0 %
0.7               2      1    25.0 %  50.0 %
0.8               2      1    25.0 %  50.0 %
0.9               1      0    12.5 %   0.0 %
0.95              0      0     0.0 %       -
0.98              0      0     0.0 %       -

checks left out, at any score and at 0.5; "held back" counts calls that only they stopped:
                           coverage   error  at 0.5   error  held back wrong  right
all checks                   25.0 %  50.0 %  25.0 %  50.0 %                0      0
without ungrounded           37.5 %  66.7 %  37.5 %  66.7 %                1      0
without conditional          37.5 %  33.3 %  25.0 %  50.0 %                0      1
without intents-uncovered    37.5 %  66.7 %  37.5 %  66.7 %                1      0
no check                     75.0 %  66.7 %  50.0 %  75.0 %                3      1

promise: at most 0.1 of the answered calls are wrong, with probability 0.95
all tools: not enough data: 29 clean offloadable calls needed, have 2, 1 of them wrong
"""


def test_without_any_known_answer_only_requests_are_counted():
    told = list(lines(Result("f", "rust", "tiny", "2026-11-30", 1, ROWS[-1:])))
    assert told[0] == "f: 1 request, engine rust tiny, day 2026-11-30"
    assert told[-1] == "no request says what is expected, so nothing can be said about right and wrong"


def test_a_result_without_rows_says_that_it_was_interrupted():
    told = list(lines(Result("f", "rust", "tiny", "2026-11-30", 5, [])))
    assert told[0] == "f: 5 requests, interrupted after 0, engine rust tiny, day 2026-11-30"
    assert not any("no request says" in line for line in told)


def test_checks_that_were_left_out_are_named():
    told = next(lines(Result("f", "rust", "tiny", "2026-11-30", 9, ROWS, frozenset({"ungrounded"}))))
    assert told.endswith("day 2026-11-30, without ungrounded")


def test_the_json_of_a_result_has_these_keys():
    shown = as_json(RESULT)
    assert set(shown) == {
        "version", "source", "engine", "today", "total", "interrupted", "without", "all", "categories", "risk_coverage",
    }  # fmt: skip
    assert shown["categories"]["a"]["accuracy"] == 1.0
    assert shown["risk_coverage"][0] == {"threshold": 0.0, "answered": 2, "wrong": 1, "coverage": 0.25, "error": 0.5}
    assert json.loads(json.dumps(shown)) == shown


def test_the_json_of_ablation_and_certificate():
    certificate = certify(ALL_TOOLS, RESULT.labelled, alpha=0.1, delta=0.05)
    whole = Result(**{**fields(RESULT), "lines": ablated(ROWS, 0.5), "threshold": 0.5, "certificate": certificate})
    shown = as_json(whole)
    assert shown["ablation"]["threshold"] == 0.5
    assert shown["ablation"]["lines"][0]["coverage_at"] == 0.25
    assert shown["certificate"]["tools"]["*"]["threshold"] is None
