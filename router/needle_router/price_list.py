"""The prices that providers list, found by a model's name as genai-prices finds them.

That package takes 14 MB and half a second to import. prices.json holds its data (`make prices` extracts them) in about
60 KB: providers and their models, each with a clause that recognises a name and with the periods in which rates hold.
"""

from __future__ import annotations

import datetime
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

FILE = Path(__file__).with_name("prices.json")
#: A compact date as some gateways write it, which the list knows with dashes.
_COMPACT_DATE = re.compile(r"-(20\d{2})(0[1-9]|1[0-2])(0[1-9]|[12]\d|3[01])(?=-|:|$)")


@dataclass(frozen=True, slots=True)
class Rate:
    """USD per million tokens; a prompt longer than a step's start pays that step's price for all of its tokens."""

    base: float | None
    steps: tuple[tuple[int, float], ...] = ()

    def at(self, prompt_tokens: int) -> float | None:
        """The price for a prompt of this length; None where there is none."""
        return next((price for start, price in reversed(self.steps) if prompt_tokens > start), self.base)


#: Prices of fresh prompt tokens, of cached ones, and of completion tokens.
Rates = tuple[Rate, Rate, Rate]
#: When rates hold (see `active`), and the rates.
Period = tuple[Sequence[str] | None, Rates]
Clause = Sequence[Any]
#: How a model is recognised, and its periods as they stand in the file.
Model = tuple[Clause, Sequence[Sequence[Any]]]


def listed(name: str) -> tuple[Period, ...]:
    """The periods of the model that `name` names, () when no provider lists it."""
    name = name.lower()
    models: Sequence[Model] = next((models for clause, models in _providers() if matches(clause, name)), ())
    dashed = _COMPACT_DATE.sub(r"-\1-\2-\3", name)
    found = _first(models, name) or (_first(models, dashed) if dashed != name else ())
    return tuple((when, (_rate(fresh), _rate(cached), _rate(output))) for when, fresh, cached, output in found)


def _first(models: Sequence[Model], name: str) -> Sequence[Sequence[Any]]:
    return next((periods for clause, periods in models if matches(clause, name)), ())


@functools.cache
def _providers() -> Sequence[tuple[Clause, Sequence[Model]]]:
    providers: Sequence[tuple[Clause, Sequence[Model]]] = orjson.loads(FILE.read_bytes())["providers"]
    return providers


COMPARE: Mapping[str, Callable[[str, str], bool]] = {
    "equals": lambda name, value: name == value,
    "starts": lambda name, value: name.startswith(value),
    "ends": lambda name, value: name.endswith(value),
    "contains": lambda name, value: value in name,
    "regex": lambda name, value: re.search(value, name) is not None,
}


def matches(clause: Clause, name: str) -> bool:
    """Whether a clause recognises a name, which is in lower case."""
    mark, value = clause
    if mark == "any":
        return any(matches(part, name) for part in value)
    if mark == "all":
        return all(matches(part, name) for part in value)
    return COMPARE[mark](name, value)


def rates_at(periods: Sequence[Period], now: datetime.datetime) -> Rates:
    """The rates at `now`: the last period that holds, the first one where none does."""
    if len(periods) == 1:
        return periods[0][1]
    return next((rates for when, rates in reversed(periods) if active(when, now)), periods[0][1])


def active(when: Sequence[str] | None, now: datetime.datetime) -> bool:
    """Whether a period holds: always, from a UTC day on, or daily between two UTC times of day."""
    if when is None:
        return True
    now = now.astimezone(datetime.UTC)
    if len(when) == 1:
        return now.date() >= datetime.date.fromisoformat(when[0])
    start, end = (datetime.time.fromisoformat(moment) for moment in when)
    moment = now.time()
    return start <= moment < end if start <= end else moment >= start or moment < end


def _rate(price: Any) -> Rate:
    """A listed price: absent, one figure, or a base with steps by prompt length."""
    if isinstance(price, list):
        base, steps = price
        return Rate(base, tuple((start, step) for start, step in steps))
    return Rate(price)
