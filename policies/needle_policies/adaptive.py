"""Spares the engine tool sets whose answers are hardly ever good enough; a few conversations still probe."""

from __future__ import annotations

from dataclasses import dataclass

from needle_policies.lots import lot
from needle_policies.types import Decision, Evidence, Features, Plan, Planned, Situation


@dataclass(frozen=True, slots=True)
class Adaptive:
    """Gates a tool set once `attempts` answers were judged and less than `acceptance` of the last ones were used.

    `probes` is the share of conversations that is asked nevertheless, so that the gate can open again.
    """

    acceptance: float = 0.05
    attempts: int = 50
    probes: float = 0.05
    kind: str = "adaptive"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """FORWARD when the gate is shut and this conversation is no probe."""
        if situation.acceptance is None or situation.attempts < self.attempts:
            return None
        if situation.acceptance >= self.acceptance or lot(self.kind, features.conversation) < self.probes:
            return None
        return Planned(Plan.FORWARD, "gate-shut", self.kind)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """No opinion."""
        return None
