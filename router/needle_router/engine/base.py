"""The engine port: one task in, one outcome out.

A doubt of the engine (busy, timeout, crash, garbage, its own error) is an *outcome* with a reason slug, never an
exception: the caller always has an upstream or an error envelope to turn it into.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Protocol

from needle_router.task import EngineOutcome, Task


class EngineState(StrEnum):
    """`engine.state` of /readyz."""

    LOADING = "loading"
    READY = "ready"
    FAILED = "failed"
    OFF = "off"


@dataclass(frozen=True, slots=True)
class EngineHealth:
    """A snapshot for /readyz, /-/status.json and metrics. `pids` are the worker processes."""

    state: EngineState
    model: str = ""
    backend: str = ""
    workers: int = 0
    queue_depth: int = 0
    restarts: int = 0
    reinits: int = 0
    detail: str = ""
    pids: tuple[int, ...] = ()


class Engine(Protocol):
    """Runs tasks. Safe to call from many tasks of one event loop."""

    async def start(self) -> None:
        """Begin loading in the background and return at once; never raises for an engine that cannot load."""
        ...

    async def complete(self, task: Task, *, deadline_s: float) -> EngineOutcome:
        """Run `task` within `deadline_s` seconds of wall time, waiting included."""
        ...

    async def aclose(self) -> None:
        """Stop every worker; returns when no child process is left."""
        ...

    def health(self) -> EngineHealth:
        """A snapshot, without I/O."""
        ...
