"""The engine and the upstream at once: whoever is ready first answers, the other stops.

The upstream is ready when its answer begins, unless that is an error: a failed upstream has not won, and the engine may
still answer. The engine is ready when its calls have passed every check and policy. The upstream is asked once,
whatever happens; when it loses, its connection closes at once, and what it had been asked for is noted as wasted.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace

import anyio
from anyio.abc import TaskGroup
from starlette.types import Message, Send

from needle_policies import Action
from needle_router.accounts import Sent
from needle_router.answering import local_reply, send_reply
from needle_router.counting import whole_prompt
from needle_router.errors import UpstreamBroken
from needle_router.exchange import Exchange
from needle_router.forward.inner import Channel, never, replay
from needle_router.forwarding import observed_send, shadow
from needle_router.incoming import ClientGone
from needle_router.merged import MergeOutcome, Merging, no_answer, send_merged
from needle_router.merging import conclude, merging_of, note_left
from needle_router.observe import ObservedSend
from needle_router.pipeline import Prepared, Verdict
from needle_router.turn import Reply, Turn

logger = logging.getLogger("needle_router.racing")
#: From this status on an answer is an error.
FAILED = 400
LOCAL, UPSTREAM, MERGED = "local", "upstream", "merged"
#: The action of the engine's verdict -> who has won with it. Anything else leaves the answer to the upstream.
WINNERS = {Action.ANSWER: LOCAL, Action.MERGE: MERGED}


@dataclass(slots=True)
class Race:
    """One race. `winner` is set once, by whoever is first; `verdict` is the engine's, `shown` the upstream's reason."""

    exchange: Exchange
    turn: Turn
    prepared: Prepared
    shown: Verdict
    winner: str = ""
    verdict: Verdict | None = None
    gone: bool = False
    failed: bool = False
    hide_usage: bool = False
    raised: Exception | None = None
    group: TaskGroup = field(default_factory=anyio.create_task_group)
    judged: anyio.Event = field(default_factory=anyio.Event)
    channel: Channel = field(default_factory=Channel)
    observed: ObservedSend | None = None
    reply: Reply | None = None
    merging: Merging | None = None
    outcome: MergeOutcome | None = None

    async def run(self, mode: str) -> None:
        """Race, and answer."""
        ended = False
        try:
            async with self.group:
                self.group.start_soon(self._watch)
                self.group.start_soon(self._ask_upstream)
                await self._ask_engine(mode)
            ended = True
        finally:
            if self.gone or not ended:
                self._note_left()
        if self.gone:
            raise ClientGone
        await self._finish()

    # ------------------------------------------------------------------ the legs

    async def _watch(self) -> None:
        """The client: when it leaves, nobody needs an answer."""
        if await self.exchange.left():
            self.gone = True
            self.group.cancel_scope.cancel()

    async def _ask_engine(self, mode: str) -> None:
        self.verdict = verdict = await self._judged(mode)
        if not self.winner:
            try:
                self._claim(verdict)
            except Exception:
                self.shown = self.verdict = _fault()
        self.judged.set()
        if self.winner == LOCAL:
            self.group.cancel_scope.cancel()
        elif self.merging is not None:
            self.outcome = await self._merged(self.merging)
            self.group.cancel_scope.cancel()

    async def _judged(self, mode: str) -> Verdict:
        """The engine's verdict; a fault of ours leaves the answer to the upstream."""
        try:
            verdict = await self.exchange.services.pipeline.judge(self.prepared, mode)
        except Exception:
            return _fault()
        self.exchange.note_engine(verdict.attempt)
        return verdict

    def _claim(self, verdict: Verdict) -> None:
        """The answer is the engine's if its verdict says so; made before the upstream is stopped, in case it fails."""
        winner = WINNERS.get(verdict.action, "")
        if winner == LOCAL:
            self.reply = local_reply(self.exchange, verdict, self.turn, LOCAL)
        elif winner == MERGED:
            self.merging = merging_of(self.exchange, verdict, self.turn)
        self.winner, self.shown = winner, verdict

    async def _merged(self, merging: Merging) -> MergeOutcome:
        try:
            return await send_merged(merging, await self.channel.response())
        except UpstreamBroken as error:
            return no_answer(merging, error)

    async def _ask_upstream(self) -> None:
        exchange = self.exchange
        # A merged answer is read here, so it must not come compressed.
        out = exchange.outgoing(self.turn, readable=self._may_merge())
        self.hide_usage = out.adds_usage
        try:
            await exchange.app(out.scope, replay(out.body, never), self._gate)
        except Exception as error:
            self.raised = error
        if self.winner != UPSTREAM:
            self.failed = True
            await self.judged.wait()
        if self.winner == MERGED:
            return await self.channel.finish(self.raised)
        self.group.cancel_scope.cancel()

    def _may_merge(self) -> bool:
        when = self.exchange.services.config.merge.when
        return when == "always" or (when == "mixed" and self.prepared.features.clauses > 1)

    async def _gate(self, message: Message) -> None:
        """The upstream's way out: its first message waits here until it is clear who answers."""
        if self.observed is None and not self.winner:
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
        if self.observed is None:
            self.observed = observed_send(self.exchange, self.shown, hide_usage=self.hide_usage)
        return self.observed

    # ------------------------------------------------------------------ the end

    async def _finish(self) -> None:
        exchange, verdict = self.exchange, self.verdict
        if self.reply is not None:
            assert verdict is not None
            exchange.timing.handed_over = None
            reply = self.reply
            await send_reply(exchange, verdict, self.turn, reply)
            wasted = None if self.failed else whole_prompt(exchange.services.pipeline, self.prepared)
            sent = Sent(200, saved=reply.usage.without_reasoning, raced=True, wasted=wasted)
            return exchange.record("local", verdict, self.turn, sent)
        if self.merging is not None:
            assert verdict is not None
            assert self.outcome is not None
            return await conclude(exchange, verdict, self.merging, self.outcome, raced=True)
        await self._passed_on()

    async def _passed_on(self) -> None:
        """The upstream's answer has gone out, whole or not."""
        observed, shown = self.observed, self._seen()
        complete = observed is not None and observed.complete
        error = "exception" if self.raised is not None else "" if complete else "cut"
        usage = observed.reader.finish() if observed is not None and observed.reader is not None else None
        sent = Sent(observed.status if observed is not None else 0, usage, raced=True, error=error)
        if shown.shadow and observed is not None and not error:
            await shadow(self.exchange, shown, self.turn, observed, sent)
        else:
            self.exchange.record("upstream", shown, self.turn, sent)
        if self.raised is not None:
            raise self.raised

    def _seen(self) -> Verdict:
        """What the upstream's answer said of itself, with whatever the engine has found by now."""
        found = self.verdict.attempt if self.verdict is not None else None
        return replace(self.shown, attempt=found)

    def _note_left(self) -> None:
        """Note a client that left, or a server that stopped, before the end."""
        if self.merging is not None and self.verdict is not None:
            return note_left(self.exchange, self.verdict, self.merging, raced=True)
        if self.observed is not None:
            sent = Sent(self.observed.status, raced=True, error="cut")
            return self.exchange.record("upstream", self._seen(), self.turn, sent)
        wasted = None if self.failed else whole_prompt(self.exchange.services.pipeline, self.prepared)
        left = Verdict(Action.FORWARD, "race-left", self.shown.policy, prepared=self.prepared)
        return self.exchange.record("upstream", left, self.turn, Sent(0, raced=True, wasted=wasted, error="cut"))


def _fault() -> Verdict:
    """Called where an exception is handled: a fault of ours leaves the answer to the upstream."""
    logger.exception("the upstream answers after a fault of the router")
    return Verdict(Action.FORWARD, "internal-error")


async def _unheard(message: Message) -> None:
    """Where the words of a leg go that has lost."""


async def race(exchange: Exchange, prepared: Prepared, turn: Turn, mode: str) -> None:
    """Answer a request whose plan is a race."""
    planned = prepared.race
    assert planned is not None
    exchange.timing.handed_over = exchange.services.clock()
    lost = Verdict(Action.FORWARD, planned.reason, planned.policy, prepared=prepared)
    await Race(exchange, turn, prepared, lost).run(mode)
