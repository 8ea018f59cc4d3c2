"""Answers that are a sentence the operator wrote: no engine, no upstream."""

from __future__ import annotations

from needle_policies import Action
from needle_router.counting import whole_prompt
from needle_router.pipeline import Verdict
from needle_router.reply import template_extension, text_reply
from needle_router.serving.answering import answer
from needle_router.serving.exchange import Exchange
from needle_router.turn import Turn


async def answer_with_text(exchange: Exchange, verdict: Verdict, turn: Turn) -> None:
    """Send the verdict's own text as the answer."""
    services = exchange.services
    assert verdict.action is Action.ANSWER
    assert verdict.prepared is not None
    shown = template_extension(route="local", reason=verdict.reason, warnings=turn.warnings, policy=verdict.policy)
    reply = text_reply(
        turn,
        services.stamp(),
        content=verdict.text,
        # What the upstream would have read and written, so what was saved too.
        usage=whole_prompt(services.pipeline, verdict.prepared, verdict.text),
        reasoning=None,
        extra=shown if services.config.server.expose == "body" else None,
    )
    await answer(exchange, verdict, turn, reply)
