"""Keys, loops, targets and upgrades, through real servers."""

import asyncio
import logging

import orjson
import pytest
from starlette.applications import Starlette
from starlette.responses import PlainTextResponse
from starlette.routing import Mount
from tests.servers import answer, ask, connected, recording, request, serving

from needle_router.config.schema import Upstream
from needle_router.forward.proxy import ReverseProxy

pytestmark = pytest.mark.anyio
KEY = (b"authorization", b"Bearer sk-client")


async def test_the_clients_key_passes_by_default_even_when_one_is_configured(through):
    async with through(api_key="sk-ours") as setup:
        await ask(setup.url, request(b"POST", b"/v1/x", KEY, (b"api-key", b"azure"), body=b"{}"))
        seen = setup.upstream.requests[0]
    assert (seen.values(b"authorization"), seen.values(b"api-key")) == ([KEY[1]], [b"azure"])


async def test_an_injected_key_is_the_only_one_that_goes_up(through):
    async with through(api_key="sk-ours", inject_key=True) as setup:
        await ask(setup.url, request(b"POST", b"/v1/x", KEY, (b"api-key", b"azure"), body=b"{}"))
        seen = setup.upstream.requests[0]
    assert (seen.values(b"authorization"), seen.values(b"api-key")) == ([b"Bearer sk-ours"], [])


async def test_100_clients_keep_their_own_keys(through):
    async with through() as setup:
        async with asyncio.TaskGroup() as group:
            for number in range(100):
                fields = ((b"authorization", b"Bearer %d" % number), (b"cookie", b"c=%d" % number))
                group.create_task(ask(setup.url, request(b"POST", b"/v1/x", *fields, body=b"%d" % number)))
        for seen in setup.upstream.requests:
            assert seen.values(b"authorization") == [b"Bearer " + seen.body]
            assert seen.values(b"cookie") == [b"c=" + seen.body]
        assert {int(seen.body) for seen in setup.upstream.requests} == set(range(100))


async def test_cookies_the_upstream_sets_for_one_client_are_not_sent_for_another(through):
    async with through(answer(200, b"{}", (b"set-cookie", b"__cf_bm=first; Path=/"))) as setup:
        for _ in range(2):
            await ask(setup.url, request(b"GET", b"/v1/x"))
        assert [seen.values(b"cookie") for seen in setup.upstream.requests] == [[], []]


async def test_forged_needle_headers_pass_in_neither_direction(through):
    async with through(answer(200, b"{}", (b"x-needle-route", b"local"))) as setup:
        got = await ask(setup.url, request(b"GET", b"/v1/x", (b"x-needle-mode", b"off")))
        assert got.values(b"x-needle-route") == []
        assert setup.upstream.requests[0].values(b"x-needle-mode") == []


@pytest.mark.parametrize("target", [b"/v1/../admin", b"/v1/%2e%2e/admin", b"//evil/x", b"/@evil/x", b"/v1/x%0d%0aa:b"])
async def test_a_refused_target_is_a_400_in_openais_shape_and_reaches_nobody(through, target):
    async with through() as setup:
        got = await ask(setup.url, request(b"GET", target))
        assert (got.status, got.values(b"x-should-retry")) == (400, [b"false"])
        assert orjson.loads(got.body)["error"]["code"] == "bad_request_target"
        assert setup.upstream.opened == 0


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(
            b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"
            b"0\r\n\r\nGET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
            id="length and chunks",
        ),
        pytest.param(
            b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 0\r\ncontent-length: 44\r\n\r\n"
            b"GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n",
            id="two lengths",
        ),
        pytest.param(b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: -1\r\n\r\n", id="negative length"),
        pytest.param(b"POST /v1/x HTTP/1.1\r\nhost: h\r\ntransfer-encoding: chunked\r\n\r\nzz\r\n", id="no chunk size"),
        pytest.param(b"GET /v1/x HTTP/1.1\nhost: h\n\n", id="bare line feeds"),
        pytest.param(b"GET @evil/v1 HTTP/1.1\r\nhost: h\r\n\r\n", id="target begins with @"),
        pytest.param(b"GET /v1/x\r\n a HTTP/1.1\r\nhost: h\r\n\r\n", id="folded request line"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost : h\r\n\r\n", id="blank before the colon"),
    ],
)
@pytest.mark.parametrize("parser", ["httptools", "h11"])
async def test_requests_with_two_readings_reach_the_upstream_at_most_once(raw, parser):
    async with recording() as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url))
        async with serving(proxy, lifespan="off", http=parser) as url, connected(url) as client:
            await client.write(raw)
            client.writer.write_eof()
            async with asyncio.timeout(5):
                got = await client.reader.read()
            assert b" 200 " not in got.partition(b"\r\n")[0] or parser == "h11"
            for seen in upstream.requests:
                assert seen.target == b"/v1/x"
                assert not (seen.values(b"content-length") and seen.values(b"transfer-encoding"))
        await proxy.aclose()


async def test_a_body_that_belies_its_length_is_refused_by_the_proxy_itself():
    """An in-process caller has no parser in front that would notice; this one replays its body without end."""
    messages = []

    async def send(message):
        messages.append(message)

    async def receive():
        return {"type": "http.request", "body": b"longer than said", "more_body": False}

    async with recording() as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url))
        scope = {
            "type": "http",
            "method": "POST",
            "path": "/v1/x",
            "query_string": b"",
            "headers": [(b"content-length", b"4")],
        }
        await proxy(scope, receive, send)
        assert messages[0]["status"] == 400
        assert upstream.requests == []
        await proxy.aclose()


async def test_an_upstream_that_is_the_router_itself_is_a_508():
    async def late(scope, receive, send):
        await proxies[0](scope, receive, send)

    proxies = []
    async with serving(late, lifespan="off") as url:
        proxies.append(ReverseProxy(Upstream(base_url=url)))
        got = await ask(url, request(b"POST", b"/v1/x", body=b"{}"))
        assert (got.status, orjson.loads(got.body)["error"]["code"]) == (508, "loop_detected")
        await proxies[0].aclose()


async def test_two_routers_in_a_ring_are_a_508_and_two_in_a_row_are_not():
    async def first(scope, receive, send):
        await proxies[0](scope, receive, send)

    proxies = []
    async with recording() as upstream, serving(first, lifespan="off") as url:
        second = ReverseProxy(Upstream(base_url=url))
        async with serving(second, lifespan="off") as second_url:
            proxies.append(ReverseProxy(Upstream(base_url=upstream.base_url)))
            assert (await ask(second_url, request(b"GET", b"/v1/x"))).status == 200
            await proxies[0].aclose()
            proxies[0] = ReverseProxy(Upstream(base_url=second_url))
            assert (await ask(second_url, request(b"GET", b"/v1/x"))).status == 508
            await proxies[0].aclose()
        await second.aclose()


HANDSHAKE = [
    (b"connection", b"Upgrade"),
    (b"upgrade", b"websocket"),
    (b"sec-websocket-version", b"13"),
    (b"sec-websocket-key", b"dGhlIHNhbXBsZSBub25jZQ=="),
]


async def test_a_websocket_handshake_is_answered_with_426_at_once(through):
    async with through() as setup:
        got = await ask(setup.url, request(b"GET", b"/v1/realtime?model=x", *HANDSHAKE))
        assert (got.status, got.values(b"upgrade")) == (426, [b"HTTP/1.1"])
        assert orjson.loads(got.body)["error"]["code"] == "websocket_unsupported"
        assert setup.upstream.opened == 0


async def test_a_server_that_cannot_answer_a_handshake_closes_it():
    sent = []

    async def send(message):
        sent.append(message)

    async def receive():
        return {"type": "websocket.connect"}

    await ReverseProxy(Upstream(base_url="http://127.0.0.1:1"))({"type": "websocket", "path": "/"}, receive, send)
    assert sent == [{"type": "websocket.close", "code": 1003}]


async def test_nothing_is_logged_on_the_way(through, caplog):
    caplog.set_level(logging.DEBUG)
    async with through() as setup:
        await ask(setup.url, request(b"POST", b"/v1/x?api_key=sk-query", KEY, body=b'{"k": "sk-body"}'))
    assert "sk-" not in caplog.text


async def test_the_raw_path_is_kept_inside_a_mounting_app():
    async with recording() as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url))
        app = Starlette(routes=[Mount("/own", PlainTextResponse("own")), Mount("/", proxy)])
        async with serving(app) as url:
            assert (await ask(url, request(b"GET", b"/own/"))).body == b"own"
            await ask(url, request(b"GET", b"/v1/models/a%2Fb?x=%2f"))
        assert [seen.target for seen in upstream.requests] == [b"/v1/models/a%2Fb?x=%2f"]
        await proxy.aclose()


async def test_a_scope_without_a_raw_path_is_quoted():
    async def receive():
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message):
        pass

    async with recording() as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url))
        await proxy(
            {"type": "http", "method": "GET", "path": "/v1/a b?é", "query_string": b"q", "headers": []}, receive, send
        )
        assert [seen.target for seen in upstream.requests] == [b"/v1/a%20b%3F%C3%A9?q"]
        await proxy.aclose()
