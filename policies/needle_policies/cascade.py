"""The first policy with an opinion wins, and is named."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol

from needle_policies.audit import Audit
from needle_policies.base import Policy
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation


class LastWord(Protocol):
    """Changes what was decided, whoever decided it."""

    def last_word(self, decided: Decision, situation: Situation) -> Decision:
        """The decision that holds."""
        ...

    def spent(self, situation: Situation) -> bool:
        """Whether there is no money left for what nobody needs."""
        ...


class Cascade:
    """Asks the policies in their order. Silence before the engine lets it try; silence after it forwards.

    `last` are those that have a word after all, even after `guards` or where no policy was asked. `audits` draw local
    answers that are put to the upstream as well.
    """

    kind = "cascade"

    def __init__(self, policies: Sequence[Policy], last: Sequence[LastWord] = (), audits: Sequence[Audit] = ()) -> None:
        self.policies = tuple(policies)
        self.last = tuple(last)
        self.audits = tuple(audits)

    def every(self) -> Iterator[Policy]:
        """All of the policies, those inside others too, each before what is inside it."""
        waiting = list(self.policies)
        while waiting:
            policy = waiting.pop(0)
            yield policy
            waiting = [*getattr(policy, "inner", ()), *waiting]

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

    def last_word(self, decided: Decision, situation: Situation) -> Decision:
        """What holds of a decision that is about to be carried out."""
        for one in self.last:
            decided = one.last_word(decided, situation)
        return decided

    def audit_of(self, features: Features, situation: Situation, evidence: Evidence) -> Audit | None:
        """The first audit that draws a local answer; none once a budget is spent."""
        found = next((audit for audit in self.audits if audit.draws(features, evidence)), None)
        return None if found is None or any(one.spent(situation) for one in self.last) else found
