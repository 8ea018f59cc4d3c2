"""A router that is killed while it writes loses at most its last batch, and its ledger stays whole."""

import os
import sqlite3
import subprocess
import sys
import threading
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.ledger.conftest import until

from needle_router.ledger import Ledger, read_ledger
from needle_router.ledger.writer import BATCH
from needle_router.records import DecisionRecord

#: Puts about 450 records a second, and says after each how many were put and how many of them are written.
WRITER = """
import os, sys, time
from needle_router.ledger import Ledger, place_of
from needle_router.records import DecisionRecord
ledger = Ledger(place_of(sys.argv[1]))
ledger.start()
for number in range(1_000_000):
    ledger.put(DecisionRecord(time.time(), "local", "confident", model=str(number)))
    os.write(1, b"%d %d\\n" % (number + 1, ledger.written))
    time.sleep(0.002)
"""


def killed_while_writing(place, log, *, after=400):
    """How many records the writer had put, and knew to be written, when it was killed with SIGKILL."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    with log.open("wb") as out:
        process = subprocess.Popen([sys.executable, "-c", WRITER, place], env=environment, stdout=out)

        def said():
            lines = log.read_bytes().split(b"\n")[:-1]
            return [int(word) for word in lines[-1].split()] if lines else [0, 0]

        try:
            until(lambda: said()[1] >= after, 60)
        finally:
            process.kill()
            process.wait(10)
    return said()


@pytest.mark.parametrize("attempt", range(3))
def test_kill_9_loses_at_most_the_last_batch(tmp_path, attempt):
    path = tmp_path / "decisions.db"
    put, written = killed_while_writing(str(path), tmp_path / "log")
    kept = [each.model for each in read_ledger(path)]
    # The first ones, without a gap; all that were known to be written, and at most a batch fewer than were put.
    assert kept == [str(number) for number in range(len(kept))]
    assert written <= len(kept) <= put + 1
    assert put - len(kept) <= BATCH


def test_the_ledger_of_a_killed_router_is_whole_and_written_on(tmp_path):
    path = tmp_path / "decisions.db"
    killed_while_writing(str(path), tmp_path / "log")
    before = sum(1 for _ in read_ledger(path))
    assert path.with_name("decisions.db-wal").stat().st_size > 0
    ledger = Ledger(path)
    ledger.start()
    ledger.put(DecisionRecord(4e9, "local", "confident", model="after"))
    ledger.close()
    assert (ledger.written, ledger.dropped) == (1, 0)
    assert [each.model for each in read_ledger(path)][before:] == ["after"]
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


class Upstream(BaseHTTPRequestHandler):
    """Answers every request with an empty object."""

    def do_POST(self):
        self.rfile.read(int(self.headers["content-length"]))
        self.send_response(200)
        self.send_header("content-length", "2")
        self.end_headers()
        self.wfile.write(b"{}")

    def log_message(self, *_):
        pass


@pytest.fixture
def upstream():
    with ThreadingHTTPServer(("127.0.0.1", 0), Upstream) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join(10)


def test_a_server_that_is_killed_has_its_decisions_and_goes_on_with_them(tmp_path, upstream):
    cli, path = Cli(tmp_path), tmp_path / "decisions.db"
    flags = ("--port", "0", "--mode", "off", "--upstream", upstream, "--ledger", str(path))

    def asked(http, count):
        for _ in range(count):
            assert http.post("/v1/chat/completions", json={"model": "m", "messages": []}).status_code == 200

    with cli.serving(*flags) as router, httpx.Client(base_url=router.url) as http:
        asked(http, 100)
        until(lambda: http.get("/-/status.json").json()["ledger"]["written"] == 100)
        asked(http, 50)
        router.process.kill()
        router.process.wait(10)
    kept = sum(1 for _ in read_ledger(path))
    assert 100 <= kept <= 150
    with cli.serving(*flags) as router, httpx.Client(base_url=router.url) as http:
        asked(http, 1)
        until(lambda: sum(1 for _ in read_ledger(path)) == kept + 1)


@pytest.mark.xdist_group("postgres")
def test_kill_9_while_writing_to_postgres_loses_at_most_the_last_batch(tmp_path, database):
    put, written = killed_while_writing(database.place.url, tmp_path / "log")
    # The server undoes what a dead client had begun.
    until(
        lambda: database.ask("SELECT count(*) FROM pg_stat_activity WHERE application_name = 'needle-router'") == [(0,)]
    )
    kept = [each.model for each in read_ledger(database.place)]
    assert kept == [str(number) for number in range(len(kept))]
    assert written <= len(kept) <= put + 1
    assert put - len(kept) <= BATCH
