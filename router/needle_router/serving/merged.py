"""One answer of two on its way to the client: local calls, then the upstream's words.

Nothing is sent before the upstream's status is known, so that its errors reach the client as what they are. After
that the local calls stand: an upstream that breaks off in the middle ends the answer as an error, not as complete.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import orjson
from starlette.types import Send

from needle_router.errors import UpstreamBroken
from needle_router.forward.answer import sse_error
from needle_router.forward.inner import InnerResponse
from needle_router.forward.proxy import ResponseCut
from needle_router.merge import StreamMerger, merge_json
from needle_router.observe import Header, header_value, with_request_id, without_needle
from needle_router.sse import EventSplitter, EventTooLong
from needle_router.surfaces.chat_answers import dump
from needle_router.turn import Reply, Turn, Usage
from needle_router.usage import usage_of

MAX_BODY_BYTES = 16 * 1024 * 1024
#: Fields that describe the upstream's body, which is not the one that is sent.
_OF_THE_BODY = frozenset((b"content-length", b"content-encoding", b"content-type", b"transfer-encoding", b"etag"))


@dataclass(frozen=True, slots=True)
class MergeOutcome:
    """What came of it: the route taken, status, the upstream's usage, and an error.

    With the route local nothing was sent yet; `status` is then the upstream's, 0 where it gave no answer.
    """

    route: str
    status: int = 0
    usage: Usage | None = None
    error: str = ""
    raised: Exception | None = None


@dataclass(slots=True)
class Merging:
    """One merged answer under way. `route` and `status` are set when it begins: before that nothing was sent."""

    send: Send
    turn: Turn
    reply: Reply
    headers: Callable[[str], list[Header]]
    request_id: Callable[[], str]
    #: The calls cover the whole request by themselves.
    local_is_complete: bool
    route: str = ""
    status: int = 0


def no_answer(merging: Merging, error: Exception) -> MergeOutcome:
    """The app stopped before its answer began."""
    return MergeOutcome("local" if merging.local_is_complete else "upstream", error="no-answer", raised=error)


async def send_merged(merging: Merging, response: InnerResponse) -> MergeOutcome:
    """Send the merged answer, or the upstream's own where it cannot be merged."""
    kind = header_value(response.headers, b"content-type").partition(";")[0].strip().lower()
    encoded = header_value(response.headers, b"content-encoding").lower() not in ("", "identity")
    wanted = "text/event-stream" if merging.turn.stream else "application/json"
    if response.status != 200 or kind != wanted or encoded:
        if merging.local_is_complete:
            return MergeOutcome("local", response.status)
        return await _relay(merging, response)
    if merging.turn.stream:
        return await _stream(merging, response)
    return await _json(merging, response)


async def _relay(merging: Merging, response: InnerResponse, read: bytes = b"") -> MergeOutcome:
    """Pass the upstream's own answer on: it is an error, or nothing that can be merged."""
    await _start(merging, response.status, without_needle(response.headers), "upstream")
    if read:
        await merging.send({"type": "http.response.body", "body": read, "more_body": True})
    async for chunk in response.body:
        await merging.send({"type": "http.response.body", "body": chunk, "more_body": True})
    await merging.send({"type": "http.response.body", "body": b""})
    return MergeOutcome("upstream", response.status)


async def _start(merging: Merging, status: int, headers: list[Header], route: str) -> None:
    merging.route, merging.status = route, status
    headers = [*with_request_id(headers, merging.request_id), *merging.headers(route)]
    await merging.send({"type": "http.response.start", "status": status, "headers": headers})


def _kept(response: InnerResponse) -> list[Header]:
    return [h for h in without_needle(response.headers) if h[0].lower() not in _OF_THE_BODY]


async def _json(merging: Merging, response: InnerResponse) -> MergeOutcome:
    pieces, size = [], 0
    try:
        async for chunk in response.body:
            pieces.append(chunk)
            size += len(chunk)
            if size > MAX_BODY_BYTES:
                return await _relay(merging, response, b"".join(pieces))
    except UpstreamBroken as error:
        if merging.local_is_complete:
            return MergeOutcome("local", response.status, error="cut")
        return MergeOutcome("upstream", error="cut", raised=error)
    body = b"".join(pieces)
    try:
        upstream = orjson.loads(body)
        merged = dump(merge_json(merging.reply, upstream))
    except ValueError:
        return await _relay(merging, response, body)
    headers = [*_kept(response), (b"content-type", b"application/json"), (b"content-length", b"%d" % len(merged))]
    await _start(merging, 200, headers, "merged")
    await merging.send({"type": "http.response.body", "body": merged})
    return MergeOutcome("merged", 200, usage_of(upstream))


async def _stream(merging: Merging, response: InnerResponse) -> MergeOutcome:
    merger = StreamMerger(merging.reply, include_usage=merging.turn.include_usage)
    headers = [
        *(h for h in _kept(response) if h[0].lower() != b"cache-control"),
        (b"content-type", b"text/event-stream; charset=utf-8"),
        (b"cache-control", b"no-cache"),
    ]
    await _start(merging, 200, headers, "merged")
    await merging.send({"type": "http.response.body", "body": merger.opening(), "more_body": True})
    splitter = EventSplitter()
    problem = ""
    try:
        async for chunk in response.body:
            rewritten = b"".join(merger.feed(data) for data in splitter.feed(chunk))
            if rewritten:
                await merging.send({"type": "http.response.body", "body": rewritten, "more_body": True})
    except (UpstreamBroken, EventTooLong) as error:
        problem = str(error)
    usage = usage_of({"usage": merger.usage})
    if problem or merger.failed or not merger.complete:
        if not merger.failed:
            cut = UpstreamBroken(problem or "The upstream's stream ended before its answer was complete.")
            await merging.send({"type": "http.response.body", "body": sse_error(cut), "more_body": True})
        return MergeOutcome("merged", 200, usage, "cut", ResponseCut("upstream_disconnected"))
    await merging.send({"type": "http.response.body", "body": merger.close()})
    return MergeOutcome("merged", 200, usage)
