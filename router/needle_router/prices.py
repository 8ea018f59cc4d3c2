"""What tokens cost, in USD. The configuration's prices come first, then genai-prices, whose data is in its wheel.

A model without a price costs an unknown amount, which is None and never 0.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from needle_router.turn import Usage

PER_MILLION = 1_000_000
logger = logging.getLogger("needle_router.prices")


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
    """Prices by model name, also for names with a provider before a slash."""

    def __init__(self, overrides: Mapping[str, PriceLike]) -> None:
        self._overrides = dict(overrides)
        self._listed = functools.lru_cache(maxsize=256)(_listed_price)

    def warm(self) -> None:
        """Read the price list once, in a thread of its own: its import takes longer than a request should wait."""
        self._listed("gpt-4o")

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """The cost of one answer in USD; None when the model has no known price."""
        price = self._overrides.get(model) or self._overrides.get(model.rpartition("/")[2])
        if price is not None:
            return _priced((price.input, price.cached_input, price.output), usage)
        listed = self._listed(model)
        return None if listed is None else _priced([rate.at(usage.prompt_tokens) for rate in listed], usage)


def _priced(rates: Sequence[float | None], usage: Usage) -> float:
    """The cost at (input, cached input, output) rates; cached tokens are a part of the prompt, never an extra."""
    fresh, cached, output = rates
    fresh = fresh or 0.0
    fresh_tokens = usage.prompt_tokens - usage.cached_tokens
    cost = fresh_tokens * fresh + usage.cached_tokens * (fresh if cached is None else cached)
    return (cost + usage.completion_tokens * (output or 0.0)) / PER_MILLION


@dataclass(frozen=True, slots=True)
class _Rate:
    """USD per million tokens; a prompt longer than a step's start pays that step's price for all of its tokens."""

    base: float | None
    steps: tuple[tuple[int, float], ...] = ()

    def at(self, prompt_tokens: int) -> float | None:
        return next((price for start, price in reversed(self.steps) if prompt_tokens > start), self.base)


def _listed_price(model: str) -> tuple[_Rate, _Rate, _Rate] | None:
    """(input, cached input, output), from the list that genai-prices ships.

    The rates are kept instead of asking that package each time, which takes 0.1 ms of the event loop.
    """
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        found = _look_up(name) if name else None
        if found is not None:
            return found
    return None


def _look_up(name: str) -> tuple[_Rate, _Rate, _Rate] | None:
    try:
        import genai_prices

        prices = genai_prices.calc_price(genai_prices.Usage(input_tokens=1), model_ref=name).model_price
        fresh, cached, output = (
            _rate(getattr(prices, kind, None)) for kind in ("input_mtok", "cache_read_mtok", "output_mtok")
        )
    except LookupError:
        return None
    except Exception as error:  # a price list must never stop a request
        logger.debug("no price for a model: %s", error)
        return None
    return None if fresh.base is None or output.base is None else (fresh, cached, output)


def _rate(price: Any) -> _Rate:
    """A listed price: absent, one figure, or a base with steps by prompt length."""
    if price is None:
        return _Rate(None)
    if not hasattr(price, "tiers"):
        return _Rate(float(price))
    return _Rate(float(price.base), tuple((step.start, float(step.price)) for step in price.tiers))
