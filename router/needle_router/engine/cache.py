"""Answers kept by what was asked: the engine is deterministic, so an isolated task has one answer.

Only tasks on a reset session are kept (a replayed one depends on what was fed before), and only answers without an
error. The key is the whole question, facts and date included; nothing is shared between different questions.
"""

from __future__ import annotations

import dataclasses
from collections import OrderedDict

from needle_router.engine.session import is_failed
from needle_router.task import EngineOutcome, EngineReply, Task


class DecisionCache:
    """The `entries` most recently used answers; 0 keeps none."""

    def __init__(self, entries: int) -> None:
        self._limit = entries
        self._answers: OrderedDict[Task, EngineReply] = OrderedDict()

    def get(self, task: Task) -> EngineReply | None:
        """The answer to an equal task, marked as cached; no time was spent on it."""
        reply = self._answers.get(task)
        if reply is None:
            return None
        self._answers.move_to_end(task)
        return dataclasses.replace(reply, queue_wait_s=0.0, compute_s=0.0, reinitialized=False, cached=True)

    def put(self, task: Task, outcome: EngineOutcome) -> None:
        """Keep an outcome if it is an answer that will not change."""
        if self._limit <= 0 or task.replay or not isinstance(outcome, EngineReply) or is_failed(outcome.envelope):
            return
        self._answers[task] = outcome
        self._answers.move_to_end(task)
        while len(self._answers) > self._limit:
            self._answers.popitem(last=False)
