"""How far a long command has come: a bar on a terminal, a line for each tenth elsewhere."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Self

from needle_router.cli.exits import say

if TYPE_CHECKING:
    import rich.progress

PARTS = 10


class Progress:
    """Counts `total` requests on stderr while it is entered."""

    def __init__(self, total: int) -> None:
        self.total, self.done, self.answered = total, 0, 0
        self._bar = _bar() if sys.stderr.isatty() else None
        self._task = self._bar.add_task("", total=total) if self._bar is not None else None

    def __enter__(self) -> Self:
        if self._bar is not None:
            self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._bar is not None:
            self._bar.stop()

    def step(self, answered: bool) -> None:
        """One more is done."""
        before = self.done * PARTS // self.total
        self.done += 1
        self.answered += answered
        text = f"{self.done} of {self.total}, {self.answered} answered here"
        if self._bar is not None and self._task is not None:
            self._bar.update(self._task, advance=1, description=text)
        elif self.done * PARTS // self.total > before:
            say(f"{text} ({self.done * 100 // self.total} %)")


def _bar() -> rich.progress.Progress:
    from rich.console import Console
    from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

    parts = (BarColumn(), TextColumn("{task.description}"), TimeRemainingColumn())
    return Progress(*parts, console=Console(stderr=True), transient=True)
