"""What every API surface gives: reading a request, writing an answer, whole and streamed."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Protocol

from needle_router.surfaces.chat import Unreadable
from needle_router.turn import Reply, Turn

__all__ = ["Chunks", "Surface", "Unreadable"]


class Chunks(Protocol):
    """Writes a streamed answer."""

    def __call__(self, reply: Reply, *, include_usage: bool) -> Iterator[bytes]:
        """The events, the last one included."""
        ...


@dataclass(frozen=True, slots=True)
class Surface:
    """One API. `routed` says whether its requests may be answered in place of the upstream that they name."""

    parse: Callable[[bytes], Turn | Unreadable]
    render: Callable[[Reply], bytes]
    chunks: Chunks
    routed: bool = True
