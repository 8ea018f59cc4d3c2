"""Which worker gets a task: the one where it will be done soonest.

A worker holds one session. Where a task's system text and tools are loaded already, it costs only its own steps;
elsewhere they must be loaded first. So the choice weighs the queue against the loading:

    cost = time until the worker is free + steps to feed there + (0 if resident else loading)

Between equals, a worker that holds nothing is taken before one whose tools would be lost. Ties that are left are broken
by rendezvous hashing (highest random weight): the same tools prefer the same worker, and a worker that comes or goes
moves only its own share.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, field

#: The weight of the newest measurement.
ALPHA = 0.2


@dataclass(frozen=True, slots=True)
class Load:
    """One worker as the choice sees it.

    `waiting_steps` are the steps of its queue, `running_s` the seconds that its present task has run (None: idle),
    `resident` the key that it will hold when its queue is done, `feed_steps` the steps that this task would take there.
    """

    index: int
    waiting_steps: int = 0
    running_s: float | None = None
    resident: str | None = None
    feed_steps: int = 1


def cost_s(load: Load, key: str, *, step_s: float, init_s: float) -> float:
    """Seconds until a task with `key` would be done on this worker."""
    # What has run longer than usual is expected to run as long again: a stuck worker attracts no queue.
    running_s = 0.0 if load.running_s is None else max(step_s, load.running_s)
    loading_s = 0.0 if load.resident == key else init_s
    return running_s + (load.waiting_steps + load.feed_steps) * step_s + loading_s


def choose(loads: Sequence[Load], key: str, *, step_s: float, init_s: float) -> int:
    """The index of the cheapest worker; `loads` must not be empty."""

    def rank(load: Load) -> tuple[float, bool, int]:
        cost = cost_s(load, key, step_s=step_s, init_s=init_s)
        return cost, load.resident is not None, -weight(key, load.index)

    return min(loads, key=rank).index


def weight(key: str, index: int) -> int:
    """The rendezvous weight of a worker for a key."""
    return int.from_bytes(hashlib.blake2b(f"{key}/{index}".encode(), digest_size=8).digest(), "big")


def key_of(system: str, tools: str) -> str:
    """What a session must have loaded to serve a task."""
    digest = hashlib.blake2b(system.encode(), digest_size=16)
    digest.update(b"\0")
    digest.update(tools.encode())
    return digest.hexdigest()


@dataclass(slots=True)
class Costs:
    """Moving averages of what a step and a loading take, in seconds; the first measurement counts whole."""

    step_s: float = 0.2
    init_s: float = 0.15
    _seen: set[str] = field(default_factory=set)

    def learn(self, *, step_s: float, steps: int, init_s: float | None) -> None:
        """Take in one answered task; `init_s` is None when nothing was loaded."""
        if steps > 0:
            self.step_s = self._mix("step", self.step_s, step_s / steps)
        if init_s is not None:
            self.init_s = self._mix("init", self.init_s, init_s)

    def _mix(self, name: str, old: float, new: float) -> float:
        if name not in self._seen:
            self._seen.add(name)
            return new
        return old + ALPHA * (new - old)
