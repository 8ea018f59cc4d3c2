"""An upstream that fails, and a client that leaves."""

import asyncio
import time

import orjson
import pytest
from tests.servers import answer, ask, connected, free_port, recording, request, serving, until

from needle_router.config.schema import Upstream
from needle_router.forward.proxy import ReverseProxy

pytestmark = pytest.mark.anyio
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream; charset=utf-8\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"n":1}\n\n'
POST = request(b"POST", b"/v1/chat/completions?secret=q", (b"authorization", b"Bearer sk-canary"), body=b'{"a": 1}')


def chunk(data):
    return b"%x\r\n%b\r\n" % (len(data), data)


async def silence(_, peer):
    await peer.gone()


async def close_at_once(_, peer):
    peer.close()


async def reset_at_once(_, peer):
    peer.reset()


def error_of(got):
    assert got.values(b"content-type") == [b"application/json"]
    error = orjson.loads(got.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["code"]


# ------------------------------------------------------------------------------------------ before the first byte


async def test_a_refused_connection_is_a_502_that_names_no_key():
    errors = []
    proxy = ReverseProxy(Upstream(base_url=f"http://127.0.0.1:{free_port()}/v1"), on_error=errors.append)
    async with serving(proxy, lifespan="off") as url:
        got = await ask(url, POST)
    assert (got.status, error_of(got), got.values(b"x-should-retry")) == (502, "upstream_unreachable", [b"true"])
    assert b"canary" not in got.body
    assert b"secret" not in got.body
    assert errors == ["unreachable"]


async def test_an_unknown_host_is_a_502():
    proxy = ReverseProxy(Upstream(base_url="http://no-such-host.invalid/v1"))
    async with serving(proxy, lifespan="off") as url:
        got = await ask(url, POST)
    assert (got.status, error_of(got)) == (502, "upstream_unreachable")


async def test_plain_http_where_tls_is_expected_is_a_502():
    async with recording(answer()) as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url.replace("http:", "https:"), connect_timeout_s=2))
        async with serving(proxy, lifespan="off") as url:
            got = await ask(url, POST)
        assert (got.status, error_of(got)) == (502, "upstream_unreachable")
        assert upstream.requests == []


async def test_a_silent_upstream_is_a_504_and_its_connection_is_closed(through):
    async with through(silence, first_byte_timeout_s=0.1) as setup:
        got = await ask(setup.url, POST)
        assert (got.status, error_of(got)) == (504, "upstream_timeout")
        await until(lambda: setup.upstream.ended == 1)
        assert setup.errors == ["timeout"]
        assert len(setup.upstream.requests) == 1


@pytest.mark.parametrize("script", [close_at_once, reset_at_once])
async def test_a_new_connection_that_ends_without_an_answer_is_a_502_and_not_repeated(through, script):
    async with through(script) as setup:
        got = await ask(setup.url, POST)
        assert (got.status, error_of(got)) == (502, "upstream_disconnected")
        assert len(setup.upstream.requests) == 1
        assert setup.errors == ["disconnected"]


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"SSH-2.0-OpenSSH_9.2\r\n\r\n", id="another protocol"),
        pytest.param(
            b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n",
            id="two framings",
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\ncontent-length: 3\r\n\r\nok!", id="two lengths"),
        pytest.param(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: x\r\n\r\n\x00\x01", id="101"
        ),
        pytest.param(b"HTTP/1.1 200 OK\r\nx: " + b"y" * 300_000 + b"\r\n\r\n", id="300 KB of headers"),
    ],
)
async def test_an_answer_that_is_not_http_is_a_502(through, raw):
    async with through(raw) as setup:
        got = await ask(setup.url, POST)
        assert (got.status, error_of(got)) == (502, "upstream_disconnected")


# ------------------------------------------------------------------------------------------- after the first byte


async def test_a_reset_in_the_middle_of_a_body_leaves_the_answer_unfinished(through):
    async def half(_, peer):
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\ncontent-type: application/json\r\n\r\n12345")
        await asyncio.sleep(0.05)
        peer.reset()

    async with through(half) as setup:
        got = await ask(setup.url, POST)
        assert (got.status, got.body, got.clean) == (200, b"12345", False)


@pytest.mark.parametrize("end", [close_at_once, reset_at_once])
async def test_a_cut_event_stream_ends_with_an_error_event_and_uncleanly(through, end):
    async def stream(seen, peer):
        await peer.write(SSE_HEAD + chunk(EVENT))
        await asyncio.sleep(0.05)
        await end(seen, peer)

    async with through(stream) as setup:
        got = await ask(setup.url, POST)
    assert got.body.startswith(EVENT)
    assert not got.clean
    events = [orjson.loads(event.removeprefix(b"data: ")) for event in got.body.split(b"\n\n") if event]
    assert events[1]["error"]["code"] == "upstream_disconnected"
    assert b"[DONE]" not in got.body
    assert setup.errors == ["disconnected"]


async def test_a_stream_that_falls_silent_ends_with_a_timeout_event_and_uncleanly(through):
    async def stream(_, peer):
        await peer.write(SSE_HEAD + chunk(EVENT))
        await peer.gone()

    async with through(stream, idle_timeout_s=0.1) as setup:
        got = await ask(setup.url, POST)
        await until(lambda: setup.upstream.ended == 1)
    assert not got.clean
    assert b'"code":"upstream_timeout"' in got.body


async def test_pauses_shorter_than_the_idle_timeout_do_not_add_up(through):
    async def stream(_, peer):
        await peer.write(SSE_HEAD)
        for _ in range(6):
            await asyncio.sleep(0.1)
            await peer.write(chunk(EVENT))
        await peer.write(b"0\r\n\r\n")

    async with through(stream, idle_timeout_s=0.4, first_byte_timeout_s=0.4) as setup:
        got = await ask(setup.url, POST)
    assert (got.body, got.clean) == (EVENT * 6, True)


async def test_no_event_is_written_into_a_compressed_stream(through):
    async def stream(_, peer):
        await peer.write(SSE_HEAD.replace(b"\r\n\r\n", b"\r\ncontent-encoding: gzip\r\n\r\n") + chunk(b"\x1f\x8b"))
        await asyncio.sleep(0.05)
        peer.close()

    async with through(stream) as setup:
        got = await ask(setup.url, POST)
    assert (got.body, got.clean) == (b"\x1f\x8b", False)


# ------------------------------------------------------------------------------------------- stale connections


async def test_a_request_on_a_connection_that_was_closed_meanwhile_is_repeated_exactly_once(through):
    async def answer_then_drop_the_next(_, peer):
        await peer.write(answer(200, b"first"))
        # The next request is read and dropped: as if the close had crossed it.
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.reset()

    async with through(answer_then_drop_the_next, answer(200, b"second")) as setup:
        assert (await ask(setup.url, POST)).body == b"first"
        got = await ask(setup.url, POST)
        assert (got.status, got.body) == (200, b"second")
        assert setup.upstream.opened == 2
        assert setup.errors == []


async def test_a_repeat_that_fails_too_is_not_repeated_again(through):
    async def answer_then_drop_the_next(_, peer):
        await peer.write(answer(200, b"first"))
        await peer.reader.readuntil(b"\r\n\r\n")
        peer.reset()

    async with through(answer_then_drop_the_next, close_at_once) as setup:
        await ask(setup.url, POST)
        got = await ask(setup.url, POST)
        assert (got.status, error_of(got)) == (502, "upstream_disconnected")
        assert setup.upstream.opened == 2


async def test_nothing_is_repeated_once_a_byte_was_answered(through):
    async def answer_then_half(_, peer):
        await peer.write(answer(200, b"first"))
        await peer.reader.readuntil(b"\r\n\r\n")
        await peer.write(b"H")
        await asyncio.sleep(0.05)
        peer.reset()

    async with through(answer_then_half, answer(200, b"never")) as setup:
        await ask(setup.url, POST)
        got = await ask(setup.url, POST)
        assert (got.status, error_of(got)) == (502, "upstream_disconnected")
        assert setup.upstream.opened == 1


async def test_a_connection_the_upstream_closed_while_idle_is_not_used(through):
    async with through(answer(200, b"{}")) as setup:
        setup.upstream.keep_alive = False
        for _ in range(3):
            assert (await ask(setup.url, POST)).status == 200
        assert (setup.upstream.opened, len(setup.upstream.requests)) == (3, 3)


async def test_a_surplus_answer_is_not_taken_for_the_answer_to_the_next_request(through):
    async with through(answer(200, b"mine") + answer(403, b"smuggled"), answer(200, b"second")) as setup:
        assert (await ask(setup.url, POST)).body == b"mine"
        got = await ask(setup.url, POST)
        assert (got.status, got.body) == (200, b"second")
        assert setup.upstream.opened == 2


async def test_a_late_surplus_spoils_the_idle_connection(through):
    wrote = asyncio.Event()

    async def and_more(_, peer):
        await peer.write(answer(200, b"mine"))
        await asyncio.sleep(0.05)
        await peer.write(answer(408, b"too slow"))
        wrote.set()

    async with through(and_more, answer(200, b"second")) as setup:
        assert (await ask(setup.url, POST)).body == b"mine"
        await wrote.wait()
        await asyncio.sleep(0.02)
        assert (await ask(setup.url, POST)).body == b"second"


# ------------------------------------------------------------------------------------------- the client leaves


async def ended_within(setup, seconds):
    started = time.monotonic()
    await until(lambda: setup.upstream.ended == 1)
    assert time.monotonic() - started < seconds


async def test_a_client_that_leaves_before_the_answer_closes_the_upstreams_connection(through):
    async with through(silence) as setup, connected(setup.url) as client:
        await client.write(POST)
        await until(lambda: setup.upstream.requests)
        client.close()
        await ended_within(setup, 1.0)
        assert setup.errors == []


async def test_a_client_that_leaves_in_mid_stream_closes_the_upstreams_connection(through):
    async def endless(_, peer):
        await peer.write(SSE_HEAD)
        while not peer.writer.is_closing():
            await peer.write(chunk(EVENT))
            await asyncio.sleep(0.005)

    async with through(endless) as setup, connected(setup.url) as client:
        await client.write(POST)
        await client.reader.readuntil(EVENT)
        client.close()
        await ended_within(setup, 1.0)
        assert setup.errors == []


async def test_a_client_that_leaves_a_quiet_stream_closes_the_upstreams_connection(through):
    async def quiet(_, peer):
        await peer.write(SSE_HEAD + chunk(EVENT))
        await peer.gone()

    async with through(quiet) as setup, connected(setup.url) as client:
        await client.write(POST)
        await client.reader.readuntil(EVENT)
        client.close()
        await ended_within(setup, 1.0)


async def test_a_client_that_leaves_in_the_middle_of_an_upload_closes_the_upstreams_connection(through):
    async with through() as setup, connected(setup.url) as client:
        await client.write(b"POST /v1/files HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
        await until(lambda: setup.upstream.opened == 1)
        client.close()
        await ended_within(setup, 1.0)
        assert setup.upstream.requests == []


# -------------------------------------------------------------------------------------------------- flow


async def test_an_early_refusal_of_an_upload_reaches_a_client_that_is_still_sending(through):
    async with recording() as upstream:

        async def refuse(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer(413, b"too large"))
            await writer.drain()
            await reader.read()
            writer.close()

        server = await asyncio.start_server(refuse, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        proxy = ReverseProxy(Upstream(base_url=f"http://127.0.0.1:{port}"))
        async with serving(proxy, lifespan="off") as url, connected(url) as client:
            await client.write(b"POST /v1/files HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
            got = await client.read()
            assert (got.status, got.body) == (413, b"too large")
        server.close()
        assert upstream.requests == []


async def test_an_upstream_may_answer_while_it_is_still_reading(through):
    """An echo: each piece of the body comes back before the next is sent."""

    async def echo(reader, writer):
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
        while (line := await reader.readline()) != b"0\r\n":
            writer.write(line + await reader.readexactly(int(line, 16) + 2))
        writer.write(b"0\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(echo, "127.0.0.1", 0)
    proxy = ReverseProxy(Upstream(base_url=f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"))
    async with serving(proxy, lifespan="off") as url, connected(url) as client, asyncio.timeout(10):
        await client.write(b"POST /v1/audio HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
        await client.write(chunk(b"0"))
        await client.head()
        assert await client.reader.readexactly(6) == chunk(b"0")
        for number in (b"1", b"2", b"3"):
            await client.write(chunk(number))
            assert await client.reader.readexactly(6) == chunk(number)
        await client.write(b"0\r\n\r\n")
        assert await client.reader.readexactly(5) == b"0\r\n\r\n"
    server.close()


async def test_a_slow_reader_holds_the_upstream_back(through):
    written = 0

    async def flood(_, peer):
        nonlocal written
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 67108864\r\n\r\n")
        for _ in range(1024):
            await peer.write(b"x" * 65536)
            written += 65536

    async with through(flood) as setup, connected(setup.url) as client:
        await client.write(request(b"GET", b"/v1/x"))
        await client.head()
        last = -1
        while last != written:
            last = written
            await asyncio.sleep(0.2)
        assert written < 32 * 1024 * 1024


async def test_256_clients_wait_for_a_slow_upstream_side_by_side(through):
    async def slow(_, peer):
        await asyncio.sleep(0.5)
        await peer.write(answer(200, b"ok"))

    async with through(slow) as setup:
        started = time.monotonic()
        async with asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(setup.url, POST)) for _ in range(256)]
        assert {task.result().status for task in asked} == {200}
        # One after another, or 100 at a time, they would take longer.
        assert time.monotonic() - started < 5
        assert setup.upstream.opened == 256
