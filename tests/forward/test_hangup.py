"""A hangup that the server tells: the block around a request's work ends, and nobody else's cancellation is hidden."""

import asyncio
import functools

import pytest
from tests.servers import answer, ask, connected, recording, request, serving, until

from needle_router.cli.strict import StrictProtocol
from needle_router.cli.strict_gate import Gate
from needle_router.config.schema import Upstream
from needle_router.forward.hangup import HANGUP, Hangup, UntilHangup, hangup_of, unwatched
from needle_router.forward.proxy import ReverseProxy

pytestmark = pytest.mark.anyio


def scope_with(hangup):
    return {"type": "http", "extensions": {HANGUP: {HANGUP: hangup}, "other": {"kept": True}}}


class Work:
    """Something that waits for ever, in a task of its own."""

    def __init__(self, hangup):
        self.hangup = hangup
        self.steps = []

    async def run(self):
        with UntilHangup(self.hangup):
            self.steps.append("began")
            try:
                await asyncio.Event().wait()
            finally:
                self.steps.append("ended")
        self.steps.append("went on")
        await asyncio.sleep(0)
        self.steps.append("waited on")


async def test_the_block_ends_without_an_error_and_what_follows_goes_on():
    work = Work(hangup := Hangup())
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(work.run())
        await until(lambda: work.steps == ["began"])
        hangup.happened()
    assert work.steps == ["began", "ended", "went on", "waited on"]
    assert not task.cancelled()
    assert task.cancelling() == 0


async def test_a_client_that_had_gone_before_ends_the_block_at_its_first_wait():
    hangup = Hangup()
    hangup.happened()
    work = Work(hangup)
    async with asyncio.timeout(5):
        await asyncio.create_task(work.run())  # noqa: TID251  # awaited here
    assert work.steps == ["began", "ended", "went on", "waited on"]


async def test_a_cancellation_from_elsewhere_is_not_hidden():
    work = Work(Hangup())
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(work.run())
        await until(lambda: work.steps == ["began"])
        task.cancel()
    assert work.steps == ["began", "ended"]
    assert task.cancelled()


async def test_a_cancellation_from_elsewhere_and_a_hangup_at_once_is_a_cancellation():
    work = Work(hangup := Hangup())
    async with asyncio.timeout(5), asyncio.TaskGroup() as group:
        task = group.create_task(work.run())
        await until(lambda: work.steps == ["began"])
        hangup.happened()
        task.cancel()
    assert task.cancelled()


async def test_a_block_that_has_ended_is_told_nothing():
    hangup = Hangup()
    with UntilHangup(hangup):
        pass
    hangup.happened()
    await asyncio.sleep(0)
    assert hangup.gone
    assert asyncio.current_task().cancelling() == 0


async def test_an_error_of_the_work_stays_an_error():
    with pytest.raises(ValueError, match="of the work"), UntilHangup(Hangup()):
        raise ValueError("an error of the work")


async def test_the_scope_of_our_server_tells_and_that_of_another_does_not():
    hangup = Hangup()
    assert hangup_of(scope_with(hangup)) is hangup
    assert hangup_of({"type": "http", "extensions": {"other": {}}}) is None
    assert hangup_of({"type": "http"}) is None


async def test_a_scope_for_an_app_that_is_watched_elsewhere_loses_nothing_else():
    scope = scope_with(Hangup())
    assert unwatched(scope) == {"type": "http", "extensions": {"other": {"kept": True}}}
    assert hangup_of(scope) is not None
    plain = {"type": "http"}
    assert unwatched(plain) is plain


async def thinks(_, peer):
    await peer.gone()


async def speaks_and_rests(_, peer):
    await peer.write(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf ")
    await peer.gone()


@pytest.mark.parametrize("script", [thinks, speaks_and_rests], ids=["before the headers", "in the middle"])
async def test_a_client_that_leaves_our_server_ends_the_one_request_that_was_made(script):
    async with recording(script, answer()) as upstream:
        proxy = ReverseProxy(Upstream(base_url=upstream.base_url))
        ours = functools.partial(StrictProtocol, gate=Gate())
        async with serving(proxy, http=ours, lifespan="off") as url:
            async with connected(url) as client:
                await client.write(request(b"POST", b"/v1/files", body=b"{}"))
                await until(lambda: len(upstream.requests) == 1)
                if script is speaks_and_rests:
                    assert (await client.head())[0] == 200
            await until(lambda: upstream.ended == 1)
            assert (await ask(url, request(b"GET", b"/v1/models"))).status == 200
        await proxy.aclose()
    assert [recorded.target for recorded in upstream.requests] == [b"/v1/files", b"/v1/models"]
    assert upstream.opened == 2
