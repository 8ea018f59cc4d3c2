"""The conductor: one request through plan, engine, verifiers and judgement; ports only, no HTTP.

Nothing here answers or forwards. `Pipeline.decide` says what should happen and keeps what led to it, so that the same
verdict serves an answer, a shadow comparison, a log record and `needle-router explain`.
"""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from needle_policies import NEEDS_ENGINE, Action, Decision, Evidence, Features, Plan, Planned, Situation, Standing
from needle_policies.cascade import Cascade
from needle_policies.limits import NO_LIMITS, Limits
from needle_router.acceptance import Acceptance
from needle_router.config.schema import Config
from needle_router.engine.base import Engine, EngineState
from needle_router.envelopes import read_envelope
from needle_router.evidence import Findings, weigh
from needle_router.features import features
from needle_router.fingerprint import fingerprint
from needle_router.history import may_go_on
from needle_router.results import results_of
from needle_router.surfaces.ids import is_local_call_id
from needle_router.task import EngineFailure, EngineOutcome, Envelope, Task
from needle_router.tokens import CHARS_PER_TOKEN, TokenCounter
from needle_router.translate import Catalogue, catalogue_of, extraction_tool, make_task
from needle_router.turn import Choice, Format, ToolChoice, Turn

#: Texts longer than this are not counted token by token.
MAX_COUNTED_CHARS = 60_000
NOTHING_SEEN = Evidence()
NO_FEATURES = Features()
TOOL_RESULT = "tool-result-turn"


@dataclass(frozen=True, slots=True)
class Prepared:
    """A request as the engine would see it. For an extraction, `turn` declares the wanted schema as its only tool.

    `chained` says that it ends in tool results, after which the engine may make its next call.
    """

    turn: Turn
    catalogue: Catalogue
    task: Task
    features: Features
    chained: bool = False
    #: What holds where the upstream is asked beside the engine and is first; None where it is not asked.
    race: Planned | None = None
    #: What the request asks for itself.
    limits: Limits = NO_LIMITS


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


@dataclass(frozen=True, slots=True)
class World:
    """The clock and the counters that policies may see; each is a function so that tests can set them.

    `engine` names the engine and its files for fingerprints; it is asked once the engine has run. `standings` says how
    tools have done under a fingerprint.
    """

    now: Callable[[], datetime.datetime]
    spend: Callable[[], tuple[float | None, float | None]]
    engine: Callable[[], str]
    standings: Callable[[str, tuple[str, ...]], Mapping[str, Standing]]


class Pipeline:
    """Decides requests. Safe to use from many tasks of one event loop: it holds no per-request state."""

    def __init__(
        self, *, config: Config, engine: Engine, policies: Cascade, tokens: TokenCounter, world: World
    ) -> None:
        self.config = config
        self.engine = engine
        self.policies = policies
        self.tokens = tokens
        self.world = world
        self.acceptance = Acceptance()
        self._bound = any(getattr(policy, "wants_fingerprint", False) for policy in policies.every())

    def prepare(self, turn: Turn, *, steps: tuple[str, ...] | None = None) -> Prepared:
        """Translate `turn`; `steps` overrides what is fed to the engine (Needle alone, after tool results)."""
        asked = as_extraction(turn)
        settings = self.config.engine
        chained = steps is None and self.goes_on(asked)
        if chained:
            asked = replace(asked, obstacles=tuple(slug for slug in asked.obstacles if slug != TOOL_RESULT))
        catalogue = catalogue_of(asked.offered)
        task = make_task(
            asked,
            catalogue,
            system=settings.system,
            today=self.world.now().date(),
            max_new_tokens=settings.max_new_tokens,
            session=settings.session,
            from_engine=is_local_call_id,
            remembered=settings.cache_entries > 0,
        )
        if steps is not None:
            task = replace(task, steps=steps)
        readable = asked.has_tools and not asked.obstacles
        found = features(
            asked,
            task,
            catalogue,
            prompt_tokens=self.count(task) if readable else 0,
            tokens_exact=self.tokens.exact,
        )
        if chained:
            # Whoever may go on may also be done.
            found = replace(found, results=results_of(turn))
        if task.replay and len(task.steps) > settings.max_replay_steps:
            found = replace(found, obstacles=(*found.obstacles, "too-many-steps"))
        prepared = Prepared(asked, catalogue, task, found, chained)
        return self.identified(prepared) if self._bound and readable else prepared

    def goes_on(self, turn: Turn) -> bool:
        """Whether the engine may be asked for its next call after tool results, rather than the upstream."""
        settings = self.config.engine
        wanted = settings.chain_tool_results and settings.session == "replay"
        return wanted and TOOL_RESULT in turn.obstacles and may_go_on(turn, is_local_call_id)

    def identified(self, prepared: Prepared) -> Prepared:
        """With its fingerprint among its features; not before the engine is there, whose files are part of it."""
        if self.engine.health().state is not EngineState.READY:
            return prepared
        return replace(prepared, features=replace(prepared.features, fingerprint=self.fingerprint(prepared)))

    def count(self, task: Task) -> int:
        """Tokens the engine would read: the chat template, facts, tools and the texts fed."""
        if len(task.system) + len(task.tools) + sum(map(len, task.steps)) > MAX_COUNTED_CHARS:
            # Far beyond any window, and counting exactly would take longer than it is worth.
            return MAX_COUNTED_CHARS // CHARS_PER_TOKEN
        return self.tokens.prompt(task.system, task.tools, task.steps)

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
        prepared = replace(self.prepare(turn), limits=limits)
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
        return Attempt(prepared, outcome, envelope, findings, findings.evidence)

    def fingerprint(self, prepared: Prepared) -> str:
        """Identifies schemas, system prompt, engine and session mode: what a certified threshold is bound to."""
        if prepared.features.fingerprint:
            return prepared.features.fingerprint
        settings = self.config.engine
        return fingerprint(
            prepared.catalogue,
            prompt=prepared.turn.system_texts,
            facts=prepared.task.system,
            system=settings.system,
            reach=self.config.ledger.fingerprint,
            engine=self.world.engine(),
            # What the engine does after tool results says nothing of its first calls, and the other way round.
            session=settings.session + "+chained" * prepared.chained,
        )


#: A judged extraction has its own two reasons, whatever check or policy was decisive.
EXTRACTION_REASONS = {True: "extracted", False: "extraction-uncertain"}


def chained_decision(decision: Decision, evidence: Evidence) -> Decision:
    """After a tool result the upstream is asked for its words unless the engine's next call passed every check.

    Whichever check or policy was against it, the reason is that of any turn after a tool result.
    """
    if decision.action is Action.SHADOW or (decision.action is not Action.FORWARD and evidence.verified):
        return decision
    return replace(decision, action=Action.FORWARD, reason=TOOL_RESULT)


def as_extraction(turn: Turn) -> Turn:
    """A request for structured output without tools, as a pinned call of one tool whose parameters are the schema."""
    if turn.has_tools or turn.response_format.kind is not Format.JSON_SCHEMA:
        return turn
    tool = extraction_tool(turn.response_format)
    if tool is None:
        return replace(turn, obstacles=(*turn.obstacles, "schema-unsupported"))
    return replace(turn, tools=(tool,), has_tools=True, tool_choice=ToolChoice(Choice.NAMED, (tool.name,)))
