"""What disks and files do to the ledger: damage in the middle, a full disk, files of others and of other releases."""

import dataclasses
import json
import os
import sqlite3
import stat
import subprocess
import sys
import textwrap
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing

import pytest
from tests.ledger.conftest import until

from needle_router.ledger import Ledger, read_ledger
from needle_router.records import DecisionRecord, content_of
from needle_router.turn import Call, Usage


def record(**changes):
    return DecisionRecord(**{"time_s": time.time(), "route": "local", "reason": "confident", **changes})


def write(path, *records):
    ledger = Ledger(path)
    ledger.start()
    for each in records:
        ledger.put(each)
    ledger.close()
    return ledger


BEGINNING = """
import os, time
from pathlib import Path
from needle_router.ledger import Ledger
from needle_router.records import DecisionRecord
from tests.ledger.conftest import until
"""


def in_a_process(code, *arguments, folder=None):
    """The lines that `code` prints in a process of its own."""
    command = [sys.executable, "-c", BEGINNING + textwrap.dedent(code), *arguments]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(command, env=environment, cwd=folder, stdout=subprocess.PIPE, text=True, timeout=60)
    assert done.returncode == 0
    return done.stdout.splitlines()


def test_damage_behind_a_sound_header_is_put_aside_and_writing_goes_on(tmp_path, caplog):
    path = tmp_path / "decisions.db"
    write(path, *(record(model=f"model {number}") for number in range(400)))
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    ledger = Ledger(path)
    ledger.start()
    ledger.put(record(model="lost or kept"))
    until(lambda: list(tmp_path.glob("decisions.db.broken-*")))
    ledger.put(record(model="after"))
    ledger.close()
    assert [each.model for each in read_ledger(path)][-1] == "after"
    assert ledger.state == "ok"
    assert "renamed" in caplog.text


def test_side_files_go_aside_with_the_file_they_belong_to(tmp_path):
    path = tmp_path / "decisions.db"
    write(path, *(record(model=f"model {number}") for number in range(400)))
    other = sqlite3.connect(path)
    other.execute("UPDATE decisions SET model = 'in the log' WHERE id = 1")
    other.commit()
    with path.open("r+b") as file:
        file.seek(4096)
        file.write(os.urandom(path.stat().st_size - 4096))
    ledger = Ledger(path)
    ledger.start()
    ledger.put(record())
    until(lambda: list(tmp_path.glob("decisions.db.broken-*")))
    ledger.close()
    (aside,) = tmp_path.glob("decisions.db.broken-*[0-9]")
    assert aside.with_name(aside.name + "-wal").stat().st_size > 0
    other.close()


@pytest.mark.parametrize("name", ["half a pair \ud83d", "a \0 in it"])
def test_a_text_that_no_database_keeps_is_kept_without_what_is_wrong_with_it(tmp_path, name):
    path = tmp_path / "decisions.db"
    ledger = write(path, record(model=name), record(model="whole", tools_offered=(name,)))
    marked = name.replace("\ud83d", "?").replace("\0", "?")
    assert [(each.model, each.tools_offered) for each in read_ledger(path)] == [(marked, ()), ("whole", (marked,))]
    assert ledger.dropped == 0


def test_a_record_that_cannot_be_stored_costs_itself_and_not_its_neighbours(tmp_path, caplog):
    path = tmp_path / "decisions.db"
    ledger = write(path, record(model="before"), record(status=2**70), record(model="after"))
    assert [each.model for each in read_ledger(path)] == ["before", "after"]
    assert (ledger.written, ledger.dropped, ledger.state) == (2, 1, "ok")
    assert "a record cannot be stored" in caplog.text


def test_a_full_disk_costs_records_until_there_is_room(tmp_path):
    """The system refuses to let any file of the process grow, as a full disk would, and then has room again."""
    code = """
        import resource, sys
        path = Path(sys.argv[1])
        ledger = Ledger(path)
        ledger.start()
        ledger.put(DecisionRecord(time.time(), "local", "confident", model="before"))
        until(lambda: ledger.written == 1)
        soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
        # The log file beside it has some pages by now; nothing may grow past them.
        room = path.with_name(path.name + "-wal").stat().st_size
        resource.setrlimit(resource.RLIMIT_FSIZE, (room, hard))
        ledger.put(DecisionRecord(time.time(), "local", "confident", model="x" * 100_000))
        until(lambda: ledger.dropped == 1)
        print(ledger.state, ledger.detail)
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        ledger.put(DecisionRecord(time.time(), "local", "confident", model="after"))
        until(lambda: ledger.written == 2)
        ledger.close()
        print(ledger.state, ledger.dropped)
    """
    path = tmp_path / "decisions.db"
    assert in_a_process(code, str(path)) == ["degraded disk I/O error", "ok 1"]
    assert [each.model for each in read_ledger(path)] == ["before", "after"]


def test_a_read_only_folder_costs_only_records(tmp_path):
    tmp_path.chmod(0o555)
    code = """
        # Root may write everywhere.
        os.geteuid() or os.setuid(65534)
        ledger = Ledger(Path("decisions.db"))
        ledger.start()
        ledger.put(DecisionRecord(time.time(), "local", "confident"))
        until(lambda: ledger.dropped == 1)
        ledger.close()
        print(ledger.state, ledger.detail)
    """
    assert in_a_process(code, folder=tmp_path) == ["degraded Permission denied"]
    tmp_path.chmod(0o700)


def test_two_processes_write_to_one_file(tmp_path):
    code = """
        import sys
        ledger = Ledger(Path(sys.argv[1]), instance=sys.argv[2])
        ledger.start()
        for number in range(2000):
            ledger.put(DecisionRecord(time.time(), "local", "confident", model=str(number)))
            number % 100 or time.sleep(0.01)
        ledger.close(30)
        print(ledger.written, ledger.dropped)
    """
    path = tmp_path / "decisions.db"
    with ThreadPoolExecutor() as both:
        assert list(both.map(lambda name: in_a_process(code, str(path), name), "ab")) == [["2000 0"]] * 2
    with closing(sqlite3.connect(path)) as kept:
        query = "SELECT instance, count(DISTINCT model) FROM decisions GROUP BY instance ORDER BY instance"
        assert kept.execute(query).fetchall() == [("a", 2000), ("b", 2000)]


def test_a_clock_that_is_set_back_costs_no_record_and_no_order(tmp_path):
    path = tmp_path / "decisions.db"
    now = time.time()
    write(path, *(record(time_s=now - back, model=str(back)) for back in (0, 3600, 1800)))
    assert [each.model for each in read_ledger(path)] == ["0", "3600", "1800"]
    assert [each.model for each in read_ledger(path, since_s=now - 2000)] == ["0", "1800"]


def test_a_file_that_others_could_read_is_taken_back(tmp_path):
    path = tmp_path / "decisions.db"
    path.touch()
    path.chmod(0o644)
    write(path, record())
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_path_with_characters_that_urls_use_is_read_back(tmp_path):
    path = tmp_path / "50% of #1?" / "decisions.db"
    write(path, record(model="m"))
    assert [each.model for each in read_ledger(path)] == ["m"]


def test_fields_of_a_later_release_are_passed_over(tmp_path):
    path = tmp_path / "decisions.db"
    write(path, record(usage=Usage(1, 2)))
    with sqlite3.connect(path) as other:
        other.execute("""UPDATE decisions SET record = json_set(record, '$.new', 1, '$.usage.new', 2)""")
    other.close()
    assert [each.usage for each in read_ledger(path)] == [Usage(1, 2)]


def test_a_burst_is_written_whole_and_in_order(tmp_path):
    path = tmp_path / "decisions.db"
    ledger = write(path, *(record(model=str(number)) for number in range(1500)))
    assert [each.model for each in read_ledger(path)] == [str(number) for number in range(1500)]
    assert ledger.dropped == 0


def test_one_field_alone_can_hold_what_somebody_wrote_and_it_is_empty_by_itself():
    words = {"prompt", "content", "text", "messages", "arguments", "answer"}
    fields = {field.name: field.default for field in dataclasses.fields(DecisionRecord)}
    assert words & fields.keys() == {"content"}
    assert fields["content"] == ""


@pytest.mark.parametrize(
    "secret",
    [
        "sk-proj-abcdef123456",
        "Bearer abc.def.ghi",
        "hf_AbCdEfGh12345",
        "a1b2c3d4e5f6a7b8c9d0e1f2a3b4",
        "ghp_0123456789abcdef",
    ],
)
def test_kept_text_holds_nothing_that_looks_like_a_key(secret):
    kept = json.loads(content_of(f"use {secret} for the kitchen", [Call("f", {"key": secret, "room": "kitchen"})]))
    assert secret not in json.dumps(kept)
    assert kept["user"] == "use [redacted] for the kitchen"
    assert kept["calls"] == [{"name": "f", "arguments": {"key": "[redacted]", "room": "kitchen"}}]
