"""When to ask the upstream for words and missing calls beside calls that were made here.

A merged call is executed like an answered one, so it must pass everything that a later policy (a threshold) asks of
it: this policy turns that policy's ANSWER into a MERGE instead of speaking past it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Literal

from needle_policies.base import Policy
from needle_policies.guards import MENDABLE
from needle_policies.types import Action, Decision, Evidence, Features, Planned, Situation


@dataclass(frozen=True, slots=True)
class Merge:
    """`when` is mixed (a clause has no call), always, or never; `inner` are the policies that judge the calls.

    With `streaming` false a streamed request is never merged (some clients take words beside a call as the final
    answer); it is forwarded instead when a clause has no call.
    """

    when: Literal["never", "mixed", "always"] = "mixed"
    streaming: bool = True
    inner: tuple[Policy, ...] = ()
    kind: str = "merge"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """The first opinion of the inner policies."""
        return next((said for policy in self.inner if (said := policy.plan(features, situation)) is not None), None)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """MERGE where the inner policies would answer and the rest of the request is worth asking for."""
        wanted = self.wanted(features, evidence)
        # An uncovered clause is what merging mends, so the calls are judged without it.
        judged = replace(evidence, failures=()) if wanted and evidence.failures == MENDABLE else evidence
        for policy in self.inner:
            said = policy.judge(features, situation, judged)
            if said is not None:
                return (
                    Decision(Action.MERGE, "merged", said.policy) if wanted and said.action is Action.ANSWER else said
                )
        return None

    def wanted(self, features: Features, evidence: Evidence) -> bool:
        """Whether this answer should be merged, if its calls are good."""
        if features.extraction or not features.parallel or (features.stream and not self.streaming):
            return False
        return self.when == "always" or (self.when == "mixed" and evidence.uncovered)
