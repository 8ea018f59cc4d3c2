"""What arrives at the upstream, and what comes back, is what was sent."""

import asyncio

import pytest
from tests.servers import answer, ask, connected, request

pytestmark = pytest.mark.anyio


@pytest.mark.parametrize(
    "target",
    [
        pytest.param(b"/v1/chat/completions", id="plain"),
        pytest.param(b"/v1/models/org%2Fname", id="encoded slash"),
        pytest.param(b"/v1/models/org%2fname", id="encoded slash in lower case"),
        pytest.param(b"/v1/files/a%20b%C3%A9", id="encoded blank and UTF-8"),
        pytest.param(b"/v1/models/", id="trailing slash"),
        pytest.param(b"/v1/models/ft:gpt@x", id="at sign inside a path"),
        pytest.param(b"/v1/x?a=1&a=2&b=%2F&c=a+b&d", id="query with repeats"),
        pytest.param(b"/v1/x?u=http://h//p/../q@r", id="query that looks like a URL"),
        pytest.param(b"/other/path;p=1/!$&'()*,", id="sub-delimiters beside /v1"),
        pytest.param(b"/v1/a...b/..c/.d", id="dots that are no dot segments"),
        pytest.param(b"/", id="root"),
    ],
)
async def test_the_request_target_arrives_byte_for_byte(through, target):
    async with through() as setup:
        assert (await ask(setup.url, request(b"GET", target))).status == 200
        assert [seen.target for seen in setup.upstream.requests] == [target]


@pytest.mark.parametrize("method", [b"GET", b"POST", b"PUT", b"PATCH", b"DELETE", b"OPTIONS", b"HEAD"])
async def test_every_method_passes(through, method):
    async with through() as setup:
        assert (await ask(setup.url, request(method, b"/v1/x"))).status == 200
        assert setup.upstream.requests[0].method == method


async def test_request_headers_arrive_in_order_with_repeats_and_odd_bytes(through):
    sent = [
        (b"authorization", b"Bearer sk-client"),
        (b"x-odd", b"caf\xe9 \xff"),
        (b"x-twice", b"1"),
        (b"x-between", b""),
        (b"x-twice", b"2"),
        (b"cookie", b"a=1; b=2"),
        (b"openai-organization", b"org"),
        (b"x-stainless-retry-count", b"1"),
    ]
    async with through() as setup:
        await ask(setup.url, request(b"GET", b"/v1/x", *sent))
        seen = setup.upstream.requests[0]
    assert [pair for pair in seen.headers if pair[0] not in (b"host", b"via")] == sent


async def test_nothing_is_added_but_host_and_via(through):
    async with through() as setup:
        await ask(setup.url, request(b"GET", b"/v1/x"))
        seen = setup.upstream.requests[0]
    assert sorted(name for name, _ in seen.headers) == [b"host", b"via"]
    assert seen.values(b"host") == [setup.upstream.base_url.removeprefix("http://").encode()]


@pytest.mark.parametrize("encoding", [b"gzip, br;q=0.5", b"identity", b"zstd"])
async def test_the_clients_accept_encoding_is_the_upstreams(through, encoding):
    async with through() as setup:
        await ask(setup.url, request(b"GET", b"/v1/x", (b"accept-encoding", encoding)))
        assert setup.upstream.requests[0].values(b"accept-encoding") == [encoding]


@pytest.mark.parametrize(
    "body",
    [
        pytest.param(b"", id="empty"),
        pytest.param(b'{"a":1.0,"a":10000000000000000000000,"b":"\\ud800"}', id="JSON that no serializer prints"),
        pytest.param(bytes(range(256)) * 8, id="every byte"),
        pytest.param(b"x" * 3_000_000, id="three megabytes"),
    ],
)
async def test_a_body_with_a_length_arrives_unchanged(through, body):
    async with through() as setup:
        await ask(setup.url, request(b"POST", b"/v1/x", body=body))
        seen = setup.upstream.requests[0]
    assert seen.body == body
    assert seen.values(b"content-length") == [b"%d" % len(body)]
    assert seen.values(b"transfer-encoding") == []


async def test_a_chunked_body_in_one_packet_is_framed_for_the_upstream(through):
    head = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n"
    async with through() as setup:
        assert (await ask(setup.url, head + b"5\r\nhello\r\n0\r\n\r\n")).status == 200
        assert [seen.body for seen in setup.upstream.requests] == [b"hello"]


async def test_a_chunked_body_in_many_packets_is_streamed(through):
    async with through() as setup, connected(setup.url) as client:
        await client.write(b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\n")
        for piece in (b"one", b"twenty-two" * 9, b"3"):
            await client.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            await asyncio.sleep(0.01)
        await client.write(b"0\r\n\r\n")
        assert (await client.read()).status == 200
        assert setup.upstream.requests[0].body == b"one" + b"twenty-two" * 9 + b"3"


async def test_the_fields_that_describe_a_trailer_do_not_reach_the_upstream(through):
    head = b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n"
    async with through() as setup:
        assert (await ask(setup.url, head + b"2\r\nok\r\n0\r\n\r\n")).status == 200
        assert setup.upstream.requests[0].values(b"trailer") == []


async def test_answer_headers_come_back_in_order_with_repeats_and_odd_bytes(through):
    given = [
        (b"content-type", b"application/json"),
        (b"set-cookie", b"a=1; Path=/"),
        (b"x-odd", b"caf\xe9"),
        (b"set-cookie", b"b=2"),
        (b"x-request-id", b"req_1"),
        (b"x-ratelimit-remaining-tokens", b"7"),
    ]
    async with through(answer(200, b"{}", *given)) as setup:
        got = await ask(setup.url, request(b"GET", b"/v1/x"))
    assert [pair for pair in got.headers if pair[0] != b"content-length"] == given
    assert got.values(b"content-length") == [b"2"]


@pytest.mark.parametrize("encoding", [b"gzip", b"br", b"zstd", b"x-unknown"])
async def test_an_encoded_answer_is_not_decoded(through, encoding):
    body = b"\x1f\x8b\x08not really" + bytes(range(256))
    async with through(answer(200, body, (b"content-encoding", encoding))) as setup:
        got = await ask(setup.url, request(b"GET", b"/v1/x"))
    assert (got.body, got.values(b"content-encoding"), got.clean) == (body, [encoding], True)


@pytest.mark.parametrize("status", [200, 201, 202, 400, 401, 404, 418, 429, 500, 503, 599])
async def test_each_status_comes_back_with_its_body(through, status):
    async with through(answer(status, b"as it is", (b"retry-after", b"7"))) as setup:
        got = await ask(setup.url, request(b"POST", b"/v1/x", body=b"{}"))
    assert (got.status, got.body, got.values(b"retry-after")) == (status, b"as it is", [b"7"])
    assert len(setup.upstream.requests) == 1


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
async def test_a_redirect_is_the_clients_to_follow(through, status):
    away = (b"location", b"http://127.0.0.1:9/elsewhere")
    async with through(answer(status, b"", away)) as setup:
        got = await ask(setup.url, request(b"POST", b"/v1/x", (b"authorization", b"Bearer k"), body=b"{}"))
    assert (got.status, got.values(b"location")) == (status, [away[1]])
    assert len(setup.upstream.requests) == 1


async def test_head_answers_keep_the_length_and_have_no_body(through):
    async with through(b"HTTP/1.1 200 OK\r\ncontent-length: 77\r\n\r\n") as setup, connected(setup.url) as client:
        for _ in range(2):
            got = await client.ask(request(b"HEAD", b"/v1/x"))
            assert (got.status, got.values(b"content-length"), got.clean) == (200, [b"77"], True)
    assert len(setup.upstream.requests) == 2


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"HTTP/1.1 204 No Content\r\nx-a: 1\r\n\r\n", id="204"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\nx-a: 1\r\n\r\n", id="304"),
        pytest.param(b"HTTP/1.1 304 Not Modified\r\ncontent-length: 77\r\nx-a: 1\r\n\r\n", id="304 with a length"),
    ],
)
async def test_answers_without_body_leave_the_connection_usable(through, raw):
    async with through(raw) as setup, connected(setup.url) as client:
        for _ in range(2):
            got = await client.ask(request(b"GET", b"/v1/x"))
            assert (got.status, got.body, got.values(b"x-a")) == (int(raw[9:12]), b"", [b"1"])
    assert setup.upstream.opened == 1


async def test_interim_answers_are_not_passed_as_the_answer(through):
    raw = b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n" + answer(200, b"final")
    async with through(raw) as setup:
        got = await ask(setup.url, request(b"GET", b"/v1/x"))
    assert (got.status, got.body, got.values(b"link")) == (200, b"final", [])


async def test_an_answer_that_ends_with_the_connection_is_complete(through):
    async def until_close(_, peer):
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/plain\r\n\r\nfirst ")
        await asyncio.sleep(0.02)
        await peer.write(b"second")
        peer.close()

    async with through(until_close) as setup:
        got = await ask(setup.url, request(b"GET", b"/v1/x"))
    assert (got.body, got.clean) == (b"first second", True)


async def test_answer_trailers_are_dropped(through):
    raw = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nok\r\n0\r\nx-sum: 1\r\n\r\n"
    async with through(raw) as setup, connected(setup.url) as client:
        for _ in range(2):
            got = await client.ask(request(b"GET", b"/v1/x"))
            assert (got.body, got.clean, got.values(b"x-sum")) == (b"ok", True, [])
    assert setup.upstream.opened == 1


SSE = (
    'data: {"a":1}\r\n\r\n: ping\n\ndata:é\rdata: 2\n\n\ufeffdata: \U0001f600\n\n'.encode()
    + b"data: \xff\xfe\n\ndata: [DONE]\n\n"
)


@pytest.mark.parametrize("size", [1, 2, 3, 7, 64])
async def test_an_event_stream_comes_back_equal_however_it_is_cut(through, size):
    async def stream(_, peer):
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for start in range(0, len(SSE), size):
            piece = SSE[start : start + size]
            await peer.write(b"%x\r\n%b\r\n" % (len(piece), piece))
        await peer.write(b"0\r\n\r\n")

    async with through(stream) as setup:
        got = await ask(setup.url, request(b"POST", b"/v1/chat/completions", body=b"{}"))
    assert (got.body, got.clean) == (SSE, True)


async def test_each_event_is_passed_on_before_the_next_one_exists(through):
    go_on = asyncio.Queue()

    async def stream(_, peer):
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n")
        for number in range(4):
            await peer.write(b"9\r\ndata: %d\n\n\r\n" % number)
            await go_on.get()
        await peer.write(b"0\r\n\r\n")

    async with through(stream) as setup, connected(setup.url) as client:
        await client.write(request(b"GET", b"/v1/x"))
        await client.head()
        for number in range(4):
            async with asyncio.timeout(5):
                assert b"data: %d" % number in await client.reader.readuntil(b"\n\n")
            go_on.put_nowait(None)


async def test_connections_to_the_upstream_are_used_again(through):
    async with through() as setup:
        for _ in range(5):
            await ask(setup.url, request(b"POST", b"/v1/x", body=b"{}"))
    assert (len(setup.upstream.requests), setup.upstream.opened) == (5, 1)
