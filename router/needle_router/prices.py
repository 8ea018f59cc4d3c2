"""What tokens cost, in USD. The configuration's prices come first, then genai-prices, whose data is in its wheel.

A model without a price costs an unknown amount, which is None and never 0.
"""

from __future__ import annotations

import functools
import logging
from collections.abc import Mapping
from typing import Protocol

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

    def cost_usd(self, model: str, usage: Usage) -> float | None:
        """The cost of one answer in USD; None when the model has no known price."""
        price = self._overrides.get(model) or self._overrides.get(model.rpartition("/")[2])
        if price is not None:
            return _priced(price, usage)
        rates = self._listed(model)
        if rates is None:
            return None
        fresh = usage.prompt_tokens - usage.cached_tokens
        return (fresh * rates[0] + usage.cached_tokens * rates[1] + usage.completion_tokens * rates[2]) / PER_MILLION


def _priced(price: PriceLike, usage: Usage) -> float:
    cached = price.input if price.cached_input is None else price.cached_input
    fresh = usage.prompt_tokens - usage.cached_tokens
    return (fresh * price.input + usage.cached_tokens * cached + usage.completion_tokens * price.output) / PER_MILLION


def _listed_price(model: str) -> tuple[float, float, float] | None:
    """(input, cached input, output) per million tokens, from the list that genai-prices ships."""
    if not model:
        return None
    for name in dict.fromkeys((model, model.rpartition("/")[2])):
        costs = [
            _listed_cost(name, *tokens)
            for tokens in ((PER_MILLION, 0, 0), (PER_MILLION, PER_MILLION, 0), (0, 0, PER_MILLION))
        ]
        if all(cost is not None for cost in costs):
            return costs[0] or 0.0, costs[1] or 0.0, costs[2] or 0.0
    return None


def _listed_cost(model: str, prompt: int, cached: int, completion: int) -> float | None:
    try:
        import genai_prices

        usage = genai_prices.Usage(input_tokens=prompt, cache_read_tokens=cached, output_tokens=completion)
        return float(genai_prices.calc_price(usage, model_ref=model).total_price)
    except LookupError:
        return None
    except Exception as error:  # a price list must never stop a request
        logger.debug("no price for a model: %s", error)
        return None
