"""The decisions of needle-router: pure, standard library only."""

from needle_policies.base import Policy
from needle_policies.reasons import REASONS
from needle_policies.types import (
    NEEDS_ENGINE,
    Action,
    Decision,
    Evidence,
    Features,
    Plan,
    Planned,
    Result,
    Situation,
    Standing,
)

__all__ = [
    "NEEDS_ENGINE",
    "REASONS",
    "Action",
    "Decision",
    "Evidence",
    "Features",
    "Plan",
    "Planned",
    "Policy",
    "Result",
    "Situation",
    "Standing",
]
