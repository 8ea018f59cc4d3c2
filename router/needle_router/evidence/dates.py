"""Dates and clock times that a request names, in every reading that is certain.

A date argument is grounded when the request names that very day: in digits, in words, or as today and tomorrow from
the `date` fact. Weekdays, "next week" and two-digit years have more than one reading, so they ground nothing.
"""

from __future__ import annotations

import datetime
import re

MONTHS = """january february march april may june july august september october november december""".split()
_MONTH = "|".join(f"{month}|{month[:3]}" for month in MONTHS)
_ISO = re.compile(r"\b(\d{4})-(\d{1,2})-(\d{1,2})\b")
_NUMERIC = re.compile(r"\b(\d{1,2})[/.](\d{1,2})[/.](\d{4})\b")
_DAY_FIRST = re.compile(rf"\b(\d{{1,2}})(?:st|nd|rd|th)?\s+(?:of\s+)?({_MONTH})\b\.?,?(?:\s+(\d{{4}}))?", re.IGNORECASE)
_MONTH_FIRST = re.compile(rf"\b({_MONTH})\b\.?\s+(\d{{1,2}})(?:st|nd|rd|th)?\b,?(?:\s+(\d{{4}}))?", re.IGNORECASE)
_CLOCK = re.compile(r"\b(\d{1,2})(?:[:.](\d{2}))?\s*([ap])\.?m\b|\b(\d{1,2}):(\d{2})\b", re.IGNORECASE)
_VALUE_DATE = re.compile(r"(\d{4})-(\d{2})-(\d{2})")
_VALUE_TIME = re.compile(r"([01]?\d|2[0-3]):([0-5]\d)(?::00)?")


def _date(year: int, month: int, day: int) -> datetime.date | None:
    try:
        return datetime.date(year, month, day)
    except ValueError:
        return None


def today_of(facts: str) -> datetime.date | None:
    """The day in a `date: 2026-11-30 Mon` fact."""
    match = re.search(r"(?im)^date:\s*(\d{4})-(\d{2})-(\d{2})", facts)
    return _date(int(match[1]), int(match[2]), int(match[3])) if match else None


def dates_in(text: str, today: datetime.date | None) -> set[datetime.date]:
    """Every day that the text may name."""
    found: set[datetime.date | None] = set()
    found.update(_date(int(y), int(m), int(d)) for y, m, d in _ISO.findall(text))
    for one, two, year in _NUMERIC.findall(text):
        found.update((_date(int(year), int(one), int(two)), _date(int(year), int(two), int(one))))
    for day, month, year in _DAY_FIRST.findall(text):
        found.add(_named(day, month, year, today))
    for month, day, year in _MONTH_FIRST.findall(text):
        found.add(_named(day, month, year, today))
    if today is not None:
        lowered = text.casefold()
        for word, days in (("today", 0), ("tonight", 0), ("tomorrow", 1)):
            if re.search(rf"\b{word}\b", lowered) and "day after tomorrow" not in lowered:
                found.add(today + datetime.timedelta(days=days))
    return {date for date in found if date is not None}


def _named(day: str, month: str, year: str, today: datetime.date | None) -> datetime.date | None:
    number = next(i for i, name in enumerate(MONTHS, 1) if name.startswith(month.casefold()[:3]))
    if year:
        return _date(int(year), number, int(day))
    if today is None:
        return None
    this = _date(today.year, number, int(day))
    return this if this is None or this >= today else _date(today.year + 1, number, int(day))


def times_in(text: str) -> set[tuple[int, int]]:
    """Clock times as (hour, minute); an hour below 13 without am or pm may be either half of the day."""
    found = set()
    for hour, minute, half, hour24, minute24 in _CLOCK.findall(text):
        if half:
            found.add((int(hour) % 12 + (12 if half.lower() == "p" else 0), int(minute or 0)))
        else:
            found.add((int(hour24), int(minute24)))
    return found


def grounded_moment(value: str, text: str, facts: str) -> bool | None:
    """Whether the day or time in `value` is named by the request; None when `value` is neither."""
    date, clock = _VALUE_DATE.match(value), _VALUE_TIME.fullmatch(value)
    if date:
        day = _date(int(date[1]), int(date[2]), int(date[3]))
        rest = value[10:].lstrip("T ").removesuffix("Z").removesuffix("+00:00")
        if day is None or day not in dates_in(text, today_of(facts)):
            return False
        return True if not rest else bool(grounded_moment(rest, text, facts))
    if clock:
        return (int(clock[1]), int(clock[2])) in times_in(text)
    return None
