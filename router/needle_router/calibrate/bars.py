"""What is asked of each tool's calls where it depends on what they can break: the classes of `side-effects`."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from needle_policies.sideeffects import CLASSES, SideEffects
from needle_router.calibrate.certify import Bar
from needle_router.calibrate.samples import Labelled


def bars_by_risk(policy: SideEffects, decisions: Sequence[Labelled]) -> tuple[dict[str, Bar], tuple[str, ...]]:
    """The bar of each tool (or set of tools that are called together), and those that `policy` keeps upstream.

    The strictest class counts: of the tools in a set, and of what the schemas declared in any of the decisions.
    """
    marks: defaultdict[str, set[str]] = defaultdict(set)
    for row in decisions:
        if row.tool:
            marks[row.tool].update(row.risks)
    classes = {tool: _strictest(policy, tool, declared) for tool, declared in marks.items()}
    bars = {tool: Bar(alpha, risk) for tool, risk in classes.items() if (alpha := policy.error_of(risk)) is not None}
    return bars, tuple(sorted(classes.keys() - bars.keys()))


def _strictest(policy: SideEffects, tool: str, declared: set[str]) -> str:
    named = [policy.risk_of(name, mark) for name in tool.split("+") for mark in declared or {""}]
    return max(named, key=CLASSES.index)
