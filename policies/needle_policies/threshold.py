"""A minimum confidence, per tool where wanted; `"never"` keeps a tool upstream."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Threshold:
    """Answers when every check passed and the score reaches the strictest minimum among the called tools."""

    minimum: float = 0.85
    tools: Mapping[str, float | Literal["never"]] = field(default_factory=lambda: MappingProxyType({}))
    kind: str = "threshold"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """FORWARD when every tool on offer is kept upstream: asking the engine would be wasted."""
        if features.tool_names and all(self.tools.get(name) == NEVER for name in features.tool_names):
            return Planned(Plan.FORWARD, "tool-never", self.kind)
        return None

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """Always an opinion."""
        action, reason = self.verdict(evidence)
        return Decision(action, reason, self.kind)

    def verdict(self, evidence: Evidence) -> tuple[Action, str]:
        """The action and its reason."""
        if evidence.failures:
            return Action.FORWARD, evidence.failures[0]
        if not evidence.calls:
            return Action.FORWARD, "no-call"
        wanted = [self.tools.get(name, self.minimum) for name in evidence.calls]
        if NEVER in wanted:
            return Action.FORWARD, "tool-never"
        # Tuned weights may ship without a confidence head; unknown is not certain.
        if evidence.confidence is None:
            return Action.FORWARD, "confidence-unknown"
        if evidence.confidence < max(float(minimum) for minimum in wanted):
            return Action.FORWARD, "below-threshold"
        return Action.ANSWER, "confident"
