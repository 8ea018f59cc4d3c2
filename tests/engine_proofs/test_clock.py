"""Somebody sets the clock back by an hour while a real router serves: nothing that is a span of time notices."""

import asyncio
import dataclasses
import itertools
import json
import os
import shutil
import subprocess
import sys
import textwrap
import time
from pathlib import Path

import httpx
import pytest
from tests.router.support import KITCHEN, CannedUpstream, ask, envelope
from tests.servers import free_port, serving

from needle_router.ledger import read_ledger

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.native,
    pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the clock is set by preloading a library"),
]
SOURCE = Path(__file__).parent.parent / "native" / "shiftclock.c"
HOUR_S = 3600
CONFIG = """
[server]
port = {port}
[upstream]
base_url = "{base}/v1"
breaker_failures = 1
breaker_open_s = 0.5
[engine]
backend = "scripted"
script = "{folder}/script.json"
[ledger]
path = "{folder}/decisions.db"
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory):
    gcc = shutil.which("gcc")
    if gcc is None:
        pytest.skip("gcc is needed to build the clock that can be set")
    built = tmp_path_factory.mktemp("shiftclock") / "shiftclock.so"
    subprocess.run([gcc, "-shared", "-fPIC", "-O1", "-o", built, SOURCE], check=True)
    return built


class Router:
    """A serving process whose time of day is ours to set."""

    def __init__(self, folder, library):
        self.folder, self.shift = folder, folder / "shift"
        self.port = free_port()
        self.url = f"http://127.0.0.1:{self.port}"
        self.environ = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "LD_PRELOAD": str(library),
            "SHIFTCLOCK_FILE": str(self.shift),
        }
        self.set_clock(0)

    def set_clock(self, seconds):
        new = self.shift.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self.shift)

    async def start(self, base, script):
        (self.folder / "script.json").write_text(json.dumps(script))
        config = self.folder / "needle-router.toml"
        config.write_text(textwrap.dedent(CONFIG.format(port=self.port, base=base, folder=self.folder)))
        command = [sys.executable, "-m", "needle_router", "serve", "--config", str(config)]
        with (self.folder / "stderr").open("wb") as errors:
            return await asyncio.create_subprocess_exec(*command, env=self.environ, stderr=errors)

    async def until_ready(self, http):
        async with asyncio.timeout(20):
            while True:
                try:
                    if (await http.get(f"{self.url}/readyz")).json()["engine"]["state"] == "ready":
                        return
                except httpx.TransportError:
                    pass
                await asyncio.sleep(0.05)

    async def status_after_502(self, http):
        """The first other status, asked for again and again."""
        async with asyncio.timeout(15):
            for pause_s in itertools.repeat(0.1):
                status = (await self.ask(http)).status_code
                if status != 502:
                    return status
                await asyncio.sleep(pause_s)

    async def ask(self, http, **fields):
        return await http.post(f"{self.url}/v1/chat/completions", json=ask(**fields))


async def ended(process):
    if process.returncode is None:
        process.terminate()
    async with asyncio.timeout(20):
        await process.wait()


def check_spans(folder):
    """No duration of any record is below zero or near the hour."""
    records = list(read_ledger(folder / "decisions.db"))
    spans = [
        (name, value) for each in records for name, value in dataclasses.asdict(each).items() if name.endswith("_s")
    ]
    durations = [(name, value) for name, value in spans if name != "time_s"]
    assert {name for name, _ in durations} == {"overhead_s", "engine_s", "queue_s", "total_s"}
    assert [(name, value) for name, value in durations if not 0 <= value < HOUR_S / 2] == []
    return records


async def test_reliability_18_a_clock_that_goes_back_an_hour_changes_no_span_and_no_deadline(tmp_path, library):
    router = Router(tmp_path, library)
    async with serving(CannedUpstream().app()) as base, httpx.AsyncClient(timeout=20) as http:
        process = await router.start(base, {"envelopes": [envelope(KITCHEN)], "delay_ms": 300})
        try:
            await router.until_ready(http)
            before = (await router.ask(http)).json()
            async with asyncio.TaskGroup() as group:
                under_way = group.create_task(router.ask(http))
                await asyncio.sleep(0.1)
                router.set_clock(-HOUR_S)
            after = [under_way.result(), await router.ask(http)]
        finally:
            await ended(process)
    for answer in after:
        assert (answer.headers["x-needle-route"], answer.headers["x-needle-reason"]) == ("local", "confident")
        assert 0 <= float(answer.headers["x-needle-overhead-ms"]) < 3000
        told = answer.json()["x_needle"]
        assert 0.3 <= told["compute_seconds"] < 3
        assert 0 <= told["queue_wait_seconds"] < 3
    # The library was at work: moments do follow the clock.
    assert -HOUR_S - 60 < after[1].json()["created"] - before["created"] < -HOUR_S + 60
    assert abs(before["created"] - time.time()) < 60
    records = check_spans(tmp_path)
    assert len(records) == 3


async def test_reliability_18_a_breaker_that_is_open_closes_in_its_own_time(tmp_path, library):
    router = Router(tmp_path, library)
    port = free_port()
    async with httpx.AsyncClient(timeout=20) as http:
        process = await router.start(f"http://127.0.0.1:{port}", {"envelopes": [envelope()]})
        try:
            await router.until_ready(http)
            assert (await router.ask(http)).status_code == 502
            router.set_clock(-HOUR_S)
            async with serving(CannedUpstream().app(), port=port):
                assert await router.status_after_502(http) == 200
        finally:
            await ended(process)
    check_spans(tmp_path)
