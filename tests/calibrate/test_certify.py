"""Certificates a tool and for all, and the sentences that they are told in."""

import pytest

from needle_router.calibrate.certify import (
    Certificate,
    as_dict,
    certificate_file,
    certify,
    certify_tools,
    document,
    fingerprints,
    sentence,
)
from needle_router.calibrate.samples import Labelled


def rows(tool, right, wrong=0, *, score=0.8, verified=True, fingerprint="ab"):
    return [Labelled(tool, score, verified, correct, fingerprint) for correct in [True] * right + [False] * wrong]


def told(decisions):
    return sentence(certify("f", decisions, alpha=0.05, delta=0.05)).removeprefix("f: ")


def test_a_certificate_holds_the_promise_and_what_it_stands_on():
    decisions = rows("f", 59) + rows("f", 0, 41, verified=False)
    assert certify("*", decisions, alpha=0.05, delta=0.05) == Certificate(
        tool="*",
        threshold=0.8,
        n=59,
        errors=0,
        coverage=0.59,
        needed=59,
        method="fixed-sequence",
        alpha=0.05,
        delta=0.05,
        fingerprint="ab",
    )


@pytest.mark.parametrize(
    ("decisions", "text"),
    [
        ([], "not enough data: 59 clean offloadable calls needed, have 0"),
        (rows("f", 31), "not enough data: 59 clean offloadable calls needed, have 31"),
        (rows("f", 30, 1), "not enough data: 59 clean offloadable calls needed, have 31, 1 of them wrong"),
        (rows("f", 91, 1), "not enough data: 93 offloadable calls needed with 1 wrong among them, have 92"),
        (
            rows("f", 150, 50),
            "nothing certified: 50 of 200 offloadable calls are wrong, and no score sets enough good ones apart",
        ),
        (rows("f", 59), "threshold 0.8: 0 of 59 calls wrong, 100.0% of requests answered, by fixed-sequence"),
    ],
)
def test_the_finding_is_told_in_a_sentence(decisions, text):
    assert told(decisions) == text


def test_the_star_is_told_as_all_tools():
    assert sentence(certify("*", [], alpha=0.05, delta=0.05)).startswith("all tools: not enough data")


def test_each_tool_has_its_share_of_delta():
    found = certify_tools(rows("f", 100) + rows("g", 100, score=0.7), alpha=0.05, delta=0.05)
    assert [(c.tool, c.threshold, c.delta, c.needed, c.pooled) for c in found] == [
        ("f", 0.8, 0.025, 72, ()),
        ("g", 0.7, 0.025, 72, ()),
    ]


def test_rare_tools_are_judged_together_and_listed_each():
    found = certify_tools(rows("f", 100) + rows("g", 40) + rows("h", 40), alpha=0.05, delta=0.05)
    assert [(c.tool, c.threshold, c.n, c.delta, c.pooled) for c in found] == [
        ("f", 0.8, 100, 0.025, ()),
        ("g", 0.8, 80, 0.025, ("g", "h")),
        ("h", 0.8, 80, 0.025, ("g", "h")),
    ]
    assert sentence(found[1]).startswith("g (together with h): threshold 0.8: 0 of 80 calls wrong")
    assert as_dict(found[1])["pooled"] == ["g", "h"]
    assert "pooled" not in as_dict(found[0])


def test_one_rare_tool_stays_alone():
    found = certify_tools(rows("f", 100) + rows("g", 31), alpha=0.05, delta=0.05)
    assert (found[1].tool, found[1].threshold, found[1].pooled) == ("g", None, ())


def test_requests_without_a_call_count_for_all_tools_only():
    decisions = rows("f", 100) + rows("", 0, 100, verified=False)
    assert certify("*", decisions, alpha=0.05, delta=0.05).coverage == 0.5
    assert [(c.tool, c.coverage) for c in certify_tools(decisions, alpha=0.05, delta=0.05)] == [("f", 1.0)]


def test_a_certificate_file_has_no_threshold_that_is_not_certified():
    found = certify_tools(rows("f", 100) + rows("g", 31), alpha=0.05, delta=0.05)
    everything = document(found, alpha=0.05, delta=0.05)
    assert everything["tools"]["g"]["threshold"] is None
    assert certificate_file(found, alpha=0.05, delta=0.05) == {
        "version": 1,
        "max_error": 0.05,
        "delta": 0.05,
        "fingerprint": "ab",
        "tools": {"f": everything["tools"]["f"]},
    }


def test_fingerprints_come_with_the_most_frequent_first():
    assert fingerprints(rows("f", 2, fingerprint="a") + rows("f", 3, fingerprint="b")) == ["b", "a"]
