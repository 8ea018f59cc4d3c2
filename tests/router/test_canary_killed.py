"""An alarm outlives kill -9 of the whole router."""

import asyncio
import json

import httpx
import pytest
from tests.cli.conftest import Cli
from tests.router.support import KITCHEN, CannedUpstream, ask, envelope
from tests.servers import serving, until

pytestmark = pytest.mark.anyio
OTHER = {"name": "set_light", "arguments": {"room": "attic", "on": True}}
CONFIG = """
[server]
port = 0
[upstream]
base_url = "{upstream}/v1"
[engine]
backend = "scripted"
script = "script.json"
[ledger]
path = "decisions.db"
[[policy]]
kind = "guards"
[[policy]]
kind = "canary"
share = 1.0
max_error = 0.2
[[policy]]
kind = "audit"
share = 1.0
[[policy]]
kind = "threshold"
minimum = 0.7
"""


async def reason(http, url):
    answer = await http.post(f"{url}/v1/chat/completions", json=ask())
    return answer.headers["x-needle-reason"]


async def status(http, url):
    return (await http.get(f"{url}/-/status.json")).json()


async def ready(http, url):
    async with asyncio.timeout(30):
        while (await status(http, url))["engine"]["state"] != "ready":  # noqa: ASYNC110  # it is another process
            await asyncio.sleep(0.02)


async def test_an_alarm_that_was_told_holds_after_the_process_was_killed(tmp_path):
    cli = Cli(tmp_path)
    (tmp_path / "script.json").write_text(json.dumps({"envelopes": [envelope(KITCHEN, confidence=0.97)]}))
    upstream = CannedUpstream(words="", calls=[OTHER])
    async with serving(upstream.app()) as base, httpx.AsyncClient(timeout=20) as http:
        (tmp_path / "needle-router.toml").write_text(CONFIG.format(upstream=base))
        with cli.serving() as server:
            await ready(http, server.url)
            assert await reason(http, server.url) == "confident"
            async with asyncio.timeout(60):
                while not (await status(http, server.url))["canary"]["alarms"]:
                    await reason(http, server.url)
            state = tmp_path / "decisions.db.canary.json"
            # The writer is a thread of that process; the alarm is urgent to it.
            await until(lambda: state.exists() and json.loads(state.read_text())["trials"][0]["alarm"]["raised"])
            server.process.kill()
            await asyncio.to_thread(server.until_ended)
        with cli.serving() as server:
            await ready(http, server.url)
            assert await reason(http, server.url) == "alarm"
            code, _, _ = await asyncio.to_thread(cli, "canary", "--reset", "set_light")
            assert code == 0
            server.process.kill()
            await asyncio.to_thread(server.until_ended)
        with cli.serving() as server:
            await ready(http, server.url)
            asked = len(upstream.bodies)
            assert await reason(http, server.url) == "confident"
            # Its audit: nothing may be under way when the upstream of this test goes.
            await until(lambda: len(upstream.bodies) > asked)
            server.process.terminate()
            assert await asyncio.to_thread(server.until_ended) == 0
