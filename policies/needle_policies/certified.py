"""Certified scores, by the circumstances that they were certified in.

A certificate speaks of one fingerprint (schemas, prompt, engine, session mode) and of one group of requests: those that
call one tool, those that call a certain set of tools together (`a+b`), or all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Missing(StrEnum):
    """Why there is no certified score; the values are reason slugs."""

    #: The calls are certified under other circumstances than these.
    VOID = "certificate-void"
    #: They are certified nowhere, or were refused a certificate under these circumstances.
    NONE = "uncertified"


@dataclass(frozen=True, slots=True)
class Scores:
    """What is certified under one fingerprint: scores by group, and one for `every` request where groups were not
    judged apart."""

    groups: Mapping[str, float]
    every: float | None = None

    def of(self, group: str) -> float | None:
        """The certified score of a group, None when there is none."""
        return self.groups.get(group, self.every)

    def within(self, offered: frozenset[str]) -> bool:
        """Whether any call of the offered tools could be answered."""
        return self.every is not None or any(offered.issuperset(group.split("+")) for group in self.groups)


@dataclass(frozen=True, slots=True)
class Certificates:
    """All of them, by fingerprint."""

    sets: Mapping[str, Scores]

    def score(self, fingerprint: str, calls: tuple[str, ...]) -> float | Missing:
        """The certified score for a request that makes `calls`, or why there is none."""
        group = group_of(calls)
        here = self.sets.get(fingerprint)
        if here is not None:
            found = here.of(group)
            return Missing.NONE if found is None else found
        elsewhere = any(scores.of(group) is not None for scores in self.sets.values())
        return Missing.VOID if elsewhere else Missing.NONE

    def hopeless(self, fingerprint: str, tools: tuple[str, ...]) -> Missing | None:
        """Why no call of the offered tools can have a certified score, None when one can."""
        offered, here = frozenset(tools), self.sets.get(fingerprint)
        if here is not None:
            return None if here.within(offered) else Missing.NONE
        elsewhere = any(scores.within(offered) for scores in self.sets.values())
        return Missing.VOID if elsewhere else Missing.NONE


def group_of(calls: tuple[str, ...]) -> str:
    """The group that a request belongs to, by the tools that it calls."""
    return "+".join(sorted(set(calls)))
