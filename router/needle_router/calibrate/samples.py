"""Labelled decisions: what the engine scored, whether the verifiers passed it, and whether it was right."""

from __future__ import annotations

import json
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from needle_router.records import DecisionRecord

#: Stands for all tools together, so no tool can have it as its name.
ALL_TOOLS = "*"
MAX_PROBLEMS = 10


class BadSamples(ValueError):
    """Lines that are no labelled decisions; `problems` names each with its line number, at most `MAX_PROBLEMS`."""

    def __init__(self, problems: Sequence[str]) -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)


@dataclass(frozen=True, slots=True)
class Labelled:
    """One decided request. `tool` is "" where no call was made; several tools of one request are joined with "+".

    `risks` are the classes that the schemas of the called tools declare (read, write, never), where they do.
    """

    tool: str
    confidence: float
    verified: bool
    correct: bool
    fingerprint: str = ""
    risks: tuple[str, ...] = ()


class Sample:
    """Labelled decisions, ready to be cut at any score. `total` counts all of them, `n` those that passed."""

    def __init__(self, decisions: Iterable[Labelled]) -> None:
        kept = tuple(decisions)
        passed = sorted((row for row in kept if row.verified), key=lambda row: -row.confidence)
        self.total, self.n = len(kept), len(passed)
        self.scores = tuple(row.confidence for row in passed)
        self._negated = [-score for score in self.scores]
        self._errors = (0, *accumulate(int(not row.correct) for row in passed))

    def count(self, threshold: float) -> int:
        """How many passed with a score of at least `threshold`; looks at no label."""
        return bisect_right(self._negated, -threshold)

    def cut(self, threshold: float) -> tuple[int, int]:
        """How many would be answered at `threshold`, and how many of those were wrong."""
        n = self.count(threshold)
        return n, self._errors[n]


def read_lines(lines: Iterable[bytes]) -> list[Labelled]:
    """Decisions from JSON lines; empty lines are passed over. Raises `BadSamples`."""
    found: list[Labelled] = []
    problems: list[str] = []
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        row = _parsed(line)
        if isinstance(row, Labelled):
            found.append(row)
        else:
            problems.append(f"line {number}: {row}")
            if len(problems) == MAX_PROBLEMS:
                break
    if problems:
        raise BadSamples(problems)
    return found


def _parsed(line: bytes) -> Labelled | str:
    """The decision, or what is wrong with it."""
    try:
        row = json.loads(line)
    # RecursionError: brackets nested by the thousand.
    except (ValueError, RecursionError) as error:
        return f"no JSON ({error})"
    if not isinstance(row, dict):
        return 'expected an object with "tool", "confidence", "verified" and "correct"'
    fault = next(_faults(row), None)
    if fault is not None:
        return fault
    score = row["confidence"]
    # Without a score no threshold can let it pass.
    verified = row["verified"] and score is not None
    return Labelled(row["tool"], float(score or 0.0), verified, row["correct"], row.get("fingerprint", ""))


def _faults(row: Mapping[str, Any]) -> Iterator[str]:
    yield from (f'"{key}" is missing' for key in ("tool", "confidence", "verified", "correct") if key not in row)
    tool, score = row["tool"], row["confidence"]
    # A request without a call has no tool; it counts in the coverage alone.
    if not isinstance(tool, str) or tool == ALL_TOOLS or (tool == "" and row["verified"] is not False):
        yield f'"tool" must be the name of a tool, not {_shown(tool)}'
    number = isinstance(score, (int, float)) and not isinstance(score, bool)
    if score is not None and not (number and 0 <= score <= 1):
        yield f'"confidence" must be a number from 0 to 1 or null, not {_shown(score)}'
    for key in ("verified", "correct"):
        if not isinstance(row[key], bool):
            yield f'"{key}" must be true or false, not {_shown(row[key])}'
    if not isinstance(row.get("fingerprint", ""), str):
        yield f'"fingerprint" must be text, not {_shown(row["fingerprint"])}'


def _shown(value: Any) -> str:
    text = json.dumps(value)
    return text if len(text) <= 40 else text[:37] + "..."


def from_records(records: Iterable[DecisionRecord], *, audits: bool = False) -> Iterator[Labelled]:
    """Decisions that were compared with the upstream's own calls: those that were only watched, or the audited answers.

    Never both: answers are those above a threshold, so that together the high scores would weigh too much, and a lower
    threshold would look better than it is.
    """
    return (labelled(record) for record in records if record.comparison and (record.route == "local") == audits)


def labelled(record: DecisionRecord) -> Labelled:
    """A compared decision: agreement with the upstream counts as correct, all else as wrong."""
    passed = bool(record.tools_called) and not record.failures and not record.uncovered
    return Labelled(
        tool="+".join(sorted(set(record.tools_called))),
        confidence=record.confidence or 0.0,
        verified=passed and record.confidence is not None,
        correct=record.comparison == "agree",
        fingerprint=record.fingerprint,
        risks=tuple(record.risks),
    )
