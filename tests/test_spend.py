"""What the upstream has cost today and this month, across midnight, a month's end, a restart and a reload."""

import datetime
import sqlite3
import threading

import pytest

from needle_router.acceptance import SETS, WINDOW, Acceptance
from needle_router.ledger import Ledger
from needle_router.records import DecisionRecord
from needle_router.spend import Spend

ZONE = datetime.timezone(datetime.timedelta(hours=2))
NOON = datetime.datetime(2026, 11, 30, 12, tzinfo=ZONE)
HOUR_S = 3600


class Clock:
    """A clock that is set by hand."""

    def __init__(self, moment=NOON):
        self.moment = moment

    def __call__(self):
        return self.moment


def test_spend_adds_up_by_day_and_month():
    spend = Spend(now=Clock())
    noon_s = NOON.timestamp()
    for time_s, usd in [
        (noon_s, 0.1),
        (noon_s - 12 * HOUR_S, 0.2),  # midnight belongs to the day that begins
        (noon_s - 12 * HOUR_S - 1, 0.4),
        (noon_s - 30 * 24 * HOUR_S, 0.8),  # the last day of October
        (noon_s, None),
    ]:
        spend.add(time_s, usd)
    assert spend.now() == (pytest.approx(0.3), pytest.approx(0.7))


def test_a_new_day_and_a_new_month_begin_at_zero():
    clock = Clock()
    spend = Spend(now=clock)
    spend.add(NOON.timestamp(), 1.5)
    assert spend.now() == (1.5, 1.5)
    clock.moment += datetime.timedelta(hours=12)
    assert spend.now() == (0.0, 0.0)


def test_sums_do_not_drift():
    spend = Spend(now=Clock())
    for _ in range(1000):
        spend.add(NOON.timestamp(), 0.001)
    assert spend.now() == (1.0, 1.0)


def written(path, *records):
    ledger = Ledger(path, retention_days=36_500)
    ledger.start()
    for time_s, usd in records:
        ledger.put(DecisionRecord(time_s=time_s, route="upstream", reason="no-call", cost_usd=usd))
    ledger.close()
    return path


def test_what_races_wasted_and_audits_cost_is_spent_too(tmp_path):
    ledger = Ledger(tmp_path / "decisions.db", retention_days=36_500)
    ledger.start()
    noon_s = NOON.timestamp()
    ledger.put(DecisionRecord(time_s=noon_s - 60, route="local", reason="confident", raced=True, wasted_usd=0.25))
    ledger.put(DecisionRecord(time_s=noon_s - 60, route="local", reason="confident", raced=True))
    ledger.put(DecisionRecord(time_s=noon_s - 60, route="upstream", reason="race-lost", raced=True, cost_usd=0.5))
    ledger.put(DecisionRecord(time_s=noon_s - 60, route="local", reason="confident", audit="compared", audit_usd=1.0))
    ledger.close()
    spend = Spend(now=Clock())
    spend.load(tmp_path / "decisions.db")
    assert spend.now() == (1.75, 1.75)


def test_a_restart_goes_on_with_what_the_ledger_holds(tmp_path):
    noon_s = NOON.timestamp()
    path = written(
        tmp_path / "decisions.db",
        (noon_s - 1, 0.25),
        (noon_s - 24 * HOUR_S, 0.5),
        (noon_s - 31 * 24 * HOUR_S, 4.0),
        (noon_s + 1, 8.0),  # counted while it passed
        (noon_s - 2, None),
    )
    spend = Spend(now=Clock())
    spend.start(path)
    spend.join(10)
    assert spend.now() == (0.25, 0.75)


def test_spend_is_unknown_while_the_ledger_is_read(tmp_path):
    path = written(tmp_path / "decisions.db", (NOON.timestamp() - 1, 0.25))
    asked, go_on = threading.Event(), threading.Event()

    def slow():
        if threading.current_thread().name == "spend":
            asked.set()
            go_on.wait(10)
        return NOON

    spend = Spend(now=slow)
    spend.start(path)
    assert asked.wait(10)
    assert spend.now() == (None, None)
    go_on.set()
    spend.join(10)
    assert spend.now() == (0.25, 0.25)


@pytest.mark.parametrize("content", [None, b"no ledger at all, but long enough to be looked at as one" * 20])
def test_without_a_readable_ledger_spend_begins_at_zero(tmp_path, content):
    path = tmp_path / "decisions.db"
    if content is not None:
        path.write_bytes(content)
    spend = Spend(now=Clock())
    spend.start(path)
    spend.join(10)
    assert spend.now() == (0.0, 0.0)


def test_a_locked_ledger_does_not_keep_spend_unknown(tmp_path):
    path = written(tmp_path / "decisions.db", (NOON.timestamp() - 1, 0.25))
    holder = sqlite3.connect(path, isolation_level=None)
    holder.execute("BEGIN EXCLUSIVE")
    spend = Spend(now=Clock())
    spend.start(path)
    spend.join(10)
    holder.execute("ROLLBACK")
    holder.close()
    # In WAL mode a writer does not keep readers out.
    assert spend.now() == (0.25, 0.25)


def test_a_reload_counts_on_and_reads_the_ledger_once(tmp_path):
    path = written(tmp_path / "decisions.db", (NOON.timestamp() - 1, 0.25))
    old = Spend(now=Clock())
    old.start(path)
    new = Spend(now=Clock())
    new.adopt(old)
    new.start(path)
    new.join(10)
    old.add(NOON.timestamp(), 1.0)
    assert new.now() == old.now() == (1.25, 1.25)


def test_acceptance_is_counted_per_set_of_tools():
    seen = Acceptance()
    assert seen.of(("f",)) == (None, 0)
    seen.note(("f",), used=True)
    seen.note(("f",), used=False)
    seen.note(("f", "g"), used=False)
    assert seen.of(("f",)) == (0.5, 2)
    assert seen.of(("f", "g")) == (0.0, 1)


def test_acceptance_forgets_old_answers_and_old_sets():
    seen = Acceptance()
    seen.note(("f",), used=True)
    for _ in range(WINDOW):
        seen.note(("f",), used=False)
    assert seen.of(("f",)) == (0.0, WINDOW)
    for number in range(SETS):
        seen.note((str(number),), used=True)
    assert seen.of(("f",)) == (None, 0)
