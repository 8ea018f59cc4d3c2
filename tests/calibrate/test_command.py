"""`needle-router calibrate` as a process."""

import json
import time

import pytest

from needle_policies.certified import Certificates, Scores
from needle_router.calibrate.certificates import read_certificates
from needle_router.ledger import Ledger
from needle_router.records import DecisionRecord

PROMISE = ("--max-error", "0.05", "--delta", "0.05")


def lines(tool, right, wrong=0, **more):
    row = {"tool": tool, "confidence": 0.8, "verified": True, **more}
    return [json.dumps({**row, "correct": correct}) for correct in [True] * right + [False] * wrong]


def wrote(folder, *rows):
    (folder / "rows.jsonl").write_text("\n".join(rows))
    return "--from", "rows.jsonl"


def test_enough_clean_calls_are_certified(cli, tmp_path):
    code, out, err = cli("calibrate", *wrote(tmp_path, *lines("f", 59)), *PROMISE)
    assert (code, err) == (0, "")
    assert out.splitlines() == [
        "promise: at most 0.05 of the answered calls are wrong, with probability 0.95",
        "all tools: threshold 0.8: 0 of 59 calls wrong, 100.0% of requests answered, by fixed-sequence",
    ]


def test_too_few_are_refused_in_words_and_nothing_is_written(cli, tmp_path):
    code, out, _ = cli("calibrate", *wrote(tmp_path, *lines("f", 31)), *PROMISE, "--output", "certificates.json")
    assert code == 1
    assert "all tools: not enough data: 59 clean offloadable calls needed, have 31\n" in out
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rows.jsonl"]


def test_json_has_an_entry_for_each_tool_and_for_all(cli, tmp_path):
    rows = lines("f", 100) + lines("g", 31)
    code, out, _ = cli("calibrate", *wrote(tmp_path, *rows), *PROMISE, "--per-tool", "--json")
    assert code == 0
    assert json.loads(out)["tools"] == {
        "*": entry(0.8, 131, 59),
        "f": entry(0.8, 100, 72),
        "g": {**entry(None, 31, 72), "coverage": 0.0},
    }


def entry(threshold, n, needed):
    return {
        "threshold": threshold,
        "n": n,
        "errors": 0,
        "coverage": 1.0,
        "needed": needed,
        "method": "fixed-sequence",
    }


def test_the_file_holds_what_was_certified(cli, tmp_path):
    rows = lines("f", 100, fingerprint="ab") + lines("g", 31, 31, fingerprint="ab")
    code, _, err = cli("calibrate", *wrote(tmp_path, *rows), *PROMISE, "--per-tool", "--output", "certificates.json")
    assert (code, err) == (0, "")
    (content,) = json.loads((tmp_path / "certificates.json").read_text())["certificates"]
    assert {name: row["threshold"] for name, row in content["tools"].items()} == {"f": 0.8}
    assert sorted(path.name for path in tmp_path.iterdir()) == ["certificates.json", "rows.jsonl"]


def test_every_fingerprint_gets_an_entry_of_its_own(cli, tmp_path):
    rows = [
        *lines("f", 60, fingerprint="one"),
        *lines("f", 70, fingerprint="two"),
        *lines("f", 5, fingerprint="three"),
    ]
    options = (*wrote(tmp_path, *rows), *PROMISE, "--all-fingerprints")
    code, out, err = cli("calibrate", *options, "--output", "certificates.json")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == [
        "fingerprint two:",
        "all tools: threshold 0.8: 0 of 70 calls wrong, 100.0% of requests answered, by fixed-sequence",
        "fingerprint one:",
        "all tools: threshold 0.8: 0 of 60 calls wrong, 100.0% of requests answered, by fixed-sequence",
        "fingerprint three:",
        "all tools: not enough data: 59 clean offloadable calls needed, have 5",
    ]
    content = (tmp_path / "certificates.json").read_bytes()
    assert read_certificates(content) == Certificates({"two": Scores({}, 0.8), "one": Scores({}, 0.8)})
    code, out, _ = cli("calibrate", *options, "--json")
    assert [entry["fingerprint"] for entry in json.loads(out)["certificates"]] == ["two", "one", "three"]


def test_by_risk_each_tool_has_the_bar_of_its_class(cli, tmp_path):
    (tmp_path / "needle-router.toml").write_text(
        'ledger.path = "off"\n[[policy]]\nkind = "side-effects"\nwrite_error = 0.02\n'
        '[[policy]]\nkind = "threshold"\ncertificates = "certificates.json"\n'
    )
    rows = [*lines("get_a", 100), *lines("set_b", 100), *lines("delete_c", 500), *lines("set_d", 300)]
    code, out, err = cli("calibrate", *wrote(tmp_path, *rows), "--by-risk", "--output", "certificates.json")
    assert (code, out.splitlines()) == (
        0,
        [
            "promise: at most 0.05 of the answered calls that read and 0.02 of those that write are wrong, with "
            "probability 0.95",
            "get_a [read: at most 0.05]: threshold 0.8: 0 of 100 calls wrong, 100.0% of requests answered, by "
            "fixed-sequence",
            "set_b [write: at most 0.02]: not enough data: 203 clean offloadable calls needed, have 100",
            "set_d [write: at most 0.02]: threshold 0.8: 0 of 300 calls wrong, 100.0% of requests answered, by "
            "fixed-sequence",
            "delete_c [never]: kept upstream by side-effects",
        ],
    )
    assert "bound to nothing" in err
    written = json.loads((tmp_path / "certificates.json").read_text())["certificates"][0]
    assert written["max_error"] is None
    assert {name: (row["risk"], row["max_error"]) for name, row in written["tools"].items()} == {
        "get_a": ("read", 0.05),
        "set_d": ("write", 0.02),
    }


def test_a_file_that_cannot_be_written_is_an_error(cli, tmp_path):
    rows = lines("f", 59, fingerprint="ab")
    code, _, err = cli("calibrate", *wrote(tmp_path, *rows), *PROMISE, "--output", "no/where.json")
    assert (code, err) == (1, "needle-router: no/where.json cannot be written: No such file or directory\n")


def test_bad_lines_are_named(cli, tmp_path):
    rows = [*lines("f", 1), "{", *lines("f", 1, confidence=2)]
    code, out, err = cli("calibrate", *wrote(tmp_path, *rows), *PROMISE)
    assert (code, out) == (2, "")
    assert err.splitlines()[0] == "needle-router: rows.jsonl has lines that are no labelled decisions:"
    assert err.splitlines()[1].startswith("needle-router:   line 2: no JSON (")
    assert err.splitlines()[2].startswith('needle-router:   line 3: "confidence" must be a number from 0 to 1')


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--from", "x", "--max-error", "0"), "--max-error 0: expected a probability"),
        (("--from", "x", "--max-error", "0.1", "--by-risk"), "--max-error and --by-risk: give one"),
        (("--by-risk", "--set", 'policy=[{"kind": "side-effects", "write_error": 0}]'), "write_error: 0 cannot be"),
        (("--from", "x", "--max-error", "5"), "--max-error 5: expected a probability"),
        (("--from", "x", "--max-error", "nan"), "--max-error nan: expected a probability"),
        (("--from", "x", "--max-error", "0.1", "--delta", "1"), "--delta 1: expected a probability"),
        (("--from", "x", "--max-error", "0.1", "--method", "luck"), "--method luck: expected one of best, fixed-seq"),
        (("--from", "x", "--max-error", "0.1", "--audits"), "--audits: are those of the ledger"),
        (("--from", "x", "--max-error", "0.1"), "x cannot be read: No such file or directory"),
        (("--max-error", "0.1", "--ledger", "off"), "the ledger is off"),
        (("--max-error", "0.1", "--ledger", "none.db"), "there is no ledger at none.db"),
        (("--from", "x"), "--max-error is missing: the share of answered calls that may be wrong, or --by-risk"),
    ],
)
def test_what_cannot_be_done_is_said(cli, arguments, problem):
    code, out, err = cli("calibrate", *arguments)
    assert (code, out) == (2, "")
    assert problem in err


@pytest.mark.parametrize("method", ["fixed-sequence", "multi-start", "sgr"])
def test_the_method_can_be_chosen(cli, tmp_path, method):
    rows = wrote(tmp_path, *lines("f", 300))
    _, out, _ = cli("calibrate", *rows, *PROMISE, "--json", "--method", method)
    found = json.loads(out)["tools"]["*"]
    assert (found["method"], found["threshold"]) == (method, 0.8)


def test_decisions_of_one_fingerprint_only_are_used(cli, tmp_path):
    rows = wrote(tmp_path, *lines("f", 60, fingerprint="new"), *lines("f", 0, 50, fingerprint="old"))
    code, out, err = cli("calibrate", *rows, *PROMISE, "--json")
    assert (code, json.loads(out)["fingerprint"], json.loads(out)["tools"]["*"]["n"]) == (0, "new", 60)
    assert "using the 60 of 110 decisions with fingerprint new; --fingerprint takes another: old" in err
    code, out, err = cli("calibrate", *rows, *PROMISE, "--json", "--fingerprint", "old")
    assert (code, err, json.loads(out)["tools"]["*"]["errors"]) == (1, "", 50)
    code, _, err = cli("calibrate", *rows, *PROMISE, "--fingerprint", "older")
    assert (code, err) == (2, "needle-router: no decision has the fingerprint older\n")


def test_the_ledger_is_read_where_no_file_is_named(cli, tmp_path):
    ledger = Ledger(tmp_path / "decisions.db")
    ledger.start()
    for comparison, count in (("agree", 60), ("", 40)):
        for _ in range(count):
            ledger.put(
                DecisionRecord(
                    time_s=time.time(),
                    route="upstream",
                    reason="shadow",
                    tools_called=("set_lights",),
                    confidence=0.9,
                    fingerprint="ab",
                    comparison=comparison,
                )
            )
    ledger.close()
    code, out, err = cli("calibrate", "--ledger", "decisions.db", *PROMISE, "--per-tool", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert found["fingerprint"] == "ab"
    assert {name: (row["threshold"], row["n"]) for name, row in found["tools"].items()} == {
        "*": (0.9, 60),
        "set_lights": (0.9, 60),
    }


def test_a_file_that_is_no_ledger_is_an_error(cli, tmp_path):
    (tmp_path / "decisions.db").write_text("no database, but long enough to be looked at" * 50)
    code, _, err = cli("calibrate", "--ledger", "decisions.db", *PROMISE)
    assert (code, err) == (1, "needle-router: decisions.db cannot be read: file is not a database\n")
