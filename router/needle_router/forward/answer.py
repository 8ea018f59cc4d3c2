"""Errors on the wire: the OpenAI envelope before the first byte, an error event in a stream that has begun."""

from __future__ import annotations

from collections.abc import Iterable

import orjson
from starlette.types import Send

from needle_router.errors import RouterError, envelope
from needle_router.forward.headers import Header


async def send_error(send: Send, error: RouterError, *, headers: Iterable[Header] = ()) -> None:
    """Answer with the error's status; clients retry 408, 409, 429 and 5xx unless `x-should-retry` says otherwise."""
    body = orjson.dumps(envelope(error))
    fields: list[Header] = [
        (b"content-type", b"application/json"),
        (b"content-length", str(len(body)).encode()),
        (b"x-should-retry", b"true" if error.retryable else b"false"),
        *headers,
    ]
    if error.retryable and error.status in (429, 503):
        fields.append((b"retry-after", b"1"))
    if error.status == 413:
        fields.append((b"connection", b"close"))
    await send({"type": "http.response.start", "status": error.status, "headers": fields})
    await send({"type": "http.response.body", "body": body})


def sse_error(error: RouterError) -> bytes:
    """The event that tells a stream's reader that it was cut; all SDKs raise on it. No `[DONE]` may follow."""
    return b"data: " + orjson.dumps(envelope(error)) + b"\n\n"
