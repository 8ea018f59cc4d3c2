"""Needle's own endpoints, `POST /v1/needle/complete` and `/v1/needle/extract`: always Needle alone, upstream or not."""

from __future__ import annotations

from needle_router.serving.answering import JSON_HEADERS, alone_reason, alone_verdict, asked_alone, deliver
from needle_router.serving.exchange import Exchange
from needle_router.surfaces.needle import parse_complete, parse_extract, render_complete, render_extract
from needle_router.task import EngineReply


async def complete(exchange: Exchange) -> None:
    """The engine's envelope for a text and tools."""
    request = parse_complete(await exchange.body())
    alone, show = exchange.services.alone, exchange.services.config.server.expose == "body"
    work = alone.attempt(request.turn, system=request.system, max_new_tokens=request.max_new_tokens)
    attempt = await asked_alone(exchange, request.turn, work)
    if attempt is None:
        return
    outcome = attempt.outcome
    assert isinstance(outcome, EngineReply)
    body = render_complete(outcome.envelope, outcome, reason=alone_reason(exchange), show=show)
    await deliver(exchange, alone_verdict(exchange, attempt), request.turn, body, JSON_HEADERS)


async def extract(exchange: Exchange) -> None:
    """The object that a schema describes, found in a text."""
    request = parse_extract(await exchange.body())
    services = exchange.services
    work = services.alone.answer(
        request.turn,
        services.stamp(),
        reason=alone_reason(exchange),
        show=services.config.server.expose == "body",
        max_new_tokens=request.max_new_tokens,
    )
    answered = await asked_alone(exchange, request.turn, work)
    if answered is not None:
        verdict = alone_verdict(exchange, answered.attempt)
        await deliver(exchange, verdict, request.turn, render_extract(answered.reply), JSON_HEADERS)
