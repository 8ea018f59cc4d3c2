"""Records on their way to other programs: complete, typed, private, and without surprises for a spreadsheet."""

import csv
import dataclasses
import io
import json
import os
import sqlite3
import stat
import time
from contextlib import closing

import pytest
from tests.cli.conftest import Cli

from needle_router.cli import main
from needle_router.ledger import Ledger
from needle_router.ledger.export import harmless, to_csv
from needle_router.ledger.flat import COLUMNS, flat
from needle_router.ledger.rows import SCHEMA_VERSION
from needle_router.records import DecisionRecord
from needle_router.turn import Usage

FULL = DecisionRecord(
    time_s=1_800_000_000.25,
    route="local",
    reason="confident",
    policy="threshold",
    model="big",
    stream=True,
    status=200,
    tools_offered=("a", "b"),
    tools_called=("a",),
    confidence=0.9,
    saved=Usage(10, 4),
    saved_usd=0.125,
    engine_ran=True,
)
UPSTREAM = DecisionRecord(
    time_s=1_800_000_100.0, route="upstream", reason="no-call", model="big", usage=Usage(7, 3, 2), cost_usd=0.5
)


@pytest.fixture
def cli(tmp_path, monkeypatch, capsys):
    """The command line in this process: exit code, standard output, standard error."""
    for name in [name for name in os.environ if name.startswith("NEEDLE_ROUTER_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(tmp_path)
    time.tzset()

    def run(*arguments):
        return main(arguments), *capsys.readouterr()

    yield run
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def ledger(tmp_path):
    return written(tmp_path / "decisions.db", FULL, UPSTREAM)


def written(path, *records):
    made = Ledger(path, retention_days=36_500, instance="pod-7")
    made.start()
    for each in records:
        made.put(each)
    made.close()
    return path


def test_the_flat_columns_hold_every_field_of_a_record():
    names = {field.name for field in dataclasses.fields(DecisionRecord)}
    tokens = {"usage", "saved", "wasted", "audit_usage"}
    plain = names - tokens
    counts = {f"{name}_{field.name}" for name in tokens for field in dataclasses.fields(Usage)}
    assert set(COLUMNS) == {"time", "instance"} | plain | counts
    assert set(COLUMNS.values()) == {"TEXT", "REAL", "INTEGER"}


def test_a_record_becomes_numbers_texts_and_nothing_else():
    found = dict(zip(COLUMNS, flat(FULL, "pod-7"), strict=True))
    assert {name: found[name] for name in ("time", "time_s", "stream", "tools_offered", "confidence")} == {
        "time": "2027-01-15T08:00:00.250+00:00",
        "time_s": 1_800_000_000.25,
        "stream": 1,
        "tools_offered": '["a","b"]',
        "confidence": 0.9,
    }
    assert (found["usage_prompt_tokens"], found["cost_usd"], found["saved_prompt_tokens"]) == (None, None, 10)


def test_json_lines_hold_the_records_as_they_are(cli, ledger):
    code, out, err = cli("ledger", "export", "--ledger", str(ledger))
    assert (code, err) == (0, "needle-router: 2 records exported\n")
    first, second = map(json.loads, out.splitlines())
    assert first == {"instance": "pod-7", **json.loads(json.dumps(dataclasses.asdict(FULL)))}
    assert second["usage"] == dataclasses.asdict(Usage(7, 3, 2))


def test_csv_has_a_line_of_names_and_is_empty_where_nothing_is_known(cli, ledger):
    code, out, _ = cli("ledger", "export", "--format", "csv", "--output", "-", "--ledger", str(ledger))
    first, second = csv.DictReader(io.StringIO(out))
    assert (code, list(first)) == (0, list(COLUMNS))
    assert (first["saved_usd"], first["cost_usd"], first["usage_prompt_tokens"]) == ("0.125", "", "")
    assert (second["cost_usd"], second["usage_cached_tokens"], second["instance"]) == ("0.5", "2", "pod-7")


def test_sqlite_has_one_table_whose_columns_have_one_type(cli, ledger, tmp_path):
    target = tmp_path / "flat.db"
    arguments = ("ledger", "export", "--format", "sqlite", "--output", str(target), "--ledger", str(ledger))
    assert cli(*arguments)[::2] == (0, f"needle-router: 2 records exported to {target}\n")
    # Once more over the old one: it is replaced, not added to.
    assert cli(*arguments)[0] == 0
    with closing(sqlite3.connect(target)) as flat_file:
        assert flat_file.execute("SELECT name FROM sqlite_master").fetchall() == [("decisions",)]
        declared = {row[1]: row[2] for row in flat_file.execute("PRAGMA table_info(decisions)")}
        assert declared == dict(COLUMNS)
        for name, kind in declared.items():
            found = {row[0] for row in flat_file.execute(f"SELECT typeof({name}) FROM decisions")}
            assert found <= {kind.lower(), "null"}, name
        query = "SELECT route, saved_usd, cost_usd, usage_prompt_tokens FROM decisions ORDER BY time_s"
        assert flat_file.execute(query).fetchall() == [("local", 0.125, None, None), ("upstream", None, 0.5, 7)]
    assert stat.S_IMODE(target.stat().st_mode) == 0o600


@pytest.mark.parametrize("kind", ["jsonl", "csv", "sqlite"])
def test_a_file_is_private_and_whole_or_not_there(cli, ledger, tmp_path, kind):
    target = tmp_path / "out" / "records"
    arguments = ("ledger", "export", "--format", kind, "--output", str(target), "--ledger", str(ledger))
    code, _, err = cli(*arguments)
    assert (code, err) == (1, f"needle-router: {target} cannot be written: No such file or directory\n")
    target.parent.mkdir()
    assert cli(*arguments)[0] == 0
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    before = target.read_bytes()
    with closing(sqlite3.connect(ledger)) as damaged, damaged:
        damaged.execute("UPDATE decisions SET record = '{' WHERE id = 2")
    code, _, err = cli(*arguments)
    assert (code, err.partition(" a row of")[0]) == (1, f"needle-router: {ledger} cannot be read:")
    assert target.read_bytes() == before
    assert [file.name for file in target.parent.iterdir()] == ["records"]


@pytest.mark.parametrize("text", ["=1+1", "+1", "-1", "@SUM(A1)", "\t=1", "\r=1", "\n=1"])
def test_a_text_that_a_spreadsheet_would_run_is_quoted_in_csv(text):
    out = io.BytesIO()
    to_csv([(dataclasses.replace(FULL, model=text), "a,b")], out)
    (row,) = csv.DictReader(io.StringIO(out.getvalue().decode(), newline=""))
    assert row["model"] == f"'{text}"
    assert row["instance"] == "a,b"


@pytest.mark.parametrize("value", ["plain", "", None, -1.5, 0, '["=a"]'])
def test_numbers_and_other_texts_stay_as_they_are_in_csv(value):
    assert harmless(value) == value


@pytest.mark.parametrize(
    ("flags", "routes"),
    [
        (("--since", "2027-01-15T08:01:00+00:00"), ["upstream"]),
        (("--until", "2027-01-15T08:01:00+00:00"), ["local"]),
        (("--since", "2027-01-14", "--until", "2027-01-16"), ["local", "upstream"]),
        (("--since", "2027-01-17"), []),
    ],
)
def test_a_period_can_be_cut_out(cli, ledger, flags, routes):
    _, out, _ = cli("ledger", "export", "--ledger", str(ledger), *flags)
    assert [json.loads(line)["route"] for line in out.splitlines()] == routes


def test_text_of_requests_is_exported_only_where_the_ledger_holds_it(cli, tmp_path):
    path = written(tmp_path / "d.db", FULL, dataclasses.replace(UPSTREAM, content='{"user":"hi"}'))
    _, out, _ = cli("ledger", "export", "--ledger", str(path))
    assert [json.loads(line)["content"] for line in out.splitlines()] == ["", '{"user":"hi"}']


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("export", "--format", "parquet"), "--format parquet: expected one of jsonl, csv, sqlite"),
        (("export", "--format", "sqlite"), "--format sqlite: cannot go to standard output, name a file with --output"),
        (("export", "--since", "yesterday"), "--since yesterday: expected 7d, 12h, a date or a date and time"),
        (("export", "--ledger", "off"), "the ledger is off: name one with --ledger"),
        (
            ("info", "--ledger", "none.db"),
            "there is no ledger at none.db: serve first, or name another with --ledger",
        ),
        (("prune", "--older-than", "x"), "--older-than x: expected 7d, 12h, a date or a date and time"),
    ],
)
def test_a_wrong_argument_is_told_in_words(cli, ledger, arguments, words):
    named = () if "--ledger" in arguments else ("--ledger", str(ledger))
    assert cli("ledger", *arguments, *named) == (2, "", f"needle-router: {words}\n")


def test_info_says_where_the_ledger_is_and_what_it_holds(cli, ledger):
    code, out, _ = cli("ledger", "info", "--json", "--ledger", str(ledger))
    found = json.loads(out)
    assert code == 0
    assert found.pop("size_bytes") >= 4096
    assert found == {
        "place": str(ledger),
        "schema": SCHEMA_VERSION,
        "records": 2,
        "oldest_s": 1_800_000_000.25,
        "newest_s": 1_800_000_100.0,
    }
    code, out, _ = cli("ledger", "info", "--ledger", str(ledger))
    assert code == 0
    assert out.splitlines()[:5] == [
        f"ledger   {ledger}",
        f"schema   {SCHEMA_VERSION}",
        "records  2",
        "oldest   2027-01-15 08:00:00+00:00",
        "newest   2027-01-15 08:01:40+00:00",
    ]


def test_prune_removes_what_is_older(cli, ledger):
    code, out, _ = cli("ledger", "prune", "--older-than", "2027-01-15T08:01:00+00:00", "--ledger", str(ledger))
    assert (code, out) == (0, "1 records from before 2027-01-15 08:01:00+00:00 removed\n")
    code, out, _ = cli("ledger", "export", "--ledger", str(ledger))
    assert [json.loads(line)["route"] for line in out.splitlines()] == ["upstream"]


def test_a_file_that_is_no_ledger_is_an_error_and_stays_as_it_is(cli, tmp_path):
    path = tmp_path / "notes.txt"
    path.write_text("these are no records, " * 100)
    for command in ("export", "info"):
        code, out, err = cli("ledger", command, "--ledger", str(path))
        assert (code, out, err) == (1, "", f"needle-router: {path} cannot be read: file is not a database\n")
    assert path.read_text() == "these are no records, " * 100


def test_the_commands_work_in_a_process_of_their_own(tmp_path, ledger):
    run = Cli(tmp_path)
    code, out, err = run("ledger", "export", "--output", "-", "--ledger", str(ledger))
    assert (code, len(out.splitlines()), err) == (0, 2, "needle-router: 2 records exported\n")
    code, out, _ = run("ledger", "--help")
    assert code == 0
    assert [command for command in ("export", "info", "prune") if f"│ {command} " not in out] == []


@pytest.mark.xdist_group("postgres")
def test_a_ledger_in_postgres_is_exported_counted_and_pruned_the_same(cli, database, monkeypatch, tmp_path):
    written(database.place, FULL, UPSTREAM)
    monkeypatch.setenv("NEEDLE_ROUTER_LEDGER_PATH", database.place.url)
    code, out, err = cli("ledger", "export")
    assert (code, [json.loads(line)["route"] for line in out.splitlines()]) == (0, ["local", "upstream"]), err
    code, out, _ = cli("ledger", "info", "--json")
    found = json.loads(out)
    assert (code, found["place"], found["schema"], found["records"]) == (0, str(database.place), SCHEMA_VERSION, 2)
    # A process of its own, because it sets up logging.
    check = ("check", "--json", "--mode", "off", "--port", "0")
    _, out, _ = Cli(tmp_path)(*check, NEEDLE_ROUTER_LEDGER_PATH=database.place.url)
    row = next(row for row in json.loads(out)["checks"] if row["name"] == "ledger")
    assert (row["state"], row["text"]) == ("ok", f"{database.place}, 2 records")
    code, out, _ = cli("ledger", "prune", "--older-than", "2027-01-15T08:01:00+00:00")
    assert (code, out.partition(" from")[0]) == (0, "1 records")


@pytest.mark.xdist_group("postgres")
def test_reports_and_calibrations_read_a_ledger_in_postgres_too(cli, database, monkeypatch):
    seen = dataclasses.replace(UPSTREAM, tools_called=("a",), confidence=0.9, comparison="agree", fingerprint="f")
    written(database.place, FULL, *[seen] * 100)
    monkeypatch.setenv("NEEDLE_ROUTER_LEDGER_PATH", database.place.url)
    code, out, err = cli("report", "--json", "--since", "2027-01-14", "--until", "2027-01-16")
    assert (code, json.loads(out)["requests"]) == (0, 101), err
    code, out, err = cli("calibrate", "--max-error", "0.1", "--json")
    assert (code, json.loads(out)["tools"]["*"]["n"]) == (0, 100), err
