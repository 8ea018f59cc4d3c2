"""The first policy with an opinion wins, and is named."""

from __future__ import annotations

from collections.abc import Sequence

from needle_policies.base import Policy
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation


class Cascade:
    """Asks the policies in their order. Silence before the engine lets it try; silence after it forwards."""

    kind = "cascade"

    def __init__(self, policies: Sequence[Policy]) -> None:
        self.policies = tuple(policies)

    def plan(self, features: Features, situation: Situation) -> Planned:
        """The first plan offered, else TRY_LOCAL."""
        for policy in self.policies:
            said = policy.plan(features, situation)
            if said is not None:
                return said
        return Planned(Plan.TRY_LOCAL, "no-policy", self.kind)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision:
        """The first decision offered, else FORWARD."""
        for policy in self.policies:
            said = policy.judge(features, situation, evidence)
            if said is not None:
                return said
        return Decision(Action.FORWARD, "no-policy", self.kind)
