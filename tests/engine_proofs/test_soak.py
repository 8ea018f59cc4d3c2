"""Half a minute of load while an engine process dies every second: nobody notices, nothing is left, nothing grows."""

import asyncio
import contextlib
import json
import os
import signal
import sys
import textwrap
import time
from collections import Counter

import httpx
import pytest
from tests.engine.support import alive
from tests.router.support import KITCHEN, CannedUpstream, ask, envelope
from tests.servers import free_port, serving, until

pytestmark = [pytest.mark.anyio, pytest.mark.slow]
SECONDS = 30.0
#: Interpreter, pools and caches have their size after this long; growth counts from here.
SETTLED_S = 10.0
GROWTH_MB = 8.0
CLIENTS = 8
CONFIG = """
[server]
port = {port}
[upstream]
base_url = "{base}/v1"
[engine]
backend = "scripted"
workers = 2
script = "{script}"
[ledger]
path = "off"
"""


def rss_mb(pid):
    with open(f"/proc/{pid}/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


async def engine_pids(http, url):
    return (await http.get(f"{url}/-/status.json")).json()["engine"]["pids"]


async def start(folder, base):
    """`needle-router serve` with two workers, ready; gives the process and its URL."""
    script = folder / "script.json"
    script.write_text(json.dumps({"envelopes": [envelope(KITCHEN)], "delay_ms": 5}))
    port = free_port()
    config = folder / "needle-router.toml"
    config.write_text(textwrap.dedent(CONFIG.format(port=port, base=base, script=script)))
    command = [sys.executable, "-m", "needle_router", "serve", "--config", str(config)]
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    errors = (folder / "stderr").open("wb")
    process = await asyncio.create_subprocess_exec(*command, env=environ, stderr=errors)
    errors.close()
    return process, f"http://127.0.0.1:{port}"


async def both_ready(http, url):
    async with asyncio.timeout(20):
        while True:
            try:
                if len(await engine_pids(http, url)) == 2:
                    return
            except httpx.TransportError:
                pass
            await asyncio.sleep(0.05)


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="memory is read from /proc")
async def test_thirty_seconds_with_a_kill_every_second(tmp_path):
    upstream = CannedUpstream()
    async with serving(upstream.app()) as base, httpx.AsyncClient(timeout=20) as http:
        process, url = await start(tmp_path, base)
        seen, answers = set(), Counter()
        try:
            await both_ready(http, url)
            began = time.monotonic()
            sizes = []

            async def client():
                while time.monotonic() - began < SECONDS:
                    answer = await http.post(f"{url}/v1/chat/completions", json=ask())
                    answers[answer.status_code, answer.headers["x-needle-route"]] += 1

            async def killer():
                for second in range(1, int(SECONDS)):
                    await asyncio.sleep(max(0.0, began + second - time.monotonic()))
                    pids = await engine_pids(http, url)
                    seen.update(pids)
                    if pids:
                        # It may have ended by itself between the look and the signal.
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(pids[second % len(pids)], signal.SIGKILL)
                    if time.monotonic() - began >= SETTLED_S:
                        sizes.append(rss_mb(process.pid))

            async with asyncio.TaskGroup() as group:
                for _ in range(CLIENTS):
                    group.create_task(client())
                group.create_task(killer())
            seen.update(await engine_pids(http, url))
        finally:
            process.terminate()
            code = await asyncio.wait_for(process.wait(), 20)
    assert code == 0
    assert {status for status, _ in answers} == {200}
    assert answers[200, "local"] > 500
    # A worker lives for about two seconds: many more than two must have come and gone.
    assert len(seen) >= 15
    await until(lambda: not any(alive(pid) for pid in seen))
    assert max(sizes[-5:]) - max(sizes[:5]) < GROWTH_MB
    assert "Traceback" not in (tmp_path / "stderr").read_text()
