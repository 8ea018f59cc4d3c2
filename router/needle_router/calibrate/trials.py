"""A tool on trial: compared call by compared call, does it earn a larger share, or must it be taken back?

The two tests (see `betting`) may be looked at after every call. Each step has to be earned by calls that came after the
one before, and all steps of a tool share one delta. An alarm ends the trial until somebody resets it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

from needle_router.calibrate.betting import FRESH, Alarm, Promotion


@dataclass(frozen=True, slots=True)
class Terms:
    """What is tested: the error against `max_error`, with `delta`, the alarm's `window`, and the shares to earn."""

    max_error: float
    delta: float
    window: int
    steps: tuple[float, ...] = ()

    @property
    def promotion(self) -> Promotion:
        """The test for one step, at its beginning."""
        return Promotion(self.max_error, self.delta / max(1, len(self.steps) - 1))

    @property
    def alarm(self) -> Alarm:
        """The test for taking back, at its beginning."""
        return Alarm(self.max_error, self.delta, self.window)

    def as_plain(self) -> dict[str, Any]:
        """The terms as JSON values."""
        return {
            "max_error": self.max_error,
            "delta": self.delta,
            "window": self.window,
            "steps": list(self.steps),
        }

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Terms:
        """The terms that `as_plain` wrote; raises `ValueError`, `TypeError` or `KeyError` for anything else."""
        steps = tuple(float(step) for step in plain["steps"])
        return cls(float(plain["max_error"]), float(plain["delta"]), int(plain["window"]), steps)


@dataclass(frozen=True, slots=True)
class Trial:
    """One tool under one fingerprint. `compared` and `wrong` count since the trial began."""

    terms: Terms
    promotion: Promotion
    alarm: Alarm
    level: int = 0
    compared: int = 0
    wrong: int = 0

    @classmethod
    def begun(cls, terms: Terms) -> Trial:
        """A trial at its beginning."""
        return cls(terms, terms.promotion, terms.alarm)

    def after(self, *, wrong: bool) -> Trial:
        """The trial after one more compared call that was, or would have been, answered here."""
        counted = replace(self, compared=self.compared + 1, wrong=self.wrong + wrong)
        if self.alarm.raised:
            return counted
        alarm = self.alarm.after(wrong=wrong)
        if alarm.raised:
            return replace(counted, alarm=alarm, level=0, promotion=self.terms.promotion)
        counted = replace(counted, alarm=alarm)
        if self.level >= len(self.terms.steps) - 1:
            return counted
        promotion = self.promotion.after(wrong=wrong)
        if promotion.reached:
            return replace(counted, level=self.level + 1, promotion=self.terms.promotion)
        return replace(counted, promotion=promotion)

    def under(self, terms: Terms) -> Trial:
        """The trial under other terms: it begins anew, but an alarm stays one."""
        if terms == self.terms:
            return self
        return replace(Trial.begun(terms), alarm=replace(terms.alarm, raised=self.alarm.raised))


def as_plain(trial: Trial) -> dict[str, Any]:
    """The trial as JSON values, without its terms."""
    return {
        "level": trial.level,
        "compared": trial.compared,
        "wrong": trial.wrong,
        "promotion": list(trial.promotion.logs),
        "alarm": {"raised": trial.alarm.raised, "seen": trial.alarm.seen, "logs": list(trial.alarm.logs)},
    }


def from_plain(plain: Mapping[str, Any], terms: Terms) -> Trial:
    """The trial that `as_plain` wrote; raises `ValueError`, `TypeError` or `KeyError` for anything else."""
    alarm = plain["alarm"]
    return Trial(
        terms,
        level=int(plain["level"]),
        compared=int(plain["compared"]),
        wrong=int(plain["wrong"]),
        promotion=replace(terms.promotion, logs=_logs(plain["promotion"])),
        alarm=replace(terms.alarm, raised=bool(alarm["raised"]), seen=int(alarm["seen"]), logs=_logs(alarm["logs"])),
    )


def _logs(values: Any) -> tuple[float, ...]:
    logs = tuple(float(value) for value in values)
    if len(logs) != len(FRESH):
        raise ValueError(f"{len(logs)} stakes instead of {len(FRESH)}")
    return logs
