"""Promotion and alarm that may be looked at after every call: a gambler against the claim that is to be refuted.

Whoever bets on each outcome at fair odds multiplies a stake by 1/delta with probability at most delta, ever (Ville's
inequality). Promotion bets that errors are rarer than alpha, the alarm that they are more frequent. The best size of a
bet depends on the unknown error, so the stake is divided over several sizes, all fixed beforehand. A sum that never
loses would make the alarm slow after a long good time: it starts anew in each window.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

#: Shares of the largest bet, which lies where one outcome loses the whole stake.
SHARES = (0.05, 0.1, 0.2, 0.4, 0.6, 0.8)
FRESH = (0.0,) * len(SHARES)


def mixed(logs: tuple[float, ...]) -> float:
    """Log of the mean of stakes whose logs are given."""
    top = max(logs)
    return top + math.log(sum(math.exp(log - top) for log in logs) / len(logs))


@dataclass(frozen=True, slots=True)
class Promotion:
    """Has the error been shown to be below `alpha`? Wrong with probability at most `delta`, whenever it is asked."""

    alpha: float
    delta: float
    logs: tuple[float, ...] = FRESH
    reached: bool = False

    def after(self, *, wrong: bool) -> Promotion:
        """The state after one more answer that was checked."""
        gain = self.alpha - wrong
        logs = _played(self.logs, 1 / (1 - self.alpha), gain)
        return replace(self, logs=logs, reached=self.reached or mixed(logs) >= -math.log(self.delta))


@dataclass(frozen=True, slots=True)
class Alarm:
    """Has the error been shown to be above `alpha`? False with probability at most `delta` in each `window` answers."""

    alpha: float
    delta: float
    window: int
    seen: int = 0
    logs: tuple[float, ...] = FRESH
    raised: bool = False

    def after(self, *, wrong: bool) -> Alarm:
        """The state after one more answer that was checked; once raised it stays so."""
        logs = _played(FRESH if self.seen == 0 else self.logs, 1 / self.alpha, wrong - self.alpha)
        raised = self.raised or mixed(logs) >= -math.log(self.delta)
        return replace(self, logs=logs, seen=(self.seen + 1) % self.window, raised=raised)


def _played(logs: tuple[float, ...], largest: float, gain: float) -> tuple[float, ...]:
    """The stakes, as logs, after a bet of each share of `largest`."""
    return tuple(log + math.log1p(share * largest * gain) for log, share in zip(logs, SHARES, strict=True))
