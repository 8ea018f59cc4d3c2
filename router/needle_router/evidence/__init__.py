"""The engine's answer, weighed: repaired without loss, checked by every verifier, and put before the policies."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from needle_policies import Evidence
from needle_router.evidence.verifiers import VERIFIERS, Case, Verifier
from needle_router.task import Envelope
from needle_router.translate import Catalogue
from needle_router.turn import Call, Turn

__all__ = ["VERIFIERS", "Case", "Findings", "Verifier", "left_out", "weigh"]


@dataclass(frozen=True, slots=True)
class Findings:
    """The evidence for the policies and the calls as they would be answered."""

    evidence: Evidence
    calls: tuple[Call, ...]


def weigh(
    turn: Turn,
    envelope: Envelope,
    catalogue: Catalogue,
    *,
    facts: str,
    verifiers: Sequence[Verifier] = VERIFIERS,
) -> Findings:
    """Repair the calls and ask every verifier; all that fail are reported, in their order, each slug once."""
    calls = tuple(
        Call(
            raw.name, catalogue.tools[raw.name].repair(raw.arguments) if raw.name in catalogue.tools else raw.arguments
        )
        for raw in envelope.calls
    )
    case = Case(turn, envelope, catalogue, calls, facts)
    failures = tuple(dict.fromkeys(verifier.slug for verifier in verifiers if verifier.fails(case)))
    evidence = Evidence(
        calls=tuple(call.name for call in calls),
        failures=failures,
        confidence=envelope.confidence,
        uncovered="intents-uncovered" in failures,
    )
    return Findings(evidence, calls)


def left_out(evidence: Evidence, slugs: frozenset[str]) -> Evidence:
    """The evidence as it would be if the verifiers of these slugs had not been asked."""
    if slugs.isdisjoint(evidence.failures):
        return evidence
    failures = tuple(slug for slug in evidence.failures if slug not in slugs)
    return replace(evidence, failures=failures, uncovered="intents-uncovered" in failures)
