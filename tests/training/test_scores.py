"""How answers are scored: literal rows and figures."""

import pytest
from training.scores import Row

from training import scores

LIGHT = {
    "name": "set_light",
    "parameters": {
        "type": "object",
        "properties": {
            "room": {"type": "string"},
            "level": {"type": "integer", "minimum": 1, "maximum": 100},
            "mode": {"type": "string", "enum": ["warm", "cold"]},
        },
        "required": ["room"],
    },
}


def call(**arguments):
    return {"name": "set_light", "arguments": arguments}


@pytest.mark.parametrize(
    ("calls", "expected"),
    [
        pytest.param([call(room="attic")], True, id="the required argument"),
        pytest.param([call(room="attic", level=100)], True, id="exactly the maximum"),
        pytest.param([call(room="attic", level=101)], False, id="above the maximum"),
        pytest.param([call(level=5)], False, id="the required argument is missing"),
        pytest.param([call(room=3)], False, id="a number for a text"),
        pytest.param([call(room="attic", level=True)], False, id="a boolean for a number"),
        pytest.param([call(room="attic", mode="hot")], False, id="outside the set"),
        pytest.param([call(room="attic", colour="red")], False, id="an argument that is not declared"),
        pytest.param([{"name": "dim", "arguments": {}}], False, id="a tool that is not declared"),
        pytest.param(["set_light"], False, id="not a call"),
        pytest.param([], True, id="no call"),
        pytest.param(None, False, id="unreadable"),
    ],
)
def test_calls_are_valid_against_their_declaration(calls, expected):
    assert scores.valid(calls, [LIGHT]) is expected


@pytest.mark.parametrize(
    ("arguments", "query", "expected"),
    [
        pytest.param({"room": "attic"}, "light up the Attic", True, id="in another case"),
        pytest.param({"room": "office"}, "light up the attic", False, id="not said"),
        pytest.param({"room": "attic", "level": 20}, "attic to twenty", True, id="a number in words"),
        pytest.param({"room": "attic", "level": 30}, "attic to twenty", False, id="another number"),
        pytest.param({"room": "attic", "mode": "warm"}, "attic cosy", True, id="a closed set needs no word"),
    ],
)
def test_arguments_are_grounded_in_the_request(arguments, query, expected):
    assert scores.grounded([call(**arguments)], [LIGHT], query) is expected


def test_the_order_of_calls_counts_unless_it_does_not():
    one, two = call(room="attic"), call(room="den")
    assert not scores.same([one, two], [two, one])
    assert scores.same([one, two], [two, one], ordered=False)
    assert not scores.same(None, [], ordered=False)


@pytest.mark.parametrize(
    ("good", "bad", "expected"),
    [
        pytest.param([0.9, 0.8], [0.1, 0.2], 1.0, id="sorted"),
        pytest.param([0.1], [0.9], 0.0, id="the wrong way round"),
        pytest.param([0.5], [0.5], 0.5, id="a tie"),
        pytest.param([0.9, 0.3], [0.5], 0.5, id="one of two"),
        pytest.param([], [0.5], None, id="nothing good"),
    ],
)
def test_auc_is_how_often_good_scores_above_bad(good, bad, expected):
    assert scores.auc(good, bad) == expected


ROWS = [
    Row([call(room="a")], [call(room="a")], True, 0.9, True, True),
    Row([call(room="b")], [call(room="c")], False, 0.8, True, False),
    Row([call(room="d")], [], False, 0.4, True, True),
    Row([], [], True, 0.95, True, True),
]


def test_a_summary_counts_names_and_needless_calls():
    assert scores.summary(ROWS) == {
        "n": 4,
        "exact": 0.5,
        "right_tool_names": 1.0,
        "no_call_though_wanted": 0.0,
        "call_though_none_wanted": 0.5,
    }


@pytest.mark.parametrize(
    ("threshold", "ground", "answered", "error"),
    [
        pytest.param(0.0, False, 3, 0.6667, id="everything that calls"),
        pytest.param(0.8, False, 2, 0.5, id="exactly at the threshold"),
        pytest.param(0.8, True, 1, 0.0, id="and grounded"),
        pytest.param(0.98, False, 0, None, id="nothing left"),
    ],
)
def test_risk_is_the_wrong_share_of_what_is_answered(threshold, ground, answered, error):
    row = scores.risk(ROWS, threshold, ground=ground)
    assert (row["answered"], row["error_among_answered"]) == (answered, error)
