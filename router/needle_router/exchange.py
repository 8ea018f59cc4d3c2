"""One request under way: what came, who listens, when things happened, and what is noted of it.

How it is answered is decided elsewhere (`routing`); every way of answering works on one of these and ends in `record`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from needle_policies import Action
from needle_router.forward.inner import hung_up
from needle_router.incoming import read_body
from needle_router.observe import Header, without_needle
from needle_router.pipeline import NOTHING_SEEN, Attempt, Verdict
from needle_router.records import DecisionRecord, content_of
from needle_router.services import Services
from needle_router.surfaces import chat, chat_answers, completions
from needle_router.surfaces.base import Surface
from needle_router.task import EngineOutcome, EngineReply
from needle_router.turn import Turn, Usage
from needle_router.usage_option import with_usage

CHAT = Surface(chat.parse, chat_answers.render, chat_answers.chunks)
COMPLETIONS = Surface(completions.parse, completions.render, completions.chunks, routed=False)
#: Where nobody else could have been asked, so that nothing was saved.
ALONE_REASONS = ("local-model", "no-upstream")
#: Kinds of policies; one of a third party that is named otherwise goes into no header.
KIND = re.compile(r"[A-Za-z0-9_.-]{1,64}")
#: Of requests that are no chat completion, and so are passed on.
PASSED = Verdict(Action.FORWARD, "not-chat")


@dataclass(slots=True)
class Timing:
    """When things happened, in seconds of a monotonic clock; `engine_s` and `queue_s` are spans."""

    started: float
    handed_over: float | None = None
    engine_s: float = 0.0
    queue_s: float = 0.0


@dataclass(frozen=True, slots=True)
class Sent:
    """What became of a request: the status that the client saw, tokens by who read them, and what went wrong.

    `status` is 0 where no answer began. `error` is "" where the answer is whole, else "cut" or an error's code.
    """

    status: int
    usage: Usage | None = None
    saved: Usage | None = None
    raced: bool = False
    wasted: Usage | None = None
    error: str = ""
    comparison: str = ""


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A request as the upstream gets it. `adds_usage`: it is asked for a stream's usage, which the client is not."""

    scope: Scope
    body: bytes
    adds_usage: bool = False


class NotedSend:
    """The client's `send`; `complete` once the client was sent the whole of its answer."""

    __slots__ = ("_send", "complete")

    def __init__(self, send: Send) -> None:
        self._send = send
        self.complete = False

    async def __call__(self, message: Message) -> None:
        """Pass one message on."""
        # Before it is sent, because a client that has read the end may hang up while `send` still waits.
        self.complete = message["type"] == "http.response.body" and not message.get("more_body", False)
        await self._send(message)


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
    #: `send`, as an object of its own: a method kept here would make a cycle, which only the collector gets rid of.
    _noted: NotedSend = field(init=False)

    def __post_init__(self) -> None:
        self.timing = Timing(self.services.clock())
        self.send = self._noted = NotedSend(self.send)

    @property
    def complete(self) -> bool:
        """The client was sent the whole of its answer."""
        return self._noted.complete

    async def left(self) -> bool:
        """Wait until the client hangs up; false where its answer was whole, or where it cannot be known."""
        return await hung_up(self.receive) and not self.complete

    async def body(self) -> bytes:
        """The whole body; raises `BodyTooLarge` and `ClientGone`."""
        return await read_body(self.receive, self.headers, int(self.services.config.server.max_body_mb * 1024 * 1024))

    def outgoing(self, turn: Turn, *, readable: bool = False) -> Outgoing:
        """What the upstream is sent for a request that was read; `readable` asks for an answer that is not encoded."""
        wanted = self.services.config.upstream.include_usage and self.surface is CHAT
        if not (wanted and turn.stream and not turn.include_usage):
            return Outgoing(self.inner_scope(identity=readable), turn.raw)
        body = with_usage(turn.raw)
        return Outgoing(self.inner_scope(identity=True, length=len(body)), body, adds_usage=True)

    def inner_scope(self, *, identity: bool = False, length: int | None = None) -> Scope:
        """The scope for whoever answers: without our headers; `identity` asks for an answer that we can read, and
        `length` is that of the body where it is not the client's.
        """
        headers = without_needle(self.headers)
        if length is not None:
            headers = [(n, b"%d" % length if n.lower() == b"content-length" else v) for n, v in headers]
        if identity:
            headers = [h for h in headers if h[0].lower() != b"accept-encoding"]
            headers.append((b"accept-encoding", b"identity"))
        return {**self.scope, "headers": headers}

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
        if KIND.fullmatch(verdict.policy):
            found.append((b"x-needle-policy", verdict.policy.encode()))
        confidence = verdict.attempt.evidence.confidence if verdict.attempt is not None else None
        if confidence is not None:
            found.append((b"x-needle-confidence", b"%.4f" % confidence))
        return found

    def overhead_s(self) -> float:
        """Seconds the router added: up to handing over, or all of a local answer but the engine's own time."""
        if self.timing.handed_over is not None:
            return self.timing.handed_over - self.timing.started
        return max(0.0, self.services.clock() - self.timing.started - self.timing.engine_s - self.timing.queue_s)

    def record(self, route: str, verdict: Verdict, turn: Turn | None, sent: Sent) -> None:
        """Note what happened."""
        self.services.record(self.described(route, verdict, turn, sent))

    def described(self, route: str, verdict: Verdict, turn: Turn | None, sent: Sent) -> DecisionRecord:
        """What happened, as it stands now."""
        services, attempt, prepared = self.services, verdict.attempt, verdict.prepared
        model = turn.model if turn is not None else ""
        evidence = attempt.evidence if attempt is not None else NOTHING_SEEN
        saved = sent.saved if verdict.reason not in ALONE_REASONS else None
        return DecisionRecord(
            time_s=services.now(),
            route=route,
            reason=verdict.reason,
            policy=verdict.policy,
            mode=services.config.mode,
            model=model,
            stream=turn.stream if turn is not None else False,
            status=sent.status,
            tools_offered=prepared.features.tool_names if prepared is not None else (),
            tools_called=evidence.calls,
            confidence=evidence.confidence,
            failures=evidence.failures,
            uncovered=evidence.uncovered,
            fingerprint=services.pipeline.fingerprint(prepared) if attempt is not None and prepared else "",
            risks=prepared.features.risks_of(evidence.calls) if prepared is not None else (),
            overhead_s=self.overhead_s(),
            engine_s=attempt.outcome.compute_s if attempt is not None else 0.0,
            queue_s=attempt.outcome.queue_wait_s if attempt is not None else 0.0,
            total_s=services.clock() - self.timing.started,
            usage=sent.usage,
            cost_usd=services.cost_usd(model, sent.usage),
            saved=saved,
            saved_usd=services.cost_usd(model, saved),
            raced=sent.raced,
            wasted=sent.wasted,
            wasted_usd=services.cost_usd(model, sent.wasted),
            comparison=sent.comparison,
            answerable=self.answerable(route, verdict),
            error=sent.error,
            reinitialized=attempt is not None and _loaded_anew(attempt.outcome),
            engine_ran=attempt is not None,
            content=self.content(turn, attempt),
        )

    def answerable(self, route: str, verdict: Verdict) -> bool:
        """Whether the calls were answered here, or would have been had they not only been watched."""
        if not verdict.shadow or verdict.attempt is None or verdict.prepared is None:
            return route != "upstream"
        return self.services.pipeline.answerable(verdict.prepared, verdict.attempt.evidence)

    def note_engine(self, attempt: Attempt | None) -> None:
        """The engine's own time is none that the router added."""
        if attempt is not None:
            self.timing.engine_s = attempt.outcome.compute_s
            self.timing.queue_s = attempt.outcome.queue_wait_s

    def content(self, turn: Turn | None, attempt: Attempt | None) -> str:
        """What was said and called, only where the operator wants it kept."""
        if turn is None or not self.services.config.ledger.content:
            return ""
        return content_of(turn.user_text, attempt.findings.calls if attempt and attempt.findings else ())


def _loaded_anew(outcome: EngineOutcome) -> bool:
    return isinstance(outcome, EngineReply) and outcome.reinitialized
