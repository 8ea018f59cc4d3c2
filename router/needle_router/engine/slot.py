"""One worker slot of the pool: keeps a process alive, and feeds it its queue one task at a time.

    starting ──ready──> ready ──death, timeout, recycling──> paused ──> starting
        └──cannot load, or too many deaths──> failed ──(now and then)──> starting

A running task ends with its answer, its deadline (the process is killed: there is no other way to stop the library) or
its process. Waiting tasks outlive all of that: they go back to the pool, which finds them another place.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import Any

from needle_router.engine.affinity import Load
from needle_router.engine.child import Child, ChildDied
from needle_router.engine.jobs import CLOSED, Job, Shared
from needle_router.engine.messages import outcome_of
from needle_router.engine.restarts import RELOAD_DELAY_S, Restarts
from needle_router.engine.session import LoadFailed, is_prefix
from needle_router.task import EngineFailure, EngineReply, Task

log = logging.getLogger(__name__)

#: A pause short enough to keep tasks waiting for its end.
SOON_S = 1.0


class Phase(StrEnum):
    """Where a slot stands."""

    STARTING = "starting"
    READY = "ready"
    PAUSED = "paused"
    FAILED = "failed"


class Slot:
    """One worker of the pool."""

    def __init__(self, index: int, shared: Shared) -> None:
        self.index = index
        self.phase = Phase.STARTING
        self.detail = ""
        self.queue: deque[Job] = deque()
        self.running: Job | None = None
        self._shared = shared
        self._restarts = Restarts()
        self._wake = asyncio.Event()
        self._retry = asyncio.Event()
        self._child: Child | None = None
        self._served_before = False
        self._started_before = False
        self._pause_s = 0.0
        self._rss_bytes = 0
        self._resident: Task | None = None
        self._resident_key: str | None = None

    # ------------------------------------------------------------- seen by the pool

    @property
    def accepting(self) -> bool:
        """Whether a task may be queued here: the worker is ready, or back in a moment."""
        if self.phase is Phase.READY:
            return True
        return self._served_before and self.phase is not Phase.FAILED and self._pause_s <= SOON_S

    @property
    def idle(self) -> bool:
        """Whether a task queued now would run at once."""
        return self.phase is Phase.READY and self.running is None and not self.queue

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._child is None else self._child.pid

    def load(self, task: Task, now: float) -> Load:
        """This worker as the choice for `task` sees it."""
        last = self.queue[-1] if self.queue else self.running
        resident, key = (self._resident, self._resident_key) if last is None else (last.task, last.key)
        running_s = None if self.running is None or self.running.started is None else now - self.running.started
        return Load(
            index=self.index,
            waiting_steps=sum(len(job.task.steps) for job in self.queue),
            running_s=running_s,
            resident=key,
            feed_steps=steps_to_feed(task, resident),
        )

    def add(self, job: Job) -> None:
        """Queue a job."""
        self.queue.append(job)
        self._wake.set()

    def discard(self, job: Job) -> None:
        """Take a job out of the queue, if it is there."""
        if job in self.queue:
            self.queue.remove(job)

    def retry(self) -> None:
        """End a pause: what was missing may be there now."""
        self._retry.set()

    # ------------------------------------------------------------- the slot's own task

    async def run(self) -> None:
        """Keep a process alive until cancelled."""
        while True:
            self._pause_s = await self._life()
            await self._pause(self._pause_s)

    async def _life(self) -> float:
        """One process from start to end; the seconds to wait before the next one."""
        if self.phase is not Phase.FAILED:
            self.phase = Phase.STARTING
        self._retry.clear()
        shared = self._shared
        shared.counts.restarts += self._started_before
        shared.counts.starts += 1
        self._started_before = True
        try:
            self._child = child = await Child.spawn(shared.setup, shared.environ, self._wake.set)
        except OSError as error:
            return self._died(f"no engine process can be started: {error.strerror}")
        try:
            self._rss_bytes = await child.ready(shared.limits.start_timeout_s)
            self._is_ready(child)
            await self._serve(child)
            return self._end(Phase.PAUSED, f"recycled at {self._rss_bytes >> 20} MB", 0.0)
        except LoadFailed as error:
            return self._end(Phase.FAILED, str(error), RELOAD_DELAY_S)
        except ChildDied as error:
            return self._died(str(error))
        except TimeoutError:
            return self._died(f"the engine did not load within {shared.limits.start_timeout_s:g} s")
        finally:
            self._child = None
            self._resident = self._resident_key = None
            await child.reap()

    def _is_ready(self, child: Child) -> None:
        setup = self._shared.setup
        log.info("engine worker %d is ready: %s %s, pid %d", self.index, setup.backend, setup.model, child.pid)
        self.phase, self.detail = Phase.READY, ""
        self._served_before = True

    async def _serve(self, child: Child) -> None:
        """Run jobs until the process is due for recycling (returns) or dead (raises ChildDied)."""
        while child.alive:
            job = self._take()
            if job is None:
                self._wake.clear()
                await self._wake.wait()
                continue
            await self._run_job(child, job)
            if self._rss_bytes > self._shared.limits.max_rss_bytes:
                return
        raise ChildDied("the engine process died while idle")

    def _take(self) -> Job | None:
        while self.queue:
            job = self.queue.popleft()
            if not job.abandoned:
                return job
        return None

    async def _run_job(self, child: Child, job: Job) -> None:
        now = asyncio.get_running_loop().time
        job.started, self.running = now(), job
        waited_s = job.waited_s(job.started)
        try:
            message = await child.ask(job.frame, job.number, until=job.until)
        except TimeoutError as error:
            detail = "the engine did not answer by the deadline; its process was ended"
            job.finish(EngineFailure("engine-timeout", detail, waited_s, now() - job.started))
            raise ChildDied(detail) from error
        except ChildDied as error:
            job.finish(EngineFailure("engine-crash", f"{error} during the request", waited_s, now() - job.started))
            raise
        except asyncio.CancelledError:
            job.finish(EngineFailure("engine-off", CLOSED, waited_s, now() - job.started))
            raise
        finally:
            self.running = None
        self._answered(job, message, waited_s)

    def _answered(self, job: Job, message: Mapping[str, Any], waited_s: float) -> None:
        outcome = outcome_of(message, queue_wait_s=waited_s)
        self._rss_bytes = message["rss_bytes"]
        self._restarts.answered()
        self._resident, self._resident_key = job.task, job.key
        if isinstance(outcome, EngineReply):
            init_s = message["init_s"] if outcome.reinitialized else None
            self._shared.costs.learn(step_s=message["step_s"], steps=outcome.replayed_turns, init_s=init_s)
            self._shared.counts.reinits += outcome.reinitialized
        job.finish(outcome)

    def _died(self, detail: str) -> float:
        delay_s = self._restarts.died()
        return self._end(Phase.FAILED if self._restarts.broken else Phase.PAUSED, detail, delay_s)

    def _end(self, phase: Phase, detail: str, delay_s: float) -> float:
        log.warning("engine worker %d: %s; next start in %g s", self.index, detail, delay_s)
        self.phase, self.detail, self._pause_s = phase, detail, delay_s
        jobs, self.queue = list(self.queue), deque()
        self._shared.rehome(jobs)
        return delay_s

    async def _pause(self, delay_s: float) -> None:
        if delay_s <= 0:
            return
        try:
            async with asyncio.timeout(delay_s):
                await self._retry.wait()
        except TimeoutError:
            pass


def steps_to_feed(task: Task, resident: Task | None) -> int:
    """How many texts a worker would have to read whose session is left by `resident`."""
    if task.replay and resident is not None and is_prefix(resident.steps, task.steps):
        return len(task.steps) - len(resident.steps)
    return len(task.steps)


def depth(slots: Iterable[Slot]) -> int:
    """Jobs waiting, not counting those that run."""
    return sum(len(slot.queue) for slot in slots)
