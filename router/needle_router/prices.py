"""What tokens cost, in USD. The configuration's prices come first, then the list that ships (`price_list`).

A model without a price costs an unknown amount, which is None and never 0.
"""

from __future__ import annotations

import datetime
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from needle_router.price_list import Period, Rates, listed, rates_at
from needle_router.turn import Usage

PER_MILLION = 1_000_000
logger = logging.getLogger("needle_router.prices")


def _utc_now() -> datetime.datetime:
    return datetime.datetime.now(datetime.UTC)


class PriceLike(Protocol):
    """USD per million tokens; `cached_input` None means that cached tokens cost as much as others."""

    @property
    def input(self) -> float:
        """Price of prompt tokens."""
        ...

    @property
    def output(self) -> float:
        """Price of completion tokens."""
        ...

    @property
    def cached_input(self) -> float | None:
        """Price of prompt tokens read from the provider's cache."""
        ...


class Prices:
    """Prices by model name, also for names with providers before slashes."""

    def __init__(self, overrides: Mapping[str, PriceLike], *, now: Callable[[], datetime.datetime] = _utc_now) -> None:
        self._overrides = dict(overrides)
        self._now = now
        self._listed = functools.lru_cache(maxsize=256)(_listed)

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """The cost of one answer in USD; None when the model has no known price."""
        price = self._override(model)
        if price is not None:
            return _priced((price.input, price.cached_input, price.output), usage)
        rates = self._rates(model)
        return None if rates is None else _priced([rate.at(usage.prompt_tokens) for rate in rates], usage)

    def _override(self, model: str) -> PriceLike | None:
        """The configured price of a name, or of what follows one of its slashes, the longest part first."""
        if not self._overrides:
            return None
        while (price := self._overrides.get(model)) is None and "/" in model:
            model = model.partition("/")[2]
        return price

    def _rates(self, model: str) -> Rates | None:
        """The listed rates of now; None where the model has none for what it reads and writes."""
        try:
            periods = self._listed(model)
            found = rates_at(periods, self._now()) if periods else None
        except Exception:  # a price list must never stop a request
            logger.exception("no price for a model")
            return None
        return None if found is None or found[0].base is None or found[2].base is None else found


def _priced(rates: Sequence[float | None], usage: Usage) -> float:
    """The cost at (input, cached input, output) rates; cached tokens are a part of the prompt, never an extra."""
    fresh, cached, output = rates
    fresh = fresh or 0.0
    fresh_tokens = usage.prompt_tokens - usage.cached_tokens
    cost = fresh_tokens * fresh + usage.cached_tokens * (fresh if cached is None else cached)
    return (cost + usage.completion_tokens * (output or 0.0)) / PER_MILLION


def _listed(model: str) -> Sequence[Period]:
    """The periods of a model, also of one with a provider before a slash."""
    return listed(model) or listed(model.rpartition("/")[2])
