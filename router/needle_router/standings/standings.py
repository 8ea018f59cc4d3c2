"""Trials by fingerprint and tool; touched by the event loop alone, written by the file's own thread."""

from __future__ import annotations

import itertools
import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from needle_policies.types import NO_STANDINGS, Standing
from needle_router.calibrate.trials import Terms, Trial, as_plain, from_plain
from needle_router.records import DecisionRecord
from needle_router.standings import resets
from needle_router.standings.statefile import StateFile, read_whole

logger = logging.getLogger("needle_router.standings")
FORMAT_VERSION = 1
#: Trials that are kept; the one whose tool was compared longest ago is forgotten first, alarms last.
LIMIT = 4096


class Group(NamedTuple):
    """What a trial is about."""

    fingerprint: str
    tool: str


class Standings:
    """The trials under `terms`, None for none, kept in the file `path`, None for memory alone."""

    def __init__(self, terms: Terms | None = None, path: Path | None = None) -> None:
        self.terms = terms
        self.promotions = 0
        self._trials: dict[Group, Trial] = {}
        self._file = StateFile(path if terms is not None else None, self._plain)
        self._successor: Standings | None = None
        self._loaded = False

    @property
    def path(self) -> Path | None:
        """Where the state is kept."""
        return self._file.path

    # ------------------------------------------------------------------ lifetime

    def start(self) -> None:
        """Read the state, with what an operator reset meanwhile, and start writing it."""
        self.load()
        self.take_resets()
        self._file.start()

    def load(self) -> None:
        """Read the state; one that cannot be read is told, and trials begin anew."""
        path, terms = self.path, self.terms
        if path is None or terms is None or self._loaded:
            return
        self._loaded = True
        try:
            self._trials.update(read_trials(path, terms))
        except (OSError, ValueError, TypeError, KeyError) as error:
            logger.warning("%s cannot be read, every canary begins anew: %s", path, error)

    def close(self) -> None:
        """Write what has changed, unless another router goes on."""
        if self._successor is None:
            self._file.close()

    def adopt(self, other: Standings) -> None:
        """Go on where `other` stands, whose router is being replaced and may still have requests running."""
        if self.terms is None or other.terms is None or self.path != other.path:
            return
        self._trials = {group: trial.under(self.terms) for group, trial in other._trials.items()}
        self.promotions, self._loaded = other.promotions, True
        # The one writer goes along: two would overwrite each other.
        self._file, other._successor = other._file, self
        self._file.source = self._plain
        self._file.changed()

    # ------------------------------------------------------------------- trials

    def of(self, fingerprint: str, tools: tuple[str, ...]) -> Mapping[str, Standing]:
        """How these tools stand."""
        if self._successor is not None:
            return self._successor.of(fingerprint, tools)
        if not self._trials:
            return NO_STANDINGS
        found = ((tool, self._trials.get(Group(fingerprint, tool))) for tool in tools)
        return {tool: Standing(trial.level, trial.alarm.raised) for tool, trial in found if trial is not None}

    def note(self, record: DecisionRecord) -> None:
        """Take a comparison into account, if it is about calls that were, or would have been, answered here."""
        if self._successor is not None:
            self._successor.note(record)
        elif self.terms is not None and record.comparison and record.answerable and record.fingerprint:
            for tool in dict.fromkeys(record.tools_called):
                self._note(Group(record.fingerprint, tool), self.terms, wrong=record.comparison != "agree")

    def _note(self, group: Group, terms: Terms, *, wrong: bool) -> None:
        before = self._trials.pop(group, None) or Trial.begun(terms)
        after = before.after(wrong=wrong)
        self._trials[group] = after
        self._forget()
        if after.alarm.raised and not before.alarm.raised:
            logger.warning(
                "alarm for %s (fingerprint %s): %d of %d compared calls differ from the upstream's, more than %g is "
                "shown; it is only watched until `needle-router canary --reset`",
                *(group.tool, group.fingerprint, after.wrong, after.compared, terms.max_error),
            )
        elif after.level > before.level:
            self.promotions += 1
            logger.info(
                "%s (fingerprint %s) takes step %d of its canary: %d of %d compared calls differ",
                *(group.tool, group.fingerprint, after.level + 1, after.wrong, after.compared),
            )
        decided = (after.level, after.alarm.raised) != (before.level, before.alarm.raised)
        self._file.changed(urgent=decided)

    def _forget(self) -> None:
        if len(self._trials) > LIMIT:
            quiet = next((group for group, trial in self._trials.items() if not trial.alarm.raised), None)
            self._trials.pop(quiet or next(iter(self._trials)))

    # ------------------------------------------------------------------- resets

    def take_resets(self) -> None:
        """Take back the alarms that an operator has asked for; their trials begin anew."""
        path, terms = self.path, self.terms
        if path is None or terms is None:
            return
        wanted = resets.asked_for(path)
        for group, trial in self._trials.items():
            if trial.alarm.raised and (group.tool in wanted or resets.ALL in wanted):
                self._trials[group] = Trial.begun(terms)
                logger.info("the alarm for %s (fingerprint %s) is reset", group.tool, group.fingerprint)
        # Forgotten only once it cannot be lost any more.
        if wanted and self._file.write():
            resets.done(path)

    # -------------------------------------------------------------------- shown

    def shown(self, most: int = 100) -> list[dict[str, Any]]:
        """How the tools stand, for eyes: at most so many, the one with the latest comparison first."""
        latest = itertools.islice(reversed(self._trials.items()), most)
        return [shown(group, trial) for group, trial in latest]

    @property
    def alarms(self) -> int:
        """Trials that ended in an alarm."""
        return sum(trial.alarm.raised for trial in self._trials.values())

    def _plain(self) -> dict[str, Any]:
        assert self.terms is not None
        # Asked by the writer's thread: a copy first, made in one step.
        trials = list(self._trials.items())
        rows = [{**group._asdict(), **as_plain(trial)} for group, trial in trials]
        return {"version": FORMAT_VERSION, "terms": self.terms.as_plain(), "trials": rows}


def shown(group: Group, trial: Trial) -> dict[str, Any]:
    """One trial for eyes: `step` counts from 1 among the steps of the canary, 0 where there are none."""
    steps = trial.terms.steps
    step = min(trial.level + 1, len(steps))
    return {
        **group._asdict(),
        "step": step,
        "steps": len(steps),
        "share": 0.0 if trial.alarm.raised else steps[step - 1] if steps else None,
        "compared": trial.compared,
        "wrong": trial.wrong,
        "alarm": trial.alarm.raised,
    }


def read_trials(path: Path, terms: Terms | None = None) -> dict[Group, Trial]:
    """The trials of a state file, under `terms` or those they were written with.

    Raises `OSError`, and `ValueError`, `TypeError` or `KeyError` where it is no state of ours.
    """
    plain = read_whole(path)
    if plain is None:
        return {}
    if not isinstance(plain, dict) or plain.get("version") != FORMAT_VERSION:
        raise ValueError(f"it is no canary's state of version {FORMAT_VERSION}")
    written = Terms.from_plain(plain["terms"])
    found = {Group(row["fingerprint"], row["tool"]): from_plain(row, written) for row in plain["trials"]}
    return {group: trial.under(terms or written) for group, trial in found.items()}
