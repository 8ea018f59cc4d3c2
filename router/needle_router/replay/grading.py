"""What a right answer is: these calls, any call, or whatever a data set's own checker accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Protocol

from needle_router.compare import compare
from needle_router.turn import Call

#: Tool name -> the arguments that its schema declares as defaults.
Defaults = Mapping[str, Mapping[str, Any]]
NO_DEFAULTS: Defaults = MappingProxyType({})


class Wanted(Protocol):
    """The right answer of a case."""

    @property
    def silent(self) -> bool:
        """Whether the right answer is to call nothing."""
        ...

    def met(self, calls: Sequence[Call], defaults: Defaults = NO_DEFAULTS) -> bool:
        """Whether `calls` are the right answer; an argument that was left out means its default."""
        ...


@dataclass(frozen=True, slots=True)
class TheseCalls:
    """Exactly these calls, in any order, compared as in shadow mode."""

    calls: tuple[Call, ...]

    @property
    def silent(self) -> bool:
        """Whether none is wanted."""
        return not self.calls

    def met(self, calls: Sequence[Call], defaults: Defaults = NO_DEFAULTS) -> bool:
        """The same names and arguments; numbers, case and outer space in one spelling."""
        return compare(calls, self.calls, defaults).slug in ("agree", "both-none")


@dataclass(frozen=True, slots=True)
class AnyCall:
    """A call of whatever tool: all that the data set says."""

    silent: bool = False

    def met(self, calls: Sequence[Call], defaults: Defaults = NO_DEFAULTS) -> bool:
        """At least one call."""
        return bool(calls)


@dataclass(frozen=True, slots=True)
class Checked:
    """Whatever `check` accepts."""

    check: Callable[[Sequence[Call]], bool]
    silent: bool = False

    def met(self, calls: Sequence[Call], defaults: Defaults = NO_DEFAULTS) -> bool:
        """The checker's own word; no call is never right here."""
        return bool(calls) and self.check(calls)
