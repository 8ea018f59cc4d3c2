"""A task on its way through the pool, and what the pool's slots share."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from needle_router.engine.affinity import Costs
from needle_router.engine.messages import Setup
from needle_router.task import EngineOutcome, Task

CLOSED = "the engine has been stopped"


@dataclass(slots=True, eq=False)
class Job:
    """A task under way in the pool; `arrived`, `until` and `started` are the loop's time in seconds."""

    number: int
    task: Task
    key: str
    frame: bytes
    arrived: float
    until: float
    future: asyncio.Future[EngineOutcome]
    started: float | None = None

    def finish(self, outcome: EngineOutcome) -> None:
        """Deliver, unless the caller has given up."""
        if not self.future.done():
            self.future.set_result(outcome)

    @property
    def abandoned(self) -> bool:
        """Whether nobody waits for this job any more."""
        return self.future.done()

    def waited_s(self, now: float) -> float:
        """Seconds in the queue."""
        return (now if self.started is None else self.started) - self.arrived


@dataclass(frozen=True, slots=True)
class Limits:
    """`max_rss_bytes`: a process that has grown past it is replaced between tasks. `start_timeout_s`: for loading."""

    max_rss_bytes: int = 1 << 30
    start_timeout_s: float = 120.0


@dataclass(slots=True)
class Counts:
    """What the pool's slots have seen together."""

    starts: int = 0
    restarts: int = 0
    reinits: int = 0


@dataclass(slots=True)
class Shared:
    """What all slots of a pool use together; `rehome` takes jobs whose slot cannot serve them."""

    setup: Setup
    environ: Mapping[str, str]
    limits: Limits
    rehome: Callable[[list[Job]], None]
    costs: Costs = field(default_factory=Costs)
    counts: Counts = field(default_factory=Counts)
