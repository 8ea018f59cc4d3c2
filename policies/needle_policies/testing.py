"""Builders and a check for policies, for our tests and for those of others."""

from __future__ import annotations

import itertools

from needle_policies.base import Policy
from needle_policies.reasons import REASONS
from needle_policies.types import Action, Decision, Evidence, Features, Plan, Planned, Result, Situation, Standing


def features(*tools: str, **changes: object) -> Features:
    """Features of an ordinary request that offers `tools`."""
    values = {"has_tools": bool(tools), "tool_names": tools, "user_chars": 20, "prompt_tokens": 60, **changes}
    return Features(**values)  # type: ignore[arg-type]


def evidence(*calls: str, **changes: object) -> Evidence:
    """Evidence of an ordinary answer that calls `calls` with confidence 0.9."""
    return Evidence(**{"calls": calls, "confidence": 0.9, **changes})  # type: ignore[arg-type]


_FEATURES = (
    features(),
    features("f"),
    features("f", "g", obstacles=("media-input",)),
    features(*(f"tool_{n}" for n in range(200)), prompt_tokens=100_000),
    features("f", "g", tool_risks=("never", ""), conversation="9f86d081884c7d65"),
    features("f", fingerprint="3bdd9f3a12c5e604"),
    features(
        "f", obstacles=("tool-result-turn",), results=(Result("f", '{"a": 1}', '{"b": 2}'), Result("g", "", "ok"))
    ),
    features("f", extraction=True, stream=True, tool_choice="required", parallel=False),
)
_EVIDENCE = (
    evidence(),
    evidence("f"),
    evidence("f", "g", confidence=0.0),
    evidence("f", confidence=None),
    evidence("f", failures=("ungrounded",)),
    evidence("f", failures=("intents-uncovered",), uncovered=True),
    evidence(failures=("engine-timeout",), confidence=None),
)
_SITUATIONS = (
    *(
        Situation(engine_state=state, upstream_healthy=healthy, usd_today=spent, usd_month=spent)
        for state, healthy, spent in itertools.product(
            ("ready", "loading", "failed", "off"), (True, False), (None, 0.0, 1e9)
        )
    ),
    Situation(mode="shadow", acceptance=0.5, attempts=1),
    Situation(acceptance=0.0, attempts=10_000),
    Situation(standings={"f": Standing(level=7), "g": Standing(alarm=True)}),
    Situation(standings={"f": Standing(alarm=True)}, hypothetical=True),
)


def check_policy(policy: Policy, *, extra_reasons: frozenset[str] = frozenset()) -> None:
    """Raise AssertionError unless the policy is total, deterministic and speaks in known reason slugs.

    `extra_reasons` are slugs of a third party's own.
    """
    known = set(REASONS) | extra_reasons
    for seen, situation in itertools.product(_FEATURES, _SITUATIONS):
        planned = policy.plan(seen, situation)
        assert planned == policy.plan(seen, situation), "plan() is not deterministic"
        assert planned is None or (isinstance(planned, Planned) and isinstance(planned.plan, Plan)), planned
        assert planned is None or planned.reason in known, f"unknown reason {planned.reason!r}"
        for found in _EVIDENCE:
            decided = policy.judge(seen, situation, found)
            assert decided == policy.judge(seen, situation, found), "judge() is not deterministic"
            assert decided is None or (isinstance(decided, Decision) and isinstance(decided.action, Action)), decided
            assert decided is None or decided.reason in known, f"unknown reason {decided.reason!r}"
