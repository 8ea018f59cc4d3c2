"""Sets of tools that differ, and what the benchmarks of the engine tier share."""

import asyncio
import json

from needle_router.engine.base import EngineState
from needle_router.task import Task

FACTS = "date: 2026-11-30 Mon"
ROOMS = ("kitchen", "bedroom", "bathroom", "hallway", "garage")


def tools_of(number):
    """One tool set of several: the same tool with a description that differs."""
    parameters = {
        "type": "object",
        "properties": {"room": {"type": "string"}, "on": {"type": "boolean"}},
        "required": ["room", "on"],
    }
    tool = {"name": "set_lights", "description": f"Switch the lights of house {number}", "parameters": parameters}
    return json.dumps([tool], separators=(",", ":"))


async def ready(pool):
    """Start a pool; returns when every worker has loaded and answered."""
    await pool.start()
    while len(pool.health().pids) < pool.health().workers or pool.health().state is not EngineState.READY:
        if pool.health().state is EngineState.FAILED:
            raise SystemExit(f"the engine failed: {pool.health().detail}")
        await asyncio.sleep(0.02)
    # Every worker has loaded once it has answered: one request for each, at once.
    warm = (pool.complete(Task(FACTS, tools_of(n), ("turn on the kitchen lights",)), deadline_s=60) for n in range(4))
    await asyncio.gather(*warm)


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]
