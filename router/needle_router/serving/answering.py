"""Answers of our own: the calls that passed every check, or whatever Needle says where it is alone."""

from __future__ import annotations

from collections.abc import Coroutine, Sequence
from typing import Any, TypeVar

from needle_policies import Action
from needle_router.counting import count_usage
from needle_router.errors import RouterError
from needle_router.forward.answer import send_error
from needle_router.observe import Header
from needle_router.pipeline import Attempt, Verdict
from needle_router.reply import calls_reply, extension, text_reply
from needle_router.serving.accounts import Sent
from needle_router.serving.exchange import Exchange
from needle_router.serving.incoming import unless_gone
from needle_router.surfaces.chat_answers import arguments_text
from needle_router.task import EngineReply
from needle_router.turn import Reply, Turn

T = TypeVar("T")
STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
JSON_HEADERS: tuple[Header, ...] = ((b"content-type", b"application/json"),)


def local_reply(exchange: Exchange, verdict: Verdict, turn: Turn, route: str) -> Reply:
    """The reply that the verified calls make."""
    attempt = verdict.attempt
    assert attempt is not None
    assert attempt.findings is not None
    assert attempt.envelope is not None
    assert isinstance(attempt.outcome, EngineReply)
    services, stamp, calls = exchange.services, exchange.services.stamp(), attempt.findings.calls
    why = {"reason": verdict.reason, "policy": verdict.policy}
    shown = extension(attempt.envelope, attempt.outcome, route=route, warnings=turn.warnings, **why)
    extra = shown if services.config.server.expose == "body" else None
    usage = count_usage(services.pipeline, attempt)
    reasoning = attempt.envelope.reasoning
    if verdict.reason == "extracted":
        content = arguments_text(calls[0].arguments)
        return text_reply(turn, stamp, content=content, usage=usage, reasoning=reasoning, extra=extra)
    return calls_reply(turn, calls, stamp, usage=usage, reasoning=reasoning, extra=extra)


async def answer(exchange: Exchange, verdict: Verdict, turn: Turn, reply: Reply) -> None:
    """Send a reply of our own, and note it."""
    await send_reply(exchange, verdict, turn, reply)
    exchange.record("local", verdict, turn, Sent(200, saved=reply.usage.without_reasoning))


async def send_reply(exchange: Exchange, verdict: Verdict, turn: Turn, reply: Reply) -> None:
    """Send a reply of our own; what is noted of it is the caller's business."""
    if turn.stream:
        body = b"".join(exchange.surface.chunks(reply, include_usage=turn.include_usage))
        await _send(exchange, verdict, body, STREAM_HEADERS)
    else:
        await _send(exchange, verdict, exchange.surface.render(reply), JSON_HEADERS)


async def deliver(exchange: Exchange, verdict: Verdict, turn: Turn, body: bytes, kind: Sequence[Header]) -> None:
    """Send the bytes of a local answer that replaces no other, and note it."""
    await _send(exchange, verdict, body, kind)
    exchange.record("local", verdict, turn, Sent(200))


async def _send(exchange: Exchange, verdict: Verdict, body: bytes, kind: Sequence[Header]) -> None:
    headers = exchange.own_headers(verdict, "local")
    length = (b"content-length", str(len(body)).encode())
    extra: list[Header] = [*kind, length, (b"x-request-id", exchange.request_id().encode()), *headers]
    await exchange.send({"type": "http.response.start", "status": 200, "headers": extra})
    await exchange.send({"type": "http.response.body", "body": body})


async def answer_alone(exchange: Exchange, turn: Turn) -> None:
    """Needle alone: no upstream, or the request names the local model."""
    services, reason = exchange.services, alone_reason(exchange)
    show = services.config.server.expose == "body"
    work = services.alone.answer(turn, services.stamp(), reason=reason, show=show)
    answered = await asked_alone(exchange, turn, work)
    if answered is not None:
        await answer(exchange, alone_verdict(exchange, answered.attempt), turn, answered.reply)


def alone_reason(exchange: Exchange) -> str:
    """Why Needle answers alone."""
    return "local-model" if exchange.services.upstream else "no-upstream"


async def asked_alone(exchange: Exchange, turn: Turn, work: Coroutine[Any, Any, T]) -> T | None:
    """What `work` gives; where it raises, the client has its error and there is nothing left to answer."""
    try:
        return await unless_gone(exchange.left, work)
    except RouterError as error:
        verdict = Verdict(Action.FORWARD, alone_reason(exchange))
        await send_error(exchange.send, error, headers=exchange.own_headers(verdict, "local"))
        exchange.record("local", verdict, turn, Sent(error.status, error=error.code))
        return None


def alone_verdict(exchange: Exchange, attempt: Attempt) -> Verdict:
    """The verdict of an answer of Needle alone; its engine time is noted."""
    exchange.note_engine(attempt)
    return Verdict(Action.ANSWER, alone_reason(exchange), prepared=attempt.prepared, attempt=attempt)
