"""Requests that mean two things never get as far as the app, and no client costs more than its share."""

import asyncio
import contextlib
import functools

import orjson
import pytest
from tests.servers import ask, connected, read_head, serving, until

from needle_router.cli.strict import StrictProtocol
from needle_router.cli.strict_gate import Gate
from needle_router.config.schema import Server

pytestmark = pytest.mark.anyio
OK = b"GET /v1/x HTTP/1.1\r\nhost: h\r\n\r\n"
#: Far more than any test takes.
LONG_S = 100.0


async def app(scope, receive, send):
    """Answers with the path, the header names and the body."""
    body = b""
    while True:
        message = await receive()
        body += message.get("body", b"")
        if not message.get("more_body"):
            break
    names = b",".join(name for name, _ in scope["headers"])
    text = b"%b %b %b" % (scope["raw_path"], names, body)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(text))]})
    await send({"type": "http.response.body", "body": text})


@contextlib.asynccontextmanager
async def strict(application=app, **limits):
    """A server with these limits and no other that a test could reach; gives its URL and its gate."""
    calm = {"header_timeout_s": LONG_S, "body_timeout_s": LONG_S, "idle_timeout_s": LONG_S}
    gate = Gate(Server(**{**calm, **limits}))
    async with serving(application, http=functools.partial(StrictProtocol, gate=gate), ws="none") as url:
        yield url, gate


async def refused(client, status, code):
    """The next answer is this refusal, and the last of its connection."""
    got = await client.read()
    assert (got.status, got.values(b"connection")) == (status, [b"close"])
    assert orjson.loads(got.body)["error"]["code"] == code
    async with asyncio.timeout(5):
        assert await client.reader.read() == b""
    return got


@pytest.mark.parametrize(
    ("raw", "code"),
    [
        pytest.param(b"GET http://evil/v1/x HTTP/1.1\r\nhost: h\r\n\r\n", "bad_request_target", id="absolute-form"),
        pytest.param(b"GET https://h/v1/x HTTP/1.1\r\nhost: h\r\n\r\n", "bad_request_target", id="absolute, own host"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n", "bad_request_target", id="asterisk-form"),
        pytest.param(b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n", "bad_request_target", id="CONNECT"),
        pytest.param(b"GET @evil/v1 HTTP/1.1\r\nhost: h\r\n\r\n", "invalid_request", id="target begins with @"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\n\r\n", "invalid_request", id="no Host"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", "invalid_request", id="two Hosts"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nhost: h\r\n\r\n", "invalid_request", id="the same Host twice"),
        pytest.param(b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                     "invalid_request", id="length and chunks"),
        pytest.param(b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: gzip, chunked\r\n\r\n0\r\n\r\n",
                     "invalid_request", id="a coding beside chunked"),
        pytest.param(b"POST /v1/x HTTP/1.0\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\n",
                     "invalid_request", id="chunks in HTTP 1.0"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: h\r\nupgrade: h2c\r\nconnection: upgrade\r\ncontent-length: 1\r\n\r\n.",
                     "invalid_request", id="Upgrade with a body"),
        pytest.param(b"GET /v1/x HTTP/2.0\r\nhost: h\r\n\r\n", "invalid_request", id="HTTP 2 in the line"),
        pytest.param(b"GET /v1/x HTTP/1.1\nhost: h\n\n", "invalid_request", id="bare line feeds"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", "invalid_request", id="TLS on a plain port"),
    ],
)  # fmt: skip
async def test_a_request_with_two_readings_is_a_400_in_openais_shape_and_the_connection_ends(raw, code):
    async with strict() as (url, _), connected(url) as client:
        await client.write(raw)
        await refused(client, 400, code)


async def test_plain_requests_pass_on_one_connection():
    async with strict() as (url, _), connected(url) as client:
        for _ in range(3):
            assert (await client.ask(OK)).body == b"/v1/x host "


async def test_without_a_gate_of_its_own_a_connection_has_the_default_limits():
    async with serving(app, http=StrictProtocol) as url:
        assert (await ask(url, OK)).body == b"/v1/x host "


async def test_http_1_0_may_leave_host_out():
    async with strict() as (url, _):
        assert (await ask(url, b"GET /v1/x HTTP/1.0\r\n\r\n")).body == b"/v1/x  "


async def test_an_http_1_0_client_gets_no_chunks():
    async def streaming(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": []})
        for piece in (b"a", b"bc"):
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b""})

    async with strict(streaming) as (url, _):
        got = await ask(url, b"GET /v1/x HTTP/1.0\r\n\r\n")
        assert (got.body, got.values(b"transfer-encoding"), got.values(b"connection")) == (b"abc", [], [b"close"])
        got = await ask(url, OK)
        assert (got.body, got.values(b"transfer-encoding")) == (b"abc", [b"chunked"])


async def test_trailers_reach_nobody():
    head = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
    async with strict() as (url, _), connected(url) as client:
        got = await client.ask(head + b"1\r\nq\r\n0\r\nhost: evil\r\nx-needle-mode: on\r\n\r\n")
        assert got.body == b"/v1/x host,transfer-encoding q"
        assert (await client.ask(OK)).body == b"/v1/x host "


async def test_after_an_upgrade_that_is_not_taken_up_the_connection_ends():
    async with strict() as (url, _), connected(url) as client:
        await client.write(OK[:-2] + b"upgrade: websocket\r\nconnection: upgrade\r\n\r\n" + OK)
        got = await client.read()
        assert (got.status, got.values(b"connection")) == (200, [b"close"])
        assert await client.reader.read() == b""


# ------------------------------------------------------------------------------------------------ size and number


def with_fields(count):
    """A request with `count` header fields."""
    return b"GET /v1/x HTTP/1.1\r\nhost: h\r\n%b\r\n" % b"".join(b"x-%d: v\r\n" % n for n in range(count - 1))


def with_head_of(size):
    """A request whose target and fields have `size` bytes, line ends included."""
    used = len(b"/v1/x") + len(b"host: h\r\n") + len(b"x: \r\n")
    return b"GET /v1/x HTTP/1.1\r\nhost: h\r\nx: %b\r\n\r\n" % (b"v" * (size - used))


def with_target_of(size):
    return b"GET /%b HTTP/1.1\r\nhost: h\r\n\r\n" % (b"x" * (size - 1))


@pytest.mark.parametrize(
    ("raw", "status", "code"),
    [
        pytest.param(with_fields(10), 200, "", id="as many fields as allowed"),
        pytest.param(with_fields(11), 431, "headers_too_large", id="one field more"),
        pytest.param(with_head_of(4096), 200, "", id="a head as large as allowed"),
        pytest.param(with_head_of(4097), 431, "headers_too_large", id="one byte more"),
        pytest.param(with_target_of(1024), 200, "", id="a target as long as allowed"),
        pytest.param(with_target_of(1025), 414, "target_too_long", id="a target one byte longer"),
    ],
)
async def test_the_limits_of_a_head_are_exact(raw, status, code):
    async with strict(max_headers=10, max_header_kb=4, max_url_kb=1) as (url, _), connected(url) as client:
        await client.write(raw)
        if code:
            await refused(client, status, code)
        else:
            assert (await client.read()).status == status


@pytest.mark.parametrize(
    ("start", "more", "status", "code"),
    [
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nx: ", b"v" * 1000, 431, "headers_too_large", id="a field"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost: h\r\n", b"x: v\r\n" * 100, 431, "headers_too_large", id="fields"),
        pytest.param(b"GET /", b"x" * 1000, 414, "target_too_long", id="a target"),
        pytest.param(b"", b"\r\n" * 500, 431, "headers_too_large", id="empty lines"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n1;", b"e" * 1000, 431,
                     "headers_too_large", id="a chunk extension"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n0\r\n", b"t: v\r\n" * 100, 431,
                     "headers_too_large", id="trailers"),
    ],
)  # fmt: skip
async def test_what_does_not_end_is_cut_at_the_limit(start, more, status, code):
    async with strict(max_header_kb=4, max_url_kb=1) as (url, _), connected(url) as client:
        await client.write(start)
        with contextlib.suppress(ConnectionError):
            for _ in range(100):
                await client.write(more)
        await refused(client, status, code)


async def test_a_large_body_is_no_large_head():
    head = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 100000\r\n\r\n"
    async with strict(max_header_kb=1) as (url, _), connected(url) as client:
        got = await client.ask(head + b"b" * 100_000 + OK)
        assert got.status == 200
        assert (await client.read()).body == b"/v1/x host "


# -------------------------------------------------------------------------------------------------------- deadlines


async def dripping(client, piece):
    """Write `piece` every 20 ms until the other side has closed."""
    with contextlib.suppress(ConnectionError):
        while not client.reader.at_eof():
            await client.write(piece)
            await asyncio.sleep(0.02)


async def test_a_head_that_comes_a_byte_at_a_time_is_a_408_at_its_deadline():
    async with strict(header_timeout_s=0.2) as (url, _), connected(url) as client:
        await client.write(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nx: ")
        async with asyncio.TaskGroup() as group:
            drip = group.create_task(dripping(client, b"v"))
            await refused(client, 408, "request_timeout")
            drip.cancel()


async def test_a_body_that_stands_still_is_a_408_and_the_app_sees_its_client_leave():
    seen = []

    async def listening(scope, receive, send):
        while (message := await receive())["type"] != "http.disconnect":
            seen.append(message["body"])
        seen.append("left")

    async with strict(listening, body_timeout_s=0.2) as (url, _), connected(url) as client:
        await client.write(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 9\r\n\r\nabc")
        await refused(client, 408, "request_timeout")
        await until(lambda: seen == [b"abc", "left"])


async def test_a_body_that_keeps_coming_has_all_the_time_it_needs():
    async with strict(body_timeout_s=0.4) as (url, _), connected(url) as client:
        await client.write(b"POST /p HTTP/1.1\r\nhost: h\r\ncontent-length: 10\r\n\r\n")
        for _ in range(10):
            await asyncio.sleep(0.08)
            await client.write(b"b")
        assert (await client.read()).body == b"/p host,content-length bbbbbbbbbb"


async def test_time_in_which_the_app_reads_nothing_is_not_the_clients():
    async def slow(scope, receive, send):
        # Between the head and its 100 the client may not send, and beyond a full buffer it cannot.
        await asyncio.sleep(0.5)
        await app(scope, receive, send)

    head = b"POST /p HTTP/1.1\r\nhost: h\r\ncontent-length: %d\r\n"
    async with strict(slow, body_timeout_s=0.1, max_header_kb=1) as (url, _):
        async with connected(url) as client:
            await client.write(head % 2 + b"expect: 100-continue\r\n\r\n")
            async with asyncio.timeout(5):
                assert (await read_head(client.reader))[0] == b"HTTP/1.1 100 Continue"
            await client.write(b"ok")
            assert (await client.read()).status == 200
        async with connected(url) as client:
            await client.write(head % 2_000_000 + b"\r\n" + b"b" * 2_000_000)
            assert (await client.read()).status == 200


@pytest.mark.parametrize(
    "before", [pytest.param(b"", id="before the first byte"), pytest.param(OK, id="between requests")]
)
async def test_an_idle_connection_is_closed_without_a_word(before):
    async with strict(idle_timeout_s=0.2) as (url, _), connected(url) as client:
        if before:
            await client.ask(before)
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""


async def test_an_answer_has_no_deadline_here():
    async def pondering(scope, receive, send):
        await asyncio.sleep(0.5)
        await app(scope, receive, send)

    short = {"idle_timeout_s": 0.1, "header_timeout_s": 0.1, "body_timeout_s": 0.1}
    async with strict(pondering, **short) as (url, _):
        assert (await ask(url, OK)).status == 200


def flooding(seen, *, pieces=1024):
    """An app that sends 64 KB at a time until it has sent them all or its client has left."""

    async def watch(receive):
        while (await receive())["type"] != "http.disconnect":
            continue
        seen.append("left")
        raise TimeoutError

    async def flood(scope, receive, send):
        await receive()
        with contextlib.suppress(ExceptionGroup):
            async with asyncio.TaskGroup() as group:
                watcher = group.create_task(watch(receive))
                await send({"type": "http.response.start", "status": 200, "headers": []})
                for _ in range(pieces):
                    await send({"type": "http.response.body", "body": b"x" * 65536, "more_body": True})
                await send({"type": "http.response.body", "body": b""})
                watcher.cancel()

    return flood


async def test_a_client_that_takes_nothing_of_its_answer_loses_it_and_the_app_sees_it_leave():
    seen = []
    async with strict(flooding(seen), write_timeout_s=0.3) as (url, gate), connected(url) as client:
        await client.write(OK)
        assert (await client.head())[0] == 200
        await until(lambda: seen == ["left"])
        await until(lambda: not gate._served)


async def test_a_client_that_takes_a_little_now_and_then_gets_all_of_it():
    seen = []
    async with strict(flooding(seen, pieces=320), write_timeout_s=1.0) as (url, _), connected(url) as client:
        await client.write(OK)
        assert (await client.head())[0] == 200
        for _ in range(16):
            await asyncio.sleep(0.1)
            await client.reader.readexactly(1310720)
        assert await client.reader.readuntil(b"0\r\n\r\n")
    assert seen == []


async def test_a_closed_connection_does_not_wait_for_ever_for_its_last_bytes_to_be_taken():
    async def large(scope, receive, send):
        body = b"x" * 32_000_000
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
        await send({"type": "http.response.body", "body": body})

    async with strict(large, write_timeout_s=0.3, idle_timeout_s=0.1) as (url, gate), connected(url) as client:
        await client.write(OK)
        assert (await client.head())[0] == 200
        await until(lambda: not gate._served)


async def test_a_body_that_comes_after_its_answer_buys_no_time():
    async def early(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"0")]})
        await send({"type": "http.response.body", "body": b""})

    async with strict(early, body_timeout_s=0.2) as (url, _), connected(url) as client:
        assert (await client.ask(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999\r\n\r\n")).status == 200
        async with asyncio.timeout(5):
            await dripping(client, b"b")


async def test_a_head_goes_out_with_its_body_or_at_once_where_there_is_none_yet():
    go_on = asyncio.Event()

    async def in_two(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"4")]})
        if scope["path"] == "/slow":
            await go_on.wait()
        await send({"type": "http.response.body", "body": b"HTTP"})

    async with strict(in_two) as (url, _), connected(url) as client, asyncio.timeout(10):
        await client.write(b"GET / HTTP/1.1\r\nhost: h\r\n\r\n")
        assert (await client.reader.read(65536)).endswith(b"content-length: 4\r\n\r\nHTTP")
        await client.write(b"GET /slow HTTP/1.1\r\nhost: h\r\n\r\n")
        assert (await client.reader.read(65536)).endswith(b"content-length: 4\r\n\r\n")
        go_on.set()
        assert await client.reader.read(65536) == b"HTTP"


async def test_an_early_answer_that_ends_the_connection_reaches_a_client_that_is_still_sending():
    async def too_large(scope, receive, send):
        headers = [(b"content-length", b"2"), (b"connection", b"close")]
        await send({"type": "http.response.start", "status": 413, "headers": headers})
        await send({"type": "http.response.body", "body": b"no"})

    async with strict(too_large) as (url, gate), connected(url) as client:
        await client.write(b"POST / HTTP/1.1\r\nhost: h\r\ncontent-length: 99999999\r\n\r\n")
        assert (await client.read()).body == b"no"
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""
        await client.write(b"x" * 1_000_000)
        assert (len(gate._served), len(gate._lingering)) == (0, 1)
    await until(lambda: not gate._lingering)


async def test_a_refused_client_that_does_not_close_is_closed():
    async with strict() as (url, gate), connected(url) as client:
        await client.write(b"nonsense\r\n\r\n")
        await refused(client, 400, "invalid_request")
        # What it goes on sending is thrown away, and its end is not waited for for ever.
        async with asyncio.timeout(5):
            with contextlib.suppress(ConnectionError):
                while gate._lingering:  # noqa: ASYNC110  # no event tells of it
                    await asyncio.sleep(0.02)
        assert gate._lingering == set()


# -------------------------------------------------------------------------------------------------- several requests


async def test_pipelined_requests_are_answered_in_their_order():
    async with strict() as (url, _), connected(url) as client:
        await client.write(OK * 3 + OK.replace(b"/v1/x", b"/last"))
        assert [(await client.read()).body for _ in range(4)] == [b"/v1/x host "] * 3 + [b"/last host "]


@pytest.mark.parametrize(
    "broken",
    [
        pytest.param(b"nonsense\r\n\r\n", id="no request"),
        pytest.param(b"GET http://evil/ HTTP/1.1\r\nhost: h\r\n\r\n", id="refused head"),
        pytest.param(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", id="broken body"),
    ],
)
async def test_a_broken_request_behind_a_good_one_does_not_get_into_its_answer(broken):
    release, asked = asyncio.Event(), []

    async def halting(scope, receive, send):
        asked.append(scope["raw_path"])
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"first ", "more_body": True})
        await release.wait()
        await send({"type": "http.response.body", "body": b"last"})

    async with strict(halting) as (url, _), connected(url) as client:
        await client.write(OK + broken)
        assert (await client.head())[0] == 200
        release.set()
        async with asyncio.timeout(5):
            assert await client.reader.read() == b"6\r\nfirst \r\n4\r\nlast\r\n0\r\n\r\n"
        assert asked == [b"/v1/x"]


async def test_a_body_that_breaks_after_its_answer_began_cuts_the_answer():
    async def eager(scope, receive, send):
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"9")]})
        while (await receive())["type"] != "http.disconnect":
            continue

    async with strict(eager) as (url, _), connected(url) as client:
        await client.write(b"POST / HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
        assert (await client.head())[0] == 200
        await client.write(b"zz\r\n")
        async with asyncio.timeout(5):
            assert await client.reader.read() == b""


# ----------------------------------------------------------------------------------------------- many connections


async def test_one_connection_too_many_is_told_so_and_the_others_go_on():
    async with strict(max_connections=2) as (url, _), connected(url) as first, connected(url) as second:
        assert (await first.ask(OK)).status == 200
        assert (await second.ask(OK)).status == 200
        async with connected(url) as third:
            got = await refused(third, 503, "too_many_connections")
            assert (got.values(b"retry-after"), got.values(b"x-should-retry")) == ([b"1"], [b"true"])
        assert (await first.ask(OK)).status == 200
        second.close()

        async def room():
            async with connected(url) as next_one:
                return (await next_one.ask(OK)).status == 200

        async with asyncio.timeout(5):
            while not await room():  # noqa: ASYNC110  # no event tells of it
                await asyncio.sleep(0.01)
