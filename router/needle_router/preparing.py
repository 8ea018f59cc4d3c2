"""A request as the engine would see it, and as the policies see it, before either has said anything."""

from __future__ import annotations

import datetime
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from needle_policies import Features, Planned, Standing
from needle_policies.limits import NO_LIMITS, Limits
from needle_router.config.schema import Config
from needle_router.engine.base import Engine, EngineState
from needle_router.features import features
from needle_router.fingerprint import fingerprint
from needle_router.history import may_go_on
from needle_router.results import results_of
from needle_router.surfaces.ids import is_local_call_id
from needle_router.task import Task
from needle_router.tokens import CHARS_PER_TOKEN, TokenCounter
from needle_router.translate import Catalogue, catalogue_of, extraction_tool, make_task
from needle_router.turn import Choice, Format, ToolChoice, Turn

#: Texts longer than this are not counted token by token.
MAX_COUNTED_CHARS = 60_000
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
class World:
    """The clock and the counters that policies may see; each is a function so that tests can set them.

    `engine` names the engine and its files for fingerprints; it is asked once the engine has run. `standings` says how
    tools have done under a fingerprint.
    """

    now: Callable[[], datetime.datetime]
    spend: Callable[[], tuple[float | None, float | None]]
    engine: Callable[[], str]
    standings: Callable[[str, tuple[str, ...]], Mapping[str, Standing]]


class Preparer:
    """Translates requests; `bound` says whether a policy reads their fingerprints."""

    def __init__(self, config: Config, engine: Engine, tokens: TokenCounter, world: World, *, bound: bool) -> None:
        self.config = config
        self.engine = engine
        self.tokens = tokens
        self.world = world
        self.bound = bound

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
            tokens_exact=readable and self.tokens.exact,
        )
        if chained:
            # Whoever may go on may also be done.
            found = replace(found, results=results_of(turn))
        if task.replay and len(task.steps) > settings.max_replay_steps:
            found = replace(found, obstacles=(*found.obstacles, "too-many-steps"))
        prepared = Prepared(asked, catalogue, task, found, chained)
        return self.identified(prepared) if self.bound and readable else prepared

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


def as_extraction(turn: Turn) -> Turn:
    """A request for structured output without tools, as a pinned call of one tool whose parameters are the schema."""
    if turn.has_tools or turn.response_format.kind is not Format.JSON_SCHEMA:
        return turn
    tool = extraction_tool(turn.response_format)
    if tool is None:
        return replace(turn, obstacles=(*turn.obstacles, "schema-unsupported"))
    return replace(turn, tools=(tool,), has_tools=True, tool_choice=ToolChoice(Choice.NAMED, (tool.name,)))
