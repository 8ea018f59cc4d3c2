"""Files of older, newer and other programs: brought up to date, or left alone, and never half done."""

import os
import sqlite3
import subprocess
import sys
from contextlib import closing

import pytest
from tests.ledger import releases
from tests.ledger.conftest import until

from needle_router.ledger import Ledger, LedgerError, read_ledger
from needle_router.ledger.reading import costs
from needle_router.ledger.rows import COLUMNS, SCHEMA_VERSION
from needle_router.ledger.sqlite import SqliteStore
from needle_router.records import DecisionRecord
from needle_router.turn import Usage

OLD = DecisionRecord(
    time_s=1_700_000_000.5,
    route="upstream",
    reason="below-threshold",
    policy="threshold",
    mode="shadow",
    model="big",
    status=200,
    tools_offered=("a", "b"),
    tools_called=("a",),
    confidence=0.5,
    fingerprint="f00d",
    overhead_s=0.001,
    engine_s=0.02,
    total_s=0.4,
    usage=Usage(7, 3),
    cost_usd=0.25,
    comparison="agree",
    reinitialized=True,
    engine_ran=True,
)
MIGRATE = "import sys; from pathlib import Path; from needle_router.ledger.sqlite import SqliteStore; "


def write(path, *records, **options):
    ledger = Ledger(path, retention_days=36_500, **options)
    ledger.start()
    for each in records:
        ledger.put(each)
    ledger.close()
    return ledger


def new(**changes):
    return DecisionRecord(**{"time_s": 1_800_000_000.0, "route": "local", "reason": "confident", **changes})


def asked(path, query):
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute(query).fetchall()


def columns(path):
    return [row[1] for row in asked(path, "PRAGMA table_info(decisions)")]


def bring_up_to_date(path):
    store = SqliteStore(path)
    store.open()
    store.close()


def test_a_ledger_of_the_first_release_is_read_as_it_is(tmp_path):
    releases.first(tmp_path / "d.db")
    assert list(read_ledger(tmp_path / "d.db")) == [OLD]
    assert asked(tmp_path / "d.db", "PRAGMA user_version") == [(1,)]


@pytest.mark.parametrize("version", [1, 0], ids=["finished", "killed before it noted its version"])
def test_a_ledger_of_the_first_release_is_brought_up_to_date_and_written_on(tmp_path, version):
    releases.first(tmp_path / "d.db", version=version)
    ledger = write(tmp_path / "d.db", new(), instance="here")
    assert (ledger.written, ledger.dropped) == (1, 0)
    assert list(read_ledger(tmp_path / "d.db")) == [OLD, new()]
    query = (
        "SELECT policy, mode, status, confidence, fingerprint, comparison, instance, audit FROM decisions ORDER BY id"
    )
    assert asked(tmp_path / "d.db", query) == [
        ("threshold", "shadow", 200, 0.5, "f00d", "agree", None, None),
        ("", "on", 0, None, "", "", "here", ""),
    ]


def test_spend_is_the_same_before_and_after_a_ledger_is_brought_up_to_date(tmp_path):
    path = tmp_path / "d.db"
    releases.first(path, records=2, audit_usd=0.5, wasted_usd=0.125)
    spent = [(1_700_000_000.5, 0.875)] * 2
    assert costs(path, since_s=0.0, before_s=2e9) == spent
    bring_up_to_date(path)
    assert costs(path, since_s=0.0, before_s=2e9) == spent
    assert asked(path, "SELECT audit_usd, wasted_usd FROM decisions") == [(0.5, 0.125)] * 2


def test_an_old_ledger_and_a_new_one_have_the_same_columns(tmp_path):
    releases.first(tmp_path / "old.db")
    bring_up_to_date(tmp_path / "old.db")
    bring_up_to_date(tmp_path / "new.db")
    assert columns(tmp_path / "old.db") == columns(tmp_path / "new.db")
    assert set(columns(tmp_path / "new.db")) == {"id"} | {name for added in COLUMNS.values() for name in added}
    assert max(COLUMNS) == SCHEMA_VERSION


def test_a_row_that_is_no_json_does_not_stop_the_rest(tmp_path):
    path = tmp_path / "d.db"
    releases.first(path, records=2)
    with closing(sqlite3.connect(path)) as other, other:
        other.execute("UPDATE decisions SET record = '{' WHERE id = 1")
    bring_up_to_date(path)
    assert asked(path, "SELECT policy FROM decisions ORDER BY id") == [(None,), ("threshold",)]
    with pytest.raises(ValueError, match="no record of a decision"):
        list(read_ledger(path))


def test_who_is_killed_while_migrating_leaves_the_ledger_as_it_was(tmp_path):
    path = tmp_path / "d.db"
    releases.first(path, records=2000)
    # Killed by its own hand in the middle of the last step, where all columns are there and few are filled.
    code = (
        "import os, signal, sqlite3, sys; from needle_router.ledger.schema import migrate\n"
        "connection = sqlite3.connect(sys.argv[1], isolation_level=None)\n"
        "seen, steps = [], iter(range(20))\n"
        "def progress():\n"
        "    if any('UPDATE' in text for text in seen) and next(steps, None) is None:\n"
        "        os.kill(os.getpid(), signal.SIGKILL)\n"
        "connection.set_trace_callback(seen.append)\n"
        "connection.set_progress_handler(progress, 1000)\n"
        "migrate(connection)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(path)], env=environment(), timeout=60)
    assert done.returncode == -9
    assert asked(path, "PRAGMA user_version") == [(1,)]
    assert set(columns(path)) == {"id", *COLUMNS[1]}
    bring_up_to_date(path)
    assert asked(path, "SELECT count(*), count(policy) FROM decisions") == [(2000, 2000)]


def test_two_processes_that_migrate_at_once_both_go_on(tmp_path):
    path = tmp_path / "d.db"
    releases.first(path, records=20_000)
    code = MIGRATE + "store = SqliteStore(Path(sys.argv[1])); sys.stdin.read(1); store.open(); store.close()"
    both = [
        subprocess.Popen([sys.executable, "-c", code, str(path)], env=environment(), stdin=subprocess.PIPE)
        for _ in range(2)
    ]
    for each in both:
        each.stdin.close()
    assert [each.wait(60) for each in both] == [0, 0]
    assert asked(path, "SELECT count(*), count(policy) FROM decisions") == [(20_000, 20_000)]
    assert asked(path, "PRAGMA user_version") == [(SCHEMA_VERSION,)]


def test_a_ledger_of_a_later_release_is_left_alone_and_costs_only_records(tmp_path, caplog):
    path = tmp_path / "d.db"
    write(path, new())
    asked(path, "PRAGMA user_version=99")
    before = path.read_bytes()
    ledger = Ledger(path)
    ledger.start()
    ledger.put(new())
    until(lambda: ledger.dropped == 1)
    wanted = (
        "it has schema version 99, and this router knows no newer one than 3: install the newer router, "
        "or set ledger.path to another place"
    )
    assert (ledger.state, ledger.detail) == ("degraded", wanted)
    ledger.close()
    assert wanted in caplog.text
    assert path.read_bytes() == before
    assert [file.name for file in tmp_path.iterdir() if "broken" in file.name] == []
    with pytest.raises(LedgerError, match="schema version 99"):
        list(read_ledger(path))


@pytest.mark.parametrize(
    ("table", "words"),
    [
        ("customers (name)", "it is a database of something else (no table decisions, but customers)"),
        (
            "decisions (id, time_s, route, reason, model, record)",
            "it is a database of something else (its table decisions has no cost_usd, saved_usd)",
        ),
    ],
    ids=["other tables", "a table of the same name"],
)
def test_a_database_of_something_else_is_left_alone(tmp_path, table, words):
    path = tmp_path / "app.db"
    with closing(sqlite3.connect(path)) as other:
        other.execute(f"CREATE TABLE {table}")
    path.chmod(0o644)
    before = path.read_bytes()
    ledger = Ledger(path)
    ledger.start()
    ledger.put(new())
    until(lambda: ledger.dropped == 1)
    ledger.close()
    assert ledger.detail.startswith(words)
    assert (path.read_bytes(), path.stat().st_mode & 0o777) == (before, 0o644)
    assert [file.name for file in tmp_path.iterdir()] == ["app.db"]


def test_an_empty_file_is_an_empty_ledger(tmp_path):
    (tmp_path / "d.db").touch()
    assert list(read_ledger(tmp_path / "d.db")) == []


def test_a_missing_file_is_an_error_in_words(tmp_path):
    with pytest.raises(LedgerError, match="unable to open database file"):
        list(read_ledger(tmp_path / "none.db"))


def environment():
    return {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
