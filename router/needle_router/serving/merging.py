"""Answering with local calls and the upstream's words: asks the wrapped app, and sends one answer."""

from __future__ import annotations

from dataclasses import replace

from needle_policies import Action
from needle_router.counting import whole_prompt
from needle_router.errors import RouterError, UpstreamBroken
from needle_router.forward.answer import send_error
from needle_router.forward.hangup import unwatched
from needle_router.forward.inner import never, open_inner, replay
from needle_router.pipeline import Verdict
from needle_router.serving.accounts import Sent
from needle_router.serving.answering import local_reply, send_reply
from needle_router.serving.exchange import Exchange
from needle_router.serving.incoming import ClientGone, unless_gone
from needle_router.serving.merged import MergeOutcome, Merging, no_answer, send_merged
from needle_router.turn import Reply, Turn, Usage


async def merge(exchange: Exchange, verdict: Verdict, turn: Turn) -> None:
    """Ask the wrapped app, and answer with local calls and its words."""
    exchange.timing.handed_over = exchange.services.clock()
    merging = merging_of(exchange, verdict, turn)
    try:
        outcome = await unless_gone(exchange.left, _asked(exchange, merging))
    except ClientGone:
        note_left(exchange, verdict, merging)
        raise
    await conclude(exchange, verdict, merging, outcome)


def merging_of(exchange: Exchange, verdict: Verdict, turn: Turn) -> Merging:
    """A merged answer about to begin."""
    return Merging(
        exchange.send,
        turn,
        local_reply(exchange, verdict, turn, "merged"),
        headers=lambda route: exchange.own_headers(verdict, route),
        request_id=exchange.request_id,
        local_is_complete=verdict.attempt is not None and not verdict.attempt.evidence.failures,
    )


async def _asked(exchange: Exchange, merging: Merging) -> MergeOutcome:
    # Of what comes back, the merged stream shows usage only to a client that asked for it.
    out = exchange.outgoing(merging.turn, readable=True)
    failed: MergeOutcome | None = None
    try:
        # Whether the client is still there is watched outside: two readers would take each other's news.
        async with open_inner(exchange.app, unwatched(out.scope), replay(out.body, never)) as response:
            return await send_merged(merging, response)
    except* RouterError as group:
        failed = no_answer(merging, group)
    return failed


async def conclude(
    exchange: Exchange, verdict: Verdict, merging: Merging, outcome: MergeOutcome, *, raced: bool = False
) -> None:
    """Answer alone where nothing was merged, note what happened, and raise what must break the connection."""
    turn = merging.turn
    if outcome.route == "local":
        alone = replace(verdict, action=Action.ANSWER, reason="confident")
        await send_reply(exchange, alone, turn, unmerged(merging.reply, alone.reason))
        sent = Sent(
            200, saved=merging.reply.usage.without_reasoning, raced=raced, wasted=unused(exchange, alone, outcome)
        )
        return exchange.record("local", alone, turn, sent)
    exchange.record(outcome.route, verdict, turn, Sent(outcome.status, outcome.usage, raced=raced, error=outcome.error))
    if outcome.raised is not None and outcome.status == 0:
        await send_error(exchange.send, UpstreamBroken("The upstream gave no complete answer."))
    elif outcome.raised is not None:
        raise outcome.raised


def unused(exchange: Exchange, verdict: Verdict, outcome: MergeOutcome) -> Usage | None:
    """What the upstream had begun to answer and nobody was shown; None where it gave an error or nothing."""
    if outcome.status != 200 or verdict.prepared is None:
        return None
    return whole_prompt(exchange.services.pipeline, verdict.prepared)


def unmerged(reply: Reply, reason: str) -> Reply:
    """The reply as one that stands by itself."""
    if reply.extension is None:
        return reply
    return replace(reply, extension={**reply.extension, "route": "local", "reason": reason})


def note_left(exchange: Exchange, verdict: Verdict, merging: Merging, *, raced: bool = False) -> None:
    """Note a client that left in the middle; what the upstream's part cost is not known."""
    sent = Sent(merging.status, raced=raced, error="cut")
    exchange.record(merging.route or "upstream", verdict, merging.turn, sent)
