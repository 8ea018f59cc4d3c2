"""The upstream is asked at once, beside the engine, and whoever is ready first answers.

Saves the upstream's time where the engine is unsure, and costs money where it is not: what the upstream was asked for
in vain is wasted. It never answers by itself: the policies after it judge the engine's calls as ever.
"""

from __future__ import annotations

from dataclasses import dataclass

from needle_policies.base import Policy
from needle_policies.lots import lot
from needle_policies.types import Decision, Evidence, Features, Plan, Planned, Situation


@dataclass(frozen=True, slots=True)
class Race:
    """`share` of the conversations is raced. `inner` are the policies after this one, whose plans come first."""

    share: float = 1.0
    inner: tuple[Policy, ...] = ()
    kind: str = "race"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """RACE where no later policy has a plan of its own: what is forwarded anyway has nobody to race."""
        if lot(self.kind, features.conversation) >= self.share:
            return None
        said = next((said for policy in self.inner if (said := policy.plan(features, situation)) is not None), None)
        return said or Planned(Plan.RACE, "race-lost", self.kind)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """No opinion."""
        return None
