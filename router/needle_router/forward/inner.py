"""The wrapped app as something that can be asked: its answer as status, headers and an iterator of bytes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from starlette.types import ASGIApp, Message, Receive, Scope

from needle_router.errors import UpstreamBroken
from needle_router.forward.headers import Header

#: Messages that may wait between the app and us; beyond that the app's `send` waits (back-pressure).
QUEUE_LIMIT = 4
#: Messages after the end of a body that are passed over while waiting for the disconnect.
SURPLUS_MESSAGES = 8


def replay(body: bytes, receive: Receive) -> Receive:
    """A `receive` that gives the body that was read already, then what the real one gives (a disconnect)."""
    given = False

    async def again() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return again


async def hung_up(receive: Receive) -> bool:
    """Wait until the client hangs up; the body must have been read.

    False where `receive` goes on giving something else: middlewares that replay a body often give it again and again,
    without waiting, and a loop around that would never end.
    """
    for _ in range(SURPLUS_MESSAGES):
        if (await receive())["type"] == "http.disconnect":
            return True
    return False


async def never() -> Message:
    """A `receive` for an app whose client somebody else watches: it waits until it is cancelled."""
    waiting: asyncio.Future[Message] = asyncio.get_running_loop().create_future()
    return await waiting


@dataclass(frozen=True, slots=True)
class InnerResponse:
    """An answer under way. `body` raises `UpstreamBroken` when the app stops before the end."""

    status: int
    headers: list[Header]
    body: AsyncIterator[bytes]


class Channel:
    """What an app sends, for a reader elsewhere: `send` is given to the app, `finish` called when it has returned."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue(QUEUE_LIMIT)
        self._raised: Exception | None = None

    async def send(self, message: Message) -> None:
        """Hand over one message; waits while too many are unread."""
        await self._queue.put(message)

    async def finish(self, raised: Exception | None) -> None:
        """The app has returned, or raised."""
        self._raised = raised
        await self._queue.put(None)

    async def response(self) -> InnerResponse:
        """Wait for status and headers; raises `UpstreamBroken` when there are none."""
        first = await self._queue.get()
        if first is None or first["type"] != "http.response.start":
            raise UpstreamBroken("The upstream gave no answer.") from self._raised
        return InnerResponse(first["status"], list(first.get("headers", ())), self._body())

    async def _body(self) -> AsyncIterator[bytes]:
        while True:
            message = await self._queue.get()
            if message is None:
                raise UpstreamBroken("The upstream's answer ended before it was complete.") from self._raised
            if message["type"] != "http.response.body":
                continue
            chunk = message.get("body", b"")
            if chunk:
                yield chunk
            if not message.get("more_body", False):
                return


@asynccontextmanager
async def open_inner(app: ASGIApp, scope: Scope, receive: Receive) -> AsyncIterator[InnerResponse]:
    """Run `app` for one request; it is cancelled when the block is left before its end."""
    channel = Channel()

    async def run() -> None:
        raised: Exception | None = None
        try:
            await app(scope, receive, channel.send)
        except Exception as error:  # the answer's reader learns of it where it stands
            raised = error
        await channel.finish(raised)

    failure: Exception | None = None
    async with asyncio.TaskGroup() as group:
        task = group.create_task(run())
        try:
            yield await channel.response()
        except Exception as error:
            failure = error
        finally:
            task.cancel()
    if failure is not None:
        # Raised out here, because a task group wraps what is raised inside into an ExceptionGroup.
        raise failure
