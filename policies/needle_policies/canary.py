"""Local answers for a stable part of the conversations first, per tool where wanted; the rest only watches."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from needle_policies.lots import lot
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation


@dataclass(frozen=True, slots=True)
class Canary:
    """`share` of the conversations may be answered here, with a share of its own for a tool in `tools`.

    `rest` is what happens to the others: shadow (the engine runs too and is compared) or forward (it does not run).
    A conversation keeps its side, and a growing share only ever adds conversations.
    """

    share: float = 0.1
    tools: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    rest: Literal["shadow", "forward"] = "shadow"
    kind: str = "canary"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """The rest, when no tool on offer could be answered in this conversation."""
        shares = [self.tools.get(name, self.share) for name in features.tool_names] or [self.share]
        if lot(self.kind, features.conversation) < max(shares):
            return None
        return Planned(Plan.SHADOW if self.rest == "shadow" else Plan.FORWARD, "canary-rest", self.kind)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """The rest, when this conversation is outside the smallest share among the called tools."""
        shares = [self.tools.get(name, self.share) for name in evidence.calls]
        if not shares or lot(self.kind, features.conversation) < min(shares):
            return None
        return Decision(Action.SHADOW if self.rest == "shadow" else Action.FORWARD, "canary-rest", self.kind)
