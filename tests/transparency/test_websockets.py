"""WebSockets through the whole router: the handshake is a request like any other, then bytes pass unread."""

from __future__ import annotations

import asyncio
import contextlib

import orjson
import pytest
import websockets
from tests.router.support import config_for
from tests.servers import answer, ask, connected, read_head, request, serving, until
from tests.transparency.support import UNSURE, whole_router
from websockets.asyncio.client import connect
from websockets.asyncio.server import serve

from needle_router import create_app
from needle_router.cli.strict import StrictProtocol

pytestmark = pytest.mark.anyio
HANDSHAKE = [
    (b"connection", b"keep-alive, Upgrade"),
    (b"upgrade", b"WebSocket"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
]
ASKING = request(b"GET", b"/v1/realtime?model=x", *HANDSHAKE)
SWITCH = b"HTTP/1.1 101 X\r\nupgrade: websocket\r\nconnection: Upgrade\r\nsec-websocket-accept: s3\r\n\r\n"


@contextlib.asynccontextmanager
async def speaking(folder, handler, **options):
    """A router in front of a WebSocket server; gives the router's ws:// address."""
    async with serve(handler, "127.0.0.1", 0, **options) as server:
        port = server.sockets[0].getsockname()[1]
        router = create_app(config_for(folder, UNSURE, upstream=f"http://127.0.0.1:{port}/v1"))
        async with serving(router, lifespan="on", http=StrictProtocol, ws="none") as url:
            yield url.replace("http:", "ws:")


async def test_a_conversation_passes_as_it_is_with_its_handshake_and_its_end(tmp_path):
    seen = []

    async def echo(peer):
        seen.append((peer.request.path, dict(peer.request.headers)))
        async for message in peer:
            await peer.send(message[::-1])
            if message == b"end":
                await peer.close(4001, "enough")

    async with speaking(tmp_path, echo, subprotocols=["realtime"], max_size=None) as url:
        extra = {"Authorization": "Bearer sk-client", "OpenAI-Beta": "realtime=v1", "x-needle-mode": "off"}
        asked = connect(
            f"{url}/v1/realtime?model=a%2Fb", additional_headers=extra, subprotocols=["realtime"], max_size=None
        )
        async with asked as client, asyncio.timeout(20):
            assert client.subprotocol == "realtime"
            assert client.response.headers["x-needle-route"] == "upstream"
            for message in ("text", b"\x00\xff", "x" * 3_000_000):
                await client.send(message)
                assert await client.recv() == message[::-1]
            await client.send(b"end")
            assert await client.recv() == b"dne"
            with pytest.raises(websockets.ConnectionClosedError) as closed:
                await client.recv()
        assert (closed.value.rcvd.code, closed.value.rcvd.reason) == (4001, "enough")
    [(path, headers)] = seen
    assert path == "/v1/realtime?model=a%2Fb"
    assert headers["authorization"] == "Bearer sk-client"
    assert headers["openai-beta"] == "realtime=v1"
    assert headers["via"].startswith("1.1 needle-router-")
    assert "x-needle-mode" not in headers


async def test_the_clients_close_reaches_the_upstream(tmp_path):
    codes = []

    async def listen(peer):
        with contextlib.suppress(websockets.ConnectionClosed):
            await peer.recv()
        codes.append((peer.close_code, peer.close_reason))

    async with speaking(tmp_path, listen) as url, asyncio.timeout(20):
        async with connect(f"{url}/v1/responses") as client:
            await client.close(1001, "leaving")
        await until(lambda: codes == [(1001, "leaving")])


async def switched(client):
    """Status and fields of the answer to a handshake."""
    async with asyncio.timeout(10):
        first, headers = await read_head(client.reader)
    return int(first.split(b" ")[1]), headers


async def until_gone(peer):
    with contextlib.suppress(ConnectionError):
        while await peer.reader.read(65536):
            continue


async def test_not_a_byte_goes_up_before_the_upstream_has_switched(tmp_path):
    early = []

    async def slowly(_, peer):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.2):
                early.append(await peer.reader.read(1))
        await peer.write(SWITCH + b"hello")
        assert await peer.reader.readexactly(5) == b"GET /"
        await peer.write(b"bye")
        peer.close()

    async with whole_router(tmp_path, slowly) as whole, connected(whole.url) as client:
        await client.write(ASKING + b"GET /smuggled")
        status, headers = await switched(client)
        async with asyncio.timeout(10):
            assert await client.reader.read(5) == b"hello"
            assert await client.reader.read() == b"bye"
        [seen] = whole.upstream.requests
    assert status == 101
    kept = [pair for pair in headers if not pair[0].startswith(b"x-")]
    assert kept == [(b"sec-websocket-accept", b"s3"), (b"connection", b"Upgrade"), (b"upgrade", b"websocket")]
    assert seen.target == b"/v1/realtime?model=x"
    assert (seen.values(b"connection"), seen.values(b"upgrade")) == ([b"Upgrade"], [b"websocket"])
    assert early == []


@pytest.mark.parametrize("status", [200, 401, 404, 426])
async def test_an_upstream_that_does_not_switch_is_heard_and_nothing_else_is_sent_to_it(tmp_path, status):
    refused = answer(status, b'{"error": 1}', (b"content-type", b"application/json"))
    async with whole_router(tmp_path, refused) as whole, connected(whole.url) as client:
        await client.write(ASKING + request(b"GET", b"/smuggled"))
        got = await client.read()
        assert (got.status, got.body, got.values(b"connection")) == (status, b'{"error": 1}', [b"close"])
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""
        assert [seen.target for seen in whole.upstream.requests] == [b"/v1/realtime?model=x"]


@pytest.mark.parametrize(
    "head",
    [
        pytest.param(b"HTTP/1.1 101 X\r\nupgrade: h2c\r\nconnection: upgrade\r\n\r\n", id="another protocol"),
        pytest.param(b"HTTP/1.1 101 X\r\n\r\n\x81\x00", id="no protocol at all"),
    ],
)
async def test_a_switch_to_what_nobody_asked_for_is_a_502(tmp_path, head):
    async with whole_router(tmp_path, head) as whole:
        got = await ask(whole.url, ASKING)
        assert (got.status, orjson.loads(got.body)["error"]["code"]) == (502, "upstream_disconnected")
        await until(lambda: whole.upstream.ended == 1)


async def test_a_client_that_leaves_takes_the_upstreams_connection_with_it(tmp_path):
    async def talk(_, peer):
        await peer.write(SWITCH)
        await peer.gone()

    async with whole_router(tmp_path, talk) as whole:
        async with connected(whole.url) as client:
            await client.write(ASKING)
            assert (await switched(client))[0] == 101
        await until(lambda: whole.upstream.ended == 1)


async def test_a_client_that_leaves_before_there_is_an_answer_does_too(tmp_path):
    async def think(_, peer):
        await peer.gone()

    async with whole_router(tmp_path, think) as whole:
        async with connected(whole.url) as client:
            await client.write(ASKING)
            await until(lambda: whole.upstream.requests)
        await until(lambda: whole.upstream.ended == 1)


@pytest.mark.parametrize("end", ["close", "reset"])
async def test_an_upstream_that_leaves_takes_the_clients_connection_with_it(tmp_path, end):
    async def leave(_, peer):
        await peer.write(SWITCH + b"last words")
        await peer.reader.readexactly(2)
        getattr(peer, end)()

    async with whole_router(tmp_path, leave) as whole, connected(whole.url) as client:
        await client.write(ASKING)
        assert (await switched(client))[0] == 101
        async with asyncio.timeout(10):
            assert await client.reader.readexactly(10) == b"last words"
            await client.write(b"go")
            assert await client.reader.read() == b""


async def test_a_websocket_on_which_nothing_passes_is_closed_on_both_sides(tmp_path):
    async def silent(_, peer):
        await peer.write(SWITCH)
        await peer.gone()

    async with whole_router(tmp_path, silent, idle_timeout_s=0.2) as whole, connected(whole.url) as client:
        await client.write(ASKING)
        assert (await switched(client))[0] == 101
        async with asyncio.timeout(10):
            assert await client.reader.read() == b""
        await until(lambda: whole.upstream.ended == 1)


async def test_one_side_that_speaks_keeps_it_open(tmp_path):
    heard = bytearray()

    async def silent(_, peer):
        await peer.write(SWITCH)
        while piece := await peer.reader.read(100):
            heard.extend(piece)
            if b"!" in piece:
                await peer.write(b"done")

    async with whole_router(tmp_path, silent, idle_timeout_s=1.0) as whole, connected(whole.url) as client:
        await client.write(ASKING)
        assert (await switched(client))[0] == 101
        for _ in range(15):
            await client.write(b"x")
            await asyncio.sleep(0.1)
        await client.write(b"!")
        async with asyncio.timeout(10):
            assert await client.reader.readexactly(4) == b"done"
    assert heard == b"x" * 15 + b"!"


async def test_an_upstream_that_takes_nothing_makes_the_client_wait(tmp_path):
    async def deaf(_, peer):
        await peer.write(SWITCH)
        peer.reader._transport.pause_reading()
        await asyncio.sleep(10)

    async with whole_router(tmp_path, deaf) as whole, connected(whole.url) as client:
        await client.write(ASKING)
        assert (await switched(client))[0] == 101
        client.writer.write(b"x" * 128 * 1024 * 1024)
        unsent = [client.writer.transport.get_write_buffer_size()]
        async with asyncio.timeout(10):
            while len(unsent) < 20 or unsent[-1] != unsent[-20]:
                await asyncio.sleep(0.02)
                unsent.append(client.writer.transport.get_write_buffer_size())
    # What is missing lies in the buffers of four sockets.
    assert unsent[-1] > 64 * 1024 * 1024


@pytest.mark.parametrize(
    ("server", "fields", "status", "code"),
    [
        pytest.param({"api_keys": ("k",)}, [], 401, "invalid_api_key", id="no router key"),
        pytest.param({}, [(b"origin", b"https://evil.example")], 403, "forbidden", id="a page of elsewhere"),
        pytest.param({}, [(b"host", b"h2")], 400, "invalid_request", id="two Hosts"),
    ],
)
async def test_who_may_not_ask_may_not_open_one(tmp_path, server, fields, status, code):
    async with whole_router(tmp_path, SWITCH, server=server) as whole:
        got = await ask(whole.url, request(b"GET", b"/v1/realtime", *HANDSHAKE, *fields))
        assert (got.status, orjson.loads(got.body)["error"]["code"]) == (status, code)
        assert whole.upstream.opened == 0


async def test_an_injected_key_takes_the_place_of_the_routers(tmp_path):
    async def once(_, peer):
        await peer.write(SWITCH)
        peer.close()

    settings = {"server": {"api_keys": ("router-key",)}, "inject_key": True, "api_key": "sk-up"}
    async with whole_router(tmp_path, once, **settings) as whole:
        key = (b"authorization", b"Bearer router-key")
        async with connected(whole.url) as client:
            await client.write(request(b"GET", b"/v1/realtime", *HANDSHAKE, key))
            assert (await switched(client))[0] == 101
        [seen] = whole.upstream.requests
    assert seen.values(b"authorization") == [b"Bearer sk-up"]
    assert not any(b"router-key" in value for _, value in seen.headers)


async def test_an_open_websocket_is_one_of_the_connections(tmp_path):
    async def talk(_, peer):
        await peer.write(SWITCH)
        await until_gone(peer)

    async with whole_router(tmp_path, talk, server={"max_connections": 1}) as whole:
        async with connected(whole.url) as client:
            await client.write(ASKING)
            assert (await switched(client))[0] == 101
            assert (await ask(whole.url, request(b"GET", b"/v1/x"))).status == 503
        await until(lambda: whole.upstream.ended == 1)


async def test_switched_off_a_handshake_is_a_426_and_the_upstream_is_not_asked(tmp_path):
    async with whole_router(tmp_path, SWITCH, websockets=False) as whole:
        got = await ask(whole.url, ASKING)
        assert (got.status, got.values(b"upgrade")) == (426, [b"HTTP/1.1"])
        assert whole.upstream.opened == 0
