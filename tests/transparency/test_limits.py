"""Slow readers, many clients, and clients that leave, at the whole router (cases 27 and 30)."""

from __future__ import annotations

import asyncio
import time

import orjson
import pytest
from tests.router.support import KITCHEN, TEXT, envelope
from tests.router.support import ask as chat
from tests.servers import answer, ask, connected, recording, request, until
from tests.transparency.support import read_slowly, served, whole_router

pytestmark = pytest.mark.anyio
CHAT = request(b"POST", b"/v1/chat/completions", (b"content-type", b"application/json"), body=b'{"messages":[]}')
SSE_HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
EVENT = b'f\r\ndata: {"n":1}\n\n\r\n'
MEGABYTE = 1024 * 1024
TWO_GIGABYTES = 2048 * MEGABYTE


@pytest.mark.parametrize("target", [b"/v1/files/f/content", b"/v1/chat/completions"], ids=["a file", "a chat"])
async def test_reliability_27_two_gigabytes_read_slowly_neither_fill_memory_nor_leave_the_upstream(tmp_path, target):
    written = 0

    async def flood(_, peer):
        nonlocal written
        await peer.write(
            b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % TWO_GIGABYTES
        )
        for _ in range(TWO_GIGABYTES // 65536):
            await peer.write(b"x" * 65536)
            written += 65536

    asking = request(b"POST", target, (b"content-type", b"application/json"), body=b'{"messages":[]}')
    async with recording(answer(), flood) as upstream, served(tmp_path, upstream.base_url, "{}") as router:
        assert (await ask(router.url, asking)).status == 200
        before = router.rss_bytes()
        async with connected(router.url) as client:
            await client.write(asking)
            assert (await client.head())[0] == 200
            read = await read_slowly(client, bytes_a_read=1024, reads=15, pause_s=0.2)
            grown = router.rss_bytes() - before
            held_at = written
            await read_slowly(client, bytes_a_read=1024, reads=3, pause_s=0.1)
            assert written == held_at
        await until(lambda: upstream.ended == 1)
    assert read == 15 * 1024
    assert grown < 64 * MEGABYTE
    assert written < 32 * MEGABYTE


async def test_reliability_27_a_client_that_stops_reading_loses_its_answer_and_the_upstream_its_work(tmp_path):
    async def flood(_, peer):
        await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % TWO_GIGABYTES)
        for _ in range(TWO_GIGABYTES // 65536):
            await peer.write(b"x" * 65536)

    async with (
        whole_router(tmp_path, flood, server={"write_timeout_s": 0.3}) as whole,
        connected(whole.url) as client,
    ):
        await client.write(request(b"GET", b"/v1/files/f/content"))
        assert (await client.head())[0] == 200
        await until(lambda: whole.upstream.ended == 1)


async def test_reliability_27_256_clients_of_a_slow_upstream_wait_side_by_side(tmp_path):
    waiting, all_there = 0, asyncio.Event()

    async def slow(_, peer):
        nonlocal waiting
        waiting += 1
        if waiting == 256:
            all_there.set()
        await all_there.wait()
        await peer.write(answer(200, b"ok"))

    async with whole_router(tmp_path, slow) as whole:
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            asked = [group.create_task(ask(whole.url, CHAT)) for _ in range(256)]
        assert {(task.result().status, task.result().body) for task in asked} == {(200, b"ok")}
        assert whole.upstream.opened == 256


# ------------------------------------------------------------------------------------------------- clients that leave


async def thinks(_, peer):
    await peer.gone()


async def streams_and_rests(_, peer):
    await peer.write(SSE_HEAD + EVENT)
    await peer.gone()


async def streams_without_end(_, peer):
    await peer.write(SSE_HEAD)
    while not peer.writer.is_closing():
        await peer.write(EVENT)
        await asyncio.sleep(0.002)


async def gives_half_a_body(_, peer):
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: 100\r\n\r\n{")
    await peer.gone()


async def floods(_, peer):
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % TWO_GIGABYTES)
    while not peer.writer.is_closing():
        await peer.write(b"x" * 65536)


STORY = orjson.dumps(chat("a story"))
STREAM = orjson.dumps(chat("a story", stream=True))
MIXED = orjson.dumps(chat(f"{TEXT} and tell me a joke"))
MIXED_STREAM = orjson.dumps(chat(f"{TEXT} and tell me a joke", stream=True))


def recorded(whole) -> int:
    """How many requests the router has booked as over."""
    routes = whole.router.services.totals.as_dict()
    return sum(routes[route]["requests"] for route in ("local", "upstream", "merged"))


@pytest.mark.parametrize(
    ("upstream", "body", "seen_first"),
    [
        pytest.param(thinks, STORY, b"", id="before the headers"),
        pytest.param(thinks, STREAM, b"", id="before the headers of a stream"),
        pytest.param(streams_and_rests, STREAM, b"data: ", id="in a quiet stream"),
        pytest.param(streams_without_end, STREAM, b"data: ", id="in a busy stream"),
        pytest.param(gives_half_a_body, STORY, b"{", id="in the middle of a body"),
        pytest.param(floods, STORY, b"xxxx", id="in a flood"),
        pytest.param(thinks, MIXED, b"", id="before the headers of a merge"),
        pytest.param(gives_half_a_body, MIXED, b"", id="in the middle of a merge"),
        pytest.param(streams_and_rests, MIXED_STREAM, b"data: ", id="in a merged stream"),
    ],
)
async def test_reliability_30_a_client_that_leaves_ends_the_upstreams_work(
    tmp_path, caplog, record_property, upstream, body, seen_first
):
    async with whole_router(tmp_path, upstream, script={"envelopes": [envelope(KITCHEN)]}) as whole:
        async with connected(whole.url) as client:
            await client.write(
                request(b"POST", b"/v1/chat/completions", (b"content-type", b"application/json"), body=body)
            )
            await until(lambda: whole.upstream.requests)
            if seen_first:
                await client.reader.readuntil(seen_first)
            client.close()
            left = time.monotonic()
            await until(lambda: whole.upstream.ended == 1)
            gone_s = time.monotonic() - left
        await until(lambda: recorded(whole) == 1)
    record_property("upstream_closed_after_ms", round(gone_s * 1000, 1))
    assert gone_s < 1.0
    assert [record.message for record in caplog.records if record.levelname in ("ERROR", "CRITICAL")] == []


async def test_reliability_30_a_client_that_leaves_in_the_middle_of_an_upload_ends_it(tmp_path):
    async with whole_router(tmp_path) as whole, connected(whole.url) as client:
        await client.write(b"POST /v1/files HTTP/1.1\r\nhost: h\r\ncontent-length: 1000000\r\n\r\n" + b"x" * 1000)
        await until(lambda: whole.upstream.opened == 1)
        client.close()
        await until(lambda: whole.upstream.ended == 1, deadline_s=1.0)
        assert whole.upstream.requests == []


async def test_reliability_30_a_chat_that_never_came_whole_is_never_asked_for(tmp_path):
    async with whole_router(tmp_path) as whole:
        async with connected(whole.url) as client:
            await client.write(CHAT[:-5])
            await asyncio.sleep(0.05)
        assert (await ask(whole.url, CHAT)).status == 200
        assert len(whole.upstream.requests) == 1
