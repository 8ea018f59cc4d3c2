"""When to start a dead worker again: at once the first time, then ever later, so that nothing storms.

A worker that answered a task since its start was a good one; its death begins a new count. Deaths without an answer
between them add up, and from `BREAKER_DEATHS` on the worker counts as failed: it is tried again only now and then.
"""

from __future__ import annotations

from dataclasses import dataclass

FIRST_DELAY_S = 0.25
LONGEST_DELAY_S = 30.0
BREAKER_DEATHS = 5
#: A library or a model that is not there: somebody must fetch it first.
RELOAD_DELAY_S = 30.0


@dataclass(slots=True)
class Restarts:
    """The record of one worker slot."""

    deaths: int = 0

    def answered(self) -> None:
        """The worker proved good."""
        self.deaths = 0

    def died(self) -> float:
        """Count a death; the seconds to wait before the next start."""
        self.deaths += 1
        return delay_s(self.deaths)

    @property
    def broken(self) -> bool:
        """Whether the worker counts as failed."""
        return self.deaths >= BREAKER_DEATHS


def delay_s(deaths: int) -> float:
    """Seconds to wait after so many deaths in a row: 0, 0.25, 0.5, 1, then the breaker's 30."""
    if deaths <= 1:
        return 0.0
    if deaths >= BREAKER_DEATHS:
        return LONGEST_DELAY_S
    return FIRST_DELAY_S * 2.0 ** (deaths - 2)
