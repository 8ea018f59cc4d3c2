"""Raw requests that some server somewhere reads in two ways: each is refused, or reaches the upstream as exactly one.

Sent to the router itself, and through nginx and HAProxy where they are installed. What a front server makes of a
request is its own affair; whatever it passes on must still not become more than one request, nor a changed one.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import re
import shutil
from dataclasses import dataclass

import pytest
from tests.servers import Recorded, connected, recording, serving
from tests.smuggling.fronts import FRONTS, in_front

from needle_router import create_app
from needle_router.cli.strict import StrictProtocol
from needle_router.cli.strict_gate import Gate
from needle_router.config.schema import Config, Ledger, Server, Upstream

pytestmark = pytest.mark.anyio

SMUGGLED = b"GET /smuggled HTTP/1.1\r\nhost: h\r\n\r\n"
#: Short, so that a connection which nobody ends is over soon.
LIMITS = {"header_timeout_s": 0.5, "body_timeout_s": 0.5, "idle_timeout_s": 0.2}


@dataclass(frozen=True)
class Probe:
    """Bytes of a client, and what the router itself makes of them: the requests that pass, and the statuses.

    `behind` is how many requests these bytes are for a server that may rightly read on where the router does not.
    """

    name: str
    raw: bytes
    statuses: tuple[int, ...]
    passed: tuple[tuple[bytes, bytes], ...] = ()
    behind: int = 1


def refused(name: str, raw: bytes, status: int = 400) -> Probe:
    """A request that must not pass."""
    return Probe(name, raw, (status,))


def passed(name: str, raw: bytes, body: bytes = b"", target: bytes = b"/v1/x") -> Probe:
    """A request that passes as one."""
    return Probe(name, raw, (200,), ((target, body),))


def get(target: bytes = b"/v1/x", fields: bytes = b"host: h\r\n", version: bytes = b"1.1") -> bytes:
    """A GET, written as it is told."""
    return b"GET %b HTTP/%b\r\n%b\r\n" % (target, version, fields)


def post(fields: bytes, body: bytes = b"") -> bytes:
    """A POST with a Host and these fields."""
    return b"POST /v1/x HTTP/1.1\r\nhost: h\r\n%b\r\n%b" % (fields, body)


def chunked(body: bytes, coding: bytes = b"transfer-encoding: chunked\r\n") -> bytes:
    """A POST with this as its chunked body."""
    return post(coding, body)


ABC = b"3\r\nabc\r\n0\r\n\r\n"
LENGTHS = [
    refused("length and chunks", post(b"content-length: 5\r\ntransfer-encoding: chunked\r\n", b"0\r\n\r\n" + SMUGGLED)),
    refused("chunks and length", post(b"transfer-encoding: chunked\r\ncontent-length: 5\r\n", b"0\r\n\r\n" + SMUGGLED)),
    refused("the same length twice", post(b"content-length: 3\r\ncontent-length: 3\r\n", b"abc")),
    refused("two lengths", post(b"content-length: 0\r\ncontent-length: 35\r\n", SMUGGLED)),
    refused("a list of lengths", post(b"content-length: 3, 3\r\n", b"abc")),
    refused("a length with a sign", post(b"content-length: +3\r\n", b"abc")),
    refused("a length below zero", post(b"content-length: -3\r\n", b"abc")),
    refused("a length in hexadecimal", post(b"content-length: 0x3\r\n", b"abc")),
    refused("a length with a blank inside", post(b"content-length: 3 3\r\n", b"abc")),
    refused("a length beyond 64 bits", post(b"content-length: 99999999999999999999\r\n", b"abc")),
    refused("a length that never comes", post(b"content-length: 999999999999999999\r\n", b"abc"), 408),
    refused("a length, blank before the colon", post(b"content-length : 35\r\n", SMUGGLED)),
    passed("a request in a body", post(b"content-length: %d\r\n" % len(SMUGGLED), SMUGGLED), SMUGGLED),
    passed("a body of a GET", get(fields=b"host: h\r\ncontent-length: 3\r\n") + b"abc", b"abc"),
    passed("Connection names the length", post(b"connection: content-length\r\ncontent-length: 3\r\n", b"abc"), b"abc"),
    passed("an underscore in place of a hyphen", post(b"transfer_encoding: chunked\r\ncontent-length: 3\r\n", b"abc"),
           b"abc"),
]  # fmt: skip
CODINGS = [
    passed("chunks", chunked(ABC), b"abc"),
    passed("Chunked", chunked(ABC, b"Transfer-Encoding:\tChunked \r\n"), b"abc"),
    passed("a chunk extension", chunked(b"3;a=b\r\nabc\r\n0\r\n\r\n"), b"abc"),
    passed("trailers", chunked(b"3\r\nabc\r\n0\r\nhost: evil\r\nx-needle-mode: on\r\n\r\n"), b"abc"),
    Probe("a length in a trailer", chunked(b"3\r\nabc\r\n0\r\ncontent-length: 35\r\n\r\n") + get(b"/v1/b"), (400,),
          behind=2),
    refused("xchunked", chunked(ABC, b"transfer-encoding: xchunked\r\n")),
    refused("identity", chunked(b"abc", b"transfer-encoding: identity\r\n")),
    refused("chunked, then identity", chunked(ABC, b"transfer-encoding: chunked, identity\r\n")),
    refused("gzip, then chunked", chunked(ABC, b"transfer-encoding: gzip, chunked\r\n")),
    refused("chunked twice", chunked(ABC, b"transfer-encoding: chunked\r\ntransfer-encoding: chunked\r\n")),
    refused("chunked in quotes", chunked(ABC, b'transfer-encoding: "chunked"\r\n')),
    refused("chunked, blank before the colon", chunked(ABC, b"transfer-encoding : chunked\r\n")),
    refused("chunked after a vertical tab", chunked(ABC, b"transfer-encoding: \x0bchunked\r\n")),
    refused("chunks in HTTP 1.0", chunked(ABC).replace(b"HTTP/1.1", b"HTTP/1.0")),
    refused("a chunk size that is none", chunked(b"zz\r\nabc\r\n0\r\n\r\n")),
    refused("a chunk size with 0x", chunked(b"0x3\r\nabc\r\n0\r\n\r\n")),
    refused("a chunk size beyond 64 bits", chunked(b"f" * 20 + b"\r\nabc\r\n0\r\n\r\n")),
    refused("a chunk longer than its size", chunked(b"2\r\nabc\r\n0\r\n\r\n")),
    refused("a chunk ended by a bare line feed", chunked(b"3\nabc\n0\n\n")),
    refused("a truncated chunk", chunked(b"5\r\nabc"), 408),
    refused("no last chunk", chunked(b"3\r\nabc\r\n"), 408),
]  # fmt: skip
FIELDS = [
    refused("bare line feeds", b"GET /v1/x HTTP/1.1\nhost: h\n\n"),
    refused("a bare carriage return in a value", get(fields=b"host: h\r\nx: a\rb\r\n")),
    refused("a folded field", get(fields=b"host: h\r\nx: a\r\n b\r\n")),
    refused("a first field that begins with a blank", get(fields=b" x: a\r\nhost: h\r\n")),
    refused("a field without a colon", get(fields=b"host: h\r\nxyz\r\n")),
    refused("a field without a name", get(fields=b"host: h\r\n: x\r\n")),
    refused("a blank in a name", get(fields=b"host: h\r\nx y: a\r\n")),
    refused("NUL in a value", get(fields=b"host: h\r\nx: a\x00b\r\n")),
    refused("no Host", get(fields=b"")),
    refused("two Hosts", get(fields=b"host: h\r\nhost: evil\r\n")),
    refused("fields of 100 KB", get(fields=b"host: h\r\nx: %b\r\n" % (b"v" * 100_000)), 431),
    refused("2000 fields", get(fields=b"host: h\r\n" + b"x: v\r\n" * 2000), 431),
    refused("a head that does not end", b"GET /v1/x HTTP/1.1\r\nhost: h\r\nx: ", 408),
    passed("another authority as Host", get(fields=b"host: evil.example:1\r\n")),
]
TARGETS = [
    refused("absolute-form", get(b"http://169.254.169.254/x")),
    refused("absolute-form, our own host", get(b"http://h/v1/x")),
    refused("a target that begins with @", get(b"@evil/v1")),
    refused("a path that begins with @", get(b"/@evil/v1")),
    refused("two slashes", get(b"//evil/v1")),
    refused("two slashes, encoded at", get(b"/%40evil/v1")),
    refused("dot segments", get(b"/v1/../../admin")),
    refused("encoded dot segments", get(b"/v1/%2e%2e/admin")),
    refused("dot segments between encoded slashes", get(b"/v1/a%2f..%2fadmin")),
    refused("a backslash", get(b"/v1\\..\\admin")),
    refused("encoded NUL", get(b"/v1/x%00")),
    refused("encoded line end", get(b"/v1/x%0d%0aevil:%20y")),
    refused("a fragment", get(b"/v1/x#y")),
    refused("a blank in the target", get(b"/v1/x y")),
    refused("CONNECT", b"CONNECT evil:443 HTTP/1.1\r\nhost: evil:443\r\n\r\n"),
    refused("asterisk", b"OPTIONS * HTTP/1.1\r\nhost: h\r\n\r\n"),
    refused("a method in small letters", get().replace(b"GET", b"get")),
    refused("100 KB of URL", get(b"/" + b"x" * 100_000), 414),
    passed("a host in the query", get(b"/v1/x?u=http://evil//../@h"), target=b"/v1/x?u=http://evil//../@h"),
]
CONNECTIONS = [
    Probe("pipelining", get(b"/v1/a") + get(b"/v1/b"), (200, 200), ((b"/v1/a", b""), (b"/v1/b", b""))),
    Probe("pipelining behind chunks", chunked(ABC) + get(b"/v1/b"), (200, 200), ((b"/v1/x", b"abc"), (b"/v1/b", b""))),
    Probe("a good request after a refused path",
          post(b"content-length: 3\r\n", b"abc").replace(b"/v1", b"//evil") + get(), (400, 200), ((b"/v1/x", b""),)),
    Probe("a broken request after a good one", get() + b"nonsense\r\n\r\n" + SMUGGLED, (200,), ((b"/v1/x", b""),)),
    passed("a request after Connection: close", get(fields=b"host: h\r\nconnection: close\r\n") + SMUGGLED),
    passed("HTTP 1.0", get(fields=b"", version=b"1.0")),
    passed("a request after HTTP 1.0", get(version=b"1.0") + SMUGGLED),
    refused("HTTP 0.9", b"GET /v1/x\r\n\r\n"),
    refused("HTTP 2.0", get(version=b"2.0")),
    refused("HTTP 1.2", get(version=b"1.2")),
    refused("the preface of HTTP 2", b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    passed("Expect with its body", post(b"expect: 100-continue\r\ncontent-length: 3\r\n", b"abc"), b"abc"),
    passed("empty lines before a request", b"\r\n\r\n" + get()),
    Probe("WebSocket, and a request behind", get(fields=b"host: h\r\nconnection: upgrade\r\nupgrade: websocket\r\n")
          + get(b"/v1/b"), (200,), ((b"/v1/x", b""),), behind=2),
    Probe("h2c, and a request behind", get(fields=b"host: h\r\nconnection: upgrade\r\nupgrade: h2c\r\n")
          + get(b"/v1/b"), (200,), ((b"/v1/x", b""),), behind=2),
    refused("Upgrade with a body", post(b"connection: upgrade\r\nupgrade: h2c\r\ncontent-length: 35\r\n", SMUGGLED)),
]  # fmt: skip
GRID = [*LENGTHS, *CODINGS, *FIELDS, *TARGETS, *CONNECTIONS]

INSTALLED = [
    pytest.param(name, marks=pytest.mark.skipif(shutil.which(name) is None, reason=f"{name} is not installed"))
    for name in FRONTS
]
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3}) ")


@contextlib.asynccontextmanager
async def router_before(upstream_url: str):
    """The router as it is served, without an engine, in front of the upstream."""
    config = Config(mode="off", upstream=Upstream(base_url=upstream_url), ledger=Ledger(path="off"))
    protocol = functools.partial(StrictProtocol, gate=Gate(Server(**LIMITS)))
    async with serving(create_app(config), lifespan="on", http=protocol, ws="none") as url:
        yield url


async def transcript(url: str, raw: bytes) -> bytes:
    """Everything that is answered to these bytes, until the other side closes."""
    async with connected(url) as client, asyncio.timeout(10):
        said = bytearray()
        with contextlib.suppress(ConnectionError):
            await client.write(raw)
        with contextlib.suppress(ConnectionError):
            while piece := await client.reader.read(65536):
                said += piece
        return bytes(said)


def statuses(said: bytes) -> tuple[int, ...]:
    """The final statuses of a transcript."""
    return tuple(status for text in STATUS_LINE.findall(said) if (status := int(text)) >= 200)


def check_framing(request: Recorded, upstream_url: str) -> None:
    """One Host, that of the upstream, and at most one statement of the length."""
    assert request.values(b"host") == [upstream_url.removeprefix("http://").encode()]
    lengths, codings = request.values(b"content-length"), request.values(b"transfer-encoding")
    assert len(lengths) + len(codings) <= 1
    assert b"evil" not in request.target.split(b"?")[0]


@pytest.mark.parametrize("probe", GRID, ids=lambda probe: probe.name)
async def test_the_router_refuses_what_has_two_readings_and_passes_the_rest_as_one(probe):
    async with recording() as upstream, router_before(upstream.base_url) as url:
        said = await transcript(url, probe.raw)
        assert statuses(said) == probe.statuses
        assert [(request.target, request.body) for request in upstream.requests] == list(probe.passed)
        for request in upstream.requests:
            check_framing(request, upstream.base_url)


@pytest.mark.parametrize("front", INSTALLED)
async def test_behind_another_proxy_no_probe_becomes_a_second_request(front, tmp_path):
    async with (
        recording() as upstream,
        router_before(upstream.base_url) as url,
        in_front(front, url, tmp_path) as front_url,
    ):
        for probe in GRID:
            upstream.requests.clear()
            said = await transcript(front_url, probe.raw)
            assert len(upstream.requests) <= max(probe.behind, len(probe.passed)), probe.name
            served = sum(status < 400 for status in statuses(said))
            assert served <= len(upstream.requests), probe.name
            for request in upstream.requests:
                check_framing(request, upstream.base_url)
                assert request.target != b"/smuggled", probe.name
