"""A client that hangs up, told by the server itself.

ASGI says it to whoever waits in `receive`, which takes a task of its own for every request that is forwarded. Our
server also puts a `Hangup` into each scope; behind another server there is none, and a task waits.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any

from starlette.types import Scope

#: The scope extension, whose only entry is `HANGUP` again.
HANGUP = "needle_router.hangup"


class Hangup:
    """Whether the client of one request has gone before its answer was complete, and who wants to know."""

    __slots__ = ("_told", "gone")

    def __init__(self) -> None:
        self.gone = False
        self._told: list[Callable[[], None]] = []

    def happened(self) -> None:
        """The client has gone; told by the server."""
        self.gone = True
        for tell in tuple(self._told):
            tell()

    def add(self, tell: Callable[[], None]) -> None:
        """Call `tell` when it happens, at once where it has happened."""
        self._told.append(tell)
        if self.gone:
            tell()

    def remove(self, tell: Callable[[], None]) -> None:
        """Do not call it any more."""
        self._told.remove(tell)


def hangup_of(scope: Mapping[str, Any]) -> Hangup | None:
    """The request's; None behind a server that tells of it in `receive` only."""
    found: Hangup | None = scope.get("extensions", {}).get(HANGUP, {}).get(HANGUP)
    return found


def unwatched(scope: Scope) -> Scope:
    """`scope` for an app whose client somebody else watches."""
    if hangup_of(scope) is None:
        return scope
    return {**scope, "extensions": {name: said for name, said in scope["extensions"].items() if name != HANGUP}}


class UntilHangup:
    """A block that ends early, without an error, when the client hangs up."""

    __slots__ = ("_hangup", "_left", "_task")

    def __init__(self, hangup: Hangup) -> None:
        self._hangup = hangup
        self._task: asyncio.Task[Any] | None = None
        self._left = False

    def __enter__(self) -> None:
        self._task = asyncio.current_task()
        self._hangup.add(self._leave)

    def _leave(self) -> None:
        assert self._task is not None
        self._left = True
        self._task.cancel()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool:
        self._hangup.remove(self._leave)
        if not self._left or self._task is None:
            return False
        # Somebody else may have cancelled the task as well; that is not for us to hide.
        others = self._task.uncancel()
        return kind is asyncio.CancelledError and not others
