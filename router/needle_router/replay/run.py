"""The runner: each case through engine and policies of a configuration, a few at a time; no upstream, no ledger."""

from __future__ import annotations

import datetime
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import anyio
import msgspec

from needle_policies import Action
from needle_router.build import build, wait_until_loaded
from needle_router.comparing import defaults_of
from needle_router.config.schema import Config
from needle_router.engine.base import EngineState
from needle_router.evidence import left_out
from needle_router.explaining import ROUTES
from needle_router.pipeline import Attempt, Pipeline, Verdict
from needle_router.replay.cases import Case
from needle_router.replay.grading import NO_DEFAULTS
from needle_router.replay.rows import NOTHING, Row
from needle_router.surfaces.chat import Unreadable, parse

#: Tasks under way for each engine process: one that runs and one that waits, so that none is idle.
TASKS_PER_WORKER = 2
#: A busy machine must not change a result.
LEAST_DEADLINE_S = 60.0


class EngineMissing(Exception):
    """The engine did not load; the text says why."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """The day that the engine is told, and the checks that are left out."""

    today: datetime.date
    without: frozenset[str] = NOTHING


async def replay(
    config: Config,
    cases: Sequence[Case],
    conditions: Conditions,
    note: Callable[[int, Row], None],
    *,
    environ: Mapping[str, str] = os.environ,
) -> None:
    """Run every case and tell `note` its index and row as they come. Raises EngineMissing.

    May be cancelled at any time: the engine's processes are ended, and what was noted stands.
    """
    config = offline(config)
    services = build(config, upstream=True, environ=environ, may_fetch=False)
    noon = datetime.datetime.combine(conditions.today, datetime.time(12))
    world = services.pipeline.world
    services.pipeline.world = replace(world, now=lambda: noon, spend=lambda: (None, None))
    await services.engine.start()
    try:
        if await wait_until_loaded(services.engine) is not EngineState.READY:
            raise EngineMissing(services.engine.health().detail or "the engine did not load in time")
        waiting = iter(list(enumerate(cases)))
        # The group ends before the engine does: no task outlives its pool.
        async with anyio.create_task_group() as group:
            for _ in range(TASKS_PER_WORKER * config.engine.workers):
                group.start_soon(_work, services.pipeline, waiting, conditions.without, note)
    finally:
        with anyio.CancelScope(shield=True):
            await services.engine.aclose()


def offline(config: Config) -> Config:
    """The configuration as it is replayed: mode on, room in the queue, and time enough for every answer."""
    settings = config.engine
    engine = msgspec.structs.replace(
        settings,
        deadline_s=max(settings.deadline_s, LEAST_DEADLINE_S),
        queue_limit=max(settings.queue_limit, TASKS_PER_WORKER * settings.workers),
    )
    return msgspec.structs.replace(config, mode="on", engine=engine)


async def _work(
    pipeline: Pipeline,
    waiting: Iterator[tuple[int, Case]],
    without: frozenset[str],
    note: Callable[[int, Row], None],
) -> None:
    for index, case in waiting:
        note(index, await row_of(pipeline, case, without))
        # Requests that need no engine would otherwise never let anybody else run.
        await anyio.lowlevel.checkpoint()


async def row_of(pipeline: Pipeline, case: Case, without: frozenset[str] = NOTHING) -> Row:
    """One case, decided and graded."""
    turn = parse(case.body)
    if isinstance(turn, Unreadable):
        return _graded(Row(case.name, case.category, "upstream", turn.reason), case, None)
    prepared, planned = pipeline.plan(turn, "on")
    if planned is not None and not planned.shadow:
        return _graded(_row(case, pipeline.settled(planned)), case, None)
    attempt = await pipeline.attempt(prepared)
    judged = replace(attempt, evidence=left_out(attempt.evidence, without))
    verdict = planned or pipeline.judged(judged, "on")
    row = _row(case, pipeline.settled(verdict))
    evidence = attempt.evidence
    seen = replace(
        row,
        asked=True,
        confidence=evidence.confidence,
        failures=evidence.failures,
        fingerprint=pipeline.fingerprint(prepared),
        engine_s=attempt.outcome.compute_s,
    )
    return _graded(seen, case, attempt)


def _row(case: Case, verdict: Verdict) -> Row:
    route = "refused" if verdict.action is Action.REFUSE else ROUTES[verdict.action]
    return Row(case.name, case.category, route, verdict.reason, verdict.policy)


def _graded(row: Row, case: Case, attempt: Attempt | None) -> Row:
    calls = attempt.findings.calls if attempt is not None and attempt.findings is not None else ()
    called = replace(row, tools=tuple(call.name for call in calls))
    if case.wanted is None:
        return called
    # Where the engine was not asked or failed, nothing was called.
    filled = NO_DEFAULTS if attempt is None else defaults_of(attempt.prepared)
    return replace(called, right=case.wanted.met(calls, filled), silent=case.wanted.silent)
