"""Local answers for a stable part of the conversations first, per tool where wanted; the rest only watches.

With `max_error`, what the watching shows has consequences: tools whose calls are shown to be wrong less often take the
next of the `steps`, and one whose calls are shown to be wrong more often is taken back (an alarm). The tests behind it
are the router's; what they found comes in with the situation.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from types import MappingProxyType
from typing import Literal

from needle_policies.lots import lot
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation, Standing


@dataclass(frozen=True, slots=True)
class Canary:
    """`share` of the conversations may be answered here, with a share of its own for a tool in `tools`.

    `rest` is what happens to the others: shadow (the engine runs too and is compared) or forward (it does not run).
    A conversation keeps its side, and a growing share only ever adds conversations. `steps` take the place of `share`:
    each tool begins at the first and takes the next when its error is shown to be below `max_error`, wrongly at most
    with probability `delta` for all its steps together. The alarm is false with probability `delta` at most in each
    `window` of comparisons. `max_error` 0 tests nothing.
    """

    share: float = 0.1
    tools: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    rest: Literal["shadow", "forward"] = "shadow"
    steps: tuple[float, ...] = ()
    max_error: float = 0.0
    delta: float = 0.05
    window: int = 500
    kind: str = "canary"

    @property
    def wants_fingerprint(self) -> bool:
        """Whether `Features.fingerprint` is read: what was shown of a tool holds for one fingerprint."""
        return self.max_error > 0

    def contradictions(self) -> Iterator[str]:
        """Options that do not fit together, each as a line that begins with the option."""
        if any(one >= other for one, other in pairwise(self.steps)):
            yield f"steps: {list(self.steps)} must rise"
        if self.steps and not self.max_error:
            yield "steps: need max_error, the share of wrong calls that a tool must be shown to stay below"
        if self.max_error >= 1:
            yield f"max_error: {self.max_error} must be below 1"
        if not 0 < self.delta < 1:
            yield f"delta: {self.delta} must be above 0 and below 1"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """The rest, when no tool on offer could be answered in this conversation."""
        shares = [self.share_of(name, situation) for name in features.tool_names] or [self.share_of("", situation)]
        if lot(self.kind, features.conversation) < max(shares):
            return None
        plan = Plan.SHADOW if self.rest == "shadow" else Plan.FORWARD
        alarmed = all(standing_of(name, situation).alarm for name in features.tool_names)
        return Planned(plan, reason(alarm=bool(features.tool_names) and alarmed), self.kind)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """The rest, when this conversation is outside the smallest share among the called tools."""
        shares = [self.share_of(name, situation) for name in evidence.calls]
        if situation.hypothetical or not shares or lot(self.kind, features.conversation) < min(shares):
            return None
        action = Action.SHADOW if self.rest == "shadow" else Action.FORWARD
        alarmed = any(standing_of(name, situation).alarm for name in evidence.calls)
        return Decision(action, reason(alarm=alarmed), self.kind)

    def share_of(self, name: str, situation: Situation) -> float:
        """The share of the conversations in which the tool may be answered now."""
        standing = standing_of(name, situation)
        if standing.alarm:
            return 0.0
        return self.tools.get(name, self.step(standing.level))

    def step(self, level: int) -> float:
        """The share after so many promotions."""
        return self.steps[min(level, len(self.steps) - 1)] if self.steps else self.share


def standing_of(name: str, situation: Situation) -> Standing:
    """What is known of a tool; nothing yet is a beginning."""
    return situation.standings.get(name, BEGINNING)


def reason(*, alarm: bool) -> str:
    """Why a turn is only watched."""
    return "alarm" if alarm else "canary-rest"


BEGINNING = Standing()
