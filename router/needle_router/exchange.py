"""One chat completion, from its bytes to its answer: local, forwarded, merged, or Needle alone.

Any fault of ours before the first byte of an answer means that the client's bytes go on unchanged, with a reason.
After the first byte an answer stays on its leg: it goes on, or it ends as cut.
"""

from __future__ import annotations

import logging
from collections.abc import Coroutine, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar

import anyio
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from needle_policies import Action
from needle_router.alone import count_usage
from needle_router.compare import compare
from needle_router.errors import (
    BadRequest,
    BodyTooLarge,
    BudgetExceeded,
    EngineUnavailable,
    RouterError,
    UpstreamBroken,
)
from needle_router.forward.answer import send_error
from needle_router.forward.inner import hung_up, replay
from needle_router.merging import merged_answer
from needle_router.observe import Header, ObservedSend, header_value, without_needle
from needle_router.pipeline import Attempt, Verdict
from needle_router.records import DecisionRecord, content_of
from needle_router.reply import calls_reply, extension, text_reply
from needle_router.services import Services
from needle_router.surfaces import chat, chat_answers, completions
from needle_router.surfaces.base import Surface, Unreadable
from needle_router.surfaces.chat_answers import arguments_text
from needle_router.surfaces.chat_read import answered_calls
from needle_router.task import EngineReply
from needle_router.turn import Reply, Turn, Usage

logger = logging.getLogger("needle_router.exchange")
T = TypeVar("T")
MODES = ("off", "shadow", "force-upstream")
#: What `x-needle-mode` may ask for; it can only tighten what the configuration says.
STREAM_HEADERS: tuple[Header, ...] = (
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
)
JSON_HEADERS: tuple[Header, ...] = ((b"content-type", b"application/json"),)
CHAT = Surface(chat.parse, chat_answers.render, chat_answers.chunks)
COMPLETIONS = Surface(completions.parse, completions.render, completions.chunks, routed=False)
#: Of requests that are no chat completion, and so are passed on.
PASSED = Verdict(Action.FORWARD, "not-chat")


class ClientGone(Exception):
    """The client hung up; there is nobody to answer."""


@dataclass(slots=True)
class Timing:
    """When things happened, in seconds of a monotonic clock; `engine_s` and `queue_s` are spans."""

    started: float
    handed_over: float | None = None
    engine_s: float = 0.0
    queue_s: float = 0.0


@dataclass(slots=True)
class Exchange:
    """One request and everything needed to answer it once."""

    services: Services
    app: ASGIApp
    scope: Scope
    receive: Receive
    send: Send
    headers: Sequence[Header]
    surface: Surface = CHAT
    timing: Timing = field(init=False)

    def __post_init__(self) -> None:
        self.timing = Timing(self.services.clock())

    async def run(self) -> None:
        """Answer the request."""
        mode = self.mode()
        if mode in ("off", "force-upstream"):
            if not self.services.upstream:
                raise EngineUnavailable("There is no upstream to pass the request to, and nothing is answered locally.")
            return await self.forward(
                Verdict(Action.FORWARD, "mode-off" if mode == "off" else mode), None, self.receive
            )
        if not self.inspectable():
            return await self.forward(Verdict(Action.FORWARD, "encoded-body"), None, self.receive)
        raw = await self.body()
        parsed = self.surface.parse(raw)
        if isinstance(parsed, Unreadable):
            if not self.services.upstream:
                raise BadRequest(f"The request body cannot be read: {parsed.detail}.", code="invalid_body")
            return await self.forward(Verdict(Action.FORWARD, parsed.reason), None, replay(raw, self.receive))
        if parsed.model in self.services.local_models or not self.services.upstream:
            return await self.answer_alone(parsed)
        if not self.surface.routed:
            return await self.forward(PASSED, parsed, replay(raw, self.receive))
        verdict = self.services.pipeline.settled(await self.decided(parsed, mode))
        match verdict.action:
            case Action.ANSWER:
                await self.answer(verdict, parsed, self.local_reply(verdict, parsed, "local"))
            case Action.MERGE:
                await self.merge(verdict, parsed, raw)
            case _:
                await self.forward(verdict, parsed, replay(raw, self.receive))

    async def body(self) -> bytes:
        """The whole body; raises `BodyTooLarge` and `ClientGone`."""
        return await read_body(self.receive, self.headers, int(self.services.config.server.max_body_mb * 1024 * 1024))

    # ------------------------------------------------------------------ deciding

    def mode(self) -> str:
        """The configured mode, tightened by `x-needle-mode`."""
        configured = self.services.config.mode
        asked = header_value(self.headers, b"x-needle-mode").strip().lower()
        if configured == "off" or asked == "off":
            return "off"
        if asked == "force-upstream" or self.services.draining:
            return "force-upstream"
        return "shadow" if "shadow" in (configured, asked) else "on"

    def inspectable(self) -> bool:
        """Whether the body is JSON as it stands; an encoded one is never unpacked, however small it claims to be."""
        kind = header_value(self.headers, b"content-type").partition(";")[0].strip().lower()
        encoding = header_value(self.headers, b"content-encoding").strip().lower()
        return encoding in ("", "identity") and (not kind or kind.endswith("json"))

    async def decided(self, turn: Turn, mode: str) -> Verdict:
        """The pipeline's verdict; a fault of ours is a reason to forward, a client that left is none to go on."""
        try:
            prepared, verdict = self.services.pipeline.plan(turn, mode)
            if verdict is not None:
                return verdict
            verdict = await unless_gone(self.receive, self.services.pipeline.judge(prepared, mode))
        except ClientGone:
            raise
        except Exception:
            logger.exception("the request is forwarded after a fault of the router")
            return Verdict(Action.FORWARD, "internal-error")
        if verdict.attempt is not None:
            self.timing.engine_s = verdict.attempt.outcome.compute_s
            self.timing.queue_s = verdict.attempt.outcome.queue_wait_s
        return verdict

    # ----------------------------------------------------------------- answering

    def local_reply(self, verdict: Verdict, turn: Turn, route: str) -> Reply:
        """The reply that the verified calls make."""
        attempt = verdict.attempt
        assert attempt is not None
        assert attempt.findings is not None
        assert attempt.envelope is not None
        assert isinstance(attempt.outcome, EngineReply)
        services, stamp, calls = self.services, self.services.stamp(), attempt.findings.calls
        shown = extension(attempt.envelope, attempt.outcome, route=route, reason=verdict.reason, warnings=turn.warnings)
        extra = shown if services.config.server.expose == "body" else None
        usage = count_usage(services.pipeline, attempt.prepared, calls)
        reasoning = attempt.envelope.reasoning
        if verdict.reason == "extracted":
            content = arguments_text(calls[0].arguments)
            return text_reply(turn, stamp, content=content, usage=usage, reasoning=reasoning, extra=extra)
        return calls_reply(turn, calls, stamp, usage=usage, reasoning=reasoning, extra=extra)

    async def answer(self, verdict: Verdict, turn: Turn, reply: Reply) -> None:
        """Send a reply of our own."""
        if turn.stream:
            body = b"".join(self.surface.chunks(reply, include_usage=turn.include_usage))
            await self.deliver(verdict, turn, body, STREAM_HEADERS, saved=reply.usage)
        else:
            await self.deliver(verdict, turn, self.surface.render(reply), JSON_HEADERS, saved=reply.usage)

    async def deliver(
        self, verdict: Verdict, turn: Turn, body: bytes, kind: Sequence[Header], *, saved: Usage | None = None
    ) -> None:
        """Send the bytes of a local answer, and note it."""
        headers = self.own_headers(verdict, "local")
        length = (b"content-length", str(len(body)).encode())
        extra: list[Header] = [*kind, length, (b"x-request-id", self.request_id().encode()), *headers]
        await self.send({"type": "http.response.start", "status": 200, "headers": extra})
        await self.send({"type": "http.response.body", "body": body})
        self.record("local", verdict, turn, status=200, saved=saved)

    async def answer_alone(self, turn: Turn) -> None:
        """Needle alone: no upstream, or the request names the local model."""
        show = self.services.config.server.expose == "body"
        work = self.services.alone.answer(turn, self.services.stamp(), reason=self.alone_reason, show=show)
        answered = await self.asked_alone(turn, work)
        if answered is not None:
            await self.answer(self.alone_verdict(answered.attempt), turn, answered.reply)

    @property
    def alone_reason(self) -> str:
        """Why Needle answers alone."""
        return "local-model" if self.services.upstream else "no-upstream"

    async def asked_alone(self, turn: Turn, work: Coroutine[Any, Any, T]) -> T | None:
        """What `work` gives; where it raises, the client has its error and there is nothing left to answer."""
        try:
            return await unless_gone(self.receive, work)
        except RouterError as error:
            verdict = Verdict(Action.FORWARD, self.alone_reason)
            await send_error(self.send, error, headers=self.own_headers(verdict, "local"))
            self.record("local", verdict, turn, status=error.status, error=error.code)
            return None

    def alone_verdict(self, attempt: Attempt) -> Verdict:
        """The verdict of an answer of Needle alone; its engine time is noted."""
        self.timing.engine_s = attempt.outcome.compute_s
        self.timing.queue_s = attempt.outcome.queue_wait_s
        return Verdict(Action.ANSWER, self.alone_reason, prepared=attempt.prepared, attempt=attempt)

    # ---------------------------------------------------------------- forwarding

    async def forward(self, verdict: Verdict, turn: Turn | None, receive: Receive) -> None:
        """Pass the request on, unchanged, and its answer back; where the budget is spent, refuse it."""
        verdict = self.services.pipeline.settled(verdict)
        if verdict.action is Action.REFUSE:
            return await self.refuse(verdict, turn)
        self.timing.handed_over = self.services.clock()
        observed = ObservedSend(
            self.send,
            ours=lambda _: self.own_headers(verdict, "upstream"),
            request_id=self.request_id,
            read=True,
            copy=verdict.shadow,
        )
        error = "exception"
        try:
            await self.app(self.inner_scope(), receive, observed)
            error = "" if observed.complete else "cut"
        finally:
            usage = observed.reader.finish() if observed.reader else None
            status = observed.status
            if not verdict.shadow:
                self.record("upstream", verdict, turn, status=status, usage=usage, error=error)
        if verdict.shadow and turn is not None:
            await self.shadow(verdict, turn, observed, usage)

    async def refuse(self, verdict: Verdict, turn: Turn | None) -> None:
        """Tell the client that nothing goes to the upstream."""
        error = BudgetExceeded("The budget for the upstream is spent: the router's daily or monthly cap is reached.")
        await send_error(self.send, error, headers=self.own_headers(verdict, "local"))
        self.record("local", verdict, turn, status=error.status, error=error.code)

    async def shadow(self, verdict: Verdict, turn: Turn, observed: ObservedSend, usage: Usage | None) -> None:
        """Run the engine now that the client has its answer, and compare."""
        assert verdict.prepared is not None
        attempt = verdict.attempt
        comparison = ""
        try:
            if attempt is None:
                attempt = await self.services.pipeline.attempt(verdict.prepared)
            body = observed.copy
            upstream = (
                answered_calls(observed.content_type, body) if body is not None and observed.status == 200 else None
            )
            if upstream is not None and attempt.findings is not None:
                comparison = compare(attempt.findings.calls, upstream).slug
        except Exception:
            logger.exception("the shadow run failed")
        finally:
            seen = Verdict(verdict.action, verdict.reason, verdict.policy, True, verdict.prepared, attempt)
            self.record("upstream", seen, turn, status=observed.status, usage=usage, comparison=comparison)

    async def merge(self, verdict: Verdict, turn: Turn, raw: bytes) -> None:
        """Local calls and the upstream's words in one answer."""
        self.timing.handed_over = self.services.clock()
        reply = self.local_reply(verdict, turn, "merged")
        complete = verdict.attempt is not None and not verdict.attempt.evidence.failures
        outcome = await merged_answer(
            self.app,
            self.inner_scope(identity=True),
            replay(raw, self.receive),
            self.send,
            turn=turn,
            reply=reply,
            headers=lambda route: self.own_headers(verdict, route),
            request_id=self.request_id,
            local_is_complete=complete,
        )
        if outcome.route == "local":
            return await self.answer(verdict, turn, reply)
        saved = reply.usage if outcome.route == "merged" else None
        self.record(
            outcome.route, verdict, turn, status=outcome.status, usage=outcome.usage, saved=saved, error=outcome.error
        )
        if outcome.raised is not None and outcome.status == 0:
            await send_error(self.send, UpstreamBroken("The upstream gave no complete answer."))
        elif outcome.raised is not None:
            raise outcome.raised

    def inner_scope(self, *, identity: bool = False) -> Scope:
        """The scope for whoever answers: without our headers; `identity` asks for an answer that we can read."""
        headers = without_needle(self.headers)
        if identity:
            headers = [h for h in headers if h[0].lower() != b"accept-encoding"]
            headers.append((b"accept-encoding", b"identity"))
        return {**self.scope, "headers": headers}

    # ------------------------------------------------------------------ book-keeping

    def request_id(self) -> str:
        """A request id of ours; the client's own `x-client-request-id` is the upstream's business."""
        return "req_" + self.services.stamp().id.removeprefix("chatcmpl-")

    def own_headers(self, verdict: Verdict, route: str) -> list[Header]:
        """Our response headers; values come from closed sets or are numbers, never a tool's name."""
        if self.services.config.server.expose == "none":
            return []
        found: list[Header] = [
            (b"x-needle-route", route.encode()),
            (b"x-needle-reason", verdict.reason.encode()),
            (b"x-needle-overhead-ms", b"%.3f" % (self.overhead_s() * 1000)),
        ]
        confidence = verdict.attempt.evidence.confidence if verdict.attempt is not None else None
        if confidence is not None:
            found.append((b"x-needle-confidence", b"%.4f" % confidence))
        return found

    def overhead_s(self) -> float:
        """Seconds the router added: up to handing over, or all of a local answer but the engine's own time."""
        if self.timing.handed_over is not None:
            return self.timing.handed_over - self.timing.started
        return max(0.0, self.services.clock() - self.timing.started - self.timing.engine_s - self.timing.queue_s)

    def record(
        self,
        route: str,
        verdict: Verdict,
        turn: Turn | None,
        *,
        status: int,
        usage: Usage | None = None,
        saved: Usage | None = None,
        error: str = "",
        comparison: str = "",
    ) -> None:
        """Note what happened."""
        services, attempt, prepared = self.services, verdict.attempt, verdict.prepared
        model = turn.model if turn is not None else ""
        evidence = attempt.evidence if attempt is not None else None
        services.record(
            DecisionRecord(
                time_s=services.now(),
                route=route,
                reason=verdict.reason,
                policy=verdict.policy,
                mode=services.config.mode,
                model=model,
                stream=turn.stream if turn is not None else False,
                status=status,
                tools_offered=prepared.features.tool_names if prepared is not None else (),
                tools_called=evidence.calls if evidence is not None else (),
                confidence=evidence.confidence if evidence is not None else None,
                failures=evidence.failures if evidence is not None else (),
                uncovered=evidence.uncovered if evidence is not None else False,
                fingerprint=services.pipeline.fingerprint(prepared) if attempt is not None and prepared else "",
                overhead_s=self.overhead_s(),
                engine_s=attempt.outcome.compute_s if attempt is not None else 0.0,
                queue_s=attempt.outcome.queue_wait_s if attempt is not None else 0.0,
                total_s=services.clock() - self.timing.started,
                usage=usage,
                cost_usd=services.prices.cost_usd(model, usage) if usage is not None else None,
                saved=saved if verdict.reason not in ("local-model", "no-upstream") else None,
                saved_usd=services.prices.cost_usd(model, saved) if saved is not None else None,
                comparison=comparison,
                error=error,
                reinitialized=isinstance(getattr(attempt, "outcome", None), EngineReply),
                engine_ran=attempt is not None,
                content=self.content(turn, attempt),
            )
        )

    def content(self, turn: Turn | None, attempt: Attempt | None) -> str:
        """What was said and called, only where the operator wants it kept."""
        if turn is None or not self.services.config.ledger.content:
            return ""
        return content_of(turn.user_text, attempt.findings.calls if attempt and attempt.findings else ())


async def read_body(receive: Receive, headers: Sequence[Header], limit: int) -> bytes:
    """The whole body, counted while it is read; raises `BodyTooLarge` and `ClientGone`."""
    declared = header_value(headers, b"content-length")
    if declared.isdigit() and int(declared) > limit:
        raise BodyTooLarge(f"The body has {declared} bytes, the limit is {limit} (server.max_body_mb).")
    pieces, size = [], 0
    while True:
        message: Message = await receive()
        if message["type"] == "http.disconnect":
            raise ClientGone
        piece = message.get("body", b"")
        size += len(piece)
        if size > limit:
            raise BodyTooLarge(f"The body has more than {limit} bytes (server.max_body_mb).")
        pieces.append(piece)
        if not message.get("more_body", False):
            return pieces[0] if len(pieces) == 1 else b"".join(pieces)


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, T]) -> T:
    """The result of `work`, cancelled with `ClientGone` as soon as the client hangs up."""
    gone = False
    results: list[T] = []
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            nonlocal gone
            if await hung_up(receive):
                gone = True
                group.cancel_scope.cancel()

        group.start_soon(watch)
        try:
            results.append(await work)
        except RouterError as error:
            # Kept out of the task group, which would wrap it in an exception group.
            failed: RouterError | None = error
        else:
            failed = None
        group.cancel_scope.cancel()
    if gone or (not results and failed is None):
        raise ClientGone
    if failed is not None:
        raise failed
    return results[0]
