"""The engine's hard limits as rules; always first.

Before the engine: whatever it cannot serve goes to the upstream, each with its own reason. After it: whatever a
verifier found speaks against answering. One failure is left to others: `intents-uncovered` alone, which a `merge`
policy can mend by asking the upstream for the rest; where no such policy follows, `threshold` forwards it.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Situation

#: The failure that merging can mend.
MENDABLE = ("intents-uncovered",)


@dataclass(frozen=True, slots=True)
class Guards:
    """`max_tools` counts the tools that may be called, `max_prompt_tokens` what the engine would read."""

    max_tools: int = 20
    max_prompt_tokens: int = 1024
    kind: str = "guards"

    def plan(self, features: Features, situation: Situation) -> Planned | None:
        """FORWARD with the first rule that applies."""
        for reason, applies in RULES:
            if applies(self, features, situation):
                return Planned(Plan.FORWARD, reason, self.kind)
        if features.obstacles:
            return Planned(Plan.FORWARD, features.obstacles[0], self.kind)
        return next(
            (
                Planned(Plan.FORWARD, reason, self.kind)
                for reason, holds in LATE_RULES
                if holds(self, features, situation)
            ),
            None,
        )

    def judge(self, features: Features, situation: Situation, evidence: Evidence) -> Decision | None:
        """FORWARD with the most decisive failure, unless it is the one that merging can mend."""
        if evidence.failures and evidence.failures != MENDABLE:
            return Decision(Action.FORWARD, evidence.failures[0], self.kind)
        # A mark in the tool's own schema holds whatever other policies there are.
        if any(features.risk_of(name) == "never" for name in evidence.calls):
            return Decision(Action.FORWARD, "tool-never", self.kind)
        return None


Rule = tuple[str, Callable[[Guards, Features, Situation], bool]]

RULES: tuple[Rule, ...] = (
    ("json-object", lambda g, f, s: f.json_object and not f.has_tools),
    ("no-tools", lambda g, f, s: not f.has_tools and "legacy-functions" not in f.obstacles),
    ("tool-choice-none", lambda g, f, s: f.tool_choice == "none"),
)
#: Asked after the obstacles that parsing found.
LATE_RULES: tuple[Rule, ...] = (
    ("no-tools", lambda g, f, s: not f.tool_names),
    ("tool-never", lambda g, f, s: f.tool_risks == ("never",) * len(f.tool_names)),
    ("too-many-tools", lambda g, f, s: len(f.tool_names) > g.max_tools),
    ("prompt-too-long", lambda g, f, s: f.prompt_tokens > g.max_prompt_tokens),
    ("engine-off", lambda g, f, s: s.engine_state in ("off", "failed")),
    ("engine-loading", lambda g, f, s: s.engine_state == "loading"),
)
