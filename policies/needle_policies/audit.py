"""A sample of the local answers is put to the upstream as well, afterwards, to see how often the two agree.

Neither plans nor judges: what is answered, and when, is not changed by being audited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from needle_policies.lots import lot
from needle_policies.types import Decision, Evidence, Features, Planned, Situation


@dataclass(frozen=True, slots=True)
class Audit:
    """`share` of the local answers is audited, with a share of its own for a tool in `tools`.

    Drawn by turn, so that a repeated request is drawn again. `concurrency` audits run at a time, further ones are left
    out; each has `deadline_s` seconds.
    """

    share: float = 0.05
    tools: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    concurrency: int = 2
    deadline_s: int = 60
    kind: str = "audit"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """No opinion."""
        return None

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """No opinion."""
        return None

    def draws(self, features: Features, evidence: Evidence) -> bool:
        """Whether the answer that these calls make is one of the sample; the largest share among them counts."""
        shares = [self.tools.get(name, self.share) for name in evidence.calls]
        return bool(shares) and lot(self.kind, features.turn) < max(shares)
