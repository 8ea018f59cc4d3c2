"""The tables of training/README.md: literal figures and what is written of them."""

from training import tables

MIX = {
    "exact": 0.79,
    "call_though_none_wanted": 0.1321,
    "auc_all": 0.6139,
    "auc_calls": 0.5516,
    "risk_coverage": [
        {"threshold": at, "grounding": ground, "coverage": 0.655, "error_among_answered": None if ground else 0.145}
        for at in tables.THRESHOLDS
        for ground in (False, True)
    ],
}
FOUND = {
    "kinds": {split: {kind: {"exact": 0.92} for kind in tables.KINDS} for split in tables.SPLITS},
    "routing": dict.fromkeys(tables.SPLITS, MIX),
    "outside": {"needle_environments": {"n": 192, "exact": 0.151}, "home_assistant_intents": {"skipped": "no package"}},
}


def test_kinds_and_the_mix_below_them():
    lines = tables.kinds(FOUND).splitlines()
    assert lines[:3] == [
        "| kind of request | training-like | unseen words | unseen phrasings |",
        "|---|---|---|---|",
        "| one call | 92 % | 92 % | 92 % |",
    ]
    assert lines[-3:] == [
        "| **natural mix** | **79 %** | **79 %** | **79 %** |",
        "| called though nothing is wanted | 13.2 % | 13.2 % | 13.2 % |",
        "| AUC of the score, all / calls only | 0.614 / 0.552 | 0.614 / 0.552 | 0.614 / 0.552 |",
    ]


def test_risk_at_each_threshold():
    assert tables.risk(FOUND).splitlines()[2] == "| 0.0 | 65.5 % / 14.5 % | 65.5 % / - | 65.5 % / - | 65.5 % / - |"


def test_outside_sets_that_were_there():
    assert tables.outside(FOUND).splitlines()[2:] == ["| needle.environments, tools alone | 192 | 15.1 % |"]


def test_outside_sets_that_were_not_there():
    assert tables.outside({}) == "Not measured."
