"""Certificates a tool and for all, and the sentences that they are told in."""

import pytest

from needle_policies.sideeffects import SideEffects
from needle_router.calibrate.bars import bars_by_risk
from needle_router.calibrate.certify import (
    Bar,
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


def five_per_cent(tool):
    """Five per cent, whatever the tool."""
    return Bar(0.05)


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
    found = certify_tools(rows("f", 100) + rows("g", 100, score=0.7), five_per_cent, delta=0.05)
    assert [(c.tool, c.threshold, c.delta, c.needed, c.pooled) for c in found] == [
        ("f", 0.8, 0.025, 72, ()),
        ("g", 0.7, 0.025, 72, ()),
    ]


def test_rare_tools_are_judged_together_and_listed_each():
    found = certify_tools(rows("f", 100) + rows("g", 40) + rows("h", 40), five_per_cent, delta=0.05)
    assert [(c.tool, c.threshold, c.n, c.delta, c.pooled) for c in found] == [
        ("f", 0.8, 100, 0.025, ()),
        ("g", 0.8, 80, 0.025, ("g", "h")),
        ("h", 0.8, 80, 0.025, ("g", "h")),
    ]
    assert sentence(found[1]).startswith("g (together with h): threshold 0.8: 0 of 80 calls wrong")
    assert as_dict(found[1])["pooled"] == ["g", "h"]
    assert "pooled" not in as_dict(found[0])


def test_one_rare_tool_stays_alone():
    found = certify_tools(rows("f", 100) + rows("g", 31), five_per_cent, delta=0.05)
    assert (found[1].tool, found[1].threshold, found[1].pooled) == ("g", None, ())


def test_requests_without_a_call_count_for_all_tools_only():
    decisions = rows("f", 100) + rows("", 0, 100, verified=False)
    assert certify("*", decisions, alpha=0.05, delta=0.05).coverage == 0.5
    assert [(c.tool, c.coverage) for c in certify_tools(decisions, five_per_cent, delta=0.05)] == [("f", 1.0)]


def test_a_certificate_file_has_no_threshold_that_is_not_certified():
    found = certify_tools(rows("f", 100) + rows("g", 31), five_per_cent, delta=0.05)
    everything = document(found, alpha=0.05, delta=0.05)
    assert everything["tools"]["g"]["threshold"] is None
    assert certificate_file([everything]) == {
        "version": 2,
        "certificates": [
            {
                "max_error": 0.05,
                "delta": 0.05,
                "fingerprint": "ab",
                "per_tool": True,
                "tools": {"f": everything["tools"]["f"]},
            }
        ],
    }


def test_a_certificate_file_has_no_entry_for_a_fingerprint_under_which_nothing_is_certified():
    good, bad = (
        document([certify("*", decisions, alpha=0.05, delta=0.05)], alpha=0.05, delta=0.05)
        for decisions in (rows("f", 60), rows("f", 6, fingerprint="cd"))
    )
    assert [entry["fingerprint"] for entry in certificate_file([good, bad])["certificates"]] == ["ab"]
    assert certificate_file([bad])["certificates"] == []


def test_an_entry_that_is_bound_to_nothing_does_not_spoil_those_that_are():
    loose, bound = (
        document([certify("*", rows("f", 60, fingerprint=name), alpha=0.05, delta=0.05)], alpha=0.05, delta=0.05)
        for name in ("", "ab")
    )
    assert [entry["fingerprint"] for entry in certificate_file([loose, bound])["certificates"]] == ["ab"]
    assert [entry["fingerprint"] for entry in certificate_file([loose])["certificates"]] == [""]


def test_only_tools_with_the_same_bar_are_judged_together():
    bars = {"f": Bar(0.05, "read"), "g": Bar(0.05, "read"), "h": Bar(0.01, "write")}
    found = certify_tools(rows("f", 50) + rows("g", 50) + rows("h", 50), bars.__getitem__, delta=0.05)
    assert [(c.tool, c.threshold, c.alpha, c.risk, c.pooled) for c in found] == [
        ("f", 0.8, 0.05, "read", ("f", "g")),
        ("g", 0.8, 0.05, "read", ("f", "g")),
        ("h", None, 0.01, "write", ()),
    ]
    assert sentence(found[2]) == "h [write: at most 0.01]: not enough data: 368 clean offloadable calls needed, have 50"
    assert as_dict(found[2]) | {"risk": "write", "max_error": 0.01} == as_dict(found[2])


@pytest.mark.parametrize(
    ("tool", "risks", "bar"),
    [
        pytest.param("get_weather", (), Bar(0.05, "read"), id="reads by its name"),
        pytest.param("set_light", (), Bar(0.01, "write"), id="writes"),
        pytest.param("get_weather", ("write",), Bar(0.01, "write"), id="its schema tightens"),
        pytest.param("report", ("read",), Bar(0.05, "read"), id="its schema decides where no pattern fits"),
        pytest.param("get_weather+set_light", (), Bar(0.01, "write"), id="the strictest of a set"),
        pytest.param("delete_file", (), None, id="never"),
        pytest.param("get_weather", ("never",), None, id="never by its schema"),
    ],
)
def test_the_bar_of_a_tool_comes_from_its_risk(tool, risks, bar):
    decisions = [Labelled(tool, 0.9, True, True, "ab", risks), Labelled("", 0.0, False, False, "ab")]
    bars, kept = bars_by_risk(SideEffects(), decisions)
    assert (bars, kept) == (({tool: bar}, ()) if bar is not None else ({}, (tool,)))


def test_fingerprints_come_with_the_most_frequent_first():
    assert fingerprints(rows("f", 2, fingerprint="a") + rows("f", 3, fingerprint="b")) == ["b", "a"]
