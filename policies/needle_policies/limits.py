"""What a request asks for itself: a higher score, or tools that are not to be answered here. It can only tighten."""

from __future__ import annotations

from dataclasses import dataclass

from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation


@dataclass(frozen=True, slots=True)
class Limits:
    """`minimum` is a score from 0 to 1, 0 for none; `never` are names of tools. No kind of `[[policy]]`: asked last."""

    minimum: float = 0.0
    never: frozenset[str] = frozenset()
    kind: str = "request"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """FORWARD when every tool on offer is kept upstream."""
        if features.tool_names and self.never.issuperset(features.tool_names):
            return Planned(Plan.FORWARD, "tool-never", self.kind)
        return None

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """FORWARD when a called tool is kept upstream, or the score is below the minimum."""
        if not self.never.isdisjoint(evidence.calls):
            return Decision(Action.FORWARD, "tool-never", self.kind)
        if self.minimum and evidence.confidence is None:
            return Decision(Action.FORWARD, "confidence-unknown", self.kind)
        if evidence.confidence is not None and evidence.confidence < self.minimum:
            return Decision(Action.FORWARD, "below-threshold", self.kind)
        return None


NO_LIMITS = Limits()
