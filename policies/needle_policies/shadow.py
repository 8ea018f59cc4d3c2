"""Some conversations or tools in shadow while the rest is served: the upstream answers, the engine is compared."""

from __future__ import annotations

from dataclasses import dataclass

from needle_policies.lots import lot
from needle_policies.patterns import matches
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation


@dataclass(frozen=True, slots=True)
class Shadow:
    """`share` of the conversations is in shadow; with `tools` (patterns), of those turns only that call one of them.

    A turn that offers other tools too has its engine run first, because only the call tells which tool is meant.
    """

    share: float = 1.0
    tools: tuple[str, ...] = ()
    kind: str = "shadow"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """SHADOW when every tool on offer is in shadow, so that nobody waits for the engine."""
        if self.drawn(features) and all(self.covers(name) for name in features.tool_names):
            return Planned(Plan.SHADOW, "shadow-policy", self.kind)
        return None

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """SHADOW when a tool in shadow was called."""
        if situation.hypothetical:
            return None
        if self.drawn(features) and any(self.covers(name) for name in evidence.calls):
            return Decision(Action.SHADOW, "shadow-policy", self.kind)
        return None

    def drawn(self, features: Features) -> bool:
        """Whether this conversation is one of the share."""
        return lot(self.kind, features.conversation) < self.share

    def covers(self, name: str) -> bool:
        """Whether the policy is about this tool."""
        return not self.tools or matches(name, self.tools)
