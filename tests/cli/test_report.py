"""`needle-router report` as a process."""

import json
import sqlite3
import stat
import time

import pytest
from tests.ledger import releases
from tests.report.support import local, shadow, upstream

from needle_router.ledger import Ledger


def wrote(path, *records):
    ledger = Ledger(path)
    ledger.start()
    for record in records:
        ledger.put(record)
    ledger.close()
    return "--ledger", str(path)


@pytest.fixture
def ledger(tmp_path):
    now_s = time.time()
    records = [local(time_s=now_s - 60)] * 3 + [shadow(time_s=now_s - 60), shadow("name-differs", time_s=now_s - 60)]
    return wrote(tmp_path / "decisions.db", *records, upstream(time_s=now_s - 5 * 86_400, model="old"))


def test_tables_are_plain_words_when_nobody_looks(cli, ledger):
    code, out, err = cli("report", *ledger)
    assert (code, err) == (0, "")
    assert "\x1b" not in out
    assert "avoided upstream cost" in out
    assert "$0.0300" in out
    assert "It does not bound error" in out
    assert [line.split() for line in out.splitlines() if line.startswith("confident")] == [
        ["confident", "3", "3", "0", "$0.0300", "$0.0000", "-"]
    ]


def test_json_is_one_object(cli, ledger):
    code, out, err = cli("report", *ledger, "--json", "--penalty-usd", "0.5")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["requests"], found["routes"]) == (6, {"local": 3, "merged": 0, "upstream": 3, "refused": 0})
    assert found["agreement"]["tools"]["f"]["share"] == 0.5
    assert found["savings"]["low_usd"] == pytest.approx(0.03 - 1.5)
    assert list(found["by"]) == ["tool", "model", "reason", "day", "policy"]


def test_a_period_and_one_table_can_be_asked_for(cli, ledger):
    _, out, _ = cli("report", *ledger, "--json", "--since", "1d", "--by", "model")
    found = json.loads(out)
    assert {row["key"]: row["requests"] for row in found["by"].pop("model")} == {"m": 5}
    assert found["by"] == {}
    _, out, _ = cli("report", *ledger, "--until", "1d", "--by", "model")
    assert "By model" in out
    assert "old" in out
    assert "By reason" not in out


def test_the_page_is_a_file_of_its_owners(cli, ledger, tmp_path):
    code, out, err = cli("report", *ledger, "--html", "report.html")
    assert (code, out, err) == (0, "", "needle-router: wrote report.html\n")
    page = tmp_path / "report.html"
    assert page.read_text().startswith("<!doctype html>")
    assert stat.S_IMODE(page.stat().st_mode) == 0o600
    assert list(tmp_path.glob(".needle-router-*")) == []


def test_a_page_that_cannot_be_written_is_an_error(cli, ledger):
    code, _, err = cli("report", *ledger, "--html", "no/report.html")
    assert (code, err) == (1, "needle-router: no/report.html cannot be written: No such file or directory\n")


def test_a_period_without_requests_is_no_error(cli, ledger):
    code, out, err = cli("report", *ledger, "--since", "1m")
    assert (code, err) == (0, "")
    assert out.splitlines()[1:] == ["no request was recorded in this period"]


def test_the_penalty_of_the_configuration_counts_where_no_flag_is_given(cli, ledger):
    _, out, _ = cli("report", *ledger, "--json", "--set", "report.penalty_usd=2")
    assert json.loads(out)["savings"]["penalty_usd"] == 2
    _, out, _ = cli("report", *ledger, "--json", "--set", "report.penalty_usd=2", "--penalty-usd", "0")
    assert json.loads(out)["savings"]["penalty_usd"] == 0


ENTRY = {"fingerprint": "", "per_tool": False, "tools": {"*": {"threshold": 0.5}}}
CERTIFICATES = {"version": 2, "certificates": [ENTRY]}


def test_a_certificate_file_is_told_with_what_was_seen_of_it(cli, ledger, tmp_path):
    entry = ENTRY | {"fingerprint": "ab", "max_error": 0.05}
    (tmp_path / "c.json").write_text(json.dumps(CERTIFICATES | {"certificates": [entry]}))
    _, out, _ = cli("report", *ledger, "--certificates", "c.json", "--json")
    (found,) = json.loads(out)["certificates"]
    assert (found["tool"], found["threshold"], found["decided"]) == ("*", 0.5, 0)
    policy = json.dumps([{"kind": "threshold", "certificates": "c.json"}])
    _, out, _ = cli("report", *ledger, "--set", f"policy={policy}")
    assert "no request of the period had: 1." in out


def test_a_file_that_holds_no_certificates_is_told(cli, ledger, tmp_path):
    (tmp_path / "c.json").write_text(json.dumps(CERTIFICATES))
    code, out, err = cli("report", *ledger, "--certificates", "c.json")
    assert (code, out) == (2, "")
    assert err.startswith("needle-router: c.json certificates[0].fingerprint must be the fingerprint of a decision")
    code, _, err = cli("report", *ledger, "--certificates", "none.json")
    assert (code, err) == (2, "needle-router: none.json cannot be read: No such file or directory\n")


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (("--ledger", "none.db"), "there is no ledger at none.db: serve first, or name another with --ledger"),
        (("--ledger", "off"), "the ledger is off: name one with --ledger"),
        (("--since", "yesterday"), "--since yesterday: expected 7d, 12h, a date or a date and time"),
        (("--until", "9999999999d"), "--since 30d is not before --until 9999999999d"),
        (("--since", "1h", "--until", "2h"), "--since 1h is not before --until 2h"),
        (("--by", "colour"), "--by colour: expected one of tool, model, reason, day, policy"),
        (("--penalty-usd", "-1"), "--penalty-usd -1: expected an amount of at least 0"),
        (("--penalty-usd", "nan"), "--penalty-usd nan: expected an amount of at least 0"),
    ],
)
def test_what_cannot_be_done_is_said(cli, arguments, problem):
    code, out, err = cli("report", *arguments)
    assert (code, out) == (2, "")
    assert problem in err


def test_a_file_that_is_no_ledger_is_an_error(cli, tmp_path):
    (tmp_path / "decisions.db").write_text("no database, but long enough to be looked at" * 50)
    code, out, err = cli("report", "--ledger", "decisions.db")
    assert (code, out, err) == (1, "", "needle-router: decisions.db cannot be read: file is not a database\n")


def test_a_database_of_somebody_else_is_an_error(cli, tmp_path):
    with sqlite3.connect(tmp_path / "decisions.db") as other:
        other.execute("CREATE TABLE x (y)")
    other.close()
    code, _, err = cli("report", "--ledger", "decisions.db")
    assert code == 1
    assert err == (
        "needle-router: decisions.db cannot be read: it is a database of something else (no table decisions, but x): "
        "set ledger.path to another place\n"
    )


def test_a_row_that_is_no_record_is_an_error(cli, ledger, tmp_path):
    with sqlite3.connect(tmp_path / "decisions.db") as damaged:
        damaged.execute("UPDATE decisions SET record = '{' WHERE id = 2")
    damaged.close()
    code, out, err = cli("report", *ledger)
    assert (code, out) == (1, "")
    assert "decisions.db cannot be read: " in err
    assert "Traceback" not in err


def test_a_ledger_of_an_older_release_can_be_read(cli, tmp_path):
    releases.first(tmp_path / "d.db", records=3)
    code, out, err = cli("report", "--ledger", "d.db", "--since", "2023-01-01", "--json")
    assert (code, err) == (0, "")
    found = json.loads(out)
    assert (found["requests"], found["cost"]["usd"], found["agreement"]["kinds"]) == (
        3,
        0.75,
        {"agree": {"passed": 3, "stopped": 0}},
    )


def test_a_ledger_of_a_newer_release_is_told(cli, ledger, tmp_path):
    with sqlite3.connect(tmp_path / "decisions.db") as newer:
        newer.execute("PRAGMA user_version = 99")
    newer.close()
    code, out, err = cli("report", *ledger)
    assert (code, out) == (1, "")
    assert "cannot be read: it has schema version 99, and this router knows no newer one than" in err


def test_an_empty_ledger_is_no_error(cli, tmp_path):
    code, out, err = cli("report", *wrote(tmp_path / "d.db"))
    assert (code, err) == (0, "")
    assert "no request was recorded in this period" in out


def test_a_ledger_that_another_process_keeps_locked_is_told(cli, ledger, tmp_path):
    holder = sqlite3.connect(tmp_path / "decisions.db", isolation_level=None)
    holder.execute("PRAGMA locking_mode = EXCLUSIVE")
    holder.execute("BEGIN IMMEDIATE")
    holder.execute("DELETE FROM decisions WHERE id = 1")
    code, out, err = cli("report", *ledger)
    holder.execute("ROLLBACK")
    holder.close()
    assert (code, out) == (1, "")
    assert err.endswith("decisions.db cannot be read: database is locked\n")


def test_a_ledger_that_is_being_written_can_be_read(cli, ledger, tmp_path):
    writer = sqlite3.connect(tmp_path / "decisions.db", isolation_level=None)
    writer.execute("BEGIN IMMEDIATE")
    code, _, err = cli("report", *ledger)
    writer.execute("ROLLBACK")
    writer.close()
    assert (code, err) == (0, "")


def test_names_from_requests_cannot_colour_a_terminal_or_forge_a_line(cli, tmp_path):
    path = wrote(tmp_path / "d.db", local(time_s=time.time(), model="\x1b[31m[bold]red\nBy tool", policy="[link=x]y"))
    _, out, _ = cli("report", *path)
    assert "\x1b" not in out
    assert "\\x1b[31m[bold]red\\nBy tool" in out
    _, out, _ = cli("report", *path, "--by", "policy")
    assert "[link=x]y" in out


def test_help_names_every_flag(cli):
    code, out, _ = cli("report", "--help")
    assert code == 0
    for flag in ("--since", "--until", "--by", "--penalty-usd", "--html", "--json", "--ledger"):
        assert flag in out
