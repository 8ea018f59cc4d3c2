"""A ledger in a real PostgreSQL, and all that a database server does to those who rely on it."""

import datetime
import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import anyio
import pytest
from tests.cli.conftest import Cli
from tests.ledger import releases
from tests.ledger.conftest import PASSWORD, until
from tests.servers import free_port

from needle_router.dashboard import Dashboard
from needle_router.ledger import Database, Ledger, LedgerError, read_ledger
from needle_router.ledger.reading import costs
from needle_router.ledger.rows import SCHEMA_VERSION
from needle_router.records import DecisionRecord
from needle_router.spend import Spend
from needle_router.turn import Usage

pytest.importorskip("psycopg", reason="needs the extra needle-router[postgres]")
from needle_router.ledger.postgres_tables import migrate, version_of
from needle_router.ledger.postgres_wire import connected

pytestmark = pytest.mark.xdist_group("postgres")
RETRY_S = (0.05, 0.2)


def record(**changes):
    return DecisionRecord(**{"time_s": time.time(), "route": "local", "reason": "confident", **changes})


def started(place, **options):
    ledger = Ledger(place, **{"retry_s": RETRY_S, "instance": "a", **options})
    ledger.start()
    return ledger


def write(place, *records, **options):
    ledger = started(place, **options)
    for each in records:
        ledger.put(each)
    ledger.close()
    return ledger


def models(place):
    return [each.model for each in read_ledger(place)]


def test_records_come_back_as_they_went_in(database):
    full = record(
        model='a "name", with {everything} \\ and ünïcode',
        tools_offered=("a", "b"),
        confidence=0.9,
        failures=("negated",),
        usage=Usage(1, 2, cached_tokens=1),
        cost_usd=0.1,
    )
    ledger = write(database.place, full, record(model="next"), instance="pod-7")
    assert (ledger.state, ledger.written, ledger.dropped) == ("ok", 2, 0)
    assert next(iter(read_ledger(database.place))) == full
    assert list(read_ledger(database.place, since_s=time.time() + 10)) == []
    rows = database.ask(
        "SELECT instance, model, confidence, cost_usd, (record->'usage'->>'cached_tokens')::int "
        "FROM needle_router_decisions ORDER BY id"
    )
    assert rows == [("pod-7", full.model, 0.9, 0.1, 1), ("pod-7", "next", None, None, None)]


def test_an_empty_database_is_an_empty_ledger(database):
    assert list(read_ledger(database.place)) == []


def test_a_burst_is_written_whole_and_in_order(database):
    ledger = write(database.place, *(record(model=str(number)) for number in range(3000)))
    assert models(database.place) == [str(number) for number in range(3000)]
    assert ledger.dropped == 0


def test_texts_that_postgres_refuses_cost_no_record(database):
    ledger = write(database.place, record(model="a \0 in it"), record(model="half a pair \ud83d"), record(model="m"))
    assert models(database.place) == ["a ? in it", "half a pair ?", "m"]
    assert ledger.dropped == 0


@pytest.mark.parametrize("number", [2**63, 2**70])
def test_a_record_that_cannot_be_stored_costs_itself_and_not_its_neighbours(database, number):
    ledger = write(database.place, record(model="before"), record(status=number), record(model="after"))
    assert models(database.place) == ["before", "after"]
    assert (ledger.written, ledger.dropped, ledger.state) == (2, 1, "ok")


def test_old_records_are_removed(database):
    write(database.place, record(time_s=time.time() - 2 * 86_400), record(model="new"), retention_days=1)
    assert models(database.place) == ["new"]


def test_two_replicas_start_at_once_and_write_to_one_database(database):
    code = (
        "import sys, time; from needle_router.ledger import Database, Ledger; "
        "from needle_router.records import DecisionRecord\n"
        "ledger = Ledger(Database(sys.argv[1]), instance=sys.argv[2]); ledger.start(); sys.stdin.read()\n"
        "for number in range(1000): ledger.put(DecisionRecord(time.time(), 'local', 'confident', model=str(number)))\n"
        "ledger.close(30); print(ledger.written, ledger.dropped)"
    )
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    both = [
        subprocess.Popen([sys.executable, "-c", code, database.place.url, name], env=environment, **pipes)
        for name in ("a", "b")
    ]
    for each in both:
        each.stdin.close()
    assert [each.stdout.read().split() for each in both] == [[b"1000", b"0"]] * 2
    assert [each.wait(30) for each in both] == [0, 0]
    query = "SELECT instance, count(DISTINCT model) FROM needle_router_decisions GROUP BY instance ORDER BY instance"
    assert database.ask(query) == [("a", 1000), ("b", 1000)]
    for each in both:
        each.stdout.close()


def test_a_replica_that_waits_while_another_makes_the_tables_finds_them_afterwards(database):
    def late():
        with connected(database.place) as other, other.transaction():
            migrate(other)
            return version_of(other)

    waiting = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with ThreadPoolExecutor() as threads, connected(database.place) as quick:
        with quick.transaction():
            migrate(quick)
            found = threads.submit(late)
            until(lambda: database.ask(waiting))
        assert found.result(10) == SCHEMA_VERSION


def test_a_server_that_is_down_keeps_records_waiting_and_loses_none(server, database):
    server.stop()
    try:
        ledger = started(database.place)
        ledger.put(record(model="early"))
        until(lambda: ledger.state == "degraded")
        assert ledger.detail == "there is no connection to the database, the log says why"
    finally:
        server.start()
    ledger.put(record(model="later"))
    until(lambda: ledger.written == 2)
    assert (ledger.state, ledger.detail, ledger.dropped) == ("ok", "", 0)
    ledger.close()
    assert models(database.place) == ["early", "later"]


def test_a_server_that_is_lost_in_the_middle_is_found_again(server, database):
    ledger = started(database.place)
    ledger.put(record(model="before"))
    until(lambda: ledger.written == 1)
    server.stop()
    try:
        ledger.put(record(model="meanwhile"))
        until(lambda: ledger.state == "degraded")
    finally:
        server.start()
    until(lambda: ledger.written == 2)
    ledger.close()
    assert models(database.place) == ["before", "meanwhile"]
    assert ledger.dropped == 0


def test_a_session_that_is_killed_costs_nothing(database):
    ledger = started(database.place)
    ledger.put(record(model="before"))
    until(lambda: ledger.written == 1)
    database.ask("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'needle-router'")
    ledger.put(record(model="after"))
    until(lambda: ledger.written == 2)
    ledger.close()
    assert models(database.place) == ["before", "after"]


def test_a_database_that_stays_away_costs_only_what_the_queue_cannot_hold():
    place = Database(f"postgresql://u:{'s3cret'}@127.0.0.1:{free_port()}/d")
    ledger = started(place, queue_limit=10)
    ledger.put(record())
    until(lambda: ledger.state == "degraded")
    for _ in range(1000):
        ledger.put(record())
    # One waits in the writer's hand, ten in the queue.
    assert ledger.dropped == 990
    ledger.close()
    assert ledger.dropped == 1001


def test_a_wrong_password_is_told_in_words_and_never_shown(server, caplog):
    place = Database(server.url("postgres", password="not-the-s3cret"))
    ledger = started(place)
    ledger.put(record())
    until(lambda: ledger.state == "degraded")
    ledger.close()
    assert (ledger.written, ledger.dropped) == (0, 1)
    assert "password authentication failed" in caplog.text
    assert f"postgresql://127.0.0.1:{server.port}/postgres" in caplog.text
    assert "s3cret" not in caplog.text + ledger.detail + repr(place) + str(place)
    with pytest.raises(LedgerError, match="password authentication failed"):
        list(read_ledger(place))


def test_a_password_that_a_server_says_back_is_not_shown(server, caplog):
    """The name of a database is part of the server's answer, and somebody may use one word for both."""
    place = Database(server.url(PASSWORD.replace("/", "%2F").replace("?", "%3F").replace("#", "%23")))
    ledger = started(place)
    ledger.put(record())
    until(lambda: ledger.state == "degraded")
    ledger.close()
    assert 'database "(not shown)" does not exist' in caplog.text
    assert PASSWORD not in caplog.text


def test_a_commit_that_is_not_answered_costs_its_records_and_writes_none_twice(database):
    write(database.place, record(model="before"))
    # A commit that takes its time: whoever loses the connection in it cannot know how it ended.
    database.ask(
        "CREATE FUNCTION slow() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN PERFORM pg_sleep(30); RETURN NULL; END'"
    )
    database.ask(
        "CREATE CONSTRAINT TRIGGER slow AFTER INSERT ON needle_router_decisions DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION slow()"
    )
    ledger = started(database.place)
    ledger.put(record(model="unknown fate"))
    committing = "FROM pg_stat_activity WHERE application_name = 'needle-router' AND query = 'COMMIT'"
    until(lambda: database.ask(f"SELECT 1 {committing} AND state = 'active'"))
    database.ask(f"SELECT pg_terminate_backend(pid) {committing}")
    until(lambda: ledger.dropped == 1)
    database.ask("DROP TRIGGER slow ON needle_router_decisions")
    ledger.put(record(model="after"))
    until(lambda: ledger.written == 1)
    ledger.close()
    assert (ledger.dropped, models(database.place)) == (1, ["before", "after"])


@pytest.mark.slow
def test_a_table_that_is_locked_is_given_up_in_time_and_tried_again(database, caplog):
    import psycopg

    write(database.place, record(model="before"))
    ledger = started(database.place)
    with psycopg.connect(database.place.url) as holder:
        holder.execute("LOCK TABLE needle_router_decisions IN EXCLUSIVE MODE")
        ledger.put(record(model="waiting"))
        until(lambda: ledger.state == "degraded", 20)
        assert ledger.detail == "the database took too long"
    until(lambda: ledger.written == 1)
    ledger.close()
    assert models(database.place) == ["before", "waiting"]


@pytest.mark.slow
def test_a_server_that_falls_silent_is_given_up_in_time(database):
    ledger = started(database.place)
    ledger.put(record(model="before"))
    until(lambda: ledger.written == 1)
    query = "SELECT pid FROM pg_stat_activity WHERE application_name = 'needle-router'"
    ((pid,),) = database.ask(query)
    os.kill(pid, signal.SIGSTOP)
    try:
        ledger.put(record(model="waiting"))
        # On another connection, since the silent one is cut.
        until(lambda: ledger.written == 2, 20)
    finally:
        os.kill(pid, signal.SIGCONT)
    ledger.close()
    assert models(database.place) == ["before", "waiting"]


def test_a_schema_of_a_later_release_is_left_alone(database):
    write(database.place, record(model="before"))
    database.ask("UPDATE needle_router_schema SET version = 99")
    ledger = started(database.place)
    ledger.put(record(model="after"))
    until(lambda: ledger.state == "degraded")
    assert ledger.detail.startswith(
        f"it has schema version 99, and this router knows no newer one than {SCHEMA_VERSION}"
    )
    # The newer router is rolled back: nothing was lost meanwhile.
    database.ask("UPDATE needle_router_schema SET version = %s", SCHEMA_VERSION)
    until(lambda: ledger.written == 1)
    ledger.close()
    assert models(database.place) == ["before", "after"]


def test_tables_of_an_older_release_are_read_as_they_are_and_brought_up_to_date_by_who_writes(database):
    releases.first_in_postgres(database, audit="compared", audit_usd=0.5, wasted_usd=0.125)
    (old,) = read_ledger(database.place)
    assert (old.audit_usd, old.fingerprint) == (0.5, "f00d")
    assert costs(database.place, since_s=0.0, before_s=2e9) == [(1_700_000_000.5, 0.875)]
    write(database.place, record(model="new", audit_usd=1.0), retention_days=36_500)
    query = "SELECT audit, audit_usd, wasted_usd, instance FROM needle_router_decisions ORDER BY id"
    assert database.ask(query) == [("compared", 0.5, 0.125, "old"), ("", 1.0, None, "a")]
    assert database.ask("SELECT version FROM needle_router_schema") == [(SCHEMA_VERSION,)]
    assert [usd for _, usd in costs(database.place, since_s=0.0, before_s=2e9)] == [0.875, 1.0]


def test_two_replicas_that_migrate_at_once_both_go_on(database):
    releases.first_in_postgres(database, records=5000, audit="compared")
    both = [started(database.place, instance=name, retention_days=36_500) for name in ("a", "b")]
    for ledger in both:
        ledger.put(record(model="new"))
    until(lambda: [ledger.written for ledger in both] == [1, 1], 30)
    for ledger in both:
        ledger.close()
    assert database.ask("SELECT count(*), count(audit) FROM needle_router_decisions") == [(5002, 5002)]
    assert database.ask("SELECT version FROM needle_router_schema") == [(SCHEMA_VERSION,)]


def test_a_user_who_may_only_write_needs_tables_that_are_there(server, database):
    database.ask("CREATE ROLE writer LOGIN PASSWORD 'w'")
    place = Database(server.url(database.name, user="writer", password="w"))
    try:
        ledger = started(place)
        ledger.put(record(model="early"))
        until(lambda: ledger.state == "degraded")
        assert ledger.detail == "the database refused (InsufficientPrivilege)"
        write(database.place, record(model="owner"))
        database.ask("GRANT SELECT, INSERT, DELETE ON needle_router_decisions, needle_router_schema TO writer")
        until(lambda: ledger.written == 1)
        ledger.close()
    finally:
        database.ask("DROP OWNED BY writer")
        database.ask("DROP ROLE writer")
    assert models(database.place) == ["owner", "early"]


def test_spend_goes_on_with_what_all_replicas_have_spent(database):
    noon = datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC)
    for name, usd in (("a", 0.25), ("b", 0.5)):
        spent = record(time_s=noon.timestamp() - 1, cost_usd=usd)
        write(database.place, spent, instance=name, retention_days=36_500)
    spend = Spend(now=lambda: noon)
    spend.start(database.place)
    spend.join(10)
    assert spend.now() == (0.75, 0.75)


def test_spend_counts_what_races_wasted(database):
    noon = datetime.datetime(2026, 3, 10, 12, tzinfo=datetime.UTC)
    spent = record(time_s=noon.timestamp() - 1, cost_usd=None, raced=True, wasted_usd=0.25)
    write(database.place, spent, record(time_s=noon.timestamp() - 1, cost_usd=0.5), retention_days=36_500)
    spend = Spend(now=lambda: noon)
    spend.load(database.place)
    assert spend.now() == (0.75, 0.75)


def test_report_and_dashboard_read_the_database_and_show_no_password(database, tmp_path):
    write(database.place, record(model="big"), record(route="upstream", reason="no-tools"))
    code, out, err = Cli(tmp_path)("report", "--json", "--ledger", database.place.url)
    assert (code, err) == (0, "")
    assert json.loads(out)["routes"] == {"local": 1, "merged": 0, "upstream": 1, "refused": 0}
    code, out, _ = Cli(tmp_path)("report", "--ledger", database.place.url)
    assert str(database.place) in out.splitlines()[0]
    assert database.place.url not in out
    page = anyio.run(Dashboard(database.place, days=1, penalty_usd=0).markup)
    assert "of 2 requests" in page
