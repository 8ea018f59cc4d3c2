"""Needle's own endpoints, `POST /v1/needle/complete` and `/v1/needle/extract`: always Needle alone, upstream or not."""

from __future__ import annotations

from needle_router.exchange import JSON_HEADERS, Exchange
from needle_router.surfaces.needle import parse_complete, parse_extract, render_complete, render_extract
from needle_router.task import EngineReply


async def complete(exchange: Exchange) -> None:
    """The engine's envelope for a text and tools."""
    request = parse_complete(await exchange.body())
    alone, show = exchange.services.alone, exchange.services.config.server.expose == "body"
    work = alone.attempt(request.turn, system=request.system, max_new_tokens=request.max_new_tokens)
    attempt = await exchange.asked_alone(request.turn, work)
    if attempt is None:
        return
    outcome = attempt.outcome
    assert isinstance(outcome, EngineReply)
    body = render_complete(outcome.envelope, outcome, reason=exchange.alone_reason, show=show)
    await exchange.deliver(exchange.alone_verdict(attempt), request.turn, body, JSON_HEADERS)


async def extract(exchange: Exchange) -> None:
    """The object that a schema describes, found in a text."""
    request = parse_extract(await exchange.body())
    services = exchange.services
    work = services.alone.answer(
        request.turn,
        services.stamp(),
        reason=exchange.alone_reason,
        show=services.config.server.expose == "body",
        max_new_tokens=request.max_new_tokens,
    )
    answered = await exchange.asked_alone(request.turn, work)
    if answered is not None:
        verdict = exchange.alone_verdict(answered.attempt)
        await exchange.deliver(verdict, request.turn, render_extract(answered.reply), JSON_HEADERS)
