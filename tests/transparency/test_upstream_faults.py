"""Upstreams that are down, refuse, break off or babble, seen through the whole router (cases 19 to 29 and 63)."""

from __future__ import annotations

import asyncio
import contextlib

import msgspec
import orjson
import pytest
from tests.router.support import KITCHEN, config_for, envelope
from tests.router.support import ask as chat
from tests.servers import answer, ask, free_port, recording, request, serving, until
from tests.transparency.support import end_to_end, whole_router

from needle_router import create_app
from needle_router.config.schema import Upstream

pytestmark = pytest.mark.anyio
SURE = {"envelopes": [envelope(KITCHEN)]}
CHAT = b"/v1/chat/completions"
JSON = (b"content-type", b"application/json")
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'data: {"n":1}\n\n'


def asking(text: str = "tell me a story", **fields) -> bytes:
    """A chat completion that offers tools."""
    return request(b"POST", CHAT, JSON, body=orjson.dumps(chat(text, **fields)))


def chunk(data: bytes) -> bytes:
    """One chunk of a chunked body."""
    return b"%x\r\n%b\r\n" % (len(data), data)


def code_of(got) -> str:
    """The code of an OpenAI error, whose four keys are all there."""
    error = orjson.loads(got.body)["error"]
    assert set(error) == {"message", "type", "param", "code"}
    return error["code"]


async def nobody(stack) -> str:
    return f"http://127.0.0.1:{free_port()}/v1"


async def unknown(stack) -> str:
    return "http://no-such-host.invalid/v1"


async def speaks_no_tls(stack) -> str:
    plain = await stack.enter_async_context(recording())
    return plain.base_url.replace("http:", "https:") + "/v1"


@pytest.mark.parametrize("upstream", [nobody, unknown, speaks_no_tls])
async def test_reliability_19_without_upstream_errors_are_502_the_breaker_opens_and_tool_turns_go_on(
    tmp_path, upstream
):
    async with contextlib.AsyncExitStack() as stack:
        config = config_for(tmp_path, SURE, upstream=await upstream(stack))
        router = create_app(config)
        url = await stack.enter_async_context(serving(router, lifespan="on"))
        await until(lambda: router.services.engine.health().state.value == "ready")
        got = [await ask(url, request(b"POST", CHAT, body=b"{}")) for _ in range(config.upstream.breaker_failures + 1)]
        assert [(one.status, code_of(one)) for one in got] == [(502, "upstream_unreachable")] * len(got)
        assert b"several times in a row" in got[-1].body
        local = await ask(url, asking("turn on the kitchen light"))
        assert (local.status, local.values(b"x-needle-route")) == (200, [b"local"])


async def status_of(url):
    """What /readyz and /-/status.json say of the upstreams, and the breakers in /metrics."""
    own = [
        b"GET %b HTTP/1.1\r\nhost: localhost\r\n\r\n" % path for path in (b"/readyz", b"/-/status.json", b"/metrics")
    ]
    ready, status, metrics = [await ask(url, raw) for raw in own]
    state, text = orjson.loads(status.body)["upstream"], metrics.body.decode()
    gauges = [line.split()[1] for line in text.splitlines() if line.startswith("needle_router_breaker_state{")]
    return ready.status, orjson.loads(ready.body)["status"], state, gauges


async def test_reliability_19_the_next_upstream_takes_over_and_every_breaker_is_shown_without_the_key(tmp_path):
    first, second = free_port(), free_port()
    async with recording(answer(200, b"second")) as upstream:
        port = int(upstream.base_url.rpartition(":")[2])
        config = config_for(tmp_path, SURE, upstream=f"http://127.0.0.1:{first}/v1")
        changed = msgspec.structs.replace(
            config.upstream,
            fallback_urls=(f"http://127.0.0.1:{port}/deep/v1", f"http://127.0.0.1:{second}"),
            breaker_failures=1,
            breaker_open_s=1000,
            api_key="sk-canary",
        )
        router = create_app(msgspec.structs.replace(config, upstream=changed))
        async with serving(router, lifespan="on") as url:
            await until(lambda: router.services.engine.health().state.value == "ready")
            assert (await status_of(url))[3] == ["0.0", "0.0", "0.0"]
            assert (await ask(url, request(b"GET", b"/v1/models"))).body == b"second"
            assert [seen.target for seen in upstream.requests] == [b"/deep/v1/models"]
            code, overall, state, gauges = await status_of(url)
    assert (code, overall, gauges) == (200, "ok", ["2.0", "0.0", "0.0"])
    assert state["state"] == "configured"
    assert [(one["host"], one["breaker"]) for one in state["members"]] == [
        (f"127.0.0.1:{first}", "open"),
        (f"127.0.0.1:{port}", "closed"),
        (f"127.0.0.1:{second}", "closed"),
    ]
    assert 990 < state["members"][0]["next_try_s"] <= 1000
    assert "sk-canary" not in str(state)


async def test_reliability_19_with_every_breaker_open_the_router_is_degraded_and_stays_ready(tmp_path):
    config = config_for(tmp_path, SURE, upstream=f"http://127.0.0.1:{free_port()}/v1")
    changed = msgspec.structs.replace(config.upstream, breaker_failures=1, breaker_open_s=1000)
    router = create_app(msgspec.structs.replace(config, upstream=changed))
    async with serving(router, lifespan="on") as url:
        await until(lambda: router.services.engine.health().state.value == "ready")
        assert (await ask(url, request(b"GET", b"/v1/models"))).status == 502
        code, overall, state, _ = await status_of(url)
        assert (code, overall, state["state"]) == (200, "degraded", "unreachable")
        local = await ask(url, asking("turn on the kitchen light"))
        assert (local.status, local.values(b"x-needle-route")) == (200, [b"local"])


async def test_reliability_20_a_429_comes_back_as_it_is_and_is_asked_for_once(tmp_path):
    fields = [
        (b"retry-after", b"7"),
        (b"retry-after-ms", b"6900"),
        (b"x-should-retry", b"true"),
        (b"x-request-id", b"r"),
    ]
    async with whole_router(tmp_path, answer(429, b'{"error": 1}', *fields)) as whole:
        got = await ask(whole.url, asking())
        assert (got.status, got.body, end_to_end(got.headers)) == (429, b'{"error": 1}', fields)
        assert len(whole.upstream.requests) == 1


@pytest.mark.parametrize("status", [500, 502, 503, 504])
async def test_reliability_21_a_server_error_comes_back_as_it_is_and_is_not_retried(tmp_path, status):
    async with whole_router(tmp_path, answer(status, b"<h1>oops", (b"content-type", b"text/html"))) as whole:
        got = await ask(whole.url, asking())
        assert (got.status, got.body, got.values(b"content-type")) == (status, b"<h1>oops", [b"text/html"])
        assert len(whole.upstream.requests) == 1


async def test_reliability_22_silence_is_a_504_and_the_connection_is_not_kept(tmp_path):
    async def silence(_, peer):
        await peer.gone()

    async with whole_router(tmp_path, silence, answer(), first_byte_timeout_s=0.1) as whole:
        got = await ask(whole.url, asking())
        assert (got.status, code_of(got)) == (504, "upstream_timeout")
        await until(lambda: whole.upstream.ended == 1)
        assert (await ask(whole.url, asking())).status == 200
        assert whole.upstream.opened == 2


async def headers_then_reset(peer):
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n")


async def half_a_body_then_reset(peer):
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 10\r\n\r\n12345")


async def half_a_stream_then_reset(peer):
    await peer.write(SSE_HEAD + chunk(EVENT))


@pytest.mark.parametrize(
    ("begin", "begun"),
    [(headers_then_reset, b""), (half_a_body_then_reset, b"12345"), (half_a_stream_then_reset, EVENT)],
)
async def test_reliability_23_an_answer_that_breaks_off_never_looks_complete(tmp_path, begin, begun):
    async def reset(_, peer):
        await begin(peer)
        await asyncio.sleep(0.05)
        peer.reset()

    async with whole_router(tmp_path, reset) as whole:
        got = await ask(whole.url, asking(stream=begun == EVENT))
    assert not got.clean
    assert got.body.startswith(begun)
    rest = got.body.removeprefix(begun).strip()
    if begun == EVENT:
        assert orjson.loads(rest.removeprefix(b"data: "))["error"]["code"] == "upstream_disconnected"
    else:
        assert rest == b""


ODD_STREAMS = {
    "no data at all": b"hello\nworld\n\n",
    "invalid UTF-8": b"data: \xff\xfe\xc3\n\n",
    "every line end": b"data: 1\r\n\r\ndata: 2\n\ndata: 3\r\rdata: [DONE]\n\n",
    "characters of four bytes": "data: \U0001f600\u20ac\u00e9\n\n".encode(),
    "comments and a mark": b"\xef\xbb\xbf: ping\n\n:\n\ndata:x\n\n",
    "no end": b"data: {",
}


@pytest.mark.parametrize("stream", ODD_STREAMS.values(), ids=ODD_STREAMS)
@pytest.mark.parametrize("size", [1, 7, 4096])
async def test_reliability_24_odd_event_streams_pass_byte_for_byte(tmp_path, stream, size):
    async def by_pieces(_, peer):
        await peer.write(SSE_HEAD)
        for start in range(0, len(stream), size):
            await peer.write(chunk(stream[start : start + size]))
        await peer.write(b"0\r\n\r\n")

    async with whole_router(tmp_path, by_pieces) as whole:
        got = await ask(whole.url, asking(stream=True))
    assert (got.body, got.clean) == (stream, True)


@pytest.mark.parametrize("route", ["upstream", "merged"])
async def test_reliability_24_an_event_of_nine_megabytes_passes_or_ends_a_merge_as_an_error(tmp_path, route):
    huge = b"data: " + b"x" * 9_000_000 + b"\n\n"

    async def stream(_, peer):
        await peer.write(SSE_HEAD + chunk(huge) + b"0\r\n\r\n")

    script = {"envelopes": [envelope(KITCHEN)]} if route == "merged" else None
    async with whole_router(tmp_path, stream, script=script, merge={"when": "always"}) as whole:
        got = await ask(whole.url, asking(MIXED, stream=True))
    assert got.values(b"x-needle-route") == [route.encode()]
    if route == "upstream":
        assert (got.body, got.clean) == (huge, True)
    else:
        assert not got.clean
        assert b"upstream_disconnected" in got.body
        assert b"[DONE]" not in got.body


MIXED = "turn on the kitchen light and tell me a joke"


async def test_reliability_25_a_stream_that_falls_silent_is_ended_and_the_client_told(tmp_path):
    async def stream(_, peer):
        await peer.write(SSE_HEAD + chunk(EVENT))
        await peer.gone()

    async with whole_router(tmp_path, stream, idle_timeout_s=0.1) as whole:
        got = await ask(whole.url, asking(stream=True))
        await until(lambda: whole.upstream.ended == 1)
    assert not got.clean
    assert b'"code":"upstream_timeout"' in got.body


async def test_reliability_25_a_stream_that_never_ends_is_ended_at_its_cap_and_the_client_told(tmp_path):
    async def stream(_, peer):
        await peer.write(SSE_HEAD)
        with contextlib.suppress(ConnectionError):
            while not peer.reader.at_eof():
                await peer.write(chunk(EVENT))
                await asyncio.sleep(0.01)

    async with whole_router(tmp_path, stream, answer_timeout_s=0.3) as whole:
        got = await ask(whole.url, asking(stream=True))
        await until(lambda: whole.upstream.ended == 1)
    assert not got.clean
    assert got.body.count(EVENT) > 1
    assert b'"message":"The upstream\'s answer did not end within 0.3 s."' in got.body
    assert b"[DONE]" not in got.body


async def test_reliability_25_without_a_cap_a_stream_may_go_on(tmp_path):
    async def stream(_, peer):
        await peer.write(SSE_HEAD + chunk(EVENT))
        await asyncio.sleep(0.4)
        await peer.write(chunk(EVENT) + b"0\r\n\r\n")

    async with whole_router(tmp_path, stream) as whole:
        got = await ask(whole.url, asking(stream=True))
    assert (got.clean, got.body) == (True, EVENT + EVENT)


AS_IT_IS = {
    "HTML": answer(200, b"<p>hi", (b"content-type", b"text/html")),
    "gzip that is none": answer(200, b"\x1f\x8bno", (b"content-encoding", b"gzip"), JSON),
    "br": answer(200, b"\x0b\x02", (b"content-encoding", b"br"), JSON),
    "zstd": answer(200, b"\x28\xb5", (b"content-encoding", b"zstd"), JSON),
    "a redirect to elsewhere": answer(301, b"", (b"location", b"http://127.0.0.1:9/v1")),
    "a redirect that keeps the method": answer(307, b"x", (b"location", b"//other.example/")),
}


@pytest.mark.parametrize("raw", AS_IT_IS.values(), ids=AS_IT_IS)
async def test_reliability_26_unexpected_answers_pass_and_redirects_are_not_followed(tmp_path, raw):
    head, _, body = raw.partition(b"\r\n\r\n")
    async with whole_router(tmp_path, raw) as whole:
        got = await ask(whole.url, asking())
        assert got.status == int(head[9:12])
        assert (got.body, got.clean) == (body, True)
        assert [b"%b: %b" % pair for pair in end_to_end(got.headers, b"x-request-id")] == head.split(b"\r\n")[2:]
        assert len(whole.upstream.requests) == 1


@pytest.mark.parametrize(
    ("raw", "body", "clean"),
    [
        pytest.param(b"HTTP/1.1 204 No Content\r\n\r\n", b"", True, id="204"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nokay", b"ok", True, id="a length too short"),
        pytest.param(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nok", b"ok", False, id="a length too long"),
    ],
)
async def test_reliability_26_lengths_are_believed_and_what_is_missing_is_missed(tmp_path, raw, body, clean):
    async def write(_, peer):
        await peer.write(raw)
        peer.close()

    async with whole_router(tmp_path, write) as whole:
        got = await ask(whole.url, asking())
    assert (got.body, got.clean) == (body, clean)


async def test_reliability_28_hop_by_hop_fields_end_on_both_ways_and_odd_ones_pass(tmp_path):
    back = [(b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"x-odd", b"\xff=\xe9"), (b"x-empty", b"")]
    hops = [
        (b"connection", b"x-foo, keep-alive"),
        (b"x-foo", b"1"),
        (b"keep-alive", b"timeout=5"),
        (b"te", b"trailers"),
    ]
    async with whole_router(tmp_path, answer(200, b"{}", *hops, *back, (b"x-needle-route", b"local"))) as whole:
        got = await ask(whole.url, request(b"GET", b"/v1/models", *hops, *back, (b"x-needle-key", b"k")))
        [seen] = whole.upstream.requests
    assert end_to_end(got.headers, b"x-request-id") == back
    assert got.values(b"x-needle-route") == [b"upstream"]
    assert [pair for pair in seen.headers if pair[0] not in (b"host", b"via")] == back


UNUSABLE = {
    "a status that HTTP does not have": b"HTTP/1.1 600 X\r\ncontent-length: 2\r\n\r\nok",
    "a transfer coding beside chunked": (
        b"HTTP/1.1 200 X\r\ntransfer-encoding: gzip, chunked\r\n\r\n2\r\nok\r\n0\r\n\r\n"
    ),
    "a transfer coding alone": b"HTTP/1.1 200 X\r\ntransfer-encoding: gzip\r\n\r\nok",
    "a folded field": b"HTTP/1.1 200 X\r\nx-a: 1\r\n 2\r\ncontent-length: 2\r\n\r\nok",
    "a zero in a field": b"HTTP/1.1 200 X\r\nx-a: 1\x002\r\ncontent-length: 2\r\n\r\nok",
    "a line break in a field": b"HTTP/1.1 200 X\r\nx-a: 1\r2\r\ncontent-length: 2\r\n\r\nok",
    "a blank before the colon": b"HTTP/1.1 200 X\r\nx-a : 1\r\ncontent-length: 2\r\n\r\nok",
}


@pytest.mark.parametrize("raw", UNUSABLE.values(), ids=UNUSABLE)
async def test_reliability_28_a_head_that_cannot_be_passed_on_is_a_502(tmp_path, raw):
    async with whole_router(tmp_path, raw) as whole:
        got = await ask(whole.url, asking())
        assert (got.status, code_of(got)) == (502, "upstream_disconnected")
        await until(lambda: whole.upstream.ended == 1)


async def test_reliability_28_headers_beyond_all_measure_are_a_502(tmp_path):
    async with whole_router(tmp_path, answer(200, b"{}", (b"x", b"y" * 300_000))) as whole:
        got = await ask(whole.url, asking())
    assert (got.status, code_of(got)) == (502, "upstream_disconnected")


async def test_reliability_29_a_hundred_clients_make_one_probe(tmp_path):
    port, opened, go_on = free_port(), 0, asyncio.Event()

    async def slow(reader, writer):
        nonlocal opened
        opened += 1
        await reader.readuntil(b"\r\n\r\n")
        await go_on.wait()
        writer.write(answer())
        await writer.drain()
        writer.close()

    settings = {"breaker_failures": 1, "breaker_open_s": 0.2, "base_url": f"http://127.0.0.1:{port}/v1"}
    config = config_for(tmp_path, SURE)
    router = create_app(msgspec.structs.replace(config, upstream=msgspec.convert(settings, Upstream)))
    async with serving(router, lifespan="on") as url:
        assert (await ask(url, request(b"GET", b"/v1/x"))).status == 502
        async with await asyncio.start_server(slow, "127.0.0.1", port):
            await asyncio.sleep(0.25)  # the breaker's own time, which nothing announces
            async with asyncio.TaskGroup() as group:
                asked = [group.create_task(ask(url, request(b"GET", b"/v1/x"))) for _ in range(100)]
                await until(lambda: opened and sum(task.done() for task in asked) == 99)
                go_on.set()
    assert opened == 1
    statuses = sorted(task.result().status for task in asked)
    assert statuses == [200] + [502] * 99


async def test_reliability_63_a_router_that_is_its_own_upstream_says_508(tmp_path):
    routers = []

    async def late(scope, receive, send):
        await routers[0](scope, receive, send)

    async with serving(late, lifespan="off") as url:
        routers.append(create_app(config_for(tmp_path, SURE, upstream=f"{url}/v1")))
        got = await ask(url, request(b"GET", b"/v1/models"))
        assert (got.status, code_of(got)) == (508, "loop_detected")
        await routers[0].aclose()


async def test_reliability_63_two_routers_in_a_ring_say_508(tmp_path):
    routers = []

    async def late(scope, receive, send):
        await routers[0](scope, receive, send)

    async with serving(late, lifespan="off") as url:
        second = create_app(config_for(tmp_path, SURE, upstream=f"{url}/v1"))
        async with serving(second, lifespan="on") as second_url:
            routers.append(create_app(config_for(tmp_path, SURE, upstream=f"{second_url}/v1")))
            got = await ask(second_url, asking())
            assert (got.status, code_of(got)) == (508, "loop_detected")
            await routers[0].aclose()
