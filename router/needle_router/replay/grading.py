"""What a right answer is: these calls, any call, or whatever a data set's own checker accepts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Protocol

from needle_router.compare import compare
from needle_router.turn import Call


class Wanted(Protocol):
    """The right answer of a case."""

    @property
    def silent(self) -> bool:
        """Whether the right answer is to call nothing."""
        ...

    def met(self, calls: Sequence[Call]) -> bool:
        """Whether `calls` are the right answer."""
        ...


@dataclass(frozen=True, slots=True)
class TheseCalls:
    """Exactly these calls, in any order, compared as in shadow mode; `defaults` are default arguments by tool name."""

    calls: tuple[Call, ...]
    defaults: Mapping[str, Mapping[str, Any]] = field(default_factory=lambda: MappingProxyType({}))

    @property
    def silent(self) -> bool:
        """Whether none is wanted."""
        return not self.calls

    def met(self, calls: Sequence[Call]) -> bool:
        """The same names and arguments; numbers, case and outer space in one spelling."""
        return compare(calls, self.calls, self.defaults).slug in ("agree", "both-none")


@dataclass(frozen=True, slots=True)
class AnyCall:
    """A call of whatever tool: all that the data set says."""

    silent: bool = False

    def met(self, calls: Sequence[Call]) -> bool:
        """At least one call."""
        return bool(calls)


@dataclass(frozen=True, slots=True)
class Checked:
    """Whatever `check` accepts."""

    check: Callable[[Sequence[Call]], bool]
    silent: bool = False

    def met(self, calls: Sequence[Call]) -> bool:
        """The checker's own word; no call is never right here."""
        return bool(calls) and self.check(calls)
