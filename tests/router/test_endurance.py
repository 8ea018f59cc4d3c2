"""Deaths and departures: engines that are killed, clients that hang up, a server that is told to stop."""

import asyncio
import json
import os
import signal
import sys
import textwrap
import time

import httpx
import pytest
from tests.router.support import KITCHEN, CannedUpstream, ask, envelope, running
from tests.servers import free_port, serving, until

from needle_router.engine.base import EngineState

pytestmark = pytest.mark.anyio


async def test_killing_the_engine_under_twenty_clients_costs_nobody_an_answer(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)], "delay_ms": 20}
    async with running(tmp_path, script) as router, httpx.AsyncClient(timeout=20) as http:
        statuses: list[int] = []
        routes: set[str] = set()
        stop = time.monotonic() + 2.0

        async def one_client():
            while time.monotonic() < stop:
                answer = await http.post(f"{router.url}/v1/chat/completions", json=ask())
                statuses.append(answer.status_code)
                routes.add(answer.headers["x-needle-route"])

        async def killer():
            engine = router.router.services.engine
            for _ in range(3):
                await asyncio.sleep(0.4)
                before = engine.health()
                os.kill(before.pids[0], signal.SIGKILL)
                killed = time.monotonic()
                await until(
                    lambda seen=before: (
                        engine.health().restarts > seen.restarts and engine.health().state is EngineState.READY
                    )
                )
                assert time.monotonic() - killed < 3.0

        async with asyncio.TaskGroup() as group:
            for _ in range(20):
                group.create_task(one_client())
            group.create_task(killer())
        assert set(statuses) == {200}
        assert routes == {"local", "upstream"}
        assert router.router.services.engine.health().restarts >= 3


async def test_a_client_that_hangs_up_while_the_engine_thinks_frees_its_place(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)], "delay_ms": 400}
    async with running(tmp_path, script) as router, httpx.AsyncClient() as http:
        with pytest.raises(httpx.TimeoutException):
            await http.post(f"{router.url}/v1/chat/completions", json=ask(), timeout=0.1)
        await until(lambda: router.router.services.engine.health().queue_depth == 0)
        answer = await http.post(f"{router.url}/v1/chat/completions", json=ask(), timeout=10)
        assert answer.headers["x-needle-route"] == "local"
        assert router.upstream.bodies == []


async def test_a_full_engine_queue_forwards_at_once(tmp_path):
    script = {"envelopes": [envelope(KITCHEN)], "delay_ms": 300}
    async with running(tmp_path, script, engine={"queue_limit": 1}) as router, httpx.AsyncClient(timeout=20) as http:
        answers = await asyncio.gather(*(http.post(f"{router.url}/v1/chat/completions", json=ask()) for _ in range(6)))
        reasons = [answer.headers["x-needle-reason"] for answer in answers]
        assert {answer.status_code for answer in answers} == {200}
        assert reasons.count("engine-busy") >= 3
        assert "confident" in reasons


CONFIG = """
[server]
port = {port}
[upstream]
base_url = "{base}/v1"
[engine]
backend = "scripted"
script = "{script}"
[ledger]
path = "off"
"""


async def serve_process(folder, base):
    port = free_port()
    script = folder / "script.json"
    script.write_text(json.dumps({"envelopes": [envelope()]}))
    config = folder / "needle-router.toml"
    config.write_text(textwrap.dedent(CONFIG.format(port=port, base=base, script=script)))
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        "-m",
        "needle_router",
        "serve",
        "--config",
        str(config),
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        stderr=asyncio.subprocess.PIPE,
    )
    url = f"http://127.0.0.1:{port}"
    async with httpx.AsyncClient() as http:
        async with asyncio.timeout(20):
            while True:
                try:
                    if (await http.get(f"{url}/readyz")).json()["engine"]["state"] == "ready":
                        return process, url
                except httpx.TransportError:
                    await asyncio.sleep(0.05)


async def test_twenty_streams_outlive_a_sigterm(tmp_path):
    upstream = CannedUpstream(words="word " * 40, chunks=40, pause_s=0.03)
    async with serving(upstream.app()) as base:
        process, url = await serve_process(tmp_path, base)
        try:
            begun = asyncio.Event()
            ends: list[bytes] = []

            async def stream(http):
                async with http.stream(
                    "POST", f"{url}/v1/chat/completions", json=ask("a story", stream=True)
                ) as answer:
                    received = b""
                    async for chunk in answer.aiter_raw():
                        received += chunk
                        if len(upstream.bodies) == 20:
                            begun.set()
                ends.append(received)

            async def terminate():
                await begun.wait()
                process.send_signal(signal.SIGTERM)

            limits = httpx.Limits(max_connections=None)
            async with httpx.AsyncClient(timeout=30, limits=limits) as http, asyncio.TaskGroup() as group:
                group.create_task(terminate())
                for _ in range(20):
                    group.create_task(stream(http))
            assert len(ends) == 20
            assert all(end.endswith(b"data: [DONE]\n\n") and end.count(b"word") >= 40 for end in ends)
            assert await asyncio.wait_for(process.wait(), 20) == 0
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
            await process.stderr.read()
