"""Progress without a terminal: one log line for every tenth of a file."""

from __future__ import annotations

import logging
from typing import Any

log = logging.getLogger("needle_router.supply")


class Tenths:
    """Counts bytes; `advance` returns the tenth just reached, in per cent, or None. Never the same one twice."""

    def __init__(self, total: int | None) -> None:
        self._total = total
        self._done = 0
        self._told = 0

    def advance(self, count: float) -> int | None:
        """Take in `count` more bytes; negative when a download starts over."""
        self._done += int(count)
        if not self._total:
            return None
        reached = min(10, max(0, self._done) * 10 // self._total)
        if reached <= self._told:
            return None
        self._told = reached
        return int(reached * 10)


def logged_progress() -> type[Any]:
    """A class that huggingface_hub takes for its progress bar."""
    from huggingface_hub.utils.tqdm import tqdm

    class LoggedProgress(tqdm):
        """Draws nothing, logs each tenth."""

        def __init__(self, *args: Any, **options: Any) -> None:
            self._tenths = Tenths(options.get("total"))
            self._tenths.advance(options.get("initial") or 0)
            self._what = str(options.get("desc") or "file")
            super().__init__(*args, **{**options, "disable": True})  # type: ignore[no-untyped-call]

        def update(self, n: float | None = 1) -> bool | None:
            """Called for every piece that has arrived."""
            percent = self._tenths.advance(n or 0)
            if percent is not None:
                log.info("%s: %d %%", self._what, percent)
            return None

    return LoggedProgress
