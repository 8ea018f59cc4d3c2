"""Any ASGI app as something that can be asked."""

import asyncio

import pytest

from needle_router.errors import UpstreamBroken
from needle_router.forward.inner import QUEUE_LIMIT, hung_up, open_inner, replay

pytestmark = pytest.mark.anyio
SCOPE = {"type": "http", "method": "POST", "path": "/v1/chat/completions", "headers": []}
START = {"type": "http.response.start", "status": 201, "headers": [(b"x", b"1"), (b"x", b"2")]}


def piece(body, more=True):
    return {"type": "http.response.body", "body": body, "more_body": more}


async def never():
    await asyncio.Event().wait()


async def read(response):
    return [chunk async for chunk in response.body]


async def test_status_headers_and_pieces_come_as_the_app_sends_them():
    async def app(scope, receive, send):
        await send(START)
        for message in (piece(b"a"), piece(b""), piece(b"b"), piece(b"c", more=False)):
            await send(message)

    async with open_inner(app, SCOPE, never) as response:
        assert (response.status, response.headers) == (201, [(b"x", b"1"), (b"x", b"2")])
        assert await read(response) == [b"a", b"b", b"c"]


async def test_the_app_sees_the_scope_and_the_replayed_body_then_the_real_receive():
    async def hang_up():
        return {"type": "http.disconnect"}

    seen = []

    async def app(scope, receive, send):
        seen.extend([scope, await receive(), await receive(), await receive()])
        await send(START)
        await send(piece(b"", more=False))

    async with open_inner(app, SCOPE, replay(b"body", hang_up)) as response:
        assert await read(response) == []
    gone = {"type": "http.disconnect"}
    assert seen == [SCOPE, {"type": "http.request", "body": b"body", "more_body": False}, gone, gone]


async def test_a_body_that_is_replayed_without_end_does_not_hold_the_loop():
    async def careless():
        return {"type": "http.request", "body": b"", "more_body": False}

    assert await hung_up(careless) is False


async def test_a_disconnect_after_a_surplus_message_is_seen():
    messages = [{"type": "http.request", "body": b"", "more_body": False}, {"type": "http.disconnect"}]

    async def receive():
        return messages.pop(0)

    assert await hung_up(receive) is True


async def test_an_app_that_raises_before_its_answer_is_a_broken_upstream():
    async def app(scope, receive, send):
        raise KeyError("secret detail")

    with pytest.raises(UpstreamBroken) as caught:
        async with open_inner(app, SCOPE, never):
            pytest.fail("there is no answer")
    assert isinstance(caught.value.__cause__, KeyError)
    assert "secret" not in caught.value.message


async def test_an_app_that_returns_without_an_answer_is_a_broken_upstream():
    async def app(scope, receive, send):
        return

    with pytest.raises(UpstreamBroken):
        async with open_inner(app, SCOPE, never):
            pytest.fail("there is no answer")


@pytest.mark.parametrize("raises", [True, False])
async def test_what_came_before_a_break_can_be_read(raises):
    async def app(scope, receive, send):
        await send(START)
        await send(piece(b"first"))
        if raises:
            raise OSError("gone")

    got = []

    async def collect():
        async with open_inner(app, SCOPE, never) as response:
            async for chunk in response.body:
                got.append(chunk)  # noqa: PERF401  # what came before the break is kept

    with pytest.raises(UpstreamBroken):
        await collect()
    assert got == [b"first"]


async def test_the_app_waits_while_nobody_reads():
    sent = 0

    async def app(scope, receive, send):
        nonlocal sent
        await send(START)
        for _ in range(50):
            await send(piece(b"x"))
            sent += 1
        await send(piece(b"", more=False))

    async with open_inner(app, SCOPE, never) as response:
        for _ in range(100):
            await asyncio.sleep(0)
        assert sent <= QUEUE_LIMIT
        assert len(await read(response)) == 50


async def test_leaving_early_cancels_the_app():
    ended = []

    async def app(scope, receive, send):
        try:
            await send(START)
            await never()
        finally:
            ended.append("cancelled")

    async with open_inner(app, SCOPE, never) as response:
        assert response.status == 201
    assert ended == ["cancelled"]


async def test_an_error_in_the_block_comes_out_as_itself_and_cancels_the_app():
    ended = []

    async def app(scope, receive, send):
        try:
            await send(START)
            await never()
        finally:
            ended.append("cancelled")

    with pytest.raises(LookupError, match="mine"):
        async with open_inner(app, SCOPE, never):
            raise LookupError("mine")
    assert ended == ["cancelled"]


async def test_cancelling_the_reader_cancels_the_app():
    ended = []

    async def app(scope, receive, send):
        try:
            await send(START)
            await never()
        finally:
            ended.append("cancelled")

    with pytest.raises(TimeoutError):
        async with asyncio.timeout(0.05), open_inner(app, SCOPE, never) as response:
            await read(response)
    assert ended == ["cancelled"]
