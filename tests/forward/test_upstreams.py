"""The breaker as a table of moments, and failover between upstreams on real sockets."""

import asyncio

import pytest
from tests.servers import answer, free_port, recording, serving

from needle_router.config.schema import Upstream
from needle_router.forward.breaker import Breaker
from needle_router.forward.proxy import ReverseProxy

pytestmark = pytest.mark.anyio


def broken(failures=3, open_s=5.0, count=3, at=100.0):
    breaker = Breaker(failures, open_s)
    for _ in range(count):
        breaker.allows(at)
        breaker.unreachable(at)
    return breaker


@pytest.mark.parametrize(
    ("breaker", "now", "state", "allows"),
    [
        pytest.param(broken(count=2), 100.0, "closed", True, id="one short of the limit"),
        pytest.param(broken(), 100.0, "open", False, id="exactly at the limit"),
        pytest.param(broken(), 104.999, "open", False, id="just before the probe"),
        pytest.param(broken(), 105.0, "half-open", True, id="time for the probe"),
        pytest.param(broken(failures=0, count=50), 100.0, "closed", True, id="switched off"),
    ],
)
def test_when_a_breaker_lets_through(breaker, now, state, allows):
    assert breaker.state(now) == state
    assert breaker.allows(now) is allows


def test_one_probe_at_a_time_decides():
    breaker = broken()
    assert [breaker.allows(106.0) for _ in range(100)].count(True) == 1
    breaker.unreachable(106.0)
    assert (breaker.state(106.0), breaker.wait_s(107.0)) == ("open", 4.0)
    assert breaker.allows(111.0)
    breaker.reached()
    assert breaker.state(111.0) == "closed"
    breaker.unreachable(112.0)
    assert breaker.state(112.0) == "closed"


def test_a_probe_that_went_away_leaves_its_place():
    breaker = broken()
    assert breaker.allows(106.0)
    breaker.abandoned()
    assert breaker.allows(106.0)


async def get(url, path=b"/v1/models", body=b""):
    host, port = url.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    method = b"POST" if body else b"GET"
    writer.write(
        b"%b %b HTTP/1.1\r\nhost: x\r\nconnection: close\r\ncontent-length: %d\r\n\r\n%b"
        % (method, path, len(body), body)
    )
    data = await asyncio.wait_for(reader.read(), 10)
    writer.close()
    return int(data.split(b" ")[1]), data


def breakers(proxy):
    return [state.breaker for state in proxy.upstreams.states]


def down():
    return f"http://127.0.0.1:{free_port()}/v1"


async def test_the_next_upstream_takes_over_when_the_first_cannot_be_reached():
    async with recording(answer(body=b'{"who":"second"}')) as second:
        settings = {"breaker_failures": 2, "breaker_open_s": 1000}
        proxy = ReverseProxy(Upstream(base_url=down(), fallback_urls=(f"{second.base_url}/v1",), **settings))
        async with serving(proxy, lifespan="off") as url:
            for _ in range(4):
                status, data = await get(url, body=b"x" * 10)
                assert status == 200
                assert b"second" in data
        assert [request.body for request in second.requests] == [b"x" * 10] * 4
        assert {request.values(b"host")[0] for request in second.requests} == {
            second.base_url.removeprefix("http://").encode()
        }
        assert breakers(proxy) == ["open", "closed"]
        await proxy.aclose()


async def test_an_upstream_that_answered_anything_is_not_passed_over():
    async with recording(answer(503)) as first, recording(answer()) as second:
        proxy = ReverseProxy(Upstream(base_url=first.base_url, fallback_urls=(second.base_url,)))
        async with serving(proxy, lifespan="off") as url:
            status, _ = await get(url)
        assert status == 503
        assert second.requests == []
        assert breakers(proxy) == ["closed", "closed"]
        await proxy.aclose()


async def test_an_open_breaker_answers_at_once_and_heals_through_one_probe():
    port = free_port()
    proxy = ReverseProxy(Upstream(base_url=f"http://127.0.0.1:{port}/v1", breaker_failures=2, breaker_open_s=0.2))
    async with serving(proxy, lifespan="off") as url:
        answers = [await get(url) for _ in range(4)]
        assert [status for status, _ in answers] == [502] * 4
        assert b"several times in a row" in answers[-1][1]
        assert b"upstream_unreachable" in answers[-1][1]

        async def serve(reader, writer):
            await reader.readuntil(b"\r\n\r\n")
            writer.write(answer())
            await writer.drain()
            writer.close()

        async with await asyncio.start_server(serve, "127.0.0.1", port):
            statuses = [(await get(url))[0]]
            async with asyncio.timeout(10):
                while statuses[-1] != 200:
                    statuses.append((await get(url))[0])
        assert breakers(proxy) == ["closed"]
    await proxy.aclose()
