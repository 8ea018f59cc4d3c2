"""The upstream answers: the request goes on unchanged, and so does what comes back.

The one exception is `upstream.include_usage`, which asks for the usage of a stream and hides it (`usage_option`). In
shadow the engine runs once the client has its answer, and the two are compared.
"""

from __future__ import annotations

import logging
from dataclasses import replace

from starlette.types import Receive

from needle_policies import Action
from needle_router.comparing import comparison_of
from needle_router.errors import BudgetExceeded
from needle_router.forward.answer import send_error
from needle_router.forward.inner import replay
from needle_router.observe import ObservedSend
from needle_router.pipeline import Verdict
from needle_router.serving.accounts import Sent
from needle_router.serving.exchange import Exchange
from needle_router.turn import Turn

logger = logging.getLogger("needle_router.serving.forwarding")


async def forward(exchange: Exchange, verdict: Verdict, turn: Turn | None, receive: Receive) -> None:
    """Pass the request on, unchanged, and its answer back; where the budget is spent, refuse it."""
    verdict = exchange.services.pipeline.settled(verdict)
    if verdict.action is Action.REFUSE:
        return await refuse(exchange, verdict, turn)
    exchange.timing.handed_over = exchange.services.clock()
    if turn is not None:
        out = exchange.outgoing(turn)
        scope, receive, hide_usage = out.scope, replay(out.body, exchange.receive), out.adds_usage
    else:
        scope, hide_usage = exchange.inner_scope(), False
    observed = observed_send(exchange, verdict, hide_usage=hide_usage)
    error = "exception"
    try:
        await exchange.app(scope, receive, observed)
        error = "" if observed.complete else "cut"
    finally:
        sent = Sent(observed.status, observed.reader.finish() if observed.reader else None, error=error)
        if error or not verdict.shadow:
            # Of an answer that is not whole there is nothing to compare.
            exchange.record("upstream", verdict, turn, sent)
    if verdict.shadow and turn is not None and not error:
        await shadow(exchange, verdict, turn, observed, sent)


def observed_send(exchange: Exchange, verdict: Verdict, *, hide_usage: bool) -> ObservedSend:
    """The way back to the client, read along."""
    return ObservedSend(
        exchange.send,
        ours=lambda _: exchange.own_headers(verdict, "upstream"),
        request_id=exchange.request_id,
        read=True,
        copy=verdict.shadow,
        hide_usage=hide_usage,
    )


async def refuse(exchange: Exchange, verdict: Verdict, turn: Turn | None) -> None:
    """Tell the client that nothing goes to the upstream."""
    error = BudgetExceeded("The budget for the upstream is spent: the router's daily or monthly cap is reached.")
    await send_error(exchange.send, error, headers=exchange.own_headers(verdict, "local"))
    exchange.record("local", verdict, turn, Sent(error.status, error=error.code))


async def shadow(exchange: Exchange, verdict: Verdict, turn: Turn, observed: ObservedSend, sent: Sent) -> None:
    """Run the engine, unless it ran already, now that the client has its answer `sent`, and compare."""
    assert verdict.prepared is not None
    attempt = verdict.attempt
    comparison = ""
    try:
        if attempt is None:
            attempt = await exchange.services.pipeline.attempt(verdict.prepared)
        body = observed.copy
        if body is not None and observed.status == 200:
            comparison = comparison_of(attempt, observed.content_type, body)
    except Exception:
        logger.exception("the shadow run failed")
    finally:
        seen = Verdict(verdict.action, verdict.reason, verdict.policy, True, verdict.prepared, attempt)
        exchange.record("upstream", seen, turn, replace(sent, comparison=comparison))
