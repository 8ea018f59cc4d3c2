"""A minimum confidence, per tool where wanted; `"never"` keeps a tool upstream; certified scores where a file is named.

A certified score takes the place of the general minimum, for the tools and under the circumstances that it was
certified for. What the operator asks of a single tool stays: the stricter of the two holds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Literal

from needle_policies.certified import Certificates, Missing
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation

NEVER = "never"


@dataclass(frozen=True, slots=True)
class Threshold:
    """Answers when every check passed and the score reaches the strictest minimum among the called tools.

    `certificates` is the path of a file that `calibrate` wrote, `certified` what it holds. `uncertified` says what
    holds for calls that have no certificate: never an answer, or the `minimum`. `void` says what happens to a turn that
    is not answered for want of a certificate: shadow (the engine's answer is compared, so that there will be one) or
    forward.
    """

    minimum: float = 0.85
    tools: Mapping[str, float | Literal["never"]] = field(default_factory=lambda: MappingProxyType({}))
    certificates: str = ""
    uncertified: Literal["never", "minimum"] = "never"
    void: Literal["shadow", "forward"] = "shadow"
    certified: Certificates | None = None
    kind: str = "threshold"

    @property
    def wants_fingerprint(self) -> bool:
        """Whether `Features.fingerprint` is read."""
        return self.certified is not None

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """FORWARD when every tool on offer is kept upstream, SHADOW when none can have a certificate."""
        local = tuple(name for name in features.tool_names if self.tools.get(name) != NEVER)
        if features.tool_names and not local:
            return Planned(Plan.FORWARD, "tool-never", self.kind)
        if self.certified is None or not local:
            return None
        missing = self.certified.hopeless(features.fingerprint, local)
        if missing is None or self.goes_by_minimum(missing):
            return None
        return Planned(Plan.SHADOW if self.void == "shadow" else Plan.FORWARD, missing.value, self.kind)

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """Always an opinion."""
        action, reason = self.verdict(features, evidence)
        return Decision(action, reason, self.kind)

    def verdict(self, features: Features, evidence: Evidence) -> tuple[Action, str]:
        """The action and its reason."""
        if evidence.failures:
            return Action.FORWARD, evidence.failures[0]
        if not evidence.calls:
            return Action.FORWARD, "no-call"
        own = [self.tools[name] for name in evidence.calls if name in self.tools]
        if NEVER in own:
            return Action.FORWARD, "tool-never"
        general = self.general(features, evidence)
        if isinstance(general, Missing):
            return Action.SHADOW if self.void == "shadow" else Action.FORWARD, general.value
        return self.scored(evidence, general)

    def scored(self, evidence: Evidence, general: float) -> tuple[Action, str]:
        """The verdict by the score, where nothing else stands against an answer."""
        # Tuned weights may ship without a confidence head; unknown is not certain.
        if evidence.confidence is None:
            return Action.FORWARD, "confidence-unknown"
        if evidence.confidence < self.wanted(evidence.calls, general):
            return Action.FORWARD, "below-threshold"
        return Action.ANSWER, "confident"

    def general(self, features: Features, evidence: Evidence) -> float | Missing:
        """What holds where a tool has no minimum of its own: the certified score, else `minimum`, else nothing."""
        if self.certified is None:
            return self.minimum
        # Only requests whose every wish has a call were counted for a certificate.
        if evidence.uncovered:
            found: float | Missing = Missing.NONE
        else:
            found = self.certified.score(features.fingerprint, evidence.calls)
        return self.minimum if isinstance(found, Missing) and self.goes_by_minimum(found) else found

    def wanted(self, calls: tuple[str, ...], general: float) -> float:
        """The strictest minimum among the called tools."""
        # Without certificates a tool's own minimum may be the lower one: the operator knows the tool.
        own = [float(self.tools.get(name, general)) for name in calls]
        return max(own) if self.certified is None else max(general, *own)

    def goes_by_minimum(self, missing: Missing) -> bool:
        """Whether `minimum` stands in for a certificate; never for one that is void."""
        return missing is Missing.NONE and self.uncertified == "minimum"
