"""The ledger never costs a request anything, and metrics never grow with what requests say."""

import os
import sqlite3
import stat
import subprocess
import sys
import time

import pytest

from needle_router.engine.base import EngineHealth, EngineState
from needle_router.ledger import Ledger, LedgerError, default_path, read_ledger
from needle_router.metrics import Metrics
from needle_router.records import DecisionRecord
from needle_router.turn import Usage


def record(**changes):
    values = {"time_s": time.time(), "route": "local", "reason": "confident", "status": 200, "model": "m"}
    return DecisionRecord(**{**values, **changes})


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


@pytest.fixture
def ledger(tmp_path):
    made = Ledger(tmp_path / "state" / "decisions.db")
    made.start()
    yield made
    made.close()


def test_records_come_back_as_they_went_in(ledger):
    full = record(
        tools_offered=("a", "b"),
        tools_called=("a",),
        confidence=0.9,
        failures=("negated",),
        usage=Usage(1, 2),
        saved=Usage(3, 4),
    )
    ledger.put(full)
    ledger.put(record(route="upstream"))
    ledger.close()
    assert next(iter(read_ledger(ledger.path))) == full
    assert [r.route for r in read_ledger(ledger.path)] == ["local", "upstream"]
    assert list(read_ledger(ledger.path, since_s=time.time() + 10)) == []


def test_the_file_is_its_owners_alone(ledger):
    ledger.put(record())
    ledger.close()
    assert stat.S_IMODE(ledger.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(ledger.path.parent.stat().st_mode) == 0o700


def test_a_full_queue_drops_and_counts(tmp_path):
    stuck = Ledger(tmp_path / "d.db", queue_limit=3)
    stuck._thread = object()  # a writer that never comes
    for _ in range(5):
        stuck.put(record())
    assert stuck.dropped == 2


def test_a_file_that_is_no_database_is_put_aside(tmp_path, caplog):
    path = tmp_path / "decisions.db"
    path.write_bytes(b"this is no database, " * 100)
    ledger = Ledger(path)
    ledger.start()
    ledger.put(record())
    ledger.close()
    assert len(list(read_ledger(path))) == 1
    assert len(list(tmp_path.glob("decisions.db.broken-*"))) == 1
    assert "renamed" in caplog.text


def test_a_locked_file_costs_records_and_recovers(ledger):
    ledger.put(record())
    until(lambda: _rows(ledger.path) == 1)
    lock = sqlite3.connect(ledger.path, isolation_level=None)
    lock.execute("BEGIN IMMEDIATE")
    ledger.put(record())
    until(lambda: ledger.dropped == 1)
    assert ledger.state == "degraded"
    lock.execute("ROLLBACK")
    lock.close()
    ledger.put(record())
    until(lambda: ledger.state == "ok")
    ledger.close()
    assert len(list(read_ledger(ledger.path))) == 2


def test_a_place_that_cannot_be_written_costs_only_records(tmp_path):
    blocker = tmp_path / "file"
    blocker.write_text("")
    ledger = Ledger(blocker / "decisions.db")
    ledger.start()
    ledger.put(record())
    until(lambda: ledger.dropped == 1)
    assert ledger.state == "degraded"
    ledger.close()


def test_a_killed_writer_leaves_a_readable_ledger(tmp_path):
    path = tmp_path / "decisions.db"
    code = (
        "import sys, time; from pathlib import Path; from needle_router.ledger import Ledger; "
        "from needle_router.records import DecisionRecord; ledger = Ledger(Path(sys.argv[1])); ledger.start()\n"
        "while True:\n ledger.put(DecisionRecord(time.time(), 'local', 'confident')); time.sleep(0.001)"
    )
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    writer = subprocess.Popen([sys.executable, "-c", code, str(path)], env=env)
    try:
        until(lambda: path.exists() and path.stat().st_size > 0 and _rows(path) > 5, seconds=30)
    finally:
        writer.kill()
        writer.wait()
    before = _rows(path)
    again = Ledger(path)
    again.start()
    again.put(record())
    again.close()
    assert _rows(path) >= before + 1


def _rows(path):
    try:
        return len(list(read_ledger(path)))
    except LedgerError:
        return 0


def test_old_records_are_removed(tmp_path):
    ledger = Ledger(tmp_path / "d.db", retention_days=1)
    ledger.start()
    ledger.put(record(time_s=time.time() - 2 * 86_400))
    ledger.put(record())
    ledger.close()
    assert len(list(read_ledger(ledger.path))) == 1


def test_a_ledger_that_is_off_keeps_nothing():
    off = Ledger(None)
    off.start()
    off.put(record())
    off.close()
    assert (off.state, off.dropped) == ("off", 0)


def test_the_default_place_follows_the_environment(tmp_path):
    assert default_path({"XDG_STATE_HOME": "/x"}).as_posix() == "/x/needle-router/decisions.db"
    assert default_path({"HOME": "/h"}).as_posix() == "/h/.local/state/needle-router/decisions.db"


def samples(metrics):
    text, _ = metrics.render()
    return {
        line.rsplit(" ", 1)[0]: float(line.rsplit(" ", 1)[1]) for line in text.decode().splitlines() if line[0] != "#"
    }


def test_the_metrics_have_their_fixed_names():
    metrics = Metrics(version="1", backend="rust")
    metrics.observe(record(saved=Usage(10, 2), saved_usd=0.5, engine_ran=True, engine_s=0.1))
    metrics.upstream_error("timeout")
    metrics.refresh(EngineHealth(EngineState.READY, queue_depth=3, restarts=2, reinits=5), ledger_dropped=4)
    metrics.refresh(EngineHealth(EngineState.READY, queue_depth=1, restarts=3, reinits=5), ledger_dropped=4)
    metrics.breakers(["open", "half-open", "closed"])
    metrics.breakers(["open", "half-open"])
    found = samples(metrics)
    prefix = "needle_router_"
    assert found[prefix + 'requests_total{code="200",reason="confident",route="local"}'] == 1
    assert found[prefix + 'request_duration_seconds_count{route="local"}'] == 1
    assert found[prefix + "overhead_seconds_count"] == 1
    assert found[prefix + "engine_duration_seconds_count"] == 1
    assert found[prefix + "engine_queue_depth"] == 1
    assert found[prefix + "engine_restarts_total"] == 3
    assert found[prefix + "engine_reinits_total"] == 5
    assert found[prefix + 'upstream_errors_total{kind="timeout"}'] == 1
    assert found[prefix + 'tokens_saved_total{kind="prompt"}'] == 10
    assert found[prefix + "cost_saved_usd_total"] == 0.5
    assert found[prefix + "ledger_dropped_total"] == 4
    breakers = {name: value for name, value in found.items() if name.startswith(prefix + "breaker")}
    assert breakers == {prefix + 'breaker_state{upstream="0"}': 2, prefix + 'breaker_state{upstream="1"}': 1}
    assert found[prefix + 'build_info{backend="rust",version="1"}'] == 1


def test_no_name_from_outside_becomes_a_label():
    metrics = Metrics(version="1", backend="rust")
    metrics.observe(record())
    before = len(samples(metrics))
    for number in range(500):
        metrics.observe(record(model=f"m{number}", tools_called=(f"t{number}",)))
        metrics.upstream_error(f"kind{number}")
    metrics.observe(record(reason="made-up"))
    assert len(samples(metrics)) <= before + 2
    assert samples(metrics)['needle_router_requests_total{code="200",reason="other",route="local"}'] == 1
