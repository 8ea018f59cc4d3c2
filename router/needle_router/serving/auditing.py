"""Local answers put to the upstream afterwards: the client has its answer, and gets nothing of this.

An audit runs in the request's own task, after the last byte of the answer: so the client's key is held as long as the
request and no longer, and a server that stops waits for audits as it does for answers. What cannot be run is left out
and counted, never put off.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, replace

from needle_policies import Action
from needle_policies.audit import Audit
from needle_router.comparing import comparison_of
from needle_router.forward.hangup import unwatched
from needle_router.forward.inner import InnerResponse, never, open_inner, replay
from needle_router.observe import header_value
from needle_router.pipeline import Attempt, Pipeline, Verdict
from needle_router.records import DecisionRecord
from needle_router.serving.accounts import Sent
from needle_router.serving.answering import send_reply
from needle_router.serving.exchange import Exchange
from needle_router.turn import Reply, Turn, Usage
from needle_router.usage import UsageReader

logger = logging.getLogger("needle_router.serving.auditing")
#: An answer of more bytes is not compared.
MAX_BODY_BYTES = 4 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class Audited:
    """What came of an audit: one of `records.AUDITS`, the comparison where there is one, and what the upstream read."""

    outcome: str
    comparison: str = ""
    usage: Usage | None = None


DROPPED = Audited("dropped")


def audit_of(pipeline: Pipeline, verdict: Verdict) -> Audit | None:
    """The audit that draws this local answer, if one does."""
    if not pipeline.policies.audits or verdict.action is not Action.ANSWER:
        return None
    if verdict.prepared is None or verdict.attempt is None:
        return None
    situation = pipeline.situation(pipeline.config.mode)
    return pipeline.policies.audit_of(verdict.prepared.features, situation, verdict.attempt.evidence)


async def answer_audited(exchange: Exchange, verdict: Verdict, turn: Turn, reply: Reply, audit: Audit) -> None:
    """Send a reply of our own, put the request to the upstream, and note both in one record."""
    await send_reply(exchange, verdict, turn, reply)
    record = exchange.described("local", verdict, turn, Sent(200, saved=reply.usage.without_reasoning))
    # What a server that stops leaves behind.
    found = DROPPED
    try:
        found = await _audited(exchange, verdict, turn, audit)
    finally:
        exchange.services.record(_with(exchange, record, found))


def _with(exchange: Exchange, record: DecisionRecord, found: Audited) -> DecisionRecord:
    return replace(
        record,
        audit=found.outcome,
        comparison=found.comparison,
        audit_usage=found.usage,
        audit_usd=exchange.services.cost_usd(record.model, found.usage),
    )


async def _audited(exchange: Exchange, verdict: Verdict, turn: Turn, audit: Audit) -> Audited:
    services = exchange.services
    if services.draining or services.audits >= audit.concurrency:
        return DROPPED
    assert verdict.attempt is not None
    services.audits += 1
    try:
        async with asyncio.timeout(audit.deadline_s):
            return await _asked(exchange, turn, verdict.attempt)
    except TimeoutError:
        return Audited("timeout")
    except Exception as error:
        # Not its text: an app of somebody else's may put the request into it.
        logger.warning("an audit failed: %s", type(error).__name__)
        return Audited("failed")
    finally:
        services.audits -= 1


async def _asked(exchange: Exchange, turn: Turn, attempt: Attempt) -> Audited:
    out = exchange.outgoing(turn, readable=True)
    async with open_inner(exchange.app, unwatched(out.scope), replay(out.body, never)) as response:
        if response.status != 200:
            return Audited("failed")
        try:
            return await _compared(response, attempt)
        except Exception as error:
            # It had begun, so it is billed: what it cost is unknown, not nothing.
            logger.warning("an audit's answer broke off: %s", type(error).__name__)
            return Audited("unread")


async def _compared(response: InnerResponse, attempt: Attempt) -> Audited:
    kind = header_value(response.headers, b"content-type")
    encoding = header_value(response.headers, b"content-encoding")
    reader, pieces, size = UsageReader(kind, encoding), list[bytes](), 0
    async for piece in response.body:
        reader.feed(piece)
        size += len(piece)
        if size <= MAX_BODY_BYTES:
            pieces.append(piece)
    readable = size <= MAX_BODY_BYTES and encoding.lower() in ("", "identity")
    comparison = comparison_of(attempt, kind, b"".join(pieces)) if readable else ""
    return Audited("compared" if comparison else "unread", comparison, reader.finish())
