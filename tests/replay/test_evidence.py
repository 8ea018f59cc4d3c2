"""The command behind docs/evidence.md: halves, promises and tables of literal rows."""

import pytest

from benchmarks import evidence
from needle_router.calibrate.samples import Labelled
from needle_router.replay.ablation import ablated
from needle_router.replay.rows import Row

GOOD, BAD = Labelled("f", 0.8, True, True), Labelled("f", 0.8, True, False)


def rows(right, wrong, **more):
    known = {"tools": ("f",), "confidence": 0.8, "asked": True, "silent": False, **more}
    return [Row("n", "a", "upstream", "below-threshold", right=r, **known) for r in [True] * right + [False] * wrong]


def test_halves_are_drawn_and_hold_everything_once():
    decisions = [Labelled("f", number / 100, True, True) for number in range(21)]
    one, other = evidence.halves(decisions, seed=3)
    assert (len(one), len(other)) == (10, 11)
    assert sorted(one + other, key=lambda row: row.confidence) == decisions
    assert evidence.halves(decisions, seed=3) == (one, other)
    assert evidence.halves(decisions, seed=4) != (one, other)


def test_a_promise_that_is_kept_and_what_is_shown_of_it():
    promise = evidence.promised([GOOD] * 400, 0.05, seed=1)
    assert (promise.threshold, promise.n, promise.errors, promise.broken) == (0.8, 200, 0, False)
    assert evidence.shown(promise) == "kept: 0 of 200 wrong, 0.0 % (at most 1.5% with probability 0.95)"


def test_a_promise_is_broken_when_more_is_wrong_than_was_promised():
    assert not evidence.Promise(0.05, 0.8, 100, 5, "").broken
    assert evidence.Promise(0.05, 0.8, 100, 6, "").broken


def test_what_cannot_be_certified_is_refused_in_words():
    promise = evidence.promised([BAD] * 200 + [GOOD] * 200, 0.05, seed=1)
    assert (promise.threshold, promise.n) == (None, 0)
    assert promise.words.startswith("nothing certified: ")
    assert evidence.shown(promise) == "-"


def test_the_overview_counts_what_passes_every_check():
    sets = {"s": [*rows(6, 2), *rows(0, 2, failures=("ungrounded",))]}
    assert evidence.overview(sets).splitlines()[2] == "| s | 10 | 60.0 % | 80.0 % | 25.0 % |  |"


def test_many_halves_are_held_against_the_whole_set():
    lines = evidence.repeated({"s": rows(400, 0)}).splitlines()
    assert lines[2] == "| s | 5.0 % | 1000 | 100.0 % | 0 |"


def test_rows_are_kept_and_read_again(tmp_path):
    sets = {"s": rows(1, 1, failures=("negated",)), "t": rows(1, 0)}
    evidence.keep_rows(tmp_path / "rows.jsonl", sets)
    assert evidence.kept_rows(tmp_path / "rows.jsonl") == sets


@pytest.mark.parametrize("part", evidence.PARTS)
def test_the_page_has_a_place_for_each_table(part):
    text = evidence.PAGE.read_text("utf-8")
    assert f"<!-- begin: {part} -->" in text
    assert f"<!-- end: {part} -->" in text


def test_fresh_sentences_are_the_same_for_everybody():
    first, again = evidence.drawn("train", 3), evidence.drawn("train", 3)
    assert [case.body for case in first] == [case.body for case in again]
    assert [case.name for case in first] == ["train/0", "train/1", "train/2"]


def test_the_checks_hold_back_most_wrong_calls_of_the_broad_model():
    found = evidence.run(evidence.MODEL, evidence.drawn("slots", 60), workers=1)
    by_name = {line.left_out: line for line in ablated(found, 0.0)}
    guarded, bare = by_name["all checks"], by_name["no check"]
    assert bare.wrong > 2 * guarded.wrong
    assert bare.stopped_wrong > 5 * bare.stopped_right
    assert by_name["without ungrounded"].wrong > guarded.wrong
    assert guarded.answered - guarded.wrong >= 5
