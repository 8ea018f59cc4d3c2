"""What is noted of a request: when things happened, what became of it, and the record that both make."""

from __future__ import annotations

from dataclasses import dataclass

from needle_router.pipeline import NOTHING_SEEN, Attempt, Verdict
from needle_router.records import MAX_NAMES, DecisionRecord, content_of, kept_name
from needle_router.services import Services
from needle_router.task import EngineOutcome, EngineReply
from needle_router.turn import Turn, Usage

#: Where nobody else could have been asked, so that nothing was saved.
ALONE_REASONS = ("local-model", "no-upstream")


@dataclass(slots=True)
class Timing:
    """When things happened, in seconds of a monotonic clock; `engine_s` and `queue_s` are spans."""

    started: float
    handed_over: float | None = None
    engine_s: float = 0.0
    queue_s: float = 0.0

    def overhead_s(self, now: float) -> float:
        """Seconds the router added: up to handing over, or all of a local answer but the engine's own time."""
        if self.handed_over is not None:
            return self.handed_over - self.started
        return max(0.0, now - self.started - self.engine_s - self.queue_s)


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


def described(
    services: Services, timing: Timing, route: str, verdict: Verdict, *, turn: Turn | None, sent: Sent
) -> DecisionRecord:
    """What happened, as it stands now."""
    attempt, prepared = verdict.attempt, verdict.prepared
    model = kept_name(turn.model) if turn is not None else ""
    offered = prepared.features.tool_names[:MAX_NAMES] if prepared is not None else ()
    evidence = attempt.evidence if attempt is not None else NOTHING_SEEN
    saved = sent.saved if verdict.reason not in ALONE_REASONS else None
    return DecisionRecord(
        time_s=services.now(),
        route=route,
        reason=verdict.reason,
        policy=verdict.policy,
        mode=services.config.mode,
        # Passed on unread: whether it cost anything was not looked at.
        chat=turn is not None or verdict.reason != "not-chat",
        model=model,
        stream=turn.stream if turn is not None else False,
        status=sent.status,
        tools_offered=tuple(map(kept_name, offered)),
        tools_called=evidence.calls,
        confidence=evidence.confidence,
        failures=evidence.failures,
        uncovered=evidence.uncovered,
        fingerprint=services.pipeline.fingerprint(prepared) if attempt is not None and prepared else "",
        risks=prepared.features.risks_of(evidence.calls) if prepared is not None else (),
        overhead_s=timing.overhead_s(services.clock()),
        engine_s=attempt.outcome.compute_s if attempt is not None else 0.0,
        queue_s=attempt.outcome.queue_wait_s if attempt is not None else 0.0,
        total_s=services.clock() - timing.started,
        usage=sent.usage,
        cost_usd=services.cost_usd(model, sent.usage),
        saved=saved,
        saved_usd=services.cost_usd(model, saved),
        raced=sent.raced,
        wasted=sent.wasted,
        wasted_usd=services.cost_usd(model, sent.wasted),
        comparison=sent.comparison,
        answerable=_answerable(services, route, verdict),
        error=sent.error,
        reinitialized=attempt is not None and _loaded_anew(attempt.outcome),
        engine_ran=attempt is not None,
        content=_content(services, turn, attempt),
    )


def _answerable(services: Services, route: str, verdict: Verdict) -> bool:
    """Whether the calls were answered here, or would have been had they not only been watched."""
    if not verdict.shadow or verdict.attempt is None or verdict.prepared is None:
        return route != "upstream"
    return services.pipeline.answerable(verdict.prepared, verdict.attempt.evidence)


def _content(services: Services, turn: Turn | None, attempt: Attempt | None) -> str:
    """What was said and called, only where the operator wants it kept."""
    if turn is None or not services.config.ledger.content:
        return ""
    return content_of(turn.user_text, attempt.findings.calls if attempt and attempt.findings else ())


def _loaded_anew(outcome: EngineOutcome) -> bool:
    return isinstance(outcome, EngineReply) and outcome.reinitialized
