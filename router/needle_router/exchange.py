"""One request under way: what came, who listens, when things happened, and what is noted of it.

How it is answered is decided elsewhere (`routing`); every way of answering works on one of these and ends in `record`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.types import ASGIApp, Receive, Scope, Send

from needle_policies import Action
from needle_router.incoming import read_body
from needle_router.observe import Header, without_needle
from needle_router.pipeline import Attempt, Verdict
from needle_router.records import DecisionRecord, content_of
from needle_router.services import Services
from needle_router.surfaces import chat, chat_answers, completions
from needle_router.surfaces.base import Surface
from needle_router.task import EngineReply
from needle_router.turn import Turn, Usage

CHAT = Surface(chat.parse, chat_answers.render, chat_answers.chunks)
COMPLETIONS = Surface(completions.parse, completions.render, completions.chunks, routed=False)
#: Of requests that are no chat completion, and so are passed on.
PASSED = Verdict(Action.FORWARD, "not-chat")


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

    async def body(self) -> bytes:
        """The whole body; raises `BodyTooLarge` and `ClientGone`."""
        return await read_body(self.receive, self.headers, int(self.services.config.server.max_body_mb * 1024 * 1024))

    @property
    def adds_usage(self) -> bool:
        """Whether the upstream is asked for the usage of streams whose client did not ask."""
        return self.services.config.upstream.include_usage and self.surface is CHAT

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
