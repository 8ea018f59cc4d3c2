"""Requests that mean two things never get as far as the app."""

import orjson
import pytest
from tests.servers import ask, connected, serving

from needle_router.cli.strict import StrictProtocol

pytestmark = pytest.mark.anyio
OK = b"GET /v1/x HTTP/1.1\r\nhost: h\r\n\r\n"


async def app(scope, receive, send):
    path = scope["raw_path"]
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(path))]})
    await send({"type": "http.response.body", "body": path})


@pytest.mark.parametrize(
    "raw",
    [
        pytest.param(b"GET http://evil/v1/x HTTP/1.1\r\nhost: h\r\n\r\n", id="absolute-form"),
        pytest.param(b"GET https://h/v1/x HTTP/1.1\r\nhost: h\r\n\r\n", id="absolute-form with our own host"),
        pytest.param(b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n", id="asterisk-form"),
        pytest.param(b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n", id="CONNECT"),
        pytest.param(b"GET @evil/v1 HTTP/1.1\r\nhost: h\r\n\r\n", id="target that begins with @"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\n\r\n", id="no Host"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost: a\r\nHost: b\r\n\r\n", id="two Hosts"),
        pytest.param(b"GET /v1/x HTTP/1.1\r\nhost: h\r\nhost: h\r\n\r\n", id="the same Host twice"),
        pytest.param(b"POST /v1/x HTTP/1.1\r\nhost: h\r\ncontent-length: 1\r\ntransfer-encoding: chunked\r\n\r\n",
                     id="length and chunks"),
        pytest.param(b"GET /v1/x HTTP/1.1\nhost: h\n\n", id="bare line feeds"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", id="TLS on a plain port"),
    ],
)  # fmt: skip
async def test_a_request_with_two_readings_is_a_400_in_openais_shape_and_the_connection_ends(raw):
    async with serving(app, http=StrictProtocol) as url, connected(url) as client:
        got = await client.ask(raw)
        assert (got.status, got.values(b"connection")) == (400, [b"close"])
        assert orjson.loads(got.body)["error"]["code"] == "invalid_request"
        assert await client.reader.read() == b""


async def test_plain_requests_pass_on_one_connection():
    async with serving(app, http=StrictProtocol) as url, connected(url) as client:
        for _ in range(3):
            assert (await client.ask(OK)).body == b"/v1/x"


async def test_http_1_0_may_leave_host_out():
    async with serving(app, http=StrictProtocol) as url:
        assert (await ask(url, b"GET /v1/x HTTP/1.0\r\n\r\n")).body == b"/v1/x"
