"""The pool: N engine processes behind the engine port.

Every task has one deadline, waiting included; every queue has a bound; and every misfortune of a process is an outcome
with a slug. A task goes where it will be done soonest (`affinity`), a dead process comes back at once and, when that
does not help, ever later (`restarts`).
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import logging
import os
from collections.abc import Mapping
from pathlib import Path

from needle_router.config.schema import Engine as EngineSettings
from needle_router.engine.affinity import choose, key_of
from needle_router.engine.base import EngineHealth, EngineState
from needle_router.engine.cache import DecisionCache
from needle_router.engine.frames import FrameError, FrameTooLarge, encode
from needle_router.engine.jobs import CLOSED, Job, Limits, Shared
from needle_router.engine.messages import Setup, task_message
from needle_router.engine.slot import Phase, Slot, depth
from needle_router.task import EngineFailure, EngineOutcome, Task

log = logging.getLogger(__name__)


class EnginePool:
    """Implements `engine.base.Engine` for one configuration.

    `environ` is what the workers' clean environment is taken from. A worker larger than `max_rss_mb` megabytes is
    replaced between tasks; one that has not loaded after `start_timeout_s` seconds is ended.
    """

    def __init__(
        self,
        settings: EngineSettings,
        *,
        environ: Mapping[str, str] | None = None,
        max_rss_mb: float = 1024,
        start_timeout_s: float = 120.0,
    ) -> None:
        self._settings = settings
        limits = Limits(int(max_rss_mb * (1 << 20)), start_timeout_s)
        self._shared = Shared(
            setup=setup_of(settings),
            environ=os.environ if environ is None else environ,
            limits=limits,
            rehome=self._rehome,
        )
        self._cache = DecisionCache(settings.cache_entries)
        self._numbers = itertools.count(1)
        self._slots: list[Slot] = []
        self._supervisor: asyncio.Task[None] | None = None
        self._closed = False
        self._fault = ""

    # ------------------------------------------------------------- lifetime

    async def start(self) -> None:
        """Begin loading in the background; a second call does nothing."""
        if self._supervisor is not None:
            return
        self._closed, self._fault = False, ""
        self._slots = [Slot(index, self._shared) for index in range(self._settings.workers)]
        # The one bare task of the engine: start() may be called by a lifespan handler or by a request, and the workers
        # must outlive both, so no enclosing block can own them. aclose() ends it. An empty context keeps the request's
        # variables (and its tracing span) out.
        self._supervisor = asyncio.get_running_loop().create_task(
            self._supervise(), name="needle-engine-pool", context=contextvars.Context()
        )

    async def aclose(self) -> None:
        """End every worker; jobs still under way end as `engine-off`. Returns when no process is left."""
        self._closed = True
        supervisor, self._supervisor = self._supervisor, None
        if supervisor is not None:
            supervisor.cancel()
            # Not awaited itself: if this call is cancelled, the workers are still ended.
            await asyncio.wait({supervisor})

    def retry(self) -> None:
        """Try failed workers again now, for instance when a missing model has been fetched."""
        for slot in self._slots:
            slot.retry()

    async def _supervise(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                for slot in self._slots:
                    group.create_task(slot.run())
        except* Exception as faults:
            # A fault of ours must show as a failed engine, not end the server.
            self._fault = f"the engine pool stopped: {faults.exceptions[0]!r}"
            log.exception("the engine pool stopped")
        finally:
            self._finish_all()

    def _finish_all(self) -> None:
        for slot in self._slots:
            for job in slot.queue:
                job.finish(EngineFailure("engine-off", self._fault or CLOSED))
            slot.queue.clear()

    # ------------------------------------------------------------- one task

    async def complete(self, task: Task, *, deadline_s: float) -> EngineOutcome:
        """Run `task` within `deadline_s` seconds, waiting included; never raises for anything the engine does."""
        if not task.replay and (known := self._cache.get(task)):
            return known
        job = self._job(task, deadline_s)
        if isinstance(job, EngineFailure):
            return job
        if (refused := self._admit(job)) is not None:
            return refused
        outcome = await self._outcome(job, deadline_s)
        self._cache.put(task, outcome)
        return outcome

    def _job(self, task: Task, deadline_s: float) -> Job | EngineFailure:
        number = next(self._numbers)
        try:
            frame = encode(task_message(number, task))
        except FrameTooLarge as error:
            return EngineFailure("prompt-too-long", str(error))
        except FrameError as error:
            # Of texts and small numbers, JSON only refuses lone surrogates.
            return EngineFailure("bad-text", str(error))
        loop = asyncio.get_running_loop()
        now = loop.time()
        return Job(number, task, key_of(task.system, task.tools), frame, now, now + deadline_s, loop.create_future())

    async def _outcome(self, job: Job, deadline_s: float) -> EngineOutcome:
        try:
            async with asyncio.timeout_at(job.until):
                return await job.future
        except TimeoutError:
            now = asyncio.get_running_loop().time()
            compute_s = 0.0 if job.started is None else now - job.started
            detail = f"no answer within {deadline_s:g} s"
            return EngineFailure("engine-timeout", detail, job.waited_s(now), compute_s)
        finally:
            # Whoever stops waiting, by deadline or cancellation, leaves the queue.
            for slot in self._slots:
                slot.discard(job)

    # ------------------------------------------------------------- placing

    def _admit(self, job: Job) -> EngineFailure | None:
        """Queue a new job, or say at once why not."""
        if (unable := self._unable()) is not None:
            return unable
        open_slots = [slot for slot in self._slots if slot.accepting]
        waiting, limit = depth(self._slots), self._settings.queue_limit
        if waiting >= limit:
            open_slots = [slot for slot in open_slots if slot.idle]
        if not open_slots:
            return EngineFailure(
                "engine-busy", f"{waiting} requests are already waiting for the engine (limit {limit})"
            )
        self._place(job, open_slots)
        return None

    def _place(self, job: Job, open_slots: list[Slot]) -> None:
        now = asyncio.get_running_loop().time()
        costs = self._shared.costs
        loads = [slot.load(job.task, now) for slot in open_slots]
        index = choose(loads, job.key, step_s=costs.step_s, init_s=costs.init_s)
        self._slots[index].add(job)

    def _rehome(self, jobs: list[Job]) -> None:
        """Find another place for jobs whose worker is gone; their deadlines stay."""
        for job in jobs:
            if job.abandoned:
                continue
            open_slots = [slot for slot in self._slots if slot.accepting]
            if open_slots:
                self._place(job, open_slots)
            else:
                job.finish(self._unable() or EngineFailure("engine-crash", "no engine process is left"))

    def _unable(self) -> EngineFailure | None:
        """Why no job can be taken at all, if that is so."""
        if self._closed or self._fault:
            return EngineFailure("engine-off", self._fault or CLOSED)
        if any(slot.accepting for slot in self._slots):
            return None
        if any(slot.phase is Phase.PAUSED for slot in self._slots):
            return EngineFailure("engine-crash", f"the engine is being restarted: {self._detail()}")
        if self._slots and all(slot.phase is Phase.FAILED for slot in self._slots):
            return EngineFailure("engine-off", self._detail())
        return EngineFailure("engine-loading", "the engine is still loading")

    # ------------------------------------------------------------- health

    def health(self) -> EngineHealth:
        """A snapshot, without I/O."""
        counts = self._shared.counts
        return EngineHealth(
            state=self._state(),
            model=self._settings.model,
            backend=self._settings.backend,
            workers=len(self._slots),
            queue_depth=depth(self._slots),
            restarts=counts.restarts,
            reinits=counts.reinits,
            detail=self._fault or self._detail(),
            pids=tuple(slot.pid for slot in self._slots if slot.pid is not None),
        )

    def _state(self) -> EngineState:
        phases = {slot.phase for slot in self._slots}
        if self._closed:
            return EngineState.OFF
        if self._fault:
            return EngineState.FAILED
        if Phase.READY in phases:
            return EngineState.READY
        return EngineState.FAILED if phases == {Phase.FAILED} else EngineState.LOADING

    def _detail(self) -> str:
        return next((slot.detail for slot in self._slots if slot.detail), "")


def setup_of(settings: EngineSettings) -> Setup:
    """What the workers are told; a path is made absolute here, where the working directory is known."""
    model = settings.model
    if model.endswith(".cact") or "/" in model:
        model = str(Path(model).expanduser().absolute())
    script = str(Path(settings.script).expanduser().absolute()) if settings.script else ""
    index = str(Path(settings.tool_index).expanduser().absolute()) if settings.tool_index else ""
    return Setup(settings.backend, model, settings.buffer_bytes, script, index)
