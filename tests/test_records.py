"""What a record keeps of what a client says, and when what an upstream took is unknown."""

import pytest

from needle_router.records import MAX_NAME_CHARS, DecisionRecord, kept_name
from needle_router.totals import Totals
from needle_router.turn import Usage


@pytest.mark.parametrize(
    ("name", "kept"),
    [
        ("", ""),
        ("azure/gpt-x", "azure/gpt-x"),
        pytest.param("m" * MAX_NAME_CHARS, "m" * 200, id="the longest that is kept whole"),
        pytest.param("m" * 201, "m" * 199 + "…", id="one more"),
    ],
)
def test_a_name_too_long_to_be_kept_is_no_other_models_name(name, kept):
    assert kept_name(name) == kept


@pytest.mark.parametrize(
    ("changes", "unknown"),
    [
        pytest.param({}, True, id="a whole answer without figures"),
        pytest.param({"error": "cut"}, True, id="an answer that was cut is billed too"),
        pytest.param({"status": 0, "error": "cut"}, True, id="a client that left while the upstream was at work"),
        pytest.param({"route": "merged", "error": "cut"}, True, id="a merged answer that was cut"),
        pytest.param({"status": 399}, True, id="the last status that is no error"),
        pytest.param({"status": 400}, False, id="errors cost nothing"),
        pytest.param({"status": 502, "error": "exception"}, False, id="an upstream that could not be reached"),
        pytest.param({"status": 0, "error": "cut", "wasted": Usage(40, 0)}, False, id="a race that was left is wasted"),
        pytest.param({"chat": False, "reason": "not-chat"}, False, id="what was passed on unread"),
        pytest.param({"route": "local"}, False, id="nobody was asked"),
    ],
)
def test_what_an_upstream_took_is_unknown_where_it_was_asked_and_gave_no_figures(changes, unknown):
    record = DecisionRecord(**{"time_s": 0.0, "route": "upstream", "reason": "no-tools", "status": 200, **changes})
    totals = Totals()
    totals.add(record)
    assert (record.cost_unknown, totals.as_dict()["upstream"]["usage_unknown"]) == (unknown, int(unknown))
