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

from needle_policies import Action
from needle_router.counting import whole_prompt
from needle_router.errors import UpstreamBroken
from needle_router.forward.hangup import unwatched
from needle_router.forward.inner import never, replay
from needle_router.pipeline import Verdict
from needle_router.preparing import Prepared
from needle_router.serving.accounts import Sent
from needle_router.serving.answering import local_reply, send_reply
from needle_router.serving.exchange import Exchange
from needle_router.serving.forwarding import shadow
from needle_router.serving.gate import LOCAL, MERGED, Gate
from needle_router.serving.incoming import ClientGone
from needle_router.serving.merged import MergeOutcome, Merging, no_answer, send_merged
from needle_router.serving.merging import conclude, merging_of, note_left
from needle_router.turn import Reply, Turn, Usage

logger = logging.getLogger("needle_router.serving.racing")
#: The action of the engine's verdict -> who has won with it. Anything else leaves the answer to the upstream.
WINNERS = {Action.ANSWER: LOCAL, Action.MERGE: MERGED}


@dataclass(slots=True)
class Race:
    """One race. `verdict` is the engine's, once it is in."""

    exchange: Exchange
    turn: Turn
    prepared: Prepared
    gate: Gate
    verdict: Verdict | None = None
    gone: bool = False
    raised: Exception | None = None
    group: TaskGroup = field(default_factory=anyio.create_task_group)
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
        if not self.gate.winner:
            try:
                self._claim(verdict)
            except Exception:
                self.gate.shown = self.verdict = _fault()
        self.gate.judged.set()
        if self.merging is not None:
            self.outcome = await self._merged(self.merging)
        if self.gate.winner in (LOCAL, MERGED):
            self.group.cancel_scope.cancel()

    async def _judged(self, mode: str) -> Verdict:
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
        self.gate.winner, self.gate.shown = winner, verdict

    async def _merged(self, merging: Merging) -> MergeOutcome:
        try:
            return await send_merged(merging, await self.gate.channel.response())
        except UpstreamBroken as error:
            return no_answer(merging, error)

    async def _ask_upstream(self) -> None:
        # A merged answer is read here, so it must not come compressed.
        out = self.exchange.outgoing(self.turn, readable=self._may_merge())
        self.gate.hide_usage = out.adds_usage
        try:
            await self.exchange.app(unwatched(out.scope), replay(out.body, never), self.gate)
        except Exception as error:
            self.raised = error
        if await self.gate.ended(self.raised):
            self.group.cancel_scope.cancel()

    def _may_merge(self) -> bool:
        when = self.exchange.services.config.merge.when
        return when == "always" or (when == "mixed" and self.prepared.features.clauses > 1)

    # ------------------------------------------------------------------ the end

    async def _finish(self) -> None:
        exchange, verdict = self.exchange, self.verdict
        if verdict is not None and self.reply is not None:
            exchange.timing.handed_over = None
            await send_reply(exchange, verdict, self.turn, self.reply)
            saved = self.reply.usage.without_reasoning
            exchange.record("local", verdict, self.turn, Sent(200, saved=saved, raced=True, wasted=self._wasted()))
        elif verdict is not None and self.merging is not None and self.outcome is not None:
            await conclude(exchange, verdict, self.merging, self.outcome, raced=True)
        else:
            await self._passed_on()

    async def _passed_on(self) -> None:
        """The upstream's answer has gone out, whole or not."""
        shown, sent, relayed = self._seen(), self.gate.sent(self.raised), self.gate.relayed
        if shown.shadow and relayed is not None and not sent.error:
            await shadow(self.exchange, shown, self.turn, relayed, sent)
        else:
            self.exchange.record("upstream", shown, self.turn, sent)
        if self.raised is not None:
            raise self.raised

    def _seen(self) -> Verdict:
        """What the upstream's answer said of itself, with whatever the engine has found by now."""
        found = self.verdict.attempt if self.verdict is not None else None
        return replace(self.gate.shown, attempt=found)

    def _wasted(self) -> Usage | None:
        """What the upstream was asked for in vain; an error costs nothing."""
        return None if self.gate.failed else whole_prompt(self.exchange.services.pipeline, self.prepared)

    def _note_left(self) -> None:
        """Note a client that left, or a server that stopped, before the end."""
        if self.merging is not None and self.verdict is not None:
            return note_left(self.exchange, self.verdict, self.merging, raced=True)
        if self.gate.relayed is not None:
            sent = Sent(self.gate.relayed.status, raced=True, error="cut")
            return self.exchange.record("upstream", self._seen(), self.turn, sent)
        left = Verdict(Action.FORWARD, "race-left", self.gate.shown.policy, prepared=self.prepared)
        sent = Sent(0, raced=True, wasted=self._wasted(), error="cut")
        return self.exchange.record("upstream", left, self.turn, sent)


def _fault() -> Verdict:
    """Called where an exception is handled: a fault of ours leaves the answer to the upstream."""
    logger.exception("the upstream answers after a fault of the router")
    return Verdict(Action.FORWARD, "internal-error")


async def race(exchange: Exchange, prepared: Prepared, turn: Turn, mode: str) -> None:
    """Answer a request whose plan is a race."""
    planned = prepared.race
    assert planned is not None
    exchange.timing.handed_over = exchange.services.clock()
    lost = Verdict(Action.FORWARD, planned.reason, planned.policy, prepared=prepared)
    await Race(exchange, turn, prepared, Gate(exchange, lost)).run(mode)
