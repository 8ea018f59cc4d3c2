"""No engine: the router only passes through."""

from __future__ import annotations

from needle_router.engine.base import EngineHealth, EngineState
from needle_router.task import EngineFailure, EngineOutcome, Task


class OffEngine:
    """An engine that is switched off; `detail` says by whom."""

    def __init__(self, detail: str = "the engine is switched off") -> None:
        self._detail = detail

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, task: Task, *, deadline_s: float) -> EngineOutcome:
        """Always `engine-off`."""
        del task, deadline_s
        return EngineFailure("engine-off", self._detail)

    async def aclose(self) -> None:
        """Nothing to stop."""

    def health(self) -> EngineHealth:
        """State off."""
        return EngineHealth(state=EngineState.OFF, detail=self._detail)
