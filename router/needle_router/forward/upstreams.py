"""The upstreams in their order: the first that can be reached takes the request.

Another one is tried only while not a byte of the request has been sent, so no request is ever run twice.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from needle_router.errors import RouterError, UpstreamUnreachable
from needle_router.forward.breaker import Breaker
from needle_router.forward.message import Request, Spawn, Timeouts
from needle_router.forward.target import Origin
from needle_router.forward.wire import Answer, Wire


@dataclass(frozen=True, slots=True)
class Upstream:
    """One upstream: where it is, its connections, its breaker."""

    origin: Origin
    wire: Wire
    breaker: Breaker


@dataclass(frozen=True, slots=True)
class UpstreamState:
    """How an upstream stands: its host as in `Host`, what its breaker says, and seconds until the next probe."""

    host: str
    breaker: str
    next_try_s: float


class Upstreams:
    """Sends requests to the first upstream that takes them."""

    def __init__(self, members: Sequence[Upstream], *, clock: Callable[[], float] = time.monotonic) -> None:
        self.members = tuple(members)
        self._clock = clock

    @classmethod
    def of(cls, base_urls: Sequence[str], timeouts: Timeouts, *, failures: int, open_s: float) -> Upstreams:
        """Upstreams for configured URLs, in their order."""
        origins = [Origin.parse(url) for url in base_urls]
        return cls([Upstream(o, Wire(o, timeouts), Breaker(failures, open_s)) for o in origins])

    async def send(self, request_for: Callable[[Origin], Request], *, spawn: Spawn | None) -> Answer:
        """The answer of the first upstream that can be reached.

        Raises `UpstreamUnreachable` when none can, with the reason of the last one that was tried, and whatever else
        the one that was reached ends in.
        """
        last: UpstreamUnreachable | None = None
        for member in self.members:
            if not member.breaker.allows(self._clock()):
                continue
            try:
                return await self._try(member, request_for(member.origin), spawn)
            except UpstreamUnreachable as error:
                last = error
        if last is None:
            soonest = min(member.breaker.wait_s(self._clock()) for member in self.members)
            last = UpstreamUnreachable(
                f"The upstream could not be reached several times in a row; the next try is in {soonest:.0f} s."
            )
        raise last

    async def _try(self, member: Upstream, request: Request, spawn: Spawn | None) -> Answer:
        settled = False
        try:
            answer = await member.wire.send(request, spawn=spawn)
        except UpstreamUnreachable:
            settled = True
            member.breaker.unreachable(self._clock())
            raise
        except RouterError:
            # It was reached; that it then failed is another matter.
            settled = True
            member.breaker.reached()
            raise
        finally:
            if not settled:
                member.breaker.abandoned()
        member.breaker.reached()
        return answer

    @property
    def states(self) -> list[UpstreamState]:
        """The state of each upstream, in order."""
        now = self._clock()
        return [
            UpstreamState(
                member.origin.host_header.decode(), member.breaker.state(now), round(member.breaker.wait_s(now), 1)
            )
            for member in self.members
        ]

    async def aclose(self) -> None:
        """Close every connection."""
        for member in self.members:
            await member.wire.aclose()
