"""SIGHUP: a good configuration comes into use with no request dropped, a bad one changes nothing."""

import asyncio
import json
import os
import signal

import httpx
import msgspec
import pytest
from tests.router.support import KITCHEN, CannedUpstream, ask, config_for, envelope
from tests.router.test_endurance import serve_process
from tests.servers import serving, until

from needle_router.cli.reload import Reloading
from needle_router.engine.base import EngineState
from needle_router.errors import ConfigError

pytestmark = pytest.mark.anyio


async def reasons(http, url, count):
    answers = await asyncio.gather(*(http.post(f"{url}/v1/chat/completions", json=ask()) for _ in range(count)))
    assert {answer.status_code for answer in answers} == {200}
    return [answer.headers["x-needle-reason"] for answer in answers]


async def test_a_reload_under_load_drops_nothing_and_changes_the_policy(tmp_path):
    async with serving(CannedUpstream(pause_s=0.0).app()) as base:
        first = config_for(tmp_path, {"envelopes": [envelope(KITCHEN, confidence=0.9)]}, upstream=f"{base}/v1")
        stricter = msgspec.structs.replace(first, policy=({"kind": "guards"}, {"kind": "threshold", "minimum": 0.95}))
        served = Reloading(first, lambda: stricter)
        async with serving(served, lifespan="on") as url, httpx.AsyncClient(timeout=20) as http:
            await until(lambda: served.router.services.engine.health().state is EngineState.READY)
            old = served.router
            seen = await reasons(http, url, 5)
            assert set(seen) == {"confident"}
            served.ask()
            while served.router is old:
                seen += await reasons(http, url, 8)
            seen += await reasons(http, url, 5)
            assert seen[-5:] == ["below-threshold"] * 5
            assert set(seen) == {"confident", "below-threshold"}
            await until(lambda: old.services.engine.health().pids == ())
            assert served.router.services.totals.reasons() == {slug: seen.count(slug) for slug in set(seen)}
        assert served.router.services.engine.health().pids == ()


async def test_a_configuration_that_cannot_be_used_leaves_the_old_one(tmp_path, caplog):
    config = config_for(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream="http://127.0.0.1:9/v1")

    def broken():
        raise ConfigError(["server.port: 99999 must be at most 65535", "mode: 'of' is not one of off, shadow, on"])

    served = Reloading(config, broken)
    async with serving(served, lifespan="on") as url, httpx.AsyncClient(timeout=20) as http:
        await until(lambda: served.router.services.engine.health().state is EngineState.READY)
        old = served.router
        served.ask()
        await until(lambda: "the old one stays" in caplog.text)
        assert "server.port: 99999" in caplog.text
        assert "mode: 'of'" in caplog.text
        assert served.router is old
        assert set(await reasons(http, url, 3)) == {"confident"}


async def test_the_signal_reloads_a_running_server(tmp_path):
    async with serving(CannedUpstream().app()) as base:
        process, url = await serve_process(tmp_path, base)
        try:
            file = tmp_path / "needle-router.toml"
            file.write_text('mode = "off"\n' + file.read_text())
            process.send_signal(signal.SIGHUP)
            async with httpx.AsyncClient(timeout=20) as http, asyncio.timeout(20):
                seen = []
                while "mode-off" not in seen:
                    seen += await reasons(http, url, 1)
                file.write_text("mode = 'nonsense'\n")
                process.send_signal(signal.SIGHUP)
                seen = await reasons(http, url, 20)
                assert set(seen) == {"mode-off"}
                status = (await http.get(f"{url}/-/status.json")).json()
                assert status["mode"] == "off"
            os.kill(process.pid, signal.SIGTERM)
            assert await asyncio.wait_for(process.wait(), 20) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            log = (await process.stderr.read()).decode()
        assert "the old one stays" in log
        assert json.dumps(ask()["messages"]) not in log
