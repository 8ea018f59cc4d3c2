"""Labelled decisions from lines and from records."""

import json

import pytest

from needle_router.calibrate.samples import BadSamples, Labelled, Sample, from_records, read_lines
from needle_router.records import DecisionRecord

GOOD = {"tool": "set_lights", "confidence": 0.9, "verified": True, "correct": True}


def line(**changes):
    return json.dumps({**GOOD, **changes}).encode()


def problems(*lines):
    with pytest.raises(BadSamples) as caught:
        read_lines(lines)
    return list(caught.value.problems)


def test_lines_are_read_and_empty_ones_passed_over():
    assert read_lines([line(), b"\n", b"  \r\n", line(tool="f", correct=False, fingerprint="ab", more=1)]) == [
        Labelled("set_lights", 0.9, True, True),
        Labelled("f", 0.9, True, False, "ab"),
    ]


def test_a_decision_without_a_score_cannot_pass():
    assert read_lines([line(confidence=None)]) == [Labelled("set_lights", 0.0, False, True)]


@pytest.mark.parametrize("score", [0, 1, 0.0, 1.0])
def test_scores_at_the_ends_are_scores(score):
    assert read_lines([line(confidence=score)])[0].confidence == score


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        (b'{"tool"', "line 2: no JSON (Expecting ':' delimiter: line 1 column 8 (char 7))"),
        (b"[1]", 'line 2: expected an object with "tool", "confidence", "verified" and "correct"'),
        (b'{"tool": "f", "confidence": 1, "verified": true}', 'line 2: "correct" is missing'),
        (line(tool=""), 'line 2: "tool" must be the name of a tool, not ""'),
        (line(tool="*"), 'line 2: "tool" must be the name of a tool, not "*"'),
        (line(tool=7), 'line 2: "tool" must be the name of a tool, not 7'),
        (line(confidence=1.01), 'line 2: "confidence" must be a number from 0 to 1 or null, not 1.01'),
        (line(confidence=-0.1), 'line 2: "confidence" must be a number from 0 to 1 or null, not -0.1'),
        (line(confidence=float("nan")), 'line 2: "confidence" must be a number from 0 to 1 or null, not NaN'),
        (line(confidence=True), 'line 2: "confidence" must be a number from 0 to 1 or null, not true'),
        (line(confidence="0.9"), 'line 2: "confidence" must be a number from 0 to 1 or null, not "0.9"'),
        (line(verified=1), 'line 2: "verified" must be true or false, not 1'),
        (line(correct="yes"), 'line 2: "correct" must be true or false, not "yes"'),
        (line(fingerprint=3), 'line 2: "fingerprint" must be text, not 3'),
    ],
)
def test_a_line_that_is_no_decision_is_named_with_its_number(text, problem):
    assert problems(line(), text) == [problem]


def test_a_request_without_a_call_has_no_tool():
    (row,) = read_lines([line(tool="", verified=False)])
    assert (row.tool, row.verified) == ("", False)


@pytest.mark.parametrize("text", [b"\xff\xfe\xff", b"[" * 100_000])
def test_what_is_no_json_at_all_is_a_problem_of_its_line(text):
    (problem,) = problems(text)
    assert problem.startswith("line 1: no JSON (")


def test_after_ten_problems_reading_ends():
    assert [text.partition(":")[0] for text in problems(*[b"x"] * 30)] == [f"line {n}" for n in range(1, 11)]


def test_a_cut_takes_scores_at_the_threshold_and_counts_their_errors():
    sample = Sample(
        [
            Labelled("f", 0.9, True, True),
            Labelled("f", 0.8, True, False),
            Labelled("f", 0.8, True, True),
            Labelled("f", 0.7, True, False),
            Labelled("f", 0.99, False, False),
        ]
    )
    assert (sample.total, sample.n, sample.scores) == (5, 4, (0.9, 0.8, 0.8, 0.7))
    assert [sample.cut(t) for t in (1.0, 0.9, 0.81, 0.8, 0.7, 0.0)] == [(0, 0), (1, 0), (1, 0), (3, 1), (4, 2), (4, 2)]


def record(**changes):
    values = {"tools_called": ("f",), "confidence": 0.9, "comparison": "agree", "fingerprint": "ab", **changes}
    return DecisionRecord(time_s=1.0, route="upstream", reason="shadow", **values)


@pytest.mark.parametrize(
    ("changes", "row"),
    [
        ({}, Labelled("f", 0.9, True, True, "ab")),
        ({"comparison": "arguments-differ"}, Labelled("f", 0.9, True, False, "ab")),
        ({"comparison": "upstream-none"}, Labelled("f", 0.9, True, False, "ab")),
        ({"failures": ("negated",)}, Labelled("f", 0.9, False, True, "ab")),
        ({"uncovered": True}, Labelled("f", 0.9, False, True, "ab")),
        ({"confidence": None}, Labelled("f", 0.0, False, True, "ab")),
        ({"tools_called": ("g", "f", "g")}, Labelled("f+g", 0.9, True, True, "ab")),
        ({"tools_called": (), "comparison": "both-none"}, Labelled("", 0.9, False, False, "ab")),
    ],
)
def test_a_compared_record_is_a_decision(changes, row):
    assert list(from_records([record(**changes)])) == [row]


def test_a_record_without_comparison_says_nothing_of_right_and_wrong():
    assert list(from_records([record(comparison="")])) == []


def test_watched_calls_and_audited_answers_are_never_taken_together():
    shared = {"time_s": 1.0, "reason": "r", "tools_called": ("f",), "comparison": "agree"}
    records = [
        DecisionRecord(route="upstream", confidence=0.6, **shared),
        DecisionRecord(route="local", confidence=0.9, **shared),
    ]
    assert [row.confidence for row in from_records(records)] == [0.6]
    assert [row.confidence for row in from_records(records, audits=True)] == [0.9]
