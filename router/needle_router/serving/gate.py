"""Where the upstream's answer waits in a race until it is clear who answers.

An answer that begins as an error has not won: it is held until the engine has been judged. Any other that comes before
that is the answer. After the engine has won, what the upstream says goes to a merged answer, or nowhere.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import anyio
from starlette.types import Message, Send

from needle_router.forward.inner import Channel
from needle_router.observe import ObservedSend
from needle_router.pipeline import Verdict
from needle_router.serving.accounts import Sent
from needle_router.serving.exchange import Exchange
from needle_router.serving.forwarding import observed_send

#: From this status on an answer is an error.
FAILED = 400
LOCAL, UPSTREAM, MERGED = "local", "upstream", "merged"


@dataclass(slots=True)
class Gate:
    """`winner` is set once, by whoever is first. `failed`: the upstream gave an error, or nothing.

    `shown` is what the upstream's answer says of itself; `relayed` is its way to the client, once it may use it, and
    `channel` where a merged answer is read.
    """

    exchange: Exchange
    shown: Verdict
    hide_usage: bool = False
    winner: str = ""
    failed: bool = False
    judged: anyio.Event = field(default_factory=anyio.Event)
    channel: Channel = field(default_factory=Channel)
    relayed: ObservedSend | None = None

    async def __call__(self, message: Message) -> None:
        """The `send` that the upstream's app is given."""
        if not self.winner:
            if message.get("status", FAILED) >= FAILED:
                self.failed = True
                await self.judged.wait()
            self.winner = self.winner or UPSTREAM
        await self._way_out()(message)

    def _way_out(self) -> Send:
        if self.winner == MERGED:
            return self.channel.send
        if self.winner == LOCAL:
            # About to be cancelled; what it says is of no use any more.
            return _unheard
        if self.relayed is None:
            self.relayed = observed_send(self.exchange, self.shown, hide_usage=self.hide_usage)
        return self.relayed

    async def ended(self, raised: Exception | None) -> bool:
        """The app has returned, or raised; whether that ends the race."""
        if self.winner != UPSTREAM:
            self.failed = True
            await self.judged.wait()
        if self.winner == MERGED:
            await self.channel.finish(raised)
        return self.winner != MERGED

    def sent(self, raised: Exception | None) -> Sent:
        """What the client saw of the upstream's answer."""
        relayed = self.relayed
        if relayed is None:
            return Sent(0, raced=True, error="cut" if raised is None else "exception")
        error = "exception" if raised is not None else "" if relayed.complete else "cut"
        usage = relayed.reader.finish() if relayed.reader is not None else None
        return Sent(relayed.status, usage, raced=True, error=error)


async def _unheard(message: Message) -> None:
    """Where the words of a leg go that has lost."""
