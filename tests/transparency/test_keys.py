"""Keys: nowhere but at the upstream they are meant for, and with the request they came with (cases 48 to 50)."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import sqlite3
import sys

import orjson
import pytest
from tests.router.support import KITCHEN, TEXT, envelope
from tests.router.support import ask as chat
from tests.servers import Recorded, answer, ask, connected, recording, request, until
from tests.transparency.support import served, whole_router

pytestmark = pytest.mark.anyio
CANARY = "sk-canary-7f3a9b2c5d8e1f40"
SERVER, UPSTREAM = f"{CANARY}-server", f"{CANARY}-upstream"
SHOWN = b"canary-7f3a9b2c"
JSON = (b"content-type", b"application/json")
KEYS = [
    (b"authorization", f"Bearer {SERVER}".encode()),
    (b"api-key", f"{CANARY}-azure".encode()),
    (b"x-api-key", f"{CANARY}-other".encode()),
    (b"cookie", f"session={CANARY}-cookie".encode()),
]
CHAT = b"/v1/chat/completions?api_key=" + CANARY.encode()
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"


async def by_text(seen: Recorded, peer) -> None:
    """Answers as the request's text says; no answer repeats a key."""
    if b"refuse" in seen.body:
        await peer.write(answer(401, b'{"error": {}}'))
    elif b"fail" in seen.body:
        await peer.write(answer(500, b"oops"))
    elif b"break" in seen.body:
        await peer.write(SSE_HEAD + b"9\r\ndata: 1\n\n\r\n")
        peer.reset()
    elif b"garbage" in seen.body:
        await peer.write(b"\x00\x01 no HTTP\r\n\r\n")
    elif b"vanish" in seen.body:
        peer.reset()
    else:
        await peer.write(answer())


def bodies() -> list[bytes]:
    """Requests that end in every way a request can end."""
    texts = ["refuse", "fail", "break", "garbage", "vanish", "tell me a story"]
    asked = [chat(text, stream=text == "break") for text in texts]
    asked += [chat(), chat(f"{TEXT} and tell me a joke"), chat(f"my key is {CANARY}"), {"model": "needle-2"}, []]
    return [*map(orjson.dumps, asked), b'{"api_key": "' + CANARY.encode(), b"\xff" * 40, b"x" * 200_000]


def requests() -> list[bytes]:
    """Everything that is sent, each with keys in every place a key can be in."""
    chats = [request(b"POST", CHAT, JSON, *KEYS, body=body) for body in bodies()]
    odd = [
        request(b"GET", b"/v1/models?key=" + CANARY.encode(), *KEYS),
        request(b"GET", b"/v1/../" + CANARY.encode(), *KEYS),
        request(b"GET", b"http://h/" + CANARY.encode(), *KEYS),
        request(b"POST", CHAT, *KEYS, (b"transfer-encoding", b"chunked"), body=b"{}"),
        request(
            b"GET",
            b"/v1/realtime?key=" + CANARY.encode(),
            *KEYS,
            (b"upgrade", b"websocket"),
            (b"connection", b"upgrade"),
        ),
        request(b"POST", CHAT, (b"authorization", b"Bearer " + CANARY.encode() + b"-wrong"), body=b"{}"),
        *(request(b"GET", path, *KEYS) for path in (b"/readyz", b"/healthz", b"/metrics", b"/-/status.json")),
    ]
    return chats + odd


def said(got) -> bytes:
    """All that the router itself said."""
    return b"\n".join([*(b"%b: %b" % pair for pair in got.headers), got.body])


SECTIONS = {
    "server": f'api_keys = ["{SERVER}"]\nmax_body_mb = 0.1',
    "upstream": f'api_key = "{UPSTREAM}"\ninject_key = true',
}


@pytest.mark.parametrize("script", [{"envelopes": [envelope(KITCHEN)]}, {"crash": True}], ids=["engine", "engine dies"])
async def test_reliability_48_no_key_is_found_in_answers_logs_metrics_ledger_or_a_crash(tmp_path, script):
    async with (
        recording(by_text) as upstream,
        served(
            tmp_path, upstream.base_url, json.dumps(script), ledger=tmp_path / "d.db", tail="content = true", **SECTIONS
        ) as router,
    ):
        shown = [said(await ask(router.url, one)) for one in requests()]
        keys = {value for seen in upstream.requests for value in seen.values(b"authorization")}
        assert keys == {f"Bearer {UPSTREAM}".encode()}
        await until(lambda: "my key is [redacted]" in kept(tmp_path / "d.db"))
        router.process.send_signal(signal.SIGABRT)
        assert await router.process.wait() == -signal.SIGABRT
        assert "Fatal Python error" in router.log.read_text()
    assert [text for text in shown if SHOWN in text] == []
    files = [path for path in tmp_path.rglob("*") if path.is_file() and path.name != "needle-router.toml"]
    assert {"stderr.log", "d.db"} <= {path.name for path in files}
    assert [path.name for path in files if SHOWN in path.read_bytes()] == []


def kept(path) -> str:
    """Everything the ledger holds, "" before it exists."""
    try:
        with contextlib.closing(sqlite3.connect(f"file:{path}?mode=ro", uri=True)) as database:
            return repr(database.execute("select * from decisions").fetchall())
    except sqlite3.OperationalError:
        return ""


async def test_reliability_48_the_commands_print_no_key(tmp_path):
    (tmp_path / "script.json").write_text("{}")
    config = tmp_path / "needle-router.toml"
    config.write_text(
        f'[server]\napi_keys = ["{SERVER}"]\n[upstream]\nbase_url = "http://127.0.0.1:9/v1"\napi_key = "{UPSTREAM}"\n'
        f'[engine]\nbackend = "scripted"\nscript = "{tmp_path}/script.json"\n'
    )
    for command in (["check", "--json"], ["config", "show"], ["config", "check"]):
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "needle_router", *command, "--config", str(config)),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
        )
        printed, _ = await asyncio.wait_for(process.communicate(), 60)
        assert printed
        assert SHOWN not in printed


@pytest.mark.parametrize("mode", ["on", "shadow"])
async def test_reliability_49_a_hundred_clients_at_once_keep_their_own_keys(tmp_path, mode):
    async def echo(seen: Recorded, peer) -> None:
        await asyncio.sleep(0.01)
        await peer.write(answer(200, seen.values(b"authorization")[0], (b"x-user", seen.values(b"x-user")[0])))

    async with whole_router(tmp_path, echo, mode=mode) as whole:

        async def client(number: int) -> list[tuple[bytes, bytes]]:
            key, user = b"Bearer sk-%d" % number, b"user-%d" % number
            body = orjson.dumps(chat(f"story {number}", user=user.decode()))
            asked = request(
                b"POST", b"/v1/chat/completions", JSON, (b"authorization", key), (b"x-user", user), body=body
            )
            async with connected(whole.url) as connection:
                got = [await connection.ask(asked) for _ in range(3)]
            assert {(one.body, one.values(b"x-user")[0]) for one in got} == {(key, user)}
            return [(key, user)] * 3

        pairs = await asyncio.gather(*(client(number) for number in range(100)))
        seen = [(r.values(b"authorization")[0], r.values(b"x-user")[0]) for r in whole.upstream.requests]
        assert sorted(seen) == sorted(pair for made in pairs for pair in made)
        for one in whole.upstream.requests:
            assert orjson.loads(one.body)["user"].encode() == one.values(b"x-user")[0]


async def test_reliability_50_nothing_in_a_request_changes_where_it_goes(tmp_path):
    async with recording(answer(200, b"elsewhere")) as elsewhere, whole_router(tmp_path, answer(200, b"mine")) as whole:
        away = elsewhere.base_url
        body = orjson.dumps(chat("a story", api_base=away, base_url=away, api_key="k", upstream={"base_url": away}))
        host = away.removeprefix("http://").encode()
        fields = [
            (b"x-forwarded-host", host),
            (b"x-forwarded-proto", b"https"),
            (b"x-forwarded-for", b"10.0.0.1"),
            (b"forwarded", b"host=" + host),
            (b"x-original-url", away.encode()),
            (b"openai-base-url", away.encode()),
        ]
        ours = [(b"x-needle-upstream", away.encode()), (b"x-needle-route", b"local"), (b"X-Needle-Key", b"k")]
        got = await ask(whole.url, request(b"POST", b"/v1/chat/completions", JSON, *fields, *ours, body=body))
        [seen] = whole.upstream.requests
        assert (got.body, seen.body, elsewhere.opened) == (b"mine", body, 0)
        assert [pair for pair in seen.headers if pair[0] not in (b"host", b"via", b"content-length")] == [JSON, *fields]
