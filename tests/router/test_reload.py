"""SIGHUP: a good configuration comes into use with no request dropped, a bad one changes nothing."""

import asyncio
import json
import os
import signal
import sqlite3
from contextlib import closing

import httpx
import msgspec
import pytest
from tests.router.support import KITCHEN, CannedUpstream, ask, config_for, envelope
from tests.router.test_endurance import serve_process
from tests.servers import ask as send
from tests.servers import recording, request, serving, until

from needle_router.cli.reload import AT_START, Reloading, settled
from needle_router.config.schema import Config, Server
from needle_router.engine.base import EngineState
from needle_router.errors import ConfigError

pytestmark = pytest.mark.anyio
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


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


async def test_the_ledger_goes_on_under_its_new_name_and_retention(tmp_path):
    first = config_for(tmp_path, {"envelopes": [envelope(KITCHEN)]}, ledger={"instance": "old"})
    again = msgspec.structs.replace(
        first, ledger=msgspec.structs.replace(first.ledger, instance="new", retention_days=7)
    )
    served = Reloading(first, lambda: again)
    async with serving(served, lifespan="on") as url, httpx.AsyncClient(timeout=20) as http:
        await until(lambda: served.router.services.engine.health().state is EngineState.READY)
        old, ledger = served.router, served.router.services.ledger
        await reasons(http, url, 1)
        await until(lambda: ledger.written == 1)
        served.ask()
        await until(lambda: served.router is not old)
        await reasons(http, url, 1)
        await until(lambda: ledger.written == 2)
        assert served.router.services.ledger is ledger
        assert ledger.retention_s == 7 * 86_400
    with closing(sqlite3.connect(tmp_path / "decisions.db")) as kept:
        assert kept.execute("SELECT instance FROM decisions ORDER BY id").fetchall() == [("old",), ("new",)]


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


async def test_streams_that_are_under_way_outlive_a_reload_and_then_the_old_router_ends(tmp_path):
    waiting, go_on = 0, asyncio.Event()

    async def slow(_, peer):
        nonlocal waiting
        await peer.write(SSE_HEAD + b"3\r\none\r\n")
        waiting += 1
        await go_on.wait()
        await peer.write(b"3\r\ntwo\r\n0\r\n\r\n")

    async with recording(slow) as upstream:
        first = config_for(tmp_path, {"envelopes": [envelope()]}, upstream=f"{upstream.base_url}/v1")
        served = Reloading(first, lambda: msgspec.structs.replace(first, mode="off"))
        async with serving(served, lifespan="on") as url, asyncio.TaskGroup() as group:
            old = served.router
            chat = request(b"POST", b"/v1/chat/completions", body=b'{"stream":true}')
            asked = [group.create_task(send(url, chat)) for _ in range(100)]
            await until(lambda: waiting == 100)
            served.ask()
            await until(lambda: served.router is not old)
            assert old.services.engine.health().pids != ()
            go_on.set()
            answers = await asyncio.gather(*asked)
            assert {(got.status, got.body, got.clean) for got in answers} == {(200, b"onetwo", True)}
            await until(lambda: old.services.engine.health().pids == ())


async def test_keys_that_need_a_restart_are_named_in_one_line_and_the_rest_comes_into_use(tmp_path, caplog):
    caplog.set_level("INFO")
    first = config_for(tmp_path, {"envelopes": [envelope(KITCHEN)]}, upstream="http://127.0.0.1:9/v1")
    limits = msgspec.structs.replace(first.server, max_headers=77, idle_timeout_s=5, expose="none")
    configs = [
        msgspec.structs.replace(first, server=limits),
        msgspec.structs.replace(first, server=msgspec.structs.replace(limits, max_headers=78)),
    ]
    served = Reloading(first, lambda: configs.pop(0))
    async with serving(served, lifespan="on"):
        old = served.router
        served.ask()
        await until(lambda: served.router is not old)
        assert served.router.config.server == msgspec.structs.replace(first.server, expose="none")
        served.ask()
        await until(lambda: "nothing else has changed" in caplog.text)
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert warnings == ["kept as they were until a restart: server.idle_timeout_s, server.max_headers"] * 2


def test_a_router_that_others_can_reach_does_not_lose_its_keys_by_a_reload():
    running = Server(host="0.0.0.0", api_keys=("k",))
    with pytest.raises(ConfigError) as found:
        settled(Config(), running)
    [problem] = found.value.problems
    assert problem.startswith("server.host: 0.0.0.0 ")
    assert problem.endswith("(a restart is needed for server.host)")


def test_every_key_of_the_server_is_either_read_at_the_start_or_taken_up_by_a_reload():
    taken_up = (
        "api_keys allowed_hosts allowed_origins allow_unauthenticated max_body_mb expose list_local_model".split()
    )
    assert sorted([*AT_START, *taken_up]) == sorted(Server.__struct_fields__)
