"""One chat completion, from its bytes to its answer: local, forwarded, merged, or Needle alone.

Any fault of ours before the first byte of an answer means that the client's bytes go on unchanged, with a reason.
After the first byte an answer stays on its leg: it goes on, or it ends as cut.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence

from needle_policies import Action
from needle_policies.limits import Limits
from needle_router.errors import BadRequest, EngineUnavailable
from needle_router.forward.inner import replay
from needle_router.observe import Header
from needle_router.pipeline import Pipeline, Verdict
from needle_router.preparing import Prepared
from needle_router.serving.answering import answer, answer_alone, local_reply
from needle_router.serving.auditing import answer_audited, audit_of
from needle_router.serving.exchange import COMPLETIONS, PASSED, Exchange
from needle_router.serving.forwarding import forward
from needle_router.serving.incoming import ClientGone, inspectable, limits_of, mode_of, unless_gone
from needle_router.serving.merging import merge
from needle_router.serving.racing import race
from needle_router.serving.replying import answer_with_text
from needle_router.surfaces.base import Unreadable
from needle_router.turn import Turn

#: A fault of the router itself.
FAULT = Verdict(Action.FORWARD, "internal-error")
#: A router that stops begins nothing new where somebody else can answer.
STOPPING = Verdict(Action.FORWARD, "force-upstream")
#: A header that asks for less to be answered here, in words that cannot be read.
BAD_OVERRIDE = Verdict(Action.FORWARD, "bad-override")
logger = logging.getLogger("needle_router.serving.routing")


async def completions(exchange: Exchange) -> None:
    """A legacy completion: read only to see whether it names the local model."""
    exchange.surface = COMPLETIONS
    await route(exchange)


async def route(exchange: Exchange) -> None:
    """Answer a completion."""
    services = exchange.services
    mode = mode_of(exchange.headers, configured=services.config.mode)
    unread = unread_verdict(exchange.headers, mode, upstream=services.upstream)
    if unread is not None:
        return await forward(exchange, unread, None, exchange.receive)
    raw = await exchange.body()
    parsed = exchange.surface.parse(raw)
    if isinstance(parsed, Unreadable):
        if not services.upstream:
            raise unreadable_body(parsed)
        return await forward(exchange, Verdict(Action.FORWARD, parsed.reason), None, replay(raw, exchange.receive))
    if parsed.model in services.local_models or not services.upstream:
        return await answer_alone(exchange, parsed)
    if not exchange.surface.routed:
        return await forward(exchange, PASSED, parsed, replay(raw, exchange.receive))
    if services.draining:
        # Not before it is clear that anybody else could answer.
        return await forward(exchange, STOPPING, parsed, replay(raw, exchange.receive))
    await choose(exchange, parsed, mode)


def unread_verdict(headers: Sequence[Header], mode: str, *, upstream: bool) -> Verdict | None:
    """Why a request is passed on without its body being read, None where it is read; raises without an upstream."""
    if mode in ("off", "force-upstream"):
        if not upstream:
            raise EngineUnavailable("There is no upstream to pass the request to, and nothing is answered locally.")
        return Verdict(Action.FORWARD, "mode-off" if mode == "off" else mode)
    return None if inspectable(headers) else Verdict(Action.FORWARD, "encoded-body")


def unreadable_body(found: Unreadable) -> BadRequest:
    """What a client is told whose body nobody can read."""
    return BadRequest(f"The request body cannot be read: {found.detail}.", code="invalid_body")


async def choose(exchange: Exchange, turn: Turn, mode: str) -> None:
    """Plan, race or ask the engine, and do what comes of it."""
    pipeline, limits = exchange.services.pipeline, limits_of(exchange.headers)
    if limits is None:
        return await carry_out(exchange, BAD_OVERRIDE, turn)
    prepared, verdict = planned(pipeline, turn, mode, limits)
    if verdict is None and prepared is not None:
        if races(pipeline, prepared):
            return await race(exchange, prepared, turn, mode)
        verdict = await judged(exchange, prepared, mode)
    await carry_out(exchange, pipeline.settled(verdict or FAULT), turn)


def races(pipeline: Pipeline, prepared: Prepared) -> bool:
    """Whether the upstream is asked beside the engine.

    A race asks it whatever comes of it, so a spent budget that refuses what would cost stands against it.
    """
    asking = Verdict(Action.FORWARD, "race-lost", "race", prepared=prepared)
    return prepared.race is not None and pipeline.settled(asking).action is Action.FORWARD


def planned(pipeline: Pipeline, turn: Turn, mode: str, limits: Limits) -> tuple[Prepared | None, Verdict | None]:
    """The pipeline's plan; a fault of ours is a reason to forward."""
    try:
        return pipeline.plan(turn, mode, limits=limits)
    except Exception:
        logger.exception("the request is forwarded after a fault of the router")
        return None, FAULT


async def judged(exchange: Exchange, prepared: Prepared, mode: str) -> Verdict:
    """The verdict on the engine's answer; a client that left is no reason to go on."""
    try:
        verdict = await unless_gone(exchange.left, exchange.services.pipeline.judge(prepared, mode))
    except ClientGone:
        raise
    except Exception:
        logger.exception("the request is forwarded after a fault of the router")
        return FAULT
    exchange.note_engine(verdict.attempt)
    return verdict


async def carry_out(exchange: Exchange, verdict: Verdict, turn: Turn) -> None:
    """Do what was decided."""
    match verdict.action:
        case Action.ANSWER if verdict.text:
            await answer_with_text(exchange, verdict, turn)
        case Action.ANSWER:
            await answer_here(exchange, verdict, turn)
        case Action.MERGE:
            await merge(exchange, verdict, turn)
        case _:
            await forward(exchange, verdict, turn, replay(turn.raw, exchange.receive))


async def answer_here(exchange: Exchange, verdict: Verdict, turn: Turn) -> None:
    """Answer with the engine's calls; some of these answers are put to the upstream afterwards."""
    reply, audit = local_reply(exchange, verdict, turn, "local"), audit_of(exchange.services.pipeline, verdict)
    if audit is None:
        await answer(exchange, verdict, turn, reply)
    else:
        await answer_audited(exchange, verdict, turn, reply, audit)
