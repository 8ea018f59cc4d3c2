"""The one interface of a policy."""

from __future__ import annotations

from typing import Protocol, runtime_checkable

from needle_policies.types import Decision, Evidence, Features, Planned, Situation


@runtime_checkable
class Policy(Protocol):
    """Decides, never acts: total, deterministic, no I/O, no clock, no randomness.

    `kind` is the short name used in `[[policy]]`. A policy that only has a view before or after the engine returns
    None from the other method.
    """

    @property
    def kind(self) -> str:
        """The short name."""
        ...

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """What to do before the engine has run; None = no opinion."""
        ...

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """What to do with the engine's answer; None = no opinion."""
        ...
