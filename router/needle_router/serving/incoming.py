"""What a request asks of the router itself, and its body; nothing here knows what the answer will be."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, TypeVar

import anyio
from starlette.types import Message, Receive

from needle_policies.limits import NO_LIMITS, Limits
from needle_router.errors import BodyTooLarge
from needle_router.observe import PREFIX, Header, header_value, header_values

T = TypeVar("T")
#: A decimal number as people write one; `float` also takes "nan", "1_0" and digits of other scripts.
SCORE = re.compile(r"[0-9]{1,3}(?:\.[0-9]{0,17})?|\.[0-9]{1,17}")
#: Any printable name but one with a comma; which names exist is the request's own business.
TOOL_NAME = re.compile(r"[!-+\--~]{1,128}")


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


def mode_of(headers: Sequence[Header], *, configured: str) -> str:
    """The configured mode, tightened by `x-needle-mode` (off, shadow or force-upstream): off, on, shadow, ..."""
    asked = header_value(headers, b"x-needle-mode").strip().lower()
    if configured == "off" or asked == "off":
        return "off"
    if asked == "force-upstream":
        return "force-upstream"
    return "shadow" if "shadow" in (configured, asked) else "on"


def limits_of(headers: Sequence[Header]) -> Limits | None:
    """What `x-needle-min-confidence` and `x-needle-never` ask for, the strictest of several; None for nonsense.

    Whoever sends such a field wants less to be answered here, so one that cannot be read must not be passed over.
    """
    ours = [header for header in headers if header[0].lower().startswith(PREFIX)]
    if not ours:
        return NO_LIMITS
    scores = [_score(text) for text in header_values(ours, b"x-needle-min-confidence")]
    listed = ",".join(header_values(ours, b"x-needle-never"))
    names = [name.strip() for name in listed.split(",") if name.strip()]
    if None in scores or any(TOOL_NAME.fullmatch(name) is None for name in names):
        return None
    return Limits(max((score for score in scores if score is not None), default=0.0), frozenset(names))


def _score(text: str) -> float | None:
    found = float(text) if SCORE.fullmatch(text.strip()) else None
    return found if found is not None and found <= 1 else None


def inspectable(headers: Sequence[Header]) -> bool:
    """Whether the body is JSON as it stands; an encoded one is never unpacked, however small it claims to be."""
    kind = header_value(headers, b"content-type").partition(";")[0].strip().lower()
    encoding = header_value(headers, b"content-encoding").strip().lower()
    return encoding in ("", "identity") and (not kind or kind.endswith("json"))


async def read_body(receive: Receive, headers: Sequence[Header], limit: int) -> bytes:
    """The whole body, counted while it is read; raises `BodyTooLarge` and `ClientGone`."""
    declared = header_value(headers, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(f"The body has {declared} bytes, the limit is {limit} (server.max_body_mb).")
    pieces, size = [], 0
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(f"The body has more than {limit} bytes (server.max_body_mb).")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def unless_gone(left: Callable[[], Awaitable[bool]], work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, cancelled with `ClientGone` as soon as `left()` says that the client has hung up."""
    gone = False
    results: list[T] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal gone
            if await left():
                gone = True
                group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work)
        except Exception as error:
            # Kept out of the task group, which would wrap it in an exception group.
            failed: Exception | None = error
        else:
            failed = None
        group.cancel_scope.cancel()
    if gone or (not results and failed is None):
        raise ClientGone
    if failed is not None:
        raise failed
    return results[0]
