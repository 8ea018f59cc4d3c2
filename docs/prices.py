"""Writes router/needle_router/prices.json: what genai-prices knows, without its code, its imports and their 14 MB.

    python -m docs.prices            write it anew
    python -m docs.prices --check    exit 1 if it is stale

Only providers are kept that are found by a model's name alone; a client's request tells no more.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from datetime import UTC, time
from decimal import Decimal
from importlib.metadata import version
from pathlib import Path
from typing import Any

import genai_prices.types as listed
import orjson
from genai_prices.data import providers

FILE = Path(__file__).resolve().parent.parent / "router" / "needle_router" / "prices.json"
#: The class of a clause -> its mark in the file and its field.
CLAUSES = {
    listed.ClauseEquals: ("equals", "equals"),
    listed.ClauseStartsWith: ("starts", "starts_with"),
    listed.ClauseEndsWith: ("ends", "ends_with"),
    listed.ClauseContains: ("contains", "contains"),
    listed.ClauseRegex: ("regex", "regex"),
    listed.ClauseOr: ("any", "or_"),
    listed.ClauseAnd: ("all", "and_"),
}
RATES = ("input_mtok", "cache_read_mtok", "output_mtok")


def clause(match: Any) -> list[Any]:
    """How a name is recognised: a mark and what it compares with, which is a list of clauses for any and all."""
    mark, field = CLAUSES[type(match)]
    value = getattr(match, field)
    if mark in ("any", "all"):
        return [mark, [clause(part) for part in value]]
    return [mark, value if mark == "regex" else value.lower()]


def rate(price: Any) -> Any:
    """USD per million tokens: absent, one figure, or a base with steps by prompt length."""
    if price is None or isinstance(price, (int, Decimal)):
        return None if price is None else float(price)
    return [float(price.base), [[step.start, float(step.price)] for step in price.tiers]]


def when(constraint: Any) -> list[str] | None:
    """None for always, one text for the UTC day from which a price holds, two for the times of day between which."""
    if constraint is None:
        return None
    if isinstance(constraint, listed.StartDateConstraint):
        return [constraint.start_date.isoformat()]
    return [_utc(constraint.start_time), _utc(constraint.end_time)]


def _utc(moment: time) -> str:
    if moment.tzinfo not in (None, UTC):
        raise ValueError(f"{moment.isoformat()} is no time of UTC, which is all that the file can say")
    return moment.replace(tzinfo=None).isoformat()


def periods(prices: Any) -> list[Any]:
    """When which rates hold; later ones come before earlier ones where both do."""
    if not isinstance(prices, list):
        return [[None, *(rate(getattr(prices, name, None)) for name in RATES)]]
    return [[when(part.constraint), *periods(part.prices)[0][1:]] for part in prices]


def models(provider: Any) -> Iterator[list[Any]]:
    """A provider's models and then those of the providers that it resells."""
    by_id = {other.id: other for other in providers}
    for source in (provider, *(by_id[name] for name in provider.fallback_model_providers or () if name in by_id)):
        for model in source.models:
            yield [clause(model.match), periods(model.prices)]


def price_list() -> bytes:
    """The file."""
    found = [[clause(p.model_match), list(models(p))] for p in providers if p.model_match is not None]
    lines = b",\n".join(orjson.dumps(provider) for provider in found)
    return b'{"source":"genai-prices %b","providers":[\n%b\n]}\n' % (version("genai-prices").encode(), lines)


def main(arguments: list[str]) -> int:
    """Write or check; returns the exit code."""
    wanted = price_list()
    if "--check" in arguments:
        stale = not FILE.exists() or FILE.read_bytes() != wanted
        sys.stdout.write("the price list is stale: run make prices\n" * stale)
        return int(stale)
    FILE.write_bytes(wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
