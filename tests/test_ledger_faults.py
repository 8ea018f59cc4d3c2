"""What disks and files do to the ledger: damage in the middle, a full disk, files of others and of other releases."""

import dataclasses
import json
import os
import sqlite3
import stat
import time

import pytest

from needle_router.ledger import Ledger, open_ledger, read_ledger
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


def until(condition, seconds=10.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition never held"
        time.sleep(0.01)


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
    other = sqlite3.connect(path)
    other.execute("PRAGMA journal_mode=WAL")
    other.execute("PRAGMA user_version=99")
    other.execute("CREATE TABLE decisions (something_else)")
    other.commit()
    write(path, record())
    assert len(list(read_ledger(path))) == 1
    (aside,) = tmp_path.glob("decisions.db.broken-*[0-9]")
    assert aside.with_name(aside.name + "-wal").stat().st_size > 0
    other.close()


def test_a_full_disk_costs_records_until_there_is_room(tmp_path):
    path = tmp_path / "decisions.db"
    open_ledger(path).close()
    limits = [6]

    def small(where):
        connection = open_ledger(where)
        if limits:
            connection.execute(f"PRAGMA max_page_count={limits[0]}")
        return connection

    ledger = Ledger(path, connect=small)
    ledger.start()
    ledger.put(record(model="x" * 100_000))
    until(lambda: ledger.dropped == 1)
    assert ledger.state == "degraded"
    limits.clear()
    ledger.put(record(model="room again"))
    ledger.close()
    assert [each.model for each in read_ledger(path)] == ["room again"]
    assert (ledger.state, ledger.dropped) == ("ok", 1)


def test_a_text_that_cannot_be_stored_costs_itself_and_not_the_writer(tmp_path):
    path = tmp_path / "decisions.db"
    ledger = Ledger(path)
    ledger.start()
    ledger.put(record(model="half a pair \ud83d"))
    until(lambda: ledger.dropped == 1)
    ledger.put(record(model="whole"))
    ledger.close()
    assert [each.model for each in read_ledger(path)] == ["whole"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_read_only_folder_costs_only_records(tmp_path):
    tmp_path.chmod(0o500)
    ledger = Ledger(tmp_path / "decisions.db")
    ledger.start()
    ledger.put(record())
    until(lambda: ledger.dropped == 1)
    ledger.close()
    assert ledger.state == "degraded"
    tmp_path.chmod(0o700)


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
