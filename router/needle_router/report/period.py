"""Periods as people give them: `7d` back from now, or a day or moment of the calendar."""

from __future__ import annotations

import datetime
import re

_AGO = re.compile(r"(\d+(?:\.\d+)?)([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 86_400, "w": 604_800}


def moment_s(text: str, now: datetime.datetime, *, end: bool = False) -> float:
    """Unix seconds of a moment: `90m`, `12h`, `7d`, `2w` ago, a date, or a date and time in the zone of the machine.

    A date means its first moment, with `end` its last, so that "until" a day holds that day. Raises ValueError.
    """
    text = text.strip()
    ago = _AGO.fullmatch(text)
    if ago:
        return now.timestamp() - float(ago[1]) * _SECONDS[ago[2]]
    found = datetime.datetime.fromisoformat(text)
    if end and _is_day(text):
        found += datetime.timedelta(days=1)
    return found.timestamp()


def _is_day(text: str) -> bool:
    try:
        datetime.date.fromisoformat(text)
    except ValueError:
        return False
    return True


def day_of(time_s: float) -> str:
    """The day of a moment, on the calendar of this machine."""
    return datetime.datetime.fromtimestamp(time_s).strftime("%Y-%m-%d")


def when(time_s: float) -> str:
    """A moment for people, in the zone of this machine."""
    return datetime.datetime.fromtimestamp(time_s).strftime("%Y-%m-%d %H:%M")
