"""What happens when the upstream has cost enough: more is answered here, or nothing goes to it any more.

`lower` judges again with a lower general minimum; minimums of single tools, side effects and every check stand as they
are. `refuse` is a last word: whatever this router would have sent to the upstream is refused instead.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from needle_policies.base import Policy
from needle_policies.threshold import Threshold
from needle_policies.types import Action, Decision, Evidence, Features, Planned, Situation


@dataclass(frozen=True, slots=True)
class Budget:
    """`daily_usd` and `monthly_usd` are caps in USD, None for none; unknown spend is below every cap.

    `minimum` is the lowered general minimum of `threshold`. `inner` are the policies after this one.
    """

    daily_usd: float | None = None
    monthly_usd: float | None = None
    then: Literal["lower", "refuse"] = "lower"
    minimum: float = 0.6
    inner: tuple[Policy, ...] = ()
    kind: str = "budget"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """No opinion: what can be answered here costs nothing."""
        return None

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """ANSWER when only the general minimum stood against it, and money is spent."""
        if self.then != "lower" or not self.spent(situation):
            return None
        usual = first(self.inner, features, situation, evidence)
        if usual is None or usual.action is not Action.FORWARD:
            return usual
        said = first(tuple(map(self.relaxed, self.inner)), features, situation, evidence)
        if said is None or said.action is not Action.ANSWER:
            return usual
        return Decision(Action.ANSWER, "budget-lowered", self.kind)

    def relaxed(self, policy: Policy) -> Policy:
        """The policy with the lowered minimum, if it is a threshold."""
        if isinstance(policy, Threshold):
            return replace(policy, minimum=min(policy.minimum, self.minimum))
        return policy

    def last_word(self, decided: Decision, situation: Situation) -> Decision:
        """REFUSE in place of whatever would cost."""
        if self.then != "refuse" or decided.action is Action.ANSWER or not self.spent(situation):
            return decided
        return Decision(Action.REFUSE, "budget-exceeded", self.kind)

    def spent(self, situation: Situation) -> bool:
        """Whether a cap is reached; only where the router acts at all."""
        caps = ((situation.usd_today, self.daily_usd), (situation.usd_month, self.monthly_usd))
        return situation.mode == "on" and any(usd is not None and cap is not None and usd >= cap for usd, cap in caps)


def first(
    policies: tuple[Policy, ...], features: Features, situation: Situation, evidence: Evidence
) -> Decision | None:
    """The first decision offered."""
    for policy in policies:
        said = policy.judge(features, situation, evidence)
        if said is not None:
            return said
    return None
