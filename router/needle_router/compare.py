"""Exact comparison of tool calls: the same names and arguments, whatever their order and spelling of numbers.

Agreement with the upstream bounds disagreement, not error; reports say so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from needle_router.turn import Call

#: What a comparison can say.
OUTCOMES = ("agree", "name-differs", "arguments-differ", "local-missed", "upstream-none", "both-none")


@dataclass(frozen=True, slots=True)
class Comparison:
    """The outcome, one of `OUTCOMES`."""

    slug: str


def normal(value: Any, *, fold: bool = True) -> Any:
    """A value in one spelling: key order gone, 30.0 is 30, texts without outer space and (with `fold`) case.

    true is not 1: booleans become a pair that no number equals.
    """
    if isinstance(value, bool):
        return ("bool", value)
    if isinstance(value, Mapping):
        return frozenset((str(key), normal(item, fold=fold)) for key, item in value.items())
    if isinstance(value, (list, tuple)):
        return ("list", *(normal(item, fold=fold) for item in value))
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str):
        return ("text", value.strip().casefold() if fold else value.strip())
    return value


def normal_call(call: Call, defaults: Mapping[str, Any] | None = None, *, fold: bool = True) -> Any:
    """A hashable form of a call, equal for equal calls; `defaults` fill arguments that were left out."""
    return call.name, normal({**(defaults or {}), **call.arguments}, fold=fold)


def same_call(one: Call, other: Call, *, fold: bool = True) -> bool:
    """Whether two calls would do the same."""
    return bool(normal_call(one, fold=fold) == normal_call(other, fold=fold))


def compare(
    local: Sequence[Call], upstream: Sequence[Call], defaults: Mapping[str, Mapping[str, Any]] | None = None
) -> Comparison:
    """Compare the calls of the engine with those of the upstream; `defaults` are default arguments by tool name."""
    filled = defaults or {}
    if not upstream:
        return Comparison("upstream-none" if local else "both-none")
    if not local:
        return Comparison("local-missed")
    # Counted rather than sorted: the normal forms have no order.
    ours = Counter(normal_call(c, filled.get(c.name)) for c in local)
    theirs = Counter(normal_call(c, filled.get(c.name)) for c in upstream)
    if sorted(c.name for c in local) != sorted(c.name for c in upstream):
        fewer = len(local) < len(upstream) and {c.name for c in local} <= {c.name for c in upstream}
        return Comparison("local-missed" if fewer else "name-differs")
    return Comparison("agree" if ours == theirs else "arguments-differ")
