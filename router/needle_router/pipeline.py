"""The conductor: one request through plan, engine, verifiers and judgement; ports only, no HTTP.

Nothing here answers or forwards. `Pipeline.decide` says what should happen and keeps what led to it, so that the same
verdict serves an answer, a shadow comparison, a log record and `needle-router explain`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from needle_policies import NEEDS_ENGINE, Action, Decision, Evidence, Features, Plan, Planned, Situation
from needle_policies.cascade import Cascade
from needle_policies.limits import NO_LIMITS, Limits
from needle_router.acceptance import Acceptance
from needle_router.config.schema import Config
from needle_router.engine.base import Engine
from needle_router.envelopes import read_envelope
from needle_router.evidence import Findings, weigh
from needle_router.history import differs
from needle_router.preparing import TOOL_RESULT, Prepared, Preparer, World
from needle_router.task import EngineFailure, EngineOutcome, Envelope
from needle_router.tokens import TokenCounter
from needle_router.turn import Turn

NOTHING_SEEN = Evidence()
NO_FEATURES = Features()


@dataclass(frozen=True, slots=True)
class Attempt:
    """What the engine did with a request; `envelope` and `findings` are None after an engine failure."""

    prepared: Prepared
    outcome: EngineOutcome
    envelope: Envelope | None = None
    findings: Findings | None = None
    evidence: Evidence = NOTHING_SEEN


@dataclass(frozen=True, slots=True)
class Verdict:
    """What should happen to a request, why, which policy said so, and the attempt behind it if the engine ran."""

    action: Action
    reason: str
    policy: str = ""
    shadow: bool = False
    prepared: Prepared | None = None
    attempt: Attempt | None = None
    #: The whole answer, where neither engine nor upstream makes it.
    text: str = ""


class Pipeline:
    """Decides requests. Safe to use from many tasks of one event loop: it holds no per-request state."""

    def __init__(
        self, *, config: Config, engine: Engine, policies: Cascade, tokens: TokenCounter, world: World
    ) -> None:
        self.config = config
        self.engine = engine
        self.policies = policies
        self.tokens = tokens
        self.acceptance = Acceptance()
        bound = any(getattr(policy, "wants_fingerprint", False) for policy in policies.every())
        self._preparer = preparer = Preparer(config, engine, tokens, world, bound=bound)
        self.prepare, self.count, self.fingerprint = preparer.prepare, preparer.count, preparer.fingerprint

    @property
    def world(self) -> World:
        """The clock and the counters; another one takes effect at once."""
        return self._preparer.world

    @world.setter
    def world(self, world: World) -> None:
        self._preparer.world = world

    def situation(self, mode: str, features: Features = NO_FEATURES) -> Situation:
        """The world as policies see it now, for a request with these features."""
        tools = features.tool_names
        health = self.engine.health()
        acceptance, attempts = self.acceptance.of(tools)
        today, month = self.world.spend()
        return Situation(
            mode=mode,
            engine_state=health.state.value,
            queue_depth=health.queue_depth,
            queue_limit=self.config.engine.queue_limit,
            usd_today=today,
            usd_month=month,
            now_s=self.world.now().timestamp(),
            acceptance=acceptance,
            attempts=attempts,
            standings=self.world.standings(features.fingerprint, tools),
        )

    def answerable(self, prepared: Prepared, evidence: Evidence) -> bool:
        """Whether these calls would be answered here if nothing were only watched."""
        if not evidence.verified:
            return False
        features, limits = prepared.features, prepared.limits
        as_if = replace(self.situation("on", features), hypothetical=True)
        said = self.policies.judge(features, as_if, evidence)
        return said.action in (Action.ANSWER, Action.MERGE) and limits.judge(features, as_if, evidence) is None

    def plan(self, turn: Turn, mode: str, *, limits: Limits = NO_LIMITS) -> tuple[Prepared, Verdict | None]:
        """Everything before the engine: a verdict when it need not run, else None."""
        prepared = self.prepare(turn)
        if limits is not NO_LIMITS:
            prepared = replace(prepared, limits=limits)
        if prepared.features.extraction and not self.config.extract.local:
            return prepared, Verdict(Action.FORWARD, "extraction-off", "extract", prepared=prepared)
        if turn.stream and prepared.features.extraction and len(prepared.task.steps) != 1:
            return prepared, Verdict(Action.FORWARD, "extraction-uncertain", "extract", prepared=prepared)
        situation = self.situation(mode, prepared.features)
        planned = self.policies.plan(prepared.features, situation)
        if planned.plan in (Plan.TRY_LOCAL, Plan.RACE):
            planned = limits.plan(prepared.features, situation) or planned
        if planned.plan is Plan.REPLY:
            return prepared, self.replied(prepared, planned)
        if not NEEDS_ENGINE[planned.plan]:
            return prepared, Verdict(Action.FORWARD, planned.reason, planned.policy, prepared=prepared)
        if mode == "shadow" or planned.plan is Plan.SHADOW:
            # In mode shadow no policy decided.
            said = (planned.reason, planned.policy) if planned.plan is Plan.SHADOW else ("shadow", "")
            return prepared, Verdict(Action.FORWARD, *said, shadow=True, prepared=prepared)
        return replace(prepared, race=planned if planned.plan is Plan.RACE else None), None

    def replied(self, prepared: Prepared, planned: Planned) -> Verdict:
        """ANSWER with the plan's text, unless the request's own wishes are against it."""
        turn, limits = prepared.turn, prepared.limits
        against = {
            "tool-never": not limits.never.isdisjoint(result.name for result in prepared.features.results),
            "stop-string": any(stop in planned.text for stop in turn.stop),
            "max-tokens": turn.max_tokens is not None and self.tokens.count(planned.text) > turn.max_tokens,
        }
        reason = next((slug for slug, holds in against.items() if holds), None)
        if reason is not None:
            return Verdict(Action.FORWARD, reason, planned.policy, prepared=prepared)
        return Verdict(Action.ANSWER, planned.reason, planned.policy, prepared=prepared, text=planned.text)

    async def decide(self, turn: Turn, mode: str, *, limits: Limits = NO_LIMITS) -> Verdict:
        """Plan, and where that leaves it open, ask the engine and judge its answer."""
        prepared, verdict = self.plan(turn, mode, limits=limits)
        return self.settled(verdict or await self.judge(prepared, mode))

    def settled(self, verdict: Verdict) -> Verdict:
        """What is carried out of a verdict: a spent budget may refuse whatever would cost, however it came about."""
        if not self.policies.last:
            return verdict
        # Not the request's own mode: a client must not get round a cap with a header.
        decided = Decision(verdict.action, verdict.reason, verdict.policy)
        last = self.policies.last_word(decided, self.situation(self.config.mode))
        if last == decided:
            return verdict
        if verdict.action is Action.MERGE and verdict.attempt is not None and verdict.attempt.evidence.verified:
            return replace(verdict, action=Action.ANSWER, reason="confident")
        return replace(verdict, action=last.action, reason=last.reason, policy=last.policy, shadow=False)

    async def judge(self, prepared: Prepared, mode: str) -> Verdict:
        """Ask the engine, verify, and let the policies decide."""
        return self.judged(await self.attempt(prepared), mode)

    def judged(self, attempt: Attempt, mode: str) -> Verdict:
        """What the policies make of an attempt."""
        prepared = attempt.prepared
        tools = prepared.features.tool_names
        situation = self.situation(mode, prepared.features)
        decision = self.policies.judge(prepared.features, situation, attempt.evidence)
        if prepared.chained and attempt.envelope is not None:
            decision = chained_decision(decision, attempt.evidence)
        elif attempt.envelope is not None and decision.action is not Action.SHADOW:
            self.acceptance.note(tools, used=decision.action in (Action.ANSWER, Action.MERGE))
        if decision.action in (Action.ANSWER, Action.MERGE):
            # After it was noted whether the answer is good enough: one request's wish says nothing of its tools.
            decision = prepared.limits.judge(prepared.features, situation, attempt.evidence) or decision
        reason = decision.reason
        if prepared.features.extraction and decision.action is not Action.SHADOW:
            reason = EXTRACTION_REASONS[decision.action is Action.ANSWER]
        shadow = decision.action is Action.SHADOW
        action = Action.FORWARD if shadow else decision.action
        return Verdict(action, reason, decision.policy, shadow, prepared, attempt)

    async def attempt(self, prepared: Prepared) -> Attempt:
        """Run the engine once and weigh what it said."""
        outcome = await self.engine.complete(prepared.task, deadline_s=self.config.engine.deadline_s)
        if isinstance(outcome, EngineFailure):
            return Attempt(prepared, outcome, evidence=Evidence(failures=(outcome.reason,)))
        envelope = read_envelope(outcome.envelope)
        if isinstance(envelope, EngineFailure):
            failed = replace(envelope, queue_wait_s=outcome.queue_wait_s, compute_s=outcome.compute_s)
            return Attempt(prepared, failed, evidence=Evidence(failures=(failed.reason,)))
        findings = weigh(prepared.turn, envelope, prepared.catalogue, facts=prepared.task.system)
        evidence = findings.evidence
        if differs(prepared.turn, outcome.said):
            # Whatever it says now, it says it of another conversation: its model or its tools are not those of then.
            evidence = replace(evidence, failures=("replay-differs", *evidence.failures))
        return Attempt(prepared, outcome, envelope, replace(findings, evidence=evidence), evidence)


#: A judged extraction has its own two reasons, whatever check or policy was decisive.
EXTRACTION_REASONS = {True: "extracted", False: "extraction-uncertain"}


def chained_decision(decision: Decision, evidence: Evidence) -> Decision:
    """After a tool result the upstream is asked for its words unless the engine's next call passed every check.

    Whichever check or policy was against it, the reason is that of any turn after a tool result.
    """
    if decision.action is Action.SHADOW or (decision.action is not Action.FORWARD and evidence.verified):
        return decision
    return replace(decision, action=Action.FORWARD, reason=TOOL_RESULT)
